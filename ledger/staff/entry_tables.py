"""Entries, lots and refusals as tables inside a page."""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger import reads
from ledger.errors import REFUSALS, Refused
from ledger.models import EntryListing
from ledger.rules.cost_shares import LotCosts
from ledger.rules.credit_units import CreditUnit, currency_unit, plain_unit
from ledger.rules.entries import Entry
from ledger.rules.entry_texts import setting_text
from ledger.rules.kinds import KINDS
from ledger.rules.lots import Lot
from ledger.rules.purpose_texts import purpose_words
from ledger.staff.credit_types import fact_writer
from ledger.staff.holds import extended_to
from ledger.staff.kit import columns
from ledger.staff.kit.cells import digits, signed, timestamp
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.pages import shown_facts
from ledger.staff.links import account_link, entry_link, refusal_link


def lots_table(
    lots: Sequence[Lot], *, holder_id: str, credit_type: str, at: datetime, unit: CreditUnit, costs: LotCosts = ()
) -> dict[str, Any]:
    """Return the lots in burn order, each with its origin, and with what is left of its cost if one of them was sold."""
    left = {cost.lot: currency_unit(cost.currency).amount(cost.left) for cost in costs}
    sold = [("Cost left", lambda lot: digits(left.get(lot.grant, "")))] if left else []
    purposes = [("Pays for", _purpose)] if any(lot.applies_to is not None for lot in lots) else []
    return table_of(
        lots,
        ("Lot", lambda lot: entry_link(holder_id, credit_type, lot.grant)),
        ("Remaining", lambda lot: digits(unit.number(lot.remaining))),
        ("Source", lambda lot: f"{lot.source}, received" if lot.received else lot.source),
        ("Priority", "priority"),
        columns.instant("Effective", "effective_at"),
        ("Expires", lambda lot: timestamp(lot.expires_at) or "never"),
        ("State", lambda lot: _lot_state(lot, at)),
        *sold,
        *purposes,
    )


def _purpose(lot: Lot) -> str:
    return "everything" if lot.applies_to is None else purpose_words(lot.applies_to.shown())


def _lot_state(lot: Lot, at: datetime) -> str:
    if lot.effective_at > at:
        return "not yet effective"
    return "expired, not booked yet" if lot.expires_at is not None and lot.expires_at <= at else "open"


def drawn_table(entry: Entry, unit: CreditUnit) -> dict[str, Any]:
    """Return what the entry took from which lots, or gave back to them; and what a spend took on the overdraft."""
    moved = {change.lot: currency_unit(change.currency).signed_amount(change.minor) for change in entry.cost_changes}
    amounts = dict(entry.drawn) | {lot: entry.amount for lot in moved if lot == entry.sequence and not entry.drawn}
    rows = [
        (entry_link(entry.holder_id, entry.credit_type, grant), digits(unit.number(amount)), digits(moved.get(grant, "")))
        for grant, amount in amounts.items()
    ]
    on_overdraft = -entry.amount - sum(amount for _, amount in entry.drawn) if entry.kind == "spend" else 0
    if on_overdraft:
        rows.append((SafeString("the overdraft"), digits(unit.number(on_overdraft)), SafeString()))
    sold = [("Change of its cost", itemgetter(2))] if moved else []
    return table_of(rows, ("Lot", itemgetter(0)), ("Credits", itemgetter(1)), *sold)


def entries_table(rows: Sequence[Any]) -> dict[str, Any]:
    """Return entries in short, inside another page; each has its unit, see `with_units`."""
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
    """Return the kind in words."""
    return KINDS[row.kind].words


def refusals_table(refusals: Sequence[reads.Refusal], unit: CreditUnit) -> dict[str, Any]:
    """Return refusals of one account in short, inside another page."""
    return table_of(
        refusals,
        ("Refused", lambda row: refusal_link(row.holder_id, row.credit_type, row.sequence, row.operation)),
        ("Code", "code"),
        ("Facts", lambda row: facts(row.code, row.facts, unit)),
        columns.instant("Recorded", "recorded_at"),
        ("Actor", "actor"),
    )


def facts(code: str, found: dict[str, Any], unit: CreditUnit) -> SafeString:
    """Return the numbers behind the refusal, amounts with the decimals of their credit type."""
    return format_html_join(", ", "{}&nbsp;{}", shown_facts(found, fact_writer(REFUSALS.get(code, Refused), unit)))


def amount_cell(row: Any) -> SafeString:
    """Return the change of the balance, and further changes."""
    amount = signed(row.amount, _in_unit(row.unit, row.amount))
    return format_html('{} <span class="text-subtle whitespace-nowrap">{}</span>', amount, _besides(row))


def _in_unit(unit: CreditUnit, amount: int) -> str:
    """Return the amount with its sign, and with the unit if its type has one."""
    return unit.signed(amount) if unit == plain_unit(unit.credit_type) else unit.signed_amount(amount)


def _besides(row: Any) -> SafeString | str:
    if row.kind == "hold" and row.refers_to is not None:
        at = extended_to(row)
        return "" if at is None else format_html("until {}", timestamp(at))
    drawn = sum(amount for _, amount in row.drawn)
    if text := KINDS[row.kind].drawn_text:
        return format_html(text, drawn=digits(row.unit.number(drawn)))
    if row.kind == "adjust":
        if drawn:
            return format_html("{} repaid", digits(row.unit.number(drawn)))
        if row.counterpart and "budget" in row.counterpart:
            return f"budget {row.counterpart['budget']}{'' if row.counterpart.get('settings') else ' ended'}"
        if row.counterpart:
            return setting_text(row.counterpart, row.unit)
        return format_html("overdraft {}", digits(row.unit.number(row.overdraft or 0)))
    return ""


def counterpart_cell(row: EntryListing) -> SafeString | str:
    """Return the other side of a transfer: its entry if it is known, otherwise its account."""
    other = row.counterpart
    if other is None or row.kind == "adjust":
        return ""
    if "sequence" not in other:
        return account_link(other["holder_id"], row.credit_type)
    return entry_link(other["holder_id"], row.credit_type, other["sequence"], f"{other['holder_id']} #{other['sequence']}")


def owed(row: Any) -> int:
    """Return the used part of the overdraft after that entry: the lots add up to the balance and this."""
    return 0 if row.overdraft is None else sum(lot[1] for lot in row.lots) - int(row.balance)
