"""What a reader has to read, and who adds something has to change, does not grow."""

import re

import pytest

from tests import reading

PAGE = reading.ROOT / "docs/explanation/architecture.md"
ROW = re.compile(r"^\| (.+) \| [\d,–]+ \| ([\d,]+) \| ([\d,]*) ?\|$", re.MULTILINE)


def number(text: str) -> int | None:
    return int(text.replace(",", "")) if text else None


def documented() -> dict[str, tuple[int | None, int | None]]:
    """Return what each number is at most by the table of the page, and its aim."""
    return {what: (number(most), number(aim)) for what, most, aim in ROW.findall(PAGE.read_text())}


@pytest.mark.slow
@pytest.mark.check
def test_no_number_is_above_what_the_page_says() -> None:
    table = documented()
    counted = list(reading.rows(reading.ROOT, spend=False))
    assert len(counted) == len(table) - 2
    assert {row.what: row.aim for row in counted} == {row.what: table[row.what][1] for row in counted}
    assert [row for row in counted if row.number > (table[row.what][0] or 0)] == []


def test_a_participle_is_one_word_and_no_verb() -> None:
    names = ("made", "_shown", "counted", "count_rows", "is_counted", "proceed", "read", "feed")
    assert [name for name in names if reading.is_participle(name)] == ["made", "_shown", "counted"]


def test_what_names_a_noun_is_found_by_its_text_and_by_its_file() -> None:
    noun = next(each for each in reading.NOUNS if "MT940" in each.name)
    assert reading.naming_files(noun) == ["billing/statements_in/formats.py", "billing/statements_in/mt940.py"]
