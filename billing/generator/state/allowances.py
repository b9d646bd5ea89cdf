"""Grants the allowances of a plan: in the run's transaction, under the holder's lock, once for each span of time.

A claim of the kind ALLOWANCE records the span of time that had its allowance, and how much of it. A change that cuts the span
gives back the share of the rest, as far as it is unspent; the claim is released, and written again for what stays. It belongs to
no invoice, so voiding an invoice neither takes the credits back nor grants them again. The idempotency key in the ledger also
protects against a second grant.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models.functions import Now

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.allowance_times import (
    Allowance,
    AllowanceDifference,
    AllowanceSpan,
    CutAllowance,
    HeldAllowance,
    over_cap,
    purpose_of_terms,
    reconcile_allowances,
    settled_start,
)
from billing.generator.state.claims import LONG_AGO
from billing.generator.state.subscription_state import SubscriptionState
from billing.models import Claim
from billing.rating.proration import MICROSECOND
from ledger import journal
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.database.statements import fetch_rows
from ledger.services import earlier_entries, plan_grants

HELD = """
    SELECT id, starts_at, ends_at, (snapshot ->> 'amount')::bigint, snapshot -> 'terms' FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND ends_at > %s
"""

# How often a span that begins at an instant was given back: each grant has a key of its own.
REPLACED = """
    SELECT count(*) FROM billing_claim
    WHERE subscription_id = %s AND kind = 5 AND starts_at = %s AND (snapshot ->> 'replaced')::boolean
"""

# Whether a later allowance of the credit type has been granted: it has applied its cap already.
HAS_LATER = """
    SELECT count(*) FROM billing_claim
    WHERE subscription_id = %s AND kind = 5 AND released_at IS NULL AND starts_at > %s AND snapshot ->> 'credit_type' = %s
"""

# Allowances that began before an instant and had not lapsed by then.
LAPSED_SINCE = """
    SELECT id, starts_at, ends_at, snapshot FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND starts_at < %s AND ends_at >= %s
        AND (snapshot ->> 'expires_at')::timestamptz > %s AND (snapshot ->> 'pays_usage')::boolean
        AND snapshot ->> 'holder_id' = %s
    ORDER BY starts_at
"""
LATER = """
    SELECT (snapshot ->> 'grant')::bigint FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND starts_at >= %s AND snapshot ->> 'grant' IS NOT NULL
        AND snapshot ->> 'holder_id' = %s AND snapshot ->> 'credit_type' = %s
"""
TEMPORARY_LIFETIME = timedelta(days=30)
"""The lifetime of credits that would have expired by now. They are granted only to cover usage in the same transaction, which
takes the rest away. If the invoice is voided later, the credits that go back can cover the period again."""
FIRST = 0
"""Their priority: runs in time would have spent them before credits that expire later."""


@dataclass(frozen=True, slots=True)
class AllowanceGrant:
    """Credits that a run has granted; `amount` is above 0.

    Args:
        grant: their sequence in the ledger.
        lapsed_at: when they would have expired if each run had come in time; None: they are not temporary.
        claim_id: the claim of the period.
        starts_at, ends_at: the time for which they are.
        applies_to: what they can pay for; None: everything.
    """

    credit_type: str
    amount: int
    grant: int
    lapsed_at: datetime | None
    claim_id: int
    starts_at: datetime
    ends_at: datetime
    applies_to: dict[str, Any] | None = None


class _AllowanceClaim(NamedTuple):
    """A row of LAPSED_SINCE."""

    id: int
    starts_at: datetime
    ends_at: datetime
    snapshot: dict[str, Any]


def _allowance_claim(claim_id: int, starts_at: datetime, ends_at: datetime, snapshot: Any) -> _AllowanceClaim:
    return _AllowanceClaim(claim_id, starts_at, ends_at, _json(snapshot))


def _json(raw: Any) -> dict[str, Any]:
    snapshot: dict[str, Any] = json.loads(raw) if isinstance(raw, str) else raw
    return snapshot


@dataclass(frozen=True, slots=True)
class AllowanceReturn:
    """Credits that went back because a change cut the span for which they had been granted; `amount` is above 0."""

    credit_type: str
    amount: int
    grant: int
    starts_at: datetime
    ends_at: datetime
    applies_to: dict[str, Any] | None


def _held(claim_id: int, starts_at: datetime, ends_at: datetime, amount: int, terms: Any) -> HeldAllowance:
    return HeldAllowance(claim_id, starts_at, ends_at, amount, json.loads(terms) if isinstance(terms, str) else terms)


def allowance_difference(
    lock: Lock, subscription: SubscriptionState, spans: Sequence[AllowanceSpan], as_of: datetime, since: datetime | None
) -> AllowanceDifference:
    """Return what of the granted allowances goes back as of an instant, and which are due.

    Args:
        since: what ends before it is settled; None: nothing is.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    while True:
        since = None if since is None else settled_start(spans, since)
        held = fetch_rows(_held, HELD, [subscription.id, since or LONG_AGO])
        earliest = min((one.start for one in held), default=None)
        if since is None or earliest is None or earliest >= since:
            return reconcile_allowances(spans, held, as_of, since)
        since = earliest


