"""Giving the credits that a plan grants each period: in the transaction of the run, under the holder's lock, once per period.

A claim of the kind ALLOWANCE says that a period was seen to. It belongs to no invoice, so voiding one neither takes the credits
back nor gives them again; the idempotency key in the ledger says the same a second time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from billing.documents.invoices import invoice_key
from billing.generator.allowance_periods import Allowance, over_cap
from billing.generator.load import Head
from billing.models import Claim
from ledger import journal
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock

GRANTED = """
    SELECT starts_at, ends_at FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND ends_at > %s
"""

# The newest claim names the grants that may still have something unspent, so a long history costs nothing.
NEWEST = """
    SELECT basis FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5
    ORDER BY ends_at DESC
    LIMIT 1
"""
LONG_AGO = "0001-01-01T00:00:00+00:00"


TIDED_OVER = timedelta(days=30)
"""How long credits live that would have expired by now, and are given only to cover usage in the same transaction: what is not
spent is taken away in it, and what is given back later, when the invoice is voided, can cover the period again."""
FIRST = 0
"""Their priority: in time they would have been used before what expires later."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Credits that a run has given; `amount` is above 0.

    Args:
        grant: their sequence in the ledger.
        lapsed_at: when they would have expired, had each run come in time; None: they live on.
    """

    credit_type: str
    amount: int
    grant: int
    lapsed_at: datetime | None = None


def read_granted(lock: Lock, head: Head, since: datetime | None) -> list[tuple[datetime, datetime]]:
    """The stretches whose allowance has been seen to and that end after `since`."""
    lock.ensure_held(invoice_key(head.ref))
    with connection.cursor() as cursor:
        cursor.execute(GRANTED, [head.subscription_id, since or LONG_AGO])
        return list(cursor.fetchall())


def grant_allowances(lock: Lock, head: Head, allowances: Sequence[Allowance], *, before_usage: bool = False) -> list[Granted]:
    """Give the holder what is due, oldest first, and claim each period; or raise and leave nothing behind.

    Lock order: the subscription's is held, then the holder's; the number series has not been locked yet.

    Args:
        before_usage: usage that is about to be rated may be covered by it, so what would have expired meanwhile is given too.
            Who asks for that takes it away again: see `EarlyGrants`.

    Raises:
        Refused: the ledger will not take the grant: LotLimit.
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(head.ref))
    if not allowances:
        return []
    given: list[Granted] = []
    standing = _standing(head)
    now = timezone.now()
    with holder_lock(head.holder_id) as holder:
        for allowance in allowances:
            span = allowance.span
            lapsed = 0 if span.rollover_cap is None else _lapse(holder, head, allowance, standing)
            is_late = allowance.is_lost(now)
            tides_over = is_late and before_usage and span.pays_usage
            grant = None
            if allowance.amount and (tides_over or not is_late):
                terms = (
                    {"expires_at": now + TIDED_OVER, "priority": FIRST} if tides_over else {"expires_at": allowance.expires_at}
                )
                grant = _grant(holder, head, allowance, terms)
                given.append(Granted(span.credit_type, allowance.amount, grant, allowance.expires_at if tides_over else None))
                if span.rollover_cap is not None:
                    standing.setdefault(span.credit_type, []).append(grant)
            _claim(head, allowance, grant, standing, lapsed)
    return given


