"""What an entry did, in words for a time line."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from ledger.rules.budget_texts import setting_words
from ledger.rules.credit_units import CreditUnit
from ledger.rules.entries import FROZEN
from ledger.rules.kinds import KINDS
from ledger.rules.rates import quantity_words
from ledger.rules.recurring_texts import setting_words as recurring_words
from ledger.rules.refusal_texts import refusal_text
from ledger.rules.setting_texts import claim_words, overage_words

REASONS_OF_THE_LEDGER = ("captured less",)
"""Reasons that the ledger gives itself: the text says them already."""


class EntryText(NamedTuple):
    """What an entry did: `verb` for the label, `text` for the sentence, and the colour of the label."""

    verb: str
    text: str
    colour: str


def entry_text(entry: Any, *, at: datetime, unit: CreditUnit) -> EntryText:
    """Say what the entry did.

    Args:
        entry: anything with an entry's columns: kind, amount, drawn, refers_to, overdraft, counterpart, rating and so on.
        at: when it was recorded.
        unit: of the account's credit type.
    """
    kind = KINDS[entry.kind]
    text = kind.text_of(entry)
    counterpart = entry.counterpart or {}
    past = text.past.format(
        amount=unit.number(abs(entry.amount)),
        drawn=unit.number(sum(part for _, part in entry.drawn)),
        refers_to=entry.refers_to,
        overdraft=unit.number(entry.overdraft or 0),
        other=counterpart.get("holder_id", "another holder"),
        setting=setting_text(counterpart, unit),
        of_requested="" if entry.requested is None else f" of {unit.number(entry.requested)} requested",
        rated=_rating_text(entry, unit),
        on_overage=f", {unit.number(entry.postpaid)} of them on overage" if entry.postpaid else "",
        refused=_refusal_text_of(entry.refusal, at, unit),
    )
    return EntryText(text.label, past, kind.colour)


def setting_text(counterpart: Mapping[str, Any], unit: CreditUnit) -> str:
    """What an `adjust` entry sets that names no overdraft, by its `counterpart`."""
    if "recurring_grant" in counterpart:
        return recurring_words(counterpart, unit.number)
    if "overage" in counterpart:
        return overage_words(counterpart, unit.number)
    if "claim" in counterpart:
        return claim_words(counterpart, unit.number)
    if "budget" in counterpart:
        return setting_words(counterpart, unit.number)
    if counterpart.get("holder"):
        return "frozen: no spends, holds or transfers" if counterpart["holder"] == FROZEN else "no longer frozen"
    if "clock" in counterpart:
        return f"test clock at {counterpart['clock'][:19].replace('T', ' ')} UTC"
    return f"{'accepts' if counterpart.get('incoming') == 'accepted' else 'refuses'} transfers from others"


def _refusal_text_of(refusal: Any, at: datetime, unit: CreditUnit) -> str:
    return f"{refusal['operation']}: {refusal_text(refusal, at=at, unit=unit).removeprefix('Refused: ')}" if refusal else ""


def _rating_text(entry: Any, unit: CreditUnit) -> str:
    if entry.rating is None:
        return ""
    return f" for {quantity_words(entry.rating)} of {entry.rating['rate']} v{entry.rating['version']}"
