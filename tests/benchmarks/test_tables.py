"""The tables in README.md and docs/explanation/performance.md are what was measured, misses included."""

import json

import pytest

from tests.benchmarks import tables
from tests.benchmarks.measuring import Result
from tests.benchmarks.server import ROOT

REPORT = json.loads((ROOT / "docs" / "bench.json").read_text())


@pytest.mark.parametrize("name", ["README.md", "docs/explanation/performance.md"])
def test_each_page_shows_the_table_that_bench_json_gives(name: str) -> None:
    page = (ROOT / name).read_text()
    assert tables.placed(page, tables.pages(REPORT)[name]) == page


def test_the_readme_shows_every_row_that_misses_its_aim_or_is_redefined() -> None:
    readme = (ROOT / "README.md").read_text()
    found = tables.results(REPORT)
    missed = [each for each in found if each.is_met is False]
    assert missed
    for each in missed:
        [line] = [line for line in readme.splitlines() if line.startswith(f"| {each.what} | {each.relative_to} |")]
        assert "**missed**" in line
    rows = {(each.row, each.what, each.relative_to): each for each in found}
    for name, before in tables.REDEFINED.items():
        each = rows[name]  # a row of another name is no redefined one
        [line] = [line for line in readme.splitlines() if line.startswith(f"| {each.what} | {each.relative_to} |")]
        assert f"redefined: {before}" in line


def test_the_brief_table_has_all_missed_rows_and_only_selected_met_rows() -> None:
    found = [
        Result("audit", "a miss", "x", 0.25, ">= 0.5"),
        Result("audit", "a met aim", "x", 0.75, ">= 0.5"),
        Result("http", "a ratio", "x", 1234.5, ">= 0.5"),
        Result("http", "without an aim", "x", 2.0),
        Result("process", "memory of a worker and its parent after 100,000 requests", "after 1,000", 1.02, "<= 1.05"),
    ]
    assert tables.brief_table(found).splitlines()[2:] == [
        "| a miss | x | ≥ 0.5 | 0.25 × | **missed** |",
        "| a ratio | x | ≥ 0.5 | 1,234.50 × | met |",
        (
            "| memory of a worker and its parent after 100,000 requests | after 1,000 | ≤ 1.05 | 1.02 × "
            "| met; redefined: until commit 29c4d53 a worker alone |"
        ),
    ]


def test_the_docs_name_no_number_whose_script_was_not_kept() -> None:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    assert [page.name for page in pages if "not kept" in page.read_text()] == []


def test_a_page_without_the_marks_of_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the table"):
        tables.placed("a page", "a table")
    assert tables.placed(f"a {tables.BEGIN}old{tables.END} b", "new\n") == f"a {tables.BEGIN}\nnew\n{tables.END} b"
