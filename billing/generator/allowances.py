"""Giving the credits that a plan grants each period: in the transaction of the run, under the holder's lock, once per period.

A claim of the kind ALLOWANCE says that a period was seen to. It belongs to no invoice, so voiding one neither takes the credits
back nor gives them again; the idempotency key in the ledger says the same a second time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from billing.documents.invoices import invoice_key
from billing.generator.allowance_periods import Allowance, AllowanceSpan, over_cap
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

# Allowances that began before an instant and had not lapsed by then; they end with its period or the one before.
LAPSED_SINCE = """
    SELECT id, starts_at, basis FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND starts_at < %s AND ends_at >= %s
        AND (basis ->> 'expires_at')::timestamptz > %s AND (basis ->> 'pays_usage')::boolean AND basis ->> 'holder_id' = %s
    ORDER BY starts_at
"""
LATER = """
    SELECT (basis ->> 'grant')::bigint FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND starts_at >= %s AND basis ->> 'grant' IS NOT NULL
        AND basis ->> 'holder_id' = %s AND basis ->> 'credit_type' = %s
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
        claim_id: of the claim that says that the period was seen to.
    """

    credit_type: str
    amount: int
    grant: int
    lapsed_at: datetime | None
    claim_id: int


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
                if span.rollover_cap is not None:
                    standing.setdefault(span.credit_type, []).append(grant)
            claim = _claim(head, allowance, grant, standing, lapsed)
            if grant is not None:
                lapsed_at = allowance.expires_at if tides_over else None
                given.append(Granted(span.credit_type, allowance.amount, grant, lapsed_at, claim.pk))
    return given


class EarlyGrants:
    """The allowances that usage which is about to be rated may be paid from: those that runs in time would have found.

    In whatever steps and however late runs come, the usage of a period is covered by what its own allowance had left. What has
    not been given yet is given first; what has expired since, or was passed over because it had, is given again. It covers usage
    up to the instant at which it would have expired, and what is left of it is taken away. What began later is for later usage.

    Args:
        due: the allowances that no run has seen to.
        spans: when the subscription was on which plan with an allowance.
    """

    def __init__(self, lock: Lock, head: Head, due: Sequence[Allowance], spans: Sequence[AllowanceSpan]) -> None:
        self._lock, self._head = lock, head
        self._spans = [span for span in spans if span.pays_usage]
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
        self._give_again(instant)

    def held_back(self, instant: datetime, credit_type: str) -> int:
        """What the holder has of allowances of periods that began at the instant or later: it is for their own usage."""
        if not self._spans:
            return 0
        with connection.cursor() as cursor:
            cursor.execute(LATER, [self._head.subscription_id, instant, self._head.holder_id, credit_type])
            grants = {grant for (grant,) in cursor.fetchall()}
        if not grants:
            return 0
        with holder_lock(self._head.holder_id) as holder:
            state = journal.read(holder, self._head.holder_id, credit_type).state
        return sum(lot.remaining for lot in state.lots if lot.grant in grants)

    def end(self) -> None:
        """Take away what is left of all that would have expired."""
        self._take_away(self._tiding_over)

    def _give_again(self, instant: datetime) -> None:
        """Give what is left of the allowances that have lapsed since, but had not by then."""
        if not self._spans:
            return
        oldest = min(span.schedule.period_at(instant).start for span in self._spans)
        with connection.cursor() as cursor:
            cursor.execute(LAPSED_SINCE, [self._head.subscription_id, instant, oldest, instant, self._head.holder_id])
            rows = [(claim_id, starts_at, _basis(raw)) for claim_id, starts_at, raw in cursor.fetchall()]
        if not rows:
            return
        standing = {one.claim_id for one in self._tiding_over}
        with holder_lock(self._head.holder_id) as holder:
            for claim_id, starts_at, basis in rows:
                amount = 0 if claim_id in standing else _left(holder, basis)
                if amount:
                    self._tiding_over.append(_grant_again(holder, self._head, claim_id, starts_at, basis, amount))

    def _take_away(self, lapsed: Sequence[Granted]) -> None:
        if not lapsed:
            return
        self._tiding_over = [one for one in self._tiding_over if one not in lapsed]
        head = self._head
        with holder_lock(head.holder_id) as holder:
            for one in lapsed:
                lot = journal.read(holder, head.holder_id, one.credit_type).state.lot(one.grant)
                if lot is not None:
                    entry = ledger.revoke_under(
                        holder,
                        holder_id=head.holder_id,
                        grant=one.grant,
                        credit_type=one.credit_type,
                        idempotency_key=f"allowance/{head.ref}/lapsed/{one.grant}",
                        reason="Expired allowance",
                        reference=f"subscription {head.ref}",
                        actor="billing",
                    )
                    claim = Claim.objects.get(pk=one.claim_id)
                    Claim.objects.filter(pk=claim.pk).update(basis=claim.basis | {"left": -entry.amount})


def _left(holder: Lock, basis: Mapping[str, Any]) -> int:
    """What of an allowance nobody could spend before it lapsed: passed over, taken away, or expired in the ledger."""
    left: int = basis["left"]
    if basis["grant"] is None:
        return left
    account = journal.read(holder, basis["holder_id"], basis["credit_type"])
    lot = account.state.lot(basis["grant"])
    if lot is not None:
        return left + (lot.remaining if lot.is_expired(account.state.now_us) else 0)
    last = journal.last_closing(account, basis["grant"])
    return left - (last.amount if last is not None and last.kind == "expire" else 0)


def _grant_again(holder: Lock, head: Head, claim_id: int, starts_at: datetime, basis: Mapping[str, Any], amount: int) -> Granted:
    times = basis["times"] + 1
    entry = ledger.grant_under(
        holder,
        holder_id=head.holder_id,
        amount=amount,
        credit_type=basis["credit_type"],
        idempotency_key=f"allowance/{head.ref}/{starts_at.astimezone(UTC).isoformat()}/again/{times}",
        source="promotional",
        effective_at=starts_at,
        expires_at=timezone.now() + TIDED_OVER,
        priority=FIRST,
        reason="Plan allowance, for usage of its period",
        reference=f"subscription {head.ref}",
        actor="billing",
    )
    Claim.objects.filter(pk=claim_id).update(basis={**basis, "grant": entry.sequence, "left": 0, "times": times})
    return Granted(basis["credit_type"], amount, entry.sequence, datetime.fromisoformat(basis["expires_at"]), claim_id)


def _basis(raw: Any) -> dict[str, Any]:
    basis: dict[str, Any] = json.loads(raw) if isinstance(raw, str) else raw
    return basis


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
            reason="Allowance above the rollover limit",
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


def _claim(head: Head, allowance: Allowance, grant: int | None, standing: Mapping[str, list[int]], lapsed: int) -> Claim:
    expires_at = allowance.expires_at
    return Claim.objects.create(
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
            # What usage that is rated late needs to know: see `EarlyGrants`.
            "expires_at": expires_at.isoformat() if expires_at else None,
            "pays_usage": allowance.span.pays_usage,
            "left": allowance.amount if grant is None else 0,
            "times": 0,
        },
    )
