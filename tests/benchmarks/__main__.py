"""`make bench`: one table of ratios, JSON and a picture beside it. `python -m tests.benchmarks [--rows service,http]`.

Starts a separate PostgreSQL, measures, stops everything. Each ratio comes from rounds in which both sides take turns;
the median counts.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import tables
from tests.benchmarks.measuring import ROUNDS, Result
from tests.benchmarks.picture import picture
from tests.benchmarks.server import RESULTS, ROOT, BenchmarkServer, machine

ROWS = ("service", "http", "loop", "peers", "batches", "importing", "invoices", "process", "history", "audit", "budgets", "usage")


def main() -> None:
    """Run the rows that are asked for."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--rows", default=os.environ.get("ROWS") or ",".join(ROWS), help="which rows, by name, with commas between"
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="put table, picture and JSON under docs/ too; some rows among the others",
    )
    parser.add_argument("--from-json", type=Path, help="measure nothing; show, or publish, what an earlier run left")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    if options.from_json:
        return _report(json.loads(options.from_json.read_text()), publishes=options.publish)
    asked = options.rows.replace(" ", ",").split(",")
    unknown = set(asked) - set(ROWS)
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    data_dir = Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench"
    start = time.monotonic()
    server = BenchmarkServer(data_dir)
    try:
        where = machine(server)
        found = [result for name in ROWS if name in asked for result in _row(name, server)]
    finally:
        server.close()
    seconds = round(time.monotonic() - start)
    report = {"machine": where, "rounds": ROUNDS, "seconds": seconds, "results": [each.as_json() for each in found]}
    return _report(report, publishes=options.publish)


def _row(name: str, server: BenchmarkServer) -> list[Result]:
    """Measure a row, print its results and return them."""
    start = time.monotonic()
    results: list[Result] = importlib.import_module(f"tests.benchmarks.rows.{name}").run(server)
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


def _report(report: dict[str, Any], *, publishes: bool) -> None:
    """Write the report and its picture; publish them in the docs too."""
    found = tables.results(report)
    (RESULTS / "bench.json").write_text(_json(report))
    (RESULTS / "bench.svg").write_text(_drawn(found))
    if publishes:
        _publish(report if {each.row for each in found} == set(ROWS) else _among_published(report))
    sys.stdout.write(f"\n{tables.described(report)}\n{RESULTS / 'bench.json'}\n")


def _among_published(report: dict[str, Any]) -> dict[str, Any]:
    """What is published, with the rows that were measured again in place of what they were; it says so."""
    published: dict[str, Any] = json.loads((ROOT / "docs" / "bench.json").read_text())
    rows = {each["row"] for each in report["results"]}
    kept = [each for each in published["results"] if each["row"] not in rows]
    earlier = [each for each in published.get("again", []) if not rows.issuperset(each["rows"])]
    again = {
        "rows": sorted(rows), "commit": report["machine"]["commit"], "rounds": report["rounds"], "seconds": report["seconds"],
        "machine": report["machine"],
    }  # fmt: skip
    results = sorted([*kept, *report["results"]], key=lambda each: ROWS.index(each["row"]))
    return published | {"results": results, "again": [*earlier, again]}


def _json(report: dict[str, Any]) -> str:
    """The report as the file holds it."""
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def _drawn(found: list[Result]) -> str:
    """The picture of the results, as SVG."""
    return picture(found, title="Measured against the aims, on 2 cores with PostgreSQL and the clients")


def _publish(report: dict[str, Any]) -> None:
    """Write the report, the picture and the tables into the docs."""
    (ROOT / "docs" / "bench.json").write_text(_json(report))
    (ROOT / "docs" / "images" / "bench.svg").write_text(_drawn(tables.results(report)))
    for name, content in tables.pages(report).items():
        page = ROOT / name
        page.write_text(tables.placed(page.read_text(), content))


if __name__ == "__main__":
    main()
