"""Files that are meant to hurt are refused before they cost much; tests/benchmarks/hostile_files.py measures them."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from billing.statements_in import camt, csv_files, mt940, statements
from billing.statements_in.formats import find_reader, guess_format
from billing.statements_in.statements import BankFileInvalid
from tests.benchmarks.hostile_files import CAMT, CAMT_ENTRY, CSV_HEAD, CSV_LINE, FILES, MT940, MT940_ENTRY, cost_of


def refusal_of(content: bytes) -> str:
    with pytest.raises(BankFileInvalid) as refused:
        find_reader(guess_format(content))(content)
    return str(refused.value)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda count: CAMT.format(CAMT_ENTRY * count), (camt, "_statement")),
        (lambda count: MT940.format(MT940_ENTRY * count, count), (mt940, "_fields")),
        (lambda count: CSV_HEAD + CSV_LINE * count, (csv_files, "_entry")),
    ],
    ids=["camt", "mt940", "csv"],
)
def test_too_many_entries_are_refused_before_one_is_made(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], str], place: tuple[Any, str]
) -> None:
    def unwanted(*given: Any) -> NoReturn:
        raise AssertionError("an entry was made")

    monkeypatch.setattr(statements, "MAX_ENTRIES", 5)
    monkeypatch.setattr(*place, unwanted)
    assert "more than 5 entries" in refusal_of(make(6).encode())


def test_the_entries_of_mt940_are_read_without_a_copy_of_what_follows_each() -> None:
    class NoSlices(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            assert not isinstance(index, slice), "a million entries would take hours"
            return super().__getitem__(index)

    fields = NoSlices(mt940._fields(MT940.format(MT940_ENTRY * 3, 3)))
    assert len(mt940._statement(fields).entries) == 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a;" * 50_001, "line 1 has more than 100,000 characters"),
        ((CSV_HEAD + CSV_LINE.replace("1,00", "9" * 100_000)).encode(), "line 2 has more than 100,000 characters"),
        ((CSV_HEAD + '"' + CSV_LINE * 3_000).encode(), "field larger than field limit"),
        (b'"' + b"x" * 99_000, "no profile fits"),
        (b"x" * (64 * 1024 * 1024 + 1), "more than 64 MiB"),
    ],
    ids=["cells", "a cell", "a quote", "no heading", "size"],
)
def test_a_line_that_is_no_table_of_a_bank_is_refused_with_its_number(content: bytes, why: str) -> None:
    assert why in refusal_of(content)


@pytest.mark.slow
@pytest.mark.parametrize("hostile", FILES, ids=[hostile.name for hostile in FILES])
def test_a_hostile_file_takes_a_bounded_memory_and_ends(hostile: Any) -> None:
    cost = cost_of(hostile.make(), is_import=hostile.is_import)
    assert cost.memory_mib < 1024
    assert cost.said.startswith(("read: ", "refused: "))
