"""The recurring grants of an account, with the grants that come next."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from ledger.database.statements import fetch_rows
from ledger.rules.instants import from_us
from ledger.rules.recurring_terms import LARGEST_NAME, GrantPart, RecurringGrant, RecurringTerms

__all__ = ["MOST_UPCOMING", "ShownRecurringGrant", "UpcomingGrant", "recurring_grant", "recurring_grants"]

MOST_UPCOMING = 100
RECURRING_GRANTS = """
SELECT r.name, r.setting, s.counterpart, l.metadata, l.sequence, l.amount
FROM ledger_recurring_grant r
JOIN ledger_entry s ON s.holder_id = r.holder_id AND s.credit_type = r.credit_type AND s.sequence = r.setting
LEFT JOIN ledger_entry l
    ON l.holder_id = r.holder_id AND l.credit_type = r.credit_type AND l.sequence = r.last AND r.last > r.setting
WHERE r.holder_id = %s AND r.credit_type = %s AND r.name BETWEEN %s AND %s AND s.counterpart ->> 'terms' IS NOT NULL
ORDER BY r.name
"""


class UpcomingGrant(NamedTuple):
    """A grant that comes; `amount` is what it gives at most, `period` is None if it is for a part of one."""

    period: int | None
    amount: int
    starts_at: datetime
    ends_at: datetime
    expires_at: datetime | None


class ShownRecurringGrant(NamedTuple):
    """A recurring grant that has not ended."""

    holder_id: str
    credit_type: str
    grant: RecurringGrant
    terms: RecurringTerms
    last_entry: int | None
    """The entry of the last period since the terms were set."""
    upcoming: Sequence[UpcomingGrant]

    @property
    def name(self) -> str:
        return self.grant.name

    @property
    def state(self) -> str:
        """`active`, or `finished` if no period is left."""
        return "finished" if self.grant.next_us is None else "active"

    @property
    def starts_at(self) -> datetime:
        return from_us(self.terms.starts_us)

    @property
    def ends_at(self) -> datetime | None:
        return None if self.terms.ends_us is None else from_us(self.terms.ends_us)

    @property
    def next_at(self) -> datetime | None:
        return None if self.grant.next_us is None else from_us(self.grant.next_us)

    @property
    def granted_until(self) -> datetime | None:
        return None if self.grant.granted_until_us is None else from_us(self.grant.granted_until_us)


def recurring_grants(holder_id: str, credit_type: str = "credits", *, upcoming: int = 3) -> list[ShownRecurringGrant]:
    """The recurring grants of an account by name, without a lock.

    Args:
        upcoming: how many of its next grants each shows, 0 to 100.
    """
    return _read_grants(holder_id, credit_type, ("", LARGEST_NAME), upcoming)


def recurring_grant(holder_id: str, credit_type: str = "credits", *, name: str, upcoming: int = 3) -> ShownRecurringGrant | None:
    """A recurring grant of an account; None if it has none of that name, or the one has ended. Args: as `recurring_grants`."""
    return next(iter(_read_grants(holder_id, credit_type, (name, name), upcoming)), None)


def _read_grants(holder_id: str, credit_type: str, names: tuple[str, str], upcoming: int) -> list[ShownRecurringGrant]:
    grants = []
    for facts in fetch_rows(lambda *row: row, RECURRING_GRANTS, [holder_id, credit_type, *names]):
        grant = RecurringGrant.from_entries(*facts)
        assert grant.terms is not None
        most = min(upcoming, MOST_UPCOMING)
        coming = [*map(_part, grant.upcoming_parts(most)), *(_upcoming(grant, n) for n in grant.upcoming(most))]
        coming = sorted(coming, key=lambda one: one.starts_at)[:most]
        last = facts[4]
        grants.append(ShownRecurringGrant(holder_id, credit_type, grant, grant.terms, last, coming))
    return grants


def _upcoming(grant: RecurringGrant, n: int) -> UpcomingGrant:
    assert grant.terms is not None
    span, expires_us, amount = grant.part(n), grant.expires_us(n), grant.amount(n)
    amount = grant.terms.up_to or 0 if amount is None else amount
    expires_at = None if expires_us is None else from_us(expires_us)
    return UpcomingGrant(n, amount, from_us(span.start_us), from_us(span.end_us), expires_at)


def _part(part: GrantPart) -> UpcomingGrant:
    expires_at = None if part.expires_us is None else from_us(part.expires_us)
    return UpcomingGrant(None, part.amount, from_us(part.start_us), from_us(part.end_us), expires_at)