class EarlyGrants:
    """The allowances of periods that began before usage that is about to be rated: given first, so that they can cover it.

    A run that catches up covers what runs in time would have: what would have expired by now is given all the same, covers the
    usage up to the instant at which it would have expired, and what is left of it is taken away.
    """

    def __init__(self, lock: Lock, head: Head, due: Sequence[Allowance]) -> None:
        self._lock, self._head = lock, head
        self.due = list(due)
        self.given: list[Granted] = []
        self._tiding_over: list[Granted] = []

    def give_before(self, instant: datetime) -> None:
        """Give what began before the instant, at which usage became due, and take away what would have expired by then."""
        early = [one for one in self.due if one.part.start < instant]
        if early:
            self.due = [one for one in self.due if one.part.start >= instant]
            given = grant_allowances(self._lock, self._head, early, before_usage=True)
            self.given += given
            self._tiding_over += [one for one in given if one.lapsed_at is not None]
        self._take_away([one for one in self._tiding_over if one.lapsed_at is not None and one.lapsed_at <= instant])

    def end(self) -> None:
        """Take away what is left of all that would have expired."""
        self._take_away(self._tiding_over)

    def _take_away(self, lapsed: Sequence[Granted]) -> None:
        if not lapsed:
            return
        self._tiding_over = [one for one in self._tiding_over if one not in lapsed]
        head = self._head
        with holder_lock(head.holder_id) as holder:
            for one in lapsed:
                lot = journal.read(holder, head.holder_id, one.credit_type).state.lot(one.grant)
                if lot is not None:
                    ledger.revoke_under(
                        holder,
                        holder_id=head.holder_id,
                        grant=one.grant,
                        credit_type=one.credit_type,
                        idempotency_key=f"allowance/{head.ref}/lapsed/{one.grant}",
                        reason="Allowance that had expired",
                        reference=f"subscription {head.ref}",
                        actor="billing",
                    )


def _standing(head: Head) -> dict[str, list[int]]:
    """The holder's grants of earlier periods that roll over, by credit type."""
    with connection.cursor() as cursor:
        cursor.execute(NEWEST, [head.subscription_id])
        row = cursor.fetchone()
    if row is None:
        return {}
    basis: Mapping[str, Any] = json.loads(row[0]) if isinstance(row[0], str) else row[0]
    return dict(basis["standing"]) if basis["holder_id"] == head.holder_id else {}


def _lapse(holder: Lock, head: Head, allowance: Allowance, standing: dict[str, list[int]]) -> int:
    """Take back what is unspent beyond the cap; `standing` keeps the grants that have something left."""
    span = allowance.span
    assert span.rollover_cap is not None
    state = journal.read(holder, head.holder_id, span.credit_type).state
    left = {lot.grant: lot.remaining for lot in state.lots}
    unspent = [(grant, left[grant]) for grant in standing.get(span.credit_type, []) if left.get(grant)]
    lapsing = over_cap(unspent, span.rollover_cap)
    for grant, amount in lapsing:
        ledger.revoke_under(
            holder,
            holder_id=head.holder_id,
            grant=grant,
            amount=amount,
            credit_type=span.credit_type,
            idempotency_key=f"{_key(head, allowance)}/cap/{grant}",
            reason="Allowance beyond what rolls over",
            reference=f"subscription {head.ref}",
            actor="billing",
        )
    taken = dict(lapsing)
    standing[span.credit_type] = [grant for grant, amount in unspent if amount > taken.get(grant, 0)]
    return sum(taken.values())


def _grant(holder: Lock, head: Head, allowance: Allowance, terms: Mapping[str, Any]) -> int:
    """Returns the sequence of the grant."""
    entry = ledger.grant_under(
        holder,
        holder_id=head.holder_id,
        amount=allowance.amount,
        credit_type=allowance.span.credit_type,
        idempotency_key=_key(head, allowance),
        source="promotional",
        effective_at=allowance.part.start,
        **terms,
        reason="Plan allowance",
        reference=f"subscription {head.ref}",
        actor="billing",
    )
    return entry.sequence


def _key(head: Head, allowance: Allowance) -> str:
    return f"allowance/{head.ref}/{allowance.part.start.isoformat()}"


def _claim(head: Head, allowance: Allowance, grant: int | None, standing: Mapping[str, list[int]], lapsed: int) -> None:
    Claim.objects.create(
        subscription_id=head.subscription_id,
        item_id=allowance.span.item_id,
        kind=Claim.Kind.ALLOWANCE,
        starts_at=allowance.part.start,
        ends_at=allowance.part.end,
        quantity=allowance.amount if grant is not None else 0,
        amount_minor=0,
        basis={
            "credit_type": allowance.span.credit_type,
            "holder_id": head.holder_id,
            "grant": grant,
            "standing": standing,
            "lapsed": lapsed,
        },
    )
