"""What a served spend takes, by thread and by what the threads execute: `python -m tests.benchmarks.served [CLIENTS]`.

The ledger is served as `make run` serves it: two processes for calls, one for pages, the recurring tasks, the log; and again
without the tasks. The figures are for one spend: CPU, in user mode and in the system, and how often a thread slept for something,
such as another thread, the interpreter's lock or a server (voluntary), or was sent away from its processor (other).

Where `perf` is installed, a second table shows in which library the threads were: by samples while they ran.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks import beside
from tests.benchmarks.clients import Load, Outcome, send_load
from tests.benchmarks.measuring import children

SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
MOST_SECONDS_TO_SETTLE, QUIET_US = 90, 150_000
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
LOOP, NETWORK, EVENTS, COMMITTER = "event loop", "granian: network", "granian: events to Python", "committer"
QUEUES, SERVER, TASKS, REST = "other threads of calls", "PostgreSQL: all sessions", "recurring tasks", "pages, parents"
KINDS = (LOOP, NETWORK, EVENTS, COMMITTER, QUEUES, SERVER, TASKS, REST)
LIBRARIES = {
    "libpython": "interpreter", "kernel": "system", "_granian": "granian", "loop.c": "uvloop", "_asyncio": "asyncio",
    "libpq": "libpq", "psycopg": "libpq", "pq.c": "libpq", "orjson": "orjson", "libcrypto": "digests", "libc.so": "libc",
}  # fmt: skip
SAMPLE = re.compile(r"^\s*(?P<thread>\d+)\s+[0-9a-f]+\s+.*\((?P<library>[^()]*)\)$")


class Used(NamedTuple):
    """What a thread has used since it began."""

    us: float
    user_us: float
    system_us: float
    voluntary: float
    other: float

    def plus(self, other: "Used", sign: int = 1) -> "Used":
        """Both together, or the difference."""
        return Used(*(mine + sign * its for mine, its in zip(self, other, strict=True)))


NOTHING = Used(0.0, 0.0, 0.0, 0.0, 0.0)


def main() -> None:
    """Print the tables."""
    clients = int(sys.argv[1]) if sys.argv[1:] else 16
    for has_tasks in (True, False):
        folder = Path(tempfile.mkdtemp(prefix="ledger-served-"))
        folder.chmod(0o755)
        side = beside.Side(beside.ROOT, folder, has_tasks=has_tasks, has_log=True)
        try:
            side.wait_until_ready()
            side.furnish()
            _settle(side)
            _load(side, clients, 1.0)
            title = f"{clients} clients, {'with' if has_tasks else 'without'} the recurring tasks"
            _show_threads(title, [_round(side, clients) for _ in range(ROUNDS)])
            if not has_tasks and shutil.which("perf"):
                _show_libraries(side, clients)
        finally:
            side.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _settle(side: beside.Side) -> None:
    """Wait until the recurring tasks have done what they do once: the first audit, the demo's alert for each holder."""
    for _ in range(MOST_SECONDS_TO_SETTLE):
        before = _of_tasks(side)
        time.sleep(1.0)
        if _of_tasks(side) - before < QUIET_US:
            return


def _of_tasks(side: beside.Side) -> float:
    return sum(used.us for kind, used in _threads(side).values() if kind in (TASKS, SERVER))


def _load(side: beside.Side, clients: int, seconds: float) -> Outcome:
    load = beside.LOADS["spend, 16 clients"] | {"clients": clients}
    outcome = send_load(Load(port=side.port, key=beside.KEY, seconds=seconds, **load))
    if set(outcome.statuses) != {"201"}:
        raise RuntimeError(f"{outcome.statuses}\n{outcome.first_bad}")
    return outcome


# By thread -------------------------------------------------------------------------------------------


def _round(side: beside.Side, clients: int) -> dict[str, Used]:
    """What each kind of threads used for one spend."""
    before = _threads(side)
    outcome = _load(side, clients, SECONDS)
    used = {
        thread: (kind, now.plus(before.get(thread, (kind, NOTHING))[1], -1)) for thread, (kind, now) in _threads(side).items()
    }
    found = dict.fromkeys(KINDS, NOTHING)
    for kind, of_thread in _with_committers(used).values():
        found[kind] = found[kind].plus(of_thread)
    return {kind: Used(*(value / outcome.answered for value in of_kind)) for kind, of_kind in found.items()}


def _with_committers(used: dict[int, tuple[str, Used]]) -> dict[int, tuple[str, Used]]:
    """Call the busiest of the other threads of each process for calls its committer."""
    processes = [thread for thread, (kind, _) in used.items() if kind == LOOP]
    queues: dict[int, list[int]] = {process: [] for process in processes}
    for thread, (kind, _) in used.items():
        if kind == QUEUES:
            queues[_process_of(thread)].append(thread)
    committers = {max(threads, key=lambda thread: used[thread][1].us) for threads in queues.values() if threads}
    return {thread: (COMMITTER if thread in committers else kind, of_thread) for thread, (kind, of_thread) in used.items()}


