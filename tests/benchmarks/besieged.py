"""What spends of other holders take while some clients misbehave: `python -m tests.benchmarks.besieged [guess dribble wait]`.

`make run` as it is, 8 clients over 2,000 holders, in turns with nobody else there. The quotient is the median of the rounds'.
With `--proxy`, all of them come through nginx as compose configures it, over TLS. BENCH_SECONDS=60 has them misbehave for a
minute. Those who misbehave have a separate process at the lowest priority, as if they were elsewhere.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import psycopg

from ledger_project.serving.postgres.server import Server
from tests.benchmarks.beside import HOLDERS, KEY, ROOT, SPEND, Side
from tests.benchmarks.clients import TRUSTING, Load, send_load
from tests.benchmarks.misbehaving import DRIBBLERS, GUESSERS, STUCK, WAITERS
from tests.deployment.proxy import WEB_ENVIRONMENT, nginx

SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
HAS_PROXY = "--proxy" in sys.argv[1:]
KINDS = {
    "dribble": f"{DRIBBLERS} connections that send a byte a second",
    "guess": f"{GUESSERS} who guess passwords without a pause",
    "wait": f"{WAITERS} who wait for one stuck holder",
}


@contextmanager
def misbehaving(kind: str, url: str) -> Iterator[None]:
    """For the block, clients of this kind are at it; the first second of it has passed."""
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.misbehaving", kind, url], cwd=ROOT)
    try:
        time.sleep(1)
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def lock_kept(side: Side) -> Iterator[None]:
    """For the block, another session has the lock of the stuck holder."""
    from ledger.database.lock_keys import numbering

    with psycopg.connect(Server(side.folder).superuser_url) as session:
        session.execute("SET idle_in_transaction_session_timeout = 0")
        session.execute("SELECT pg_advisory_xact_lock(%s)", [numbering("sha256")(f"ledger/{STUCK}0")])
        yield
        session.rollback()


def note_health(url: str, stop: threading.Event, found: list[float]) -> None:
    """Ask for the health of the process five times a second; keep the milliseconds that each took."""
    while not stop.wait(0.2):
        start = time.perf_counter()
        with urllib.request.urlopen(f"{url}/healthz", timeout=10, context=TRUSTING):
            found.append((time.perf_counter() - start) * 1000)


def measure(url: str) -> tuple[float, float]:
    """The p99 of the spends of 8 clients, and the slowest health check among them, in milliseconds."""
    found: list[float] = [0.0]
    stop = threading.Event()
    checks = threading.Thread(target=note_health, args=(url, stop, found))
    checks.start()
    port, tls = int(url.rsplit(":", 1)[1]), url.startswith("https:")
    outcome = send_load(Load(port=port, tls=tls, key=KEY, clients=8, seconds=SECONDS, **SPEND, holders=HOLDERS))
    stop.set()
    checks.join()
    if set(outcome.statuses) != {"201"}:
        raise RuntimeError(f"{outcome.statuses}\n{outcome.first_bad}")
    return outcome.p99_ms, max(found)


def main() -> None:
    """Print a line for each kind of misbehaviour."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-besieged-"))
    folder.chmod(0o755)
    if HAS_PROXY:
        os.environ |= WEB_ENVIRONMENT
    side = Side(ROOT, folder)
    try:
        with ExitStack() as stack:
            side.wait_until_ready()
            side.furnish()
            url = f"http://127.0.0.1:{side.port}"
            if HAS_PROXY:
                proxy = stack.enter_context(nginx(side.port, PAGES_PORT=side.pages_url.rsplit(":", 1)[1]))
                url = f"https://127.0.0.1:{proxy.https_port}"
            measure(url)
            sys.stdout.write(
                f"8 clients over {HOLDERS:,} holders{', through nginx' if HAS_PROXY else ''}, medians of {ROUNDS} rounds of "
                f"{SECONDS:g} s in turns with nobody else there\n"
            )
            for kind in [kind for kind in KINDS if kind in sys.argv] or KINDS:
                rounds = [in_turns(side, kind, url) for _ in range(ROUNDS)]
                sys.stdout.write(_line(KINDS[kind], rounds))
                sys.stdout.flush()
    finally:
        side.stop()
        shutil.rmtree(folder, ignore_errors=True)


def in_turns(side: Side, kind: str, url: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """What is measured with nobody else there, and then beside clients of this kind."""
    quiet = measure(url)
    with ExitStack() as stack:
        if kind == "wait":
            stack.enter_context(lock_kept(side))
        stack.enter_context(misbehaving(kind, side.pages_url if kind == "guess" and not HAS_PROXY else url))
        return quiet, measure(url)


def _line(words: str, rounds: list[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    """A line of the report: the latency without and with the attack, and the slowest health check."""
    quiet, besieged = (median(each[place][0] for each in rounds) for place in (0, 1))
    quotient = median(after[0] / before[0] for before, after in rounds)
    health = max(after[1] for _, after in rounds)
    return f"{words:45} p99 {quiet:6.1f} -> {besieged:6.1f} ms, {quotient:.2f} x; slowest health check {health:.0f} ms\n"


if __name__ == "__main__":
    main()
