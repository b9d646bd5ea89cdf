"""`make convince`: shows in a few minutes why balances and invoices are right. docs/explanation/convince.md explains it.

1. The lock argument and late usage as models, in all their states; without each part of them, the shortest way to a wrong result.
2. Histories seen from outside while connections, backends and servers die, judged by Porcupine; falsified ones; a broken lock.
3. Two requests that meet: with the lock, with a lock that does nothing, and without the constraints as well.
4. What is changed behind the ledger's back is found; invoices are the sums of their entries.
"""

import multiprocessing
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from tests.convince.arguments import trials

TESTS: Final = {
    "Histories, judged by Porcupine": ("-s", "-m", "convince", "tests/convince/test_histories.py"),
    "Two requests that meet": ("-n", "2", "-m", "slow or not slow", "tests/concurrency/test_spend_races.py"),
    "Audit and invoices": (
        "-n", "2", "-m", "not slow or check", "tests/ledger/audit", "tests/billing/auditing",
        "tests/concurrency/test_overage_storm.py",
    ),
}  # fmt: skip


def main() -> int:
    """Show everything; return 1 if a part did not come out as it is to, 2 if a part was left out."""
    if shutil.which("go") is None:
        print("Go is missing, which builds Porcupine: no history can be judged.", file=sys.stderr)
        return 2
    passed = [_timed("Models", _show_models)]
    passed += [_timed(title, lambda words=words: _run(words)) for title, words in TESTS.items()]
    return int(not all(passed))


def _timed(title: str, show: Callable[[], bool]) -> bool:
    print(f"\n{title}\n{'=' * len(title)}\n", flush=True)
    started = time.monotonic()
    is_passed = show()
    print(f"\n{title}: {'as it is to be' if is_passed else 'NOT AS IT IS TO BE'}, {time.monotonic() - started:.0f} s", flush=True)
    return is_passed


def _show_models() -> bool:
    is_passed = True
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        for line, is_as_it_is_to_be in pool.map(_explore, range(len(list(trials())))):
            is_passed &= is_as_it_is_to_be
            print(line, flush=True)
    return is_passed


def _explore(place: int) -> tuple[str, bool]:
    """Explore the trial at a place of `trials()`, in a process of its own; return its line, and whether it is as it is to be."""
    trial = list(trials())[place]
    explored = trial.run()
    return f"  {trial.about}: {trial.verdict(explored)}", explored.broken == trial.breaks


def _run(words: tuple[str, ...]) -> bool:
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *words], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