def _process_of(thread: int) -> int:
    """The process that a thread belongs to."""
    return int(dict(line.split(":\t", 1) for line in Path(f"/proc/{thread}/status").read_text().splitlines())["Tgid"])


def _threads(side: beside.Side) -> dict[int, tuple[str, Used]]:
    """Each thread below the server, with its kind and what it has used."""
    server = side._postmaster()
    found = {each: (SERVER, _used(Path(f"/proc/{each}/task/{each}"))) for each in [server, *beside._children(server)]}
    for process in beside._children(side.process.pid):
        if process in found:
            continue
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        tasks = sorted(Path(f"/proc/{process}/task").iterdir(), key=lambda task: int(task.name))
        if b"asgi:calls" in command and len(tasks) > 3 and not children(process):
            found |= {int(task.name): (kind, _used(task)) for kind, task in _kinds(process, tasks)}
        else:
            kind = TASKS if b"timetable" in command else REST
            found |= {int(task.name): (kind, _used(task)) for task in tasks}
    return found


def _kinds(process: int, tasks: list[Path]) -> Iterator[tuple[str, Path]]:
    """Tell the threads of a process for calls apart: granian starts its two together."""
    network = next(int(task.name) for task in tasks if (task / "comm").read_text().startswith("tokio"))
    of_granian = {process: LOOP, network: NETWORK, network + 1: EVENTS}
    for task in tasks:
        yield of_granian.get(int(task.name), QUEUES), task


def _used(task: Path) -> Used:
    """Source: Linux, Documentation/scheduler/sched-stats and proc(5)."""
    try:
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        times = (task / "stat").read_text().rsplit(")", 1)[1].split()
        us = int((task / "schedstat").read_text().split()[0]) / 1e3
    except OSError:  # it has just ended
        return NOTHING
    switches = int(lines["voluntary_ctxt_switches"]), int(lines["nonvoluntary_ctxt_switches"])
    return Used(us, int(times[11]) * TICK_US, int(times[12]) * TICK_US, *map(float, switches))


def _show_threads(title: str, rounds: list[dict[str, Used]]) -> None:
    """Print a line for each kind of threads: of the rounds' values, the middle one."""
    middle = {
        kind: Used(*(sorted(values)[len(rounds) // 2] for values in zip(*(each[kind] for each in rounds), strict=True)))
        for kind in KINDS
    }
    sys.stdout.write(f"\n{title}: µs of CPU of one spend, medians of {ROUNDS} rounds of {SECONDS:g} s\n")
    for kind, used in middle.items():
        sys.stdout.write(
            f"  {kind:28} {used.us:6.0f} µs ({used.user_us:4.0f} + {used.system_us:4.0f}), "
            f"{used.voluntary:5.2f} voluntary and {used.other:5.2f} other switches\n"
        )
    sys.stdout.write(f"  {'all':28} {sum(used.us for used in middle.values()):6.0f} µs\n")
    sys.stdout.flush()


# By library ------------------------------------------------------------------------------------------


def _show_libraries(side: beside.Side, clients: int) -> None:
    """Print for the threads of the processes for calls in which libraries they were."""
    before = _threads(side)
    _load(side, clients, 1.0)
    used = {
        thread: (kind, now.plus(before.get(thread, (kind, NOTHING))[1], -1)) for thread, (kind, now) in _threads(side).items()
    }
    kinds = {thread: kind for thread, (kind, _) in _with_committers(used).items() if kind in (LOOP, COMMITTER, NETWORK, EVENTS)}
    record = side.folder / "perf.data"
    threads = ",".join(map(str, kinds))
    perf = subprocess.Popen(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-t", threads, "-o", str(record)], stderr=subprocess.DEVNULL
    )
    _load(side, clients, SECONDS)
    perf.terminate()
    perf.wait()
    lines = subprocess.run(
        ["perf", "script", "-i", str(record), "-F", "tid,ip,sym,dso"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for sample in filter(None, map(SAMPLE.match, lines)):
        library = next((name for part, name in LIBRARIES.items() if part in sample["library"]), "other")
        found[kinds.get(int(sample["thread"]), REST)][library] += 1
    sys.stdout.write("\nwhere these threads were while they ran\n")
    for kind, counts in found.items():
        if counts:
            shares = ", ".join(f"{name} {count / counts.total():.0%}" for name, count in counts.most_common(8))
            sys.stdout.write(f"  {kind:28} {shares}\n")


if __name__ == "__main__":
    main()
