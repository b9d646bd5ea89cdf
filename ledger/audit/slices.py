"""Slices of the ledger, audited one at a time: ranges of holders, and for a long history ranges of sequence numbers."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

HIGHEST_TEXT = "\U0010ffff"
"""Sorts after every holder's id: it is the highest character of Unicode."""
LOWEST_ADDITION = "\x01"
"""Appended to a text, makes the next text in the order of bytes."""
HIGHEST_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Slice:
    """The holders since .. upto, both included, and of their entries the sequences first .. last.

    `entries` is the expected number of entries. `is_start` is True for one slice of each range of holders; the checks over all
    entries of a holder run with that slice.
    """

    since: str
    upto: str
    entries: int
    first: int = 1
    last: int = HIGHEST_NUMBER
    is_start: bool = True

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the SQL."""
        return asdict(self)

    def cut_after_holder(self, holder_id: str) -> tuple["Slice", "Slice"]:
        return replace(self, upto=holder_id), replace(self, since=holder_id + LOWEST_ADDITION)

    def cut_after_entry(self, sequence: int) -> tuple["Slice", "Slice"]:
        return replace(self, last=sequence), replace(self, first=sequence + 1)


EVERYTHING = Slice("", HIGHEST_TEXT, 0)


def slices_of(holders: Iterable[tuple[str, int]], *, size: int, only: str | None = None) -> Iterator[Slice]:
    """Yield slices of about `size` entries without a gap between them: together they cover every possible holder's id.

    Args:
        holders: each holder with the number of its entries, in the order of bytes.
        only: one holder instead of all.
    """
    since, gathered, last_holder = "" if only is None else only, 0, ""
    for holder_id, entries in holders:
        if gathered and gathered + entries > size:
            yield Slice(since, last_holder, gathered)
            since, gathered = last_holder + LOWEST_ADDITION, 0
        if entries > size:
            yield from _by_number(since, holder_id, entries, size)
            since = holder_id + LOWEST_ADDITION
        else:
            gathered += entries
        last_holder = holder_id
    if only is None or gathered or not last_holder:
        yield Slice(since, HIGHEST_TEXT if only is None else only, gathered)


def _by_number(since: str, holder_id: str, entries: int, size: int) -> Iterator[Slice]:
    for first in range(1, entries + 1, size):
        left = entries - first + 1
        last = HIGHEST_NUMBER if left <= size else first + size - 1
        yield Slice(since, holder_id, min(size, left), first, last, is_start=first == 1)
