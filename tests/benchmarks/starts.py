"""How soon two checkouts answer when they are started: `python -m tests.benchmarks.starts ../the-commit-before`.

In turns, each serves a new ledger as `make run` does, and then that ledger again, BENCH_ROUNDS times (5). Prints the medians of
the seconds to the first response and of the CPU of all processes but PostgreSQL's, with their ratios.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.benchmarks.rows.process import start
from tests.benchmarks.server import ROOT

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
KINDS = ("new ledger", "existing ledger")


@contextmanager
def folder() -> Iterator[Path]:
    """A data directory that every account may pass, and that is gone afterwards."""
    made = Path(tempfile.mkdtemp(prefix="ledger-start-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        cluster = (made / "postgres").resolve()
        shutil.rmtree(made)
        shutil.rmtree(cluster, ignore_errors=True)


def main() -> None:
    """Start both in turns, and print what it took."""
    checkouts = {"this": ROOT, "other": Path(sys.argv[1]).resolve()}
    taken: dict[tuple[str, str], list[tuple[float, float]]] = {(name, kind): [] for name in checkouts for kind in KINDS}
    for number in range(ROUNDS):
        for name in sorted(checkouts, reverse=bool(number % 2)):
            with folder() as data_dir:
                for kind in KINDS:
                    before = os.times()
                    seconds = start(data_dir, checkouts[name])
                    after = os.times()
                    cpu = sum(after[2:4]) - sum(before[2:4])
                    taken[name, kind].append((seconds, cpu))
    for kind in KINDS:
        (this_s, this_cpu), (other_s, other_cpu) = (
            map(median, zip(*taken[name, kind], strict=True)) for name in ("this", "other")
        )
        sys.stdout.write(
            f"{kind}: {this_s:.2f} s beside {other_s:.2f} s, {this_s / other_s:.2f} x; "
            f"CPU {this_cpu:.2f} s beside {other_cpu:.2f} s, {this_cpu / other_cpu:.2f} x\n"
        )


if __name__ == "__main__":
    main()
