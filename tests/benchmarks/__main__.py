"""`make bench`: one table of ratios, JSON and a picture beside it. `python -m tests.benchmarks [--rows service,http]`.

Starts a PostgreSQL of its own, measures, stops everything. Each ratio comes from rounds in which both sides take turns;
the median counts.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

from tests.benchmarks.ground import RESULTS, ROOT, Ground, machine
from tests.benchmarks.measuring import ROUNDS, Result
from tests.benchmarks.picture import picture

ROWS = ("service", "http", "peers", "batches", "importing", "invoices", "process", "history", "audit")


def main() -> None:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--rows", default=os.environ.get("ROWS") or ",".join(ROWS), help="which rows, by name, with commas between"
    )
    asked = parser.parse_args().rows.replace(" ", ",").split(",")
    unknown = set(asked) - set(ROWS)
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    RESULTS.mkdir(exist_ok=True)
    data_dir = Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench"
    start = time.monotonic()
    ground = Ground(data_dir)
    try:
        where = machine(ground)
        found = [result for name in ROWS if name in asked for result in _row(name, ground)]
    finally:
        ground.close()
    _report(where, found, time.monotonic() - start)


def _row(name: str, ground: Ground) -> list[Result]:
    start = time.monotonic()
    results: list[Result] = importlib.import_module(f"tests.benchmarks.rows.{name}").run(ground)
    for each in results:
        sys.stdout.write(line(each) + "\n")
    sys.stdout.write(f"  ({name}: {time.monotonic() - start:.0f} s)\n")
    sys.stdout.flush()
    return results


def line(result: Result) -> str:
    """A line of the table."""
    mark = {True: "met", False: "MISSED", None: ""}[result.is_met]
    number = f"{result.ratio:10,.2f} {result.unit:2}  {result.aim or '':8} {mark:6}"
    return f"{result.row:10} {result.what:44} / {result.relative_to:58} {number} {result.context}"


def markdown(found: list[Result]) -> str:
    """The table as docs/PERFORMANCE.md shows it."""
    lines = ["| what | relative to | aim | measured | |", "|---|---|---|---|---|"]
    for each in found:
        aim = (each.aim or "").replace(">=", "≥").replace("<=", "≤")
        mark = {True: "met", False: "**missed**", None: ""}[each.is_met]
        lines.append(f"| {each.what} | {each.relative_to} | {aim} | {each.ratio:,.2f} {each.unit} {mark} | {each.context} |")
    return "\n".join(lines) + "\n"


def _report(where: dict[str, object], found: list[Result], seconds: float) -> None:
    report = {"machine": where, "rounds": ROUNDS, "seconds": round(seconds), "results": [each.as_json() for each in found]}
    (RESULTS / "bench.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "bench.md").write_text(markdown(found))
    (RESULTS / "bench.svg").write_text(
        picture(found, title="Measured against the aims, on 2 cores with PostgreSQL and the clients")
    )
    sys.stdout.write(f"\n{json.dumps(where)}\n{seconds:.0f} s; {ROUNDS} rounds; {RESULTS / 'bench.json'}\n")


if __name__ == "__main__":
    main()
