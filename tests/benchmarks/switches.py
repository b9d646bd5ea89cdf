"""How often the threads of a web process sleep and wake for a spend: `python -m tests.benchmarks.switches 1 16` (clients).

One web process, served as `make run` serves it. CPU and context switches of each thread, for one request; voluntary switches
are those in which a thread waits for something, such as another thread, the interpreter's lock, or the server.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import beside
from tests.benchmarks.clients import Load, send_load
from tests.benchmarks.measuring import children

SECONDS = 3.0
Seen = dict[int, tuple[str, float, int, int]]


def main() -> None:
    """Print a line for each thread that waits in more than one of 50 requests."""
    os.environ["LEDGER_WEB_WORKERS"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="ledger-switches-"))
    folder.chmod(0o755)
    side = beside.Side(beside.ROOT, folder)
    try:
        side.wait_until_ready()
        side.furnish()
        for clients in map(int, sys.argv[1:] or ["1", "16"]):
            load = beside.LOADS["spend, 16 clients"] | {"clients": clients}
            send_load(Load(port=side.port, key=beside.KEY, seconds=0.5, **load))
            before = _threads(side.process.pid)
            outcome = send_load(Load(port=side.port, key=beside.KEY, seconds=SECONDS, **load))
            _show(f"{clients} clients, {outcome.per_second:.0f}/s", before, _threads(side.process.pid), outcome.answered)
    finally:
        side.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _threads(pid: int) -> Seen:
    """Return name, µs of CPU, voluntary and other switches of each thread of the web process."""
    found: Seen = {}
    web = [each for each in children(pid) if b"serving.web" in Path(f"/proc/{each}/cmdline").read_bytes()]
    for task in (task for each in web for task in Path(f"/proc/{each}/task").iterdir()):
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        switches = int(lines["voluntary_ctxt_switches"]), int(lines["nonvoluntary_ctxt_switches"])
        found[int(task.name)] = (lines["Name"], int((task / "schedstat").read_text().split()[0]) / 1e3, *switches)
    return found


def _show(title: str, before: Seen, after: Seen, requests: int) -> None:
    sys.stdout.write(f"{title}, for one request\n")
    for number, (name, *values) in sorted(after.items()):
        us, waits, others = (value - was for value, was in zip(values, before.get(number, (name, 0.0, 0, 0))[1:], strict=True))
        if waits > requests / 50:
            numbers = f"{us / requests:6.0f} µs, {waits / requests:5.2f} voluntary, {others / requests:5.2f} other switches"
            sys.stdout.write(f"  {name:16} {numbers}\n")


if __name__ == "__main__":
    main()