def give_back(
    lock: Lock, subscription: SubscriptionState, cut: Sequence[CutAllowance], *, taken: int | None = None
) -> list[AllowanceReturn]:
    """Take back what was granted for the time that changes have cut off, as far as it is unspent, and cut the claims.

    Lock order: the caller has the subscription's lock and its turn for the customer's account; then the holder's.

    Args:
        taken: how many credits the ledger has taken back already, by the clock; None: none, so they are taken back now.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    if not cut:
        return []
    returned: list[AllowanceReturn] = []
    with holder_lock(subscription.holder_id) as holder:
        for one in cut:
            claim = Claim.objects.get(pk=one.claim.id)
            Claim.objects.filter(pk=claim.pk).update(released_at=Now(), snapshot={**claim.snapshot, "replaced": True})
            back = _give_back(holder, subscription, claim, one, taken)
            if back is not None:
                returned.append(back)
    return returned


def _give_back(
    holder: Lock, subscription: SubscriptionState, claim: Claim, cut: CutAllowance, taken: int | None
) -> AllowanceReturn | None:
    """Take back the credits of one claim, and write what is left of the claim."""
    snapshot, share = claim.snapshot, cut.claim.amount - cut.amount
    grant, returned = snapshot["grant"], 0
    # What nobody could spend is given up first.
    passed = snapshot["left"]
    if taken is not None:
        returned = taken
    elif grant is not None and snapshot["holder_id"] == subscription.holder_id:
        account = journal.read(holder, subscription.holder_id, snapshot["credit_type"])
        remaining = _unspent(account).get(grant)
        if remaining is None:
            passed = _left(holder, snapshot)
            grant = None if passed else grant
        else:
            returned = min(remaining, max(share - passed, 0))
    if returned and taken is None:
        ledger.revoke_under(
            holder,
            holder_id=subscription.holder_id,
            grant=grant,
            amount=returned,
            credit_type=snapshot["credit_type"],
            idempotency_key=f"allowance/{subscription.ref}/cut/{grant}/{snapshot['cuts']}",
            reason="Plan allowance for time that is not used",
            reference=f"subscription {subscription.ref}",
            actor="billing",
        )
    if cut.end > claim.starts_at:
        Claim.objects.create(
            subscription_id=subscription.id,
            item_id=claim.item_id,
            kind=Claim.Kind.ALLOWANCE,
            starts_at=claim.starts_at,
            ends_at=cut.end,
            quantity=cut.amount if claim.quantity else 0,
            amount_minor=0,
            snapshot={
                **snapshot, "grant": grant, "amount": cut.amount, "left": max(passed - share, 0), "cuts": snapshot["cuts"] + 1,
            },
        )  # fmt: skip
    if not returned:
        return None
    pays_for = purpose_of_terms(snapshot["terms"])
    return AllowanceReturn(snapshot["credit_type"], returned, snapshot["grant"], cut.end, claim.ends_at, pays_for)


def grant_allowances(
    lock: Lock, subscription: SubscriptionState, allowances: Sequence[Allowance], *, before_usage: bool = False
) -> list[AllowanceGrant]:
    """Grant the holder the due allowances, the oldest first, and claim each period; or raise and leave nothing behind.

    Lock order: the caller has the subscription's lock; then the holder's; the number series has not been locked yet.

    Args:
        before_usage: the allowances may cover usage that the run rates next, so those that would have expired by now are granted
            too, as temporary ones. The caller takes these away: see `EarlyGrants`.

    Raises:
        Refused: the ledger refuses the grant: LotLimit.
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    if not allowances:
        return []
    given: list[AllowanceGrant] = []
    now = ledger.time_of(subscription.holder_id)
    with holder_lock(subscription.holder_id) as holder:
        if not before_usage:
            allowances = without_lapsed(holder, subscription, allowances)
        for allowance in allowances:
            span = allowance.span
            key = _key(subscription, allowance)
            lapsed = _lapse(holder, subscription, allowance, key)
            rolled_over = [lot for lot, _ in rolled_over_of(holder, subscription, span.credit_type).lots]
            is_late = allowance.is_lost(now)
            is_temporary = is_late and before_usage and span.usage_schedule is not None
            grant = None
            if allowance.amount and (is_temporary or not is_late):
                terms = (
                    {"expires_at": now + TEMPORARY_LIFETIME, "priority": FIRST}
                    if is_temporary
                    else {"expires_at": allowance.expires_at}
                )
                terms["effective_at"] = allowance.spendable_from(now)
                grant = _grant(holder, subscription, allowance, key, terms)
                rolled_over += [] if span.rollover_cap is None else [grant]
            claim = _claim(subscription, allowance, grant, rolled_over, lapsed, key)
            if grant is not None:
                lapsed_at = allowance.expires_at if is_temporary else None
                given.append(
                    AllowanceGrant(
                        span.credit_type, allowance.amount, grant, lapsed_at, claim.pk, *allowance.part, applies_to=span.pays_for
                    )
                )
    return given


