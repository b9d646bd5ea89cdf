"""What an entry did, in words for a time line."""

from datetime import datetime
from typing import Any, NamedTuple

from ledger.rules.credit_units import CreditUnit
from ledger.rules.refusal_texts import refusal_text

REASONS_OF_THE_LEDGER = ("captured less",)
"""Reasons that the ledger gives itself: the text says them already."""


class EntryText(NamedTuple):
    """What an entry did: `verb` for the label, `text` for the sentence; `tone` is success, info, warning, danger or base."""

    verb: str
    text: str
    tone: str


def entry_text(entry: Any, *, at: datetime, unit: CreditUnit) -> EntryText:
    """Say what the entry did.

    Args:
        entry: anything with an entry's columns: kind, amount, drawn, refers_to, overdraft, counterpart, rating, refusal.
        at: when it was recorded.
        unit: of the account's credit type.
    """
    amount, refers_to = unit.number(abs(entry.amount)), entry.refers_to
    drawn = unit.number(sum(part for _, part in entry.drawn))
    other = (entry.counterpart or {}).get("holder_id", "another holder")
    match entry.kind:
        case "grant":
            return EntryText("Grant", f"{amount} added", "success")
        case "spend":
            return EntryText("Spend", f"{amount} spent{_rated(entry, unit)}", "base")
        case "refund":
            return EntryText("Refund", f"{amount} of spend #{refers_to} returned", "info")
        case "revoke":
            return EntryText("Revoke", f"{amount} of grant #{refers_to} taken back", "warning")
        case "expire":
            return EntryText("Expire", f"{amount} of grant #{refers_to} expired", "warning")
        case "hold" if refers_to is None:
            return EntryText("Hold", f"{amount} set aside{_rated(entry, unit)}", "base")
        case "hold":
            return EntryText("Hold", f"hold #{refers_to} extended", "base")
        case "capture":
            return EntryText("Capture", f"{drawn} of hold #{refers_to} spent", "base")
        case "release":
            return EntryText("Release", f"{amount} of hold #{refers_to} returned", "info")
        case "transfer_in":
            return EntryText("Transfer", f"{amount} received from {other}", "success")
        case "transfer_out":
            return EntryText("Transfer", f"{amount} sent to {other}", "base")
        case "refusal":
            text = refusal_text(entry.refusal, at=at, unit=unit).removeprefix("Refused: ")
            return EntryText("Refused", f"{entry.refusal['operation']}: {text}", "danger")
        case "adjust" if entry.drawn:
            return EntryText("Repay", f"{drawn} repaid the overdraft", "warning")
        case "adjust" if entry.counterpart:
            verb = "accepts" if entry.counterpart["incoming"] == "accepted" else "refuses"
            return EntryText("Setting", f"{verb} transfers from others", "warning")
        case _:
            return EntryText("Overdraft", f"limit set to {unit.number(entry.overdraft or 0)}", "warning")


def _rated(entry: Any, unit: CreditUnit) -> str:
    if entry.rating is None:
        return ""
    return f" for {entry.rating['quantity']:,} of {entry.rating['rate']} v{entry.rating['version']}"
