"""Recurring grants of which others set the terms, such as the allowances of plans: set, ended and read under the lock.

`services` does not load this: who sets the terms of recurring grants by a plan imports it.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import due_grants, journal
from ledger.database.locks import Lock
from ledger.database.statements import fetch_rows
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.rules.entries import BY_THE_LEDGER, Entry
from ledger.rules.instants import from_us, to_us
from ledger.rules.recurring_terms import NOT_KEPT, GrantPart, RecurringGrant, RecurringTerms

CREDIT_TYPES = "SELECT credit_type FROM ledger_recurring_grant WHERE holder_id = %s AND name = %s ORDER BY credit_type"
SETTINGS = "SELECT sequence, counterpart FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)"
GRANTED_PERIODS: Final = f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence > %s
    AND actor = %s AND metadata ->> 'recurring_grant' = %s AND metadata ->> 'period_start' IS NOT NULL
    AND idempotency_key IS NOT NULL
ORDER BY sequence
"""
instant_of_us = from_us
"""Return the instant of a number of microseconds since the epoch."""
us_of_instant = to_us
"""Return the number of microseconds since the epoch of an instant."""


class TakenBack(NamedTuple):
    """What a part took back of an earlier lot: `amount` credits were to go back, and `taken` of them were unspent."""

    lot: int
    amount: int
    taken: int


class HandledPeriod(NamedTuple):
    """A period or a part that was handled: its entry, and the time for which it is; `amount` is 0 if it only took back.

    A period that was skipped has the amount that it would have granted; the `lot` of what granted nothing is 0. `rollover_cap` is
    what it kept of earlier lots when it began; None: all. `applies_to` says what the credits can pay for; None: everything.
    `known_as` is what the setter of the terms said of it.
    """

    sequence: int
    amount: int
    starts_at: datetime
    ends_at: datetime
    idempotency_key: str
    applies_to: dict[str, Any] | None
    is_part: bool
    known_as: str
    expires_at: datetime | None
    taken_back: list[TakenBack]
    rollover_cap: int | None = None
    lot: int = 0


class RolledOver(NamedTuple):
    """The lots that a recurring grant rolls over: each open one with its rest, the oldest first; and what holds have of them."""

    lots: list[tuple[int, int]]
    held: int


def rolled_over_under(lock: Lock, *, holder_id: str, credit_type: str, recurring_grant: str) -> RolledOver:
    """Return what is unspent now of the lots without an expiry that a recurring grant opened, or a run of billing for it."""
    account = journal.read(lock, holder_id, credit_type)
    own, state = due_grants.lots_of(account, recurring_grant), account.state.settled
    lots = [(lot.grant, lot.remaining) for lot in sorted(state.lots) if lot.grant in own and lot.expires_us is None]
    held = [part for hold in state.holds for part in hold.parts if part.grant in own and part.expires_us is None]
    return RolledOver(lots, sum(part.remaining for part in held))


def credit_types_of(*, holder_id: str, recurring_grant: str) -> Sequence[str]:
    """Return the credit types of a holder that have, or had, a recurring grant of that name."""
    return fetch_rows(str, CREDIT_TYPES, [holder_id, recurring_grant])


def recurring_grant_under(lock: Lock, *, holder_id: str, credit_type: str, recurring_grant: str) -> RecurringGrant | None:
    """Return a recurring grant of an account, also one that has ended; None if there never was one of that name."""
    with journal.open(accounts=[(holder_id, credit_type)], held=lock) as accounts:
        return due_grants.recurring_grants(accounts.account(holder_id, credit_type)).get(recurring_grant)


def granted_under(lock: Lock, *, holder_id: str, credit_type: str, recurring_grant: str, since: int = 0) -> list[HandledPeriod]:
    """Make what is due in an account; return what was handled of a recurring grant by entries after `since`, in order.

    Periods that needed nothing are left out, and so are those that were skipped, but for those whose credits would not have
    expired: each of these is one.
    """
    with journal.open(accounts=[(holder_id, credit_type)], held=lock) as accounts:
        account = due_grants.with_due_grants(accounts.account(holder_id, credit_type))
        accounts.append()
        entries = _handling_entries(account, recurring_grant, since)
    settings = sorted({entry.metadata["setting"] for entry in entries})
    set_by = dict(fetch_rows(_setting, SETTINGS, [holder_id, credit_type, settings]))
    taken = {entry.idempotency_key: -entry.amount for entry in entries if entry.kind == "revoke"}
    periods: list[HandledPeriod] = []
    for entry in entries:
        setting = set_by[entry.metadata["setting"]]
        if entry.kind == "grant" or (entry.kind == "adjust" and "part" in entry.metadata):
            periods.append(_granted_period(entry, setting, taken))
        elif entry.metadata.get("because") == NOT_KEPT:
            periods += _skipped_spans(entry, setting)
    return periods


def _skipped_spans(entry: Entry, setting: dict[str, Any]) -> list[HandledPeriod]:
    terms, last = RecurringTerms.from_stored(setting["terms"]), entry.metadata["period"]
    spans = [(n, terms.span(n)) for n in range(last - entry.metadata["periods"] + 1, last + 1)]
    return [
        HandledPeriod(
            entry.sequence, terms.amount or 0, from_us(span.start_us), from_us(span.end_us), f"{entry.idempotency_key}/{n}",
            terms.applies_to, False, setting.get("known_as", ""), None, [], terms.rollover_cap,
        )
        for n, span in spans
    ]  # fmt: skip


def _setting(sequence: int, counterpart: Any) -> tuple[int, dict[str, Any]]:
    return sequence, json.loads(counterpart) if isinstance(counterpart, str) else counterpart


def _handling_entries(account: journal.LockedAccount, name: str, since: int) -> list[Entry]:
    """Return the entries after a sequence that handled periods and parts of a recurring grant, in order.

    What they took back of earlier lots is among them.
    """
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(GRANTED_PERIODS, [state.holder_id, state.credit_type, since, BY_THE_LEDGER, name])
        stored = [entry_from_row(row) for row in cursor.fetchall()]
    previewed = [each for each in account.among.previewed(state) if each.sequence > since and "period_start" in each.metadata]
    return [*stored, *(each for each in previewed if each.metadata["recurring_grant"] == name and each.actor == BY_THE_LEDGER)]


def _granted_period(entry: Entry, setting: dict[str, Any], taken: dict[str | None, int]) -> HandledPeriod:
    part = GrantPart.from_stored(setting["parts"][entry.metadata["part"]]) if "part" in entry.metadata else None
    lot = next((lot for lot in entry.lots if lot.grant == entry.sequence), None)
    ends_at = datetime.fromisoformat(entry.metadata["period_end"])
    cap: int | None = setting["terms"].get("rollover_cap") if part is None else part.rollover_cap
    expires_at = ends_at if cap is None else None
    return HandledPeriod(
        sequence=entry.sequence,
        amount=entry.amount,
        starts_at=datetime.fromisoformat(entry.metadata["period_start"]),
        ends_at=ends_at,
        idempotency_key=entry.idempotency_key or "",
        applies_to=part.applies_to if part else lot.applies_to.shown() if lot and lot.applies_to else None,
        is_part=part is not None,
        known_as=setting.get("known_as", "") if part is None else part.known_as,
        expires_at=expires_at if part is None else None if part.expires_us is None else from_us(part.expires_us),
        taken_back=[
            TakenBack(number, amount, taken.get(f"{entry.idempotency_key}/back/{number}", 0))
            for number, amount in (part.taken_back if part else ())
        ],
        rollover_cap=cap,
        lot=entry.sequence if entry.amount else 0,
    )
