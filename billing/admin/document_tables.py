"""The lines of an invoice with their arithmetic, and its totals, as tables."""

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from operator import itemgetter
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing.documents.printed_arithmetic import Notation, calculation
from billing.documents.printed_texts import texts_of
from ledger.staff.kit.cells import digits
from ledger.staff.kit.columns import table_of
from ledger.typesetting.languages import ENGLISH
from ledger.units import units_of


def notation_in(currency: str, lines: Sequence[Mapping[str, Any]] = ()) -> Notation:
    """Return the notation for amounts of that currency, and of the credits on these lines."""
    covered = (line["rating"].get("covered") for line in lines)
    return Notation(
        ENGLISH, texts_of(ENGLISH.code, seller={}, buyer={}), currency, units_of(each["credit_type"] for each in covered if each)
    )


def described_line(notation: Notation, line: Mapping[str, Any], zone: tzinfo) -> SafeString:
    """A line's title, its period in the customer's zone, and the arithmetic of its amount."""
    notes = [*([period_words(line["period"], zone)] if line["period"] else []), *calculation(notation, line)]
    below = format_html_join("", '<div class="note">{}</div>', ((note,) for note in notes))
    return format_html("{}{}", line["title"], below)


def period_words(period: Mapping[str, str], zone: tzinfo) -> str:
    """The first and last day of a period in a zone."""
    return ENGLISH.period(datetime.fromisoformat(period["start"]), datetime.fromisoformat(period["end"]), zone)


def short_table(document: Mapping[str, Any], zone: tzinfo) -> dict[str, Any]:
    """A short document: its lines and the amount due."""
    notation = notation_in(document["currency"], document["lines"])
    rows: list[tuple[Any, Any]] = [
        (described_line(notation, line, zone), digits(notation.money(line["amount_minor"]))) for line in document["lines"]
    ]
    steps = [
        ("Discounts", -document["discount_minor"]),
        ("Tax", document["tax_minor"]),
        ("Total", document["total_minor"]),
        ("Credit notes", -document["credit_notes_minor"]),
        ("Paid with credits", -document["credits_applied_minor"]),
        ("Rounding", document["rounding_minor"]),
        ("Amount due", document["amount_due_minor"]),
    ]
    always = ("Total", "Amount due")
    rows += [
        (format_html("<strong>{}</strong>", words), digits(notation.money(minor)))
        for words, minor in steps
        if minor or words in always
    ]
    return table_of(rows, ("What", itemgetter(0)), (f"Amount ({document['currency']})", itemgetter(1)))
