"""Recurring grants of which others set the terms, such as the allowances of plans: set, ended and read under the lock."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ledger import due_grants, journal
from ledger.database.locks import Lock
from ledger.database.statements import fetch_rows
from ledger.rules import RecurringGrant
from ledger.rules.instants import from_us

CREDIT_TYPES = "SELECT credit_type FROM ledger_recurring_grant WHERE holder_id = %s AND name = %s ORDER BY credit_type"
instant_of_us = from_us
"""Return the instant of a number of microseconds since the epoch."""


class GrantedPeriod(NamedTuple):
    """A period that was granted: its entry, and the time for which it is; `amount` is above 0.

    `applies_to` says what the credits can pay for; None: everything.
    """

    sequence: int
    amount: int
    starts_at: datetime
    ends_at: datetime
    idempotency_key: str
    applies_to: dict[str, Any] | None


def credit_types_of(*, holder_id: str, recurring_grant: str) -> Sequence[str]:
    """Return the credit types of a holder that have, or had, a recurring grant of that name."""
    return fetch_rows(str, CREDIT_TYPES, [holder_id, recurring_grant])


def recurring_grant_under(lock: Lock, *, holder_id: str, credit_type: str, recurring_grant: str) -> RecurringGrant | None:
    """Return a recurring grant of an account, also one that has ended; None if there never was one of that name."""
    with journal.open(accounts=[(holder_id, credit_type)], held=lock) as accounts:
        return due_grants.recurring_grants(accounts.account(holder_id, credit_type)).get(recurring_grant)


def granted_under(lock: Lock, *, holder_id: str, credit_type: str, recurring_grant: str, since: int = 0) -> list[GrantedPeriod]:
    """Make what is due in an account; return the periods of a recurring grant whose entries came after `since`, in order."""
    with journal.open(accounts=[(holder_id, credit_type)], held=lock) as accounts:
        account = due_grants.with_due_grants(accounts.account(holder_id, credit_type))
        accounts.append()
        return [
            GrantedPeriod(
                entry.sequence,
                entry.amount,
                datetime.fromisoformat(entry.metadata["period_start"]),
                datetime.fromisoformat(entry.metadata["period_end"]),
                entry.idempotency_key or "",
                next((lot.applies_to.shown() for lot in entry.lots if lot.grant == entry.sequence and lot.applies_to), None),
            )
            for entry in due_grants.granted_periods(account, recurring_grant, since)
        ]
