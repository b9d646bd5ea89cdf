"""Entries, lots and refusals as tables inside a page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger import reads
from ledger.admin.entries.holds import extended_to
from ledger.admin.forms.credit_types import fact_writer
from ledger.admin.kit import columns
from ledger.admin.kit.cells import digits, signed, table, timestamp
from ledger.admin.kit.columns import table_of
from ledger.admin.kit.pages import shown_facts
from ledger.admin.links import account_link, entry_link, refusal_link
from ledger.models import EntryListing
from ledger.rules import KINDS, Entry, Lot
from ledger.rules.kinds import taken_by
from ledger.rules.texts.credit_units import CreditUnit, plain_unit


def lots_table(lots: Sequence[Lot], *, holder_id: str, credit_type: str, at: datetime, unit: CreditUnit) -> dict[str, Any]:
    """The lots in burn order, with where each came from."""
    return table_of(
        lots,
        ("Lot", lambda lot: entry_link(holder_id, credit_type, lot.grant)),
        ("Remaining", lambda lot: digits(unit.number(lot.remaining))),
        ("Source", lambda lot: f"{lot.source}, received" if lot.received else lot.source),
        ("Priority", "priority"),
        columns.instant("Effective", "effective_at"),
        ("Expires", lambda lot: timestamp(lot.expires_at) or "never"),
        ("State", lambda lot: _lot_state(lot, at)),
    )


def _lot_state(lot: Lot, at: datetime) -> str:
    if lot.effective_at > at:
        return "not yet effective"
    return "expired, to be booked" if lot.expires_at is not None and lot.expires_at <= at else "open"


def drawn_table(entry: Entry, unit: CreditUnit) -> dict[str, Any]:
    """What the entry took from, or gave back to, which lots; and what a spend took on the overdraft."""
    rows = [(entry_link(entry.holder_id, entry.credit_type, grant), digits(unit.number(amount))) for grant, amount in entry.drawn]
    on_overdraft = -entry.amount - sum(amount for _, amount in entry.drawn) if entry.kind == "spend" else 0
    if on_overdraft:
        rows.append((SafeString("the overdraft"), digits(unit.number(on_overdraft))))
    return table(["Lot", "Credits"], rows)


def entries_table(rows: Sequence[Any]) -> dict[str, Any]:
    """Entries in short, inside another page; each knows its unit, see `with_units`."""
    return table_of(
        rows,
        ("Entry", lambda row: entry_link(row.holder_id, row.credit_type, row.sequence)),
        ("Kind", kind_words),
        ("Amount", amount_cell),
        columns.amount("Balance", "balance"),
        columns.instant("Recorded", "recorded_at"),
        ("Actor", "actor"),
        ("Reason", "reason"),
    )


def kind_words(row: EntryListing) -> str:
    """The kind, as people read it."""
    return KINDS[row.kind].words


def refusals_table(refusals: Sequence[reads.Refusal], unit: CreditUnit) -> dict[str, Any]:
    """Refusals of one account in short, inside another page."""
    return table_of(
        refusals,
        ("Refused", lambda row: refusal_link(row.holder_id, row.credit_type, row.sequence, row.operation)),
        ("Code", "code"),
        ("Facts", lambda row: facts(row.facts, unit)),
        columns.instant("Recorded", "recorded_at"),
        ("Actor", "actor"),
    )


def facts(found: dict[str, Any], unit: CreditUnit) -> SafeString:
    """The numbers that made it so, amounts with the decimals of their credit type."""
    return format_html_join(", ", "{}&nbsp;{}", shown_facts(found, fact_writer(unit)))


def amount_cell(row: Any) -> SafeString:
    """What it did to the balance, and what it did besides."""
    amount = signed(row.amount, _in_unit(row.unit, row.amount))
    return format_html('{} <span class="text-subtle whitespace-nowrap">{}</span>', amount, _besides(row))


def _in_unit(unit: CreditUnit, amount: int) -> str:
    """The amount with its sign, and with the unit where somebody has named it."""
    return unit.signed(amount) if unit == plain_unit(unit.credit_type) else unit.signed_amount(amount)


def _besides(row: Any) -> SafeString | str:
    if row.kind == "capture":
        return format_html("{} captured", digits(row.unit.number(taken_by(row))))
    if row.kind == "hold" and row.refers_to is not None:
        at = extended_to(row)
        return "" if at is None else format_html("until {}", timestamp(at))
    if row.kind == "adjust":
        repaid = sum(amount for _, amount in row.drawn)
        if repaid:
            return format_html("{} repaid", digits(row.unit.number(repaid)))
        if row.counterpart:
            return f"transfers {row.counterpart['incoming']}"
        return format_html("overdraft {}", digits(row.unit.number(row.overdraft or 0)))
    return ""


def counterpart_cell(row: EntryListing) -> SafeString | str:
    """The other side of a transfer: its entry where that is known, else its account."""
    other = row.counterpart
    if other is None or row.kind == "adjust":
        return ""
    if "sequence" not in other:
        return account_link(other["holder_id"], row.credit_type)
    return entry_link(other["holder_id"], row.credit_type, other["sequence"], f"{other['holder_id']} #{other['sequence']}")


def owed(row: Any) -> int:
    """How much of the overdraft was used after that entry: the lots add up to the balance and this."""
    return 0 if row.overdraft is None else sum(lot[1] for lot in row.lots) - int(row.balance)