class EarlyGrants:
    """Grants the allowances that can pay for the usage that a run rates: those that runs in time would have found.

    However late runs come, and in any steps, the rest of a period's allowance covers the usage of that period. Due allowances are
    granted first. Those that have expired since, or that a run passed over because they had expired, are granted again; they
    cover usage up to the instant at which they would have expired, and then the rest is taken away. Later allowances are for
    later usage.

    Args:
        due: the allowances that no run has granted.
        spans: the times in which the subscription was on a plan with an allowance.
    """

    def __init__(
        self, lock: Lock, subscription: SubscriptionState, due: Sequence[Allowance], spans: Sequence[AllowanceSpan]
    ) -> None:
        self._lock, self._subscription = lock, subscription
        self._spans = [span for span in spans if span.usage_schedule is not None]
        self.due = list(due)
        self.given: list[AllowanceGrant] = []
        self._temporary: list[AllowanceGrant] = []

    def give_before(self, instant: datetime) -> None:
        """Grant the allowances that began before usage became due, and take away those that would have expired by then."""
        early = [one for one in self.due if one.part.start < instant]
        if early:
            self.due = [one for one in self.due if one.part.start >= instant]
            given = grant_allowances(self._lock, self._subscription, early, before_usage=True)
            self.given += given
            self._temporary += [one for one in given if one.lapsed_at is not None]
        self._take_away([one for one in self._temporary if one.lapsed_at is not None and one.lapsed_at <= instant])
        self._give_again(instant)

    def held_back(self, instant: datetime, credit_type: str) -> int:
        """Return the holder's credits from allowances of periods that began at the instant or later: they are for later usage."""
        if not self._spans:
            return 0
        grants = set(fetch_rows(int, LATER, [self._subscription.id, instant, self._subscription.holder_id, credit_type]))
        if not grants:
            return 0
        with holder_lock(self._subscription.holder_id) as holder:
            state = journal.read(holder, self._subscription.holder_id, credit_type).state
        return sum(lot.remaining for lot in state.settled.lots if lot.grant in grants and lot.applies_to is None)

    def end(self) -> None:
        """Take away the rest of all temporary credits."""
        self._take_away(self._temporary)

    def _give_again(self, instant: datetime) -> None:
        """Grant the rest of those allowances again that had not lapsed by the instant, but have since."""
        if not self._spans:
            return
        oldest = min(self._oldest(span, instant) for span in self._spans)
        subscription = self._subscription
        claims = fetch_rows(_allowance_claim, LAPSED_SINCE, [subscription.id, instant, oldest, instant, subscription.holder_id])
        if not claims:
            return
        given = {one.claim_id for one in self._temporary}
        with holder_lock(subscription.holder_id) as holder:
            for claim in claims:
                amount = 0 if claim.id in given else _left(holder, claim.snapshot)
                if amount:
                    self._temporary.append(_grant_again(holder, subscription, claim, amount))

    @staticmethod
    def _oldest(span: AllowanceSpan, instant: datetime) -> datetime:
        """Return the earliest end of an allowance of the span that may not have lapsed by an instant."""
        assert span.usage_schedule is not None
        start = span.schedule.period_at(instant).start
        # A part that a change has cut lapses with its full period.
        if span.end is None or span.end >= start:
            return start
        whole = span.schedule.period_at(span.end - MICROSECOND)
        return span.end if span.usage_schedule.period_at(whole.end).end > instant else start

    def _take_away(self, lapsed: Sequence[AllowanceGrant]) -> None:
        if not lapsed:
            return
        self._temporary = [one for one in self._temporary if one not in lapsed]
        subscription = self._subscription
        with holder_lock(subscription.holder_id) as holder:
            for one in lapsed:
                lot = journal.read(holder, subscription.holder_id, one.credit_type).state.lot(one.grant)
                if lot is not None:
                    entry = ledger.revoke_under(
                        holder,
                        holder_id=subscription.holder_id,
                        grant=one.grant,
                        credit_type=one.credit_type,
                        idempotency_key=f"allowance/{subscription.ref}/lapsed/{one.grant}",
                        reason="Expired allowance",
                        reference=f"subscription {subscription.ref}",
                        actor="billing",
                    )
                    claim = Claim.objects.get(pk=one.claim_id)
                    Claim.objects.filter(pk=claim.pk).update(snapshot=claim.snapshot | {"left": -entry.amount})


