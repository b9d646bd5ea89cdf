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
from typing import Any

from tests.benchmarks.ground import RESULTS, ROOT, Ground, machine
from tests.benchmarks.measuring import ROUNDS, Result
from tests.benchmarks.picture import picture

ROWS = ("service", "http", "peers", "batches", "importing", "invoices", "process", "history", "audit")

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
"""Between them stands what `--publish` writes."""


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
    if options.from_json:
        return _report(json.loads(options.from_json.read_text()), publishes=options.publish)
    asked = options.rows.replace(" ", ",").split(",")
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
    seconds = round(time.monotonic() - start)
    report = {"machine": where, "rounds": ROUNDS, "seconds": seconds, "results": [each.as_json() for each in found]}
    return _report(report, publishes=options.publish)


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


def _report(report: dict[str, Any], *, publishes: bool) -> None:
    found = _results(report)
    (RESULTS / "bench.json").write_text(_json(report))
    (RESULTS / "bench.svg").write_text(_drawn(found))
    if publishes:
        _publish(report if {each.row for each in found} == set(ROWS) else _among_published(report))
    sys.stdout.write(f"\n{_described(report)}\n{RESULTS / 'bench.json'}\n")


def _results(report: dict[str, Any]) -> list[Result]:
    return [Result(**{name: value for name, value in each.items() if name != "is_met"}) for each in report["results"]]


def _among_published(report: dict[str, Any]) -> dict[str, Any]:
    """What is published, with the rows that were measured again in place of what they were; it says so."""
    published: dict[str, Any] = json.loads((ROOT / "docs" / "bench.json").read_text())
    rows = {each["row"] for each in report["results"]}
    kept = [each for each in published["results"] if each["row"] not in rows]
    earlier = [each for each in published.get("again", []) if not rows.issuperset(each["rows"])]
    again = {"rows": sorted(rows), "commit": report["machine"]["commit"], "rounds": report["rounds"]}
    results = sorted([*kept, *report["results"]], key=lambda each: ROWS.index(each["row"]))
    return published | {"results": results, "again": [*earlier, again]}


README_ROWS = ("http", "peers", "batches", "importing")


def ratios(found: list[Result]) -> str:
    """The ratios that have an aim, beside what one would otherwise write and a peer, as the README shows them."""
    lines = ["| what | beside | ratio |", "|---|---|---|"]
    for each in found:
        if each.row in README_ROWS and each.unit == "×" and each.is_met is not None:
            aim = "" if each.is_met else f" (aim: {each.aim})".replace(">=", "≥").replace("<=", "≤")
            lines.append(f"| {each.what} | {each.relative_to} | {each.ratio:.2f} ×{aim} |")
    return "\n".join(lines) + "\n"


def _described(report: dict[str, Any]) -> str:
    machine = report["machine"]
    again = "".join(
        f" The rows `{', '.join(each['rows'])}` again at commit {each['commit']}, {each['rounds']} rounds."
        for each in report.get("again", [])
    )
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, PostgreSQL {machine['postgresql']}; 8 KiB on the disk in {machine['fdatasync_us']} µs; "
        f"load before: {machine['load_before']}; {report['rounds']} rounds in {report['seconds']} s; "
        f"commit {machine['commit'] or 'unknown'}.{again}"
    )


def _json(report: dict[str, Any]) -> str:
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def _drawn(found: list[Result]) -> str:
    return picture(found, title="Measured against the aims, on 2 cores with PostgreSQL and the clients")


def _publish(report: dict[str, Any]) -> None:
    docs, found = ROOT / "docs", _results(report)
    (docs / "bench.json").write_text(_json(report))
    (docs / "images" / "bench.svg").write_text(_drawn(found))
    table, brief = f"{_described(report)}\n\n{markdown(found)}", ratios(found)
    for page, content in ((docs / "PERFORMANCE.md", table), (ROOT / "README.md", brief)):
        before, begun, rest = page.read_text().partition(BEGIN)
        if not begun or END not in rest:
            raise ValueError(f"{page} has no place for the table: {BEGIN} … {END}")
        page.write_text(f"{before}{BEGIN}\n{content}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
