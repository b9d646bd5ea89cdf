"""Finds the invoices that the text of a payment names. People and banks change the signs between the characters of a number."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from billing.documents.sellers import prefixes_of
from billing.models import INVOICE, Invoice, Seller
from ledger.database.statements import fetch_rows

MAX_NUMBER_CHARACTERS: Final = 96
FEWEST_DIGITS: Final = 6
"""The last part of a number has at least this number of digits."""
BETWEEN: Final = r"[\s./_–-]{0,3}"

NAMED = """
    SELECT id, number FROM billing_invoice
    WHERE billing_plain_number(number) = ANY(%s) AND number IS NOT NULL
    ORDER BY id LIMIT 100
"""


class _Numbered(NamedTuple):
    """A row of NAMED: the id and number of an invoice."""

    id: int
    number: str


def invoices_named_in(text: str) -> list[Invoice]:
    """Return the finalised invoices whose numbers stand in a text, the oldest first.

    Capitals, spaces and punctuation make no difference: `inv 000012` names INV-000012. Of two numbers in the same place the
    longer one counts.
    """
    candidates = plain_numbers_in(text, _prefixes())
    if not candidates:
        return []
    known = dict(fetch_rows(_Numbered, NAMED, [sorted(candidates)]))
    return list(Invoice.objects.filter(pk__in=standing_in(text, known)).order_by("pk"))


def _prefixes() -> set[str]:
    return {INVOICE.series, *(prefixes_of(details)[0] for details in Seller.objects.values_list("details", flat=True))}


def plain_numbers_in(text: str, prefixes: Iterable[str]) -> set[str]:
    """Return all that could be numbers of invoices in a text, as letters and digits: from a prefix up to some digits. Pure."""
    plain = re.sub("[^A-Z0-9]", "", text.upper())
    plain_numbers = set()
    for prefix in prefixes:
        for place in re.finditer(f"(?={re.escape(prefix)})", plain):
            rest = plain[place.start() : place.start() + MAX_NUMBER_CHARACTERS]
            ends = (end.end() for end in re.finditer(f"(?<=[0-9]{{{FEWEST_DIGITS - 1}}})[0-9]", rest))
            plain_numbers |= {rest[:end] for end in ends if end >= len(prefix) + FEWEST_DIGITS}
    return plain_numbers


def standing_in(text: str, numbers: Mapping[int, str]) -> list[int]:
    """Return the keys of the numbers that stand in a text as whole words: no letter or digit touches them. Pure.

    A number inside a longer one, such as INV-000012 in PROINV-000012, is not meant.
    """
    capitals = text.upper()
    spans: dict[int, list[tuple[int, int]]] = {}
    for key, number in numbers.items():
        signs = BETWEEN.join(re.sub("[^A-Z0-9]", "", number.upper()))
        spans[key] = [match.span() for match in re.finditer(f"(?<![^\\W_]){signs}(?![^\\W_])", capitals)]
    every = [span for match in spans.values() for span in match]
    return [key for key, match in spans.items() if any(not _is_inside_another(span, every) for span in match)]


def _is_inside_another(span: tuple[int, int], every: Iterable[tuple[int, int]]) -> bool:
    return any(other != span and other[0] <= span[0] and span[1] <= other[1] for other in every)
