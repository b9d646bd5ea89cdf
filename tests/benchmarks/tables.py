"""The published tables of results: all rows in docs/explanation/performance.md, and a selection in README.md."""

from collections.abc import Sequence
from typing import Any, Final

from tests.benchmarks.measuring import Result

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
"""Between them stands what `--publish` writes."""

BRIEF_ROWS = ("http", "peers", "batches", "importing")
"""The rows that README.md shows whole, as far as they have an aim."""

REDEFINED: Final = {
    ("process", "memory of a worker and its parent after 100,000 requests", "after 1,000"): "until commit 29c4d53 a worker alone",
    (
        "batches",
        "batch of 1,000 spends",
        "plain multi-row INSERT of the same rows",
    ): "before, the making of its requests was timed too",
    ("batches", "batch of 1,000, one process", "entries a second"): "before, the making of its requests was timed too",
}
"""Row, what is measured and beside what -> what was measured by that name before, so that the two figures cannot be compared."""


def full_table(found: Sequence[Result]) -> str:
    """Every result, as docs/explanation/performance.md shows it."""
    lines = ["| what | relative to | aim | measured | |", "|---|---|---|---|---|"]
    for each in found:
        remark = "; ".join(filter(None, [_redefined(each), each.context]))
        lines.append(
            f"| {each.what} | {each.relative_to} | {_aim(each)} | {each.ratio:,.2f} {each.unit} {_mark(each)} | {remark} |"
        )
    return "\n".join(lines) + "\n"


def brief_table(found: Sequence[Result]) -> str:
    """What README.md shows: the ratios beside what one would otherwise write and a peer, and all that is missed or redefined."""
    lines = ["| what | beside | aim | measured | |", "|---|---|---|---|---|"]
    for each in found:
        if (each.row in BRIEF_ROWS and each.is_met is not None) or each.is_met is False or _redefined(each):
            mark = "; ".join(filter(None, [_mark(each), _redefined(each)]))
            lines.append(f"| {each.what} | {each.relative_to} | {_aim(each)} | {each.ratio:,.2f} {each.unit} | {mark} |")
    return "\n".join(lines) + "\n"


def results(report: dict[str, Any]) -> list[Result]:
    """The results of a report as bench.json has it."""
    return [Result(**{name: value for name, value in each.items() if name != "is_met"}) for each in report["results"]]


def described(report: dict[str, Any]) -> str:
    """The machines, the runs and the commits of a report, in one line."""
    again = "".join(_described_again(each) for each in report.get("again", []))
    return f"{_described_run(report)}; commit {report['machine']['commit'] or 'unknown'}.{again}"


def _described_again(again: dict[str, Any]) -> str:
    """Which rows were measured again, and where."""
    run = f"; {_described_run(again)}" if "machine" in again else f", {again['rounds']} rounds"
    return f" The rows `{', '.join(again['rows'])}` again at commit {again['commit']}{run}."


def _described_run(report: dict[str, Any]) -> str:
    """Where and how long a run measured."""
    machine = report["machine"]
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}, PostgreSQL {machine['postgresql']}; 8 KiB on the disk in {machine['fdatasync_us']} µs; "
        f"load before: {machine['load_before']}; {report['rounds']} rounds in {report['seconds']} s"
    )


def placed(page: str, content: str) -> str:
    """The page with the content between the two marks; ValueError where it has no such place."""
    before, begun, rest = page.partition(BEGIN)
    if not begun or END not in rest:
        raise ValueError(f"the page has no place for the table: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{content}{END}{rest.partition(END)[2]}"


def pages(report: dict[str, Any]) -> dict[str, str]:
    """Page, by its path in the repository -> what stands between its marks."""
    found = results(report)
    return {"docs/explanation/performance.md": f"{described(report)}\n\n{full_table(found)}", "README.md": brief_table(found)}


def _aim(result: Result) -> str:
    """The aim as the table shows it."""
    return (result.aim or "").replace(">=", "≥").replace("<=", "≤")


def _mark(result: Result) -> str:
    """Whether the aim is met, as the table shows it."""
    return {True: "met", False: "**missed**", None: ""}[result.is_met]


def _redefined(result: Result) -> str:
    """What the row measured before it was redefined."""
    before = REDEFINED.get((result.row, result.what, result.relative_to))
    return f"redefined: {before}" if before else ""
