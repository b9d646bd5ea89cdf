"""Runs the parts of `make prove`, each as one run of pytest, and prints how long each took. What is unknown here is for pytest:

python -m tests.prove --part races --times 20 --loops 2 -x
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.parts import PARTS, TESTS

ON_A_CLUSTER = ("ledger", "schema", "concurrency", "billing", "distributed")
"""The folders of tests that a cluster can run."""
NOTHING_SELECTED = 5
"""The status of pytest where the arguments leave no test of a part."""


@dataclass(frozen=True)
class Run:
    """One run of a part."""

    part: str
    seconds: float
    has_passed: bool

    def __str__(self) -> str:
        """In one line."""
        minutes, seconds = divmod(round(self.seconds), 60)
        return f"{self.part:<13}{'passed' if self.has_passed else 'FAILED'} {minutes:4d} min {seconds:2d} s"


def main() -> int:
    """Run the parts, and print the line of each run after it, and all of them at the end; 1 if a run failed."""
    options, more = _parser().parse_known_args()
    runs = []
    with busy_loops(options.loops):
        for part in [options.part] if options.part else PARTS:
            if part == "distributed" and not os.environ.get("CITUS"):
                print("distributed is left out: CITUS names no cluster (docs/how-to/operations/cluster.md)", flush=True)
                continue
            for _ in range(options.times):
                runs.append(run(part, options.jobs, more))
                print(f"\n{runs[-1]}\n", flush=True)
    print(*runs, sep="\n")
    return int(not all(each.has_passed for each in runs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.prove", description="Run parts of the tests.", allow_abbrev=False)
    parser.add_argument("--part", choices=PARTS, help="all of them by default")
    parser.add_argument("--jobs", default="3", help="workers of pytest (3)")
    parser.add_argument("--times", type=int, default=1, help="how often each part runs (1)")
    parser.add_argument("--loops", type=int, default=0, help="processes that keep the processors busy while the tests run (0)")
    return parser


def run(part: str, jobs: str, more: list[str]) -> Run:
    """Run a part in a process of its own."""
    started = time.monotonic()
    in_parallel = ["-n", jobs, "--dist", "loadfile", "--no-loadscope-reorder"]
    environment = dict(os.environ)
    match part:
        case "examples":
            words = [*in_parallel, "-m", "examples or hypothesis", "--hypothesis-profile", "prove"]
        case "distributed":
            # In one process: some tests stop a node, which others would need.
            words = ["-m", "not slow or check or races or distributed", *(str(TESTS / folder) for folder in ON_A_CLUSTER)]
            environment["LEDGER_TEST_CITUS"] = environment["CITUS"]
        case _:
            words = [*in_parallel, "-m", part]
    done = subprocess.run([sys.executable, "-m", "pytest", *words, *more], env=environment, check=False)
    return Run(part, time.monotonic() - started, done.returncode in (0, NOTHING_SELECTED))


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Within the block, this number of processes does nothing but take the processors' time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main())
