"""Holds on the pages: the state of a hold, its history, and what an account sets aside."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from ledger.rules.credit_units import CreditUnit
from ledger.rules.holds import Hold, Holds, decode_holds
from ledger.rules.instants import from_us, to_us
from ledger.rules.kinds import taken_by
from ledger.rules.refusal_texts import are
from ledger.staff.kit import columns
from ledger.staff.kit.cells import digits, instant_words
from ledger.staff.kit.columns import table_of
from ledger.staff.links import entry_link

EXPIRED_UNBOOKED = "expired, not booked yet"


@dataclass(frozen=True)
class HoldState:
    """The state of a hold at an instant: `state` is open, captured, released, expired, or expired and not yet booked."""

    state: str
    requested: int
    held: int
    captured: int
    released: int
    expires_at: datetime

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    def sentence(self, unit: CreditUnit) -> str:
        """Describe it for an operator who may release it."""
        if not self.is_open:
            return f"The hold is already {self.state}."
        held = f"{unit.number(self.held)} of {unit.amount(self.requested)} {are(self.held, unit)} held"
        return f"{held} until {instant_words(self.expires_at)}."


def state_of(hold: Any, referring: Sequence[Any], *, now: datetime) -> HoldState:
    """Return the state of the hold of that entry, from the entries that refer to it.

    Args:
        hold: the row of the `hold` entry that made it.
        referring: the rows that refer to it, the oldest first; if there are many, the latest ones.
    """
    # The hold from entry to entry; only the clock changes it otherwise.
    seen = [_hold_on(row, hold.sequence) for row in (hold, *referring)]
    known = [each for each in seen if each is not None]
    last = seen[-1]
    expires_us = known[-1].expires_us if known else to_us(hold.effective_at)
    state = _how_it_ended(referring[-1]) if last is None else _how_it_stands(last, now)
    return HoldState(
        state=state,
        requested=-hold.amount,
        held=last.amount if last is not None and state == "open" else 0,
        captured=sum(taken_by(row) for row in referring),
        released=sum(row.amount for row in referring if row.kind == "release"),
        expires_at=from_us(expires_us),
    )


def _hold_on(row: Any, sequence: int) -> Hold | None:
    return next((hold for hold in holds_on(row) if hold.sequence == sequence), None)


def _how_it_stands(hold: Hold, now: datetime) -> str:
    return EXPIRED_UNBOOKED if hold.is_expired(to_us(now)) else "open"


def _how_it_ended(last: Any) -> str:
    if last.kind == "capture":
        return "captured"
    return "expired" if last.idempotency_key is None else "released"


def holds_on(row: Any) -> Holds:
    """Return the account's holds after that entry."""
    return () if row.holds is None else decode_holds(json.dumps(row.holds))


def extended_to(row: Any) -> datetime | None:
    """Return the new expiry in a `hold` entry that extends another."""
    hold = _hold_on(row, row.refers_to) if row.kind == "hold" and row.refers_to is not None else None
    return None if hold is None else from_us(hold.expires_us)


def holds_table(holds: Holds, *, holder_id: str, credit_type: str, at: datetime, unit: CreditUnit) -> dict[str, Any]:
    """Return what is set aside, the oldest hold first, with its lots."""
    return table_of(
        holds,
        ("Hold", lambda hold: entry_link(holder_id, credit_type, hold.sequence)),
        ("Held", lambda hold: digits(unit.number(hold.amount))),
        columns.instant("Expires", lambda hold: from_us(hold.expires_us)),
        ("From lots", lambda hold: _parts(hold, holder_id, credit_type, unit)),
        ("State", lambda hold: _how_it_stands(hold, at)),
    )


def _parts(hold: Hold, holder_id: str, credit_type: str, unit: CreditUnit) -> SafeString:
    """Return how much it sets aside of which lots."""
    parts = ((entry_link(holder_id, credit_type, part.grant), digits(unit.number(part.remaining))) for part in hold.parts)
    return format_html_join(", ", "{} ({})", parts)