def _left(holder: Lock, snapshot: Mapping[str, Any]) -> int:
    """Return the credits of an allowance that lapsed unspent: passed over, taken away, or expired in the ledger."""
    left: int = snapshot["left"]
    if snapshot["grant"] is None:
        return left
    account = journal.read(holder, snapshot["holder_id"], snapshot["credit_type"])
    lot = account.state.lot(snapshot["grant"])
    if lot is not None:
        return left + (lot.remaining if lot.is_expired(account.state.now_us) else 0)
    last = earlier_entries.last_closing(account, snapshot["grant"])
    return left - (last.amount if last is not None and last.kind == "expire" else 0)


def _grant_again(holder: Lock, subscription: SubscriptionState, claim: _AllowanceClaim, amount: int) -> AllowanceGrant:
    snapshot = claim.snapshot
    times = snapshot["times"] + 1
    entry = ledger.grant_under(
        holder,
        holder_id=subscription.holder_id,
        amount=amount,
        credit_type=snapshot["credit_type"],
        idempotency_key=f"{snapshot['key']}/again/{times}",
        source="promotional",
        effective_at=claim.starts_at,
        expires_at=ledger.time_of(subscription.holder_id) + TEMPORARY_LIFETIME,
        priority=FIRST,
        reason="Plan allowance for usage of its period",
        reference=f"subscription {subscription.ref}",
        actor="billing",
    )
    Claim.objects.filter(pk=claim.id).update(snapshot={**snapshot, "grant": entry.sequence, "left": 0, "times": times})
    lapsed_at = datetime.fromisoformat(snapshot["expires_at"])
    return AllowanceGrant(snapshot["credit_type"], amount, entry.sequence, lapsed_at, claim.id, claim.starts_at, claim.ends_at)


def _unspent(account: journal.LockedAccount) -> dict[int, int]:
    """Return the credits of each open grant now, also those that expired holds give back: a revocation books these first."""
    return {lot.grant: lot.remaining for lot in account.state.settled.lots}


def name_of(subscription: SubscriptionState) -> str:
    """Return the name of the recurring grant of a subscription's allowance."""
    return f"plan-{subscription.id}"


def rolled_over_of(holder: Lock, subscription: SubscriptionState, credit_type: str) -> plan_grants.RolledOver:
    """Return what is unspent of the subscription's allowances that roll over, whether a run granted them or the ledger."""
    named = {"holder_id": subscription.holder_id, "credit_type": credit_type, "recurring_grant": name_of(subscription)}
    return plan_grants.rolled_over_under(holder, **named)


def without_lapsed(holder: Lock, subscription: SubscriptionState, allowances: Sequence[Allowance]) -> list[Allowance]:
    """Return the allowances, each without the part that lapses before a later one starts: nobody could spend that part.

    Args:
        allowances: those that are due, the oldest first.
    """
    unspent: dict[str, list[tuple[int, int]]] = {}
    held: dict[str, int] = {}
    amounts = [allowance.amount for allowance in allowances]
    for n, allowance in enumerate(allowances):
        span = allowance.span
        if span.rollover_cap is None:
            continue
        if span.credit_type not in unspent:
            # Earlier grants have their sequences, which are above 0; these have none yet.
            unspent[span.credit_type], held[span.credit_type] = rolled_over_of(holder, subscription, span.credit_type)
        so_far = unspent[span.credit_type]
        lapsing = dict(over_cap(so_far, span.rollover_cap - held[span.credit_type])) if allowance.begins else {}
        for one, amount in lapsing.items():
            if one <= 0:
                amounts[-one] -= amount
        so_far = [(one, left_of - lapsing.get(one, 0)) for one, left_of in so_far]
        unspent[span.credit_type] = [*so_far, (-n, allowance.amount)]
    return [replace(allowance, amount=amount) for allowance, amount in zip(allowances, amounts, strict=True)]


def _lapse(holder: Lock, subscription: SubscriptionState, allowance: Allowance, key: str) -> int:
    """Take back unspent credits beyond the cap, if the allowance is the first of its period; return how many."""
    span = allowance.span
    if span.rollover_cap is None or not allowance.begins:
        return 0
    if sum(fetch_rows(int, HAS_LATER, [subscription.id, allowance.part.start, span.credit_type])):
        return 0
    unspent = rolled_over_of(holder, subscription, span.credit_type)
    lapsing = over_cap(unspent.lots, span.rollover_cap - unspent.held)
    for grant, amount in lapsing:
        ledger.revoke_under(
            holder,
            holder_id=subscription.holder_id,
            grant=grant,
            amount=amount,
            credit_type=span.credit_type,
            idempotency_key=f"{key}/cap/{grant}",
            reason="Allowance above the rollover limit",
            reference=f"subscription {subscription.ref}",
            actor="billing",
        )
    return sum(amount for _, amount in lapsing)


def _grant(holder: Lock, subscription: SubscriptionState, allowance: Allowance, key: str, terms: Mapping[str, Any]) -> int:
    """Grant an allowance and return the sequence of the grant."""
    entry = ledger.grant_under(
        holder,
        holder_id=subscription.holder_id,
        amount=allowance.amount,
        credit_type=allowance.span.credit_type,
        idempotency_key=key,
        source="promotional",
        applies_to=allowance.span.pays_for,
        metadata={} if allowance.span.rollover_cap is None else {"rolls_over_with": name_of(subscription)},
        **terms,
        reason="Plan allowance",
        reference=f"subscription {subscription.ref}",
        actor="billing",
    )
    return entry.sequence


def _key(subscription: SubscriptionState, allowance: Allowance) -> str:
    start = allowance.part.start
    [replaced] = fetch_rows(int, REPLACED, [subscription.id, start])
    return f"allowance/{subscription.ref}/{start.isoformat()}" + (f"/{replaced}" if replaced else "")


def _claim(
    subscription: SubscriptionState,
    allowance: Allowance,
    grant: int | None,
    rolled_over: Sequence[int],
    lapsed: int,
    key: str,
) -> Claim:
    expires_at = allowance.expires_at
    return Claim.objects.create(
        subscription_id=subscription.id,
        item_id=allowance.span.item_id,
        kind=Claim.Kind.ALLOWANCE,
        starts_at=allowance.part.start,
        ends_at=allowance.part.end,
        quantity=allowance.amount if grant is not None else 0,
        amount_minor=0,
        snapshot={
            "credit_type": allowance.span.credit_type,
            "amount": allowance.amount,
            "terms": allowance.of.terms,
            "key": key,
            "cuts": 0,
            "holder_id": subscription.holder_id,
            "grant": grant,
            "rollover_grants": {allowance.span.credit_type: list(rolled_over)},
            "lapsed": lapsed,
            # For usage that a run rates late: see `EarlyGrants`.
            "expires_at": expires_at.isoformat() if expires_at else None,
            "pays_usage": allowance.span.usage_schedule is not None,
            "left": allowance.amount if grant is None else 0,
            "times": 0,
        },
    )
