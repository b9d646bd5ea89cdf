"""The allowance of a plan as a recurring grant of the ledger: its terms on the account, and what the ledger granted by them.

Orders and runs set the terms: full periods as a rhythm, and by name each part that differs: a first period, the share after a
change with what the change gives back, the last period. From then on the ledger grants each by the first write after its start,
whatever run is late. The next run claims what the ledger granted, as if it had granted it itself, and only then compares claims
with the target. So a period is granted once, and a change that no terms knew is made good. See docs/adr/0163.

Runs grant themselves the allowances that pay for usage or invoices, in the order of their due dates.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import floor
from typing import Any, Final, NamedTuple

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.allowance_times import (
    Allowance,
    AllowanceDifference,
    AllowancePart,
    AllowanceSpan,
    CutAllowance,
    HeldAllowance,
    next_allowance,
    purpose_text,
    reconcile_allowances,
    settled_start,
)
from billing.generator.state.allowances import (
    AllowanceGrant,
    AllowanceReturn,
    allowance_difference,
    give_back,
    name_of,
    without_lapsed,
)
from billing.generator.state.claims import LONG_AGO
from billing.generator.state.subscription_state import (
    BillableItems,
    SubscriptionState,
    compute_settled_until,
)
from billing.models import Claim
from billing.rating.periods import instant_of
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.database.statements import fetch_rows
from ledger.errors import Refused
from ledger.periods import IntervalUnit
from ledger.services import plan_grants
from ledger.values import MAX_AMOUNT

MOST_UNITS: Final = 100
MOST_STEPS: Final = 24
"""For how many instants the terms name parts."""
MOST_AT_ONCE: Final = 100
"""How many periods of the past an order grants at once, of those that have not expired; more are left to a run."""
REASON: Final = "Plan allowance"
log = logging.getLogger("billing.allowances")

CLAIMED: Final = """
    SELECT COALESCE(max((snapshot ->> 'adopted')::bigint), 0) FROM billing_claim
    WHERE subscription_id = %s AND kind = 5 AND snapshot ->> 'credit_type' = %s
        AND (released_at IS NULL OR (snapshot ->> 'replaced')::boolean)
"""
HELD: Final = """
    SELECT id, starts_at, ends_at, (snapshot ->> 'amount')::bigint, snapshot -> 'terms', snapshot ->> 'credit_type',
        CASE WHEN snapshot ->> 'holder_id' = %s AND NOT (snapshot ->> 'pays_usage')::boolean
            THEN (snapshot ->> 'grant')::bigint END
    FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND ends_at > %s
"""
ITEM: Final = """
    SELECT item_id FROM billing_itemversion WHERE subscription_id = %s ORDER BY price_id IS NULL DESC, id LIMIT 1
"""


class _Terms(NamedTuple):
    """The terms of an allowance on the account: its periods from `first_at` on, if that is given, and its parts."""

    amount: int
    interval: str
    interval_count: int
    anchor_at: datetime
    time_zone: str
    first_at: datetime | None
    ends_at: datetime | None
    applies_to: dict[str, Any] | None
    known_as: str
    parts: tuple[plan_grants.GrantPart, ...]
    rollover_cap: int | None = None


OVERLAPPING: Final = """
    SELECT id, starts_at, ends_at, (snapshot ->> 'amount')::bigint FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND starts_at < %s AND ends_at > %s
"""
CLAIM_OF_LOT: Final = """
    SELECT id, starts_at, ends_at, (snapshot ->> 'amount')::bigint FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND snapshot ->> 'holder_id' = %s
        AND snapshot ->> 'credit_type' = %s AND (snapshot ->> 'grant')::bigint = %s AND ends_at > %s
"""


# What the ledger granted -----------------------------------------------------------------------------


def claim_granted(
    lock: Lock, subscription: SubscriptionState, spans: Sequence[AllowanceSpan]
) -> tuple[list[AllowanceGrant], list[AllowanceReturn]]:
    """Have the ledger grant what is due by the terms on the account, and claim what it granted and took back since the last run.

    Lock order: the caller has the subscription's lock and its turn for the customer's account; then the holder's.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    name = name_of(subscription)
    allowance_grants: list[AllowanceGrant] = []
    returned: list[AllowanceReturn] = []
    with holder_lock(subscription.holder_id) as holder:
        credit_types = plan_grants.credit_types_of(holder_id=subscription.holder_id, recurring_grant=name)
        granted = [(each, credit_type) for credit_type in credit_types for each in _unclaimed(holder, subscription, credit_type)]
        # What went back first: a part of another credit type may be for the same time.
        for one, credit_type in granted:
            returned += _claim_returned(lock, subscription, credit_type, one)
            if one.amount or one.known_as:
                returned += _cut_overlapping(lock, subscription, spans, one)
                claimed = _claim(subscription, spans, credit_type, one)
                allowance_grants += [claimed] if claimed.grant else []
    return allowance_grants, returned


def _cut_overlapping(
    lock: Lock, subscription: SubscriptionState, spans: Sequence[AllowanceSpan], granted: plan_grants.HandledPeriod
) -> list[AllowanceReturn]:
    """Cut the claims for the time of what the ledger granted: those that kept all credits, and those that only a run can cut."""
    start, end = granted.starts_at, granted.ends_at
    claims = fetch_rows(_held_allowance, OVERLAPPING, [subscription.id, end, start])
    if not claims:
        return []
    known = {one.claim.id: one for one in allowance_difference(lock, subscription, spans, start, start).cut}
    # What other terms overtook since is compared with the target next.
    unknown = {one.id: CutAllowance(one, max(one.start, start), one.amount if one.start < start else 0) for one in claims}
    return give_back(lock, subscription, [known.get(one.id, unknown[one.id]) for one in claims])


def _held_allowance(claim_id: int, start: datetime, end: datetime, amount: int) -> HeldAllowance:
    return HeldAllowance(claim_id, start, end, amount, [])


def _claim_returned(
    lock: Lock, subscription: SubscriptionState, credit_type: str, granted: plan_grants.HandledPeriod
) -> list[AllowanceReturn]:
    """Cut the claims of the time for which a part of the terms took credits back."""
    returned: list[AllowanceReturn] = []
    for back in granted.taken_back:
        claims = fetch_rows(
            _held_allowance, CLAIM_OF_LOT, [subscription.id, subscription.holder_id, credit_type, back.lot, granted.starts_at]
        )
        for claim in claims:
            cut = CutAllowance(claim, max(granted.starts_at, claim.start), claim.amount - back.amount)
            returned += give_back(lock, subscription, [cut], taken=back.taken)
    return returned


def _unclaimed(holder: Lock, subscription: SubscriptionState, credit_type: str) -> list[plan_grants.HandledPeriod]:
    """Have the ledger grant what is due, and return the periods that it granted since the last run."""
    [since] = fetch_rows(int, CLAIMED, [subscription.id, credit_type])
    return plan_grants.granted_under(
        holder,
        holder_id=subscription.holder_id,
        credit_type=credit_type,
        recurring_grant=name_of(subscription),
        since=since,
    )


def has_terms(subscription: SubscriptionState) -> bool:
    """Return whether the account has, or had, terms of the subscription's allowance."""
    holder_id = subscription.holder_id
    return bool(holder_id and plan_grants.credit_types_of(holder_id=holder_id, recurring_grant=name_of(subscription)))


def _claim(
    subscription: SubscriptionState, spans: Sequence[AllowanceSpan], credit_type: str, granted: plan_grants.HandledPeriod
) -> AllowanceGrant:
    start, end = granted.starts_at, granted.ends_at
    of = [span.item_id for span in spans if span.start <= start and (span.end is None or start < span.end)]
    claim = Claim.objects.create(
        subscription_id=subscription.id,
        item_id=of[0] if of else fetch_rows(int, ITEM, [subscription.id])[0],
        kind=Claim.Kind.ALLOWANCE,
        starts_at=start,
        ends_at=end,
        quantity=granted.amount if granted.lot else 0,
        amount_minor=0,
        snapshot={
            "credit_type": credit_type,
            "amount": granted.amount,
            "terms": _claim_terms(credit_type, granted),
            "key": granted.idempotency_key,
            "cuts": 0,
            "holder_id": subscription.holder_id,
            "grant": granted.lot or None,
            "adopted": granted.sequence,
            "rollover_grants": {},
            "lapsed": 0,
            "expires_at": granted.expires_at.isoformat() if granted.expires_at else None,
            "pays_usage": False,
            "left": 0,
            "times": 0,
        },
    )
    return AllowanceGrant(credit_type, granted.amount, granted.lot, None, claim.pk, start, end, granted.applies_to)


def _claim_terms(credit_type: str, granted: plan_grants.HandledPeriod) -> list[str]:
    if granted.is_part:
        terms: list[str] = json.loads(granted.known_as)
        return terms
    start, end = granted.starts_at, granted.ends_at
    amount = granted.known_as or str(granted.amount)
    return AllowancePart.terms_of_full(credit_type, amount, granted.rollover_cap, start, end, purpose_text(granted.applies_to))


# What it grants next ---------------------------------------------------------------------------------


def set_allowance_terms(lock: Lock, subscription: SubscriptionState, items: BillableItems, *, grants_now: bool = False) -> None:
    """Set the terms by which the ledger grants what comes next, or end earlier ones, unless the account has them already.

    Lock order: the caller has the subscription's lock; then the holder's.

    Args:
        grants_now: have the ledger also grant what has begun; False: the run that calls this, or the next one, grants it.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    # An amendment may have replaced all of the time in which a plan granted credits.
    if not subscription.holder_id or not (items.allowances or subscription.amendments > 1):
        return
    name = name_of(subscription)
    known_types = plan_grants.credit_types_of(holder_id=subscription.holder_id, recurring_grant=name)
    credit_types = sorted({*known_types, *(span.credit_type for span in items.allowances)})
    if not credit_types:
        return
    with holder_lock(subscription.holder_id) as holder:
        granted = [(each, credit_type) for credit_type in known_types for each in _unclaimed(holder, subscription, credit_type)]
        wanted = (
            _wanted(holder, subscription, items, granted, grants_now=grants_now) if subscription.suspended_reason is None else {}
        )
        for credit_type in credit_types:
            _set(holder, subscription, credit_type, wanted.get(credit_type))
            if grants_now and credit_type in wanted:
                _unclaimed(holder, subscription, credit_type)


# What comes next --------------------------------------------------------------------------------------


class _Lot(NamedTuple):
    """The lot of a claim from which the ledger can take credits back."""

    credit_type: str
    number: int


@dataclass
class _Coming:
    """What comes next of a credit type: parts, and the first full period of the rhythm; None if it has no rhythm."""

    parts: list[plan_grants.GrantPart] = field(default_factory=list)
    of: list[AllowancePart] = field(default_factory=list)
    rhythm: AllowancePart | None = None
    rhythm_ends_at: datetime | None = None


def _wanted(
    holder: Lock,
    subscription: SubscriptionState,
    items: BillableItems,
    granted: Sequence[tuple[plan_grants.HandledPeriod, str]],
    *,
    grants_now: bool,
) -> dict[str, _Terms]:
    """Return the terms that the account should have, by credit type.

    The steps are those of runs in time, computed in advance: at each instant at which an allowance begins or is cut, what of the
    claims goes back, and what is due. They end with the first period that repeats without an end.

    Args:
        granted: what no run has claimed yet, with its credit type.
    """
    now = ledger.time_of(subscription.holder_id)
    held, lots, since = _held_claims(subscription, items, granted)
    coming: dict[str, _Coming] = {}
    waiting: set[str] = set()
    for n, (at, difference) in enumerate(_steps(items.allowances, held, now, since)):
        begun = _spendable(holder, subscription, difference, now) if n == 0 and grants_now else difference
        is_for_run = (n == 0 and not grants_now) or len(begun.due) > MOST_AT_ONCE
        if is_for_run or not _can_be_granted(subscription, difference, lots, waiting):
            waiting |= _rolling_over(difference)
            continue
        of = _rhythm_of(difference) if n else None
        if of is not None:
            coming.setdefault(of.span.credit_type, _Coming()).rhythm = of
            break
        _add_parts(coming, begun, lots, at)
    for each in coming.values():
        if each.rhythm is None:
            _find_rhythm(each)
    found = {credit_type: _terms(each) for credit_type, each in coming.items()}
    return {credit_type: terms for credit_type, terms in found.items() if terms is not None}


def _held_claims(
    subscription: SubscriptionState, items: BillableItems, granted: Sequence[tuple[plan_grants.HandledPeriod, str]]
) -> tuple[list[HeldAllowance], dict[int, _Lot], datetime | None]:
    """Return the claims that may change, also those that the next run writes; their lots by claim; and since when they are."""
    since = compute_settled_until(subscription, items)
    while True:
        since = None if since is None else settled_start(items.allowances, since)
        rows = fetch_rows(_held_row, HELD, [subscription.holder_id, subscription.id, since or LONG_AGO])
        earliest = min((one.start for one, _ in rows), default=None)
        if since is None or earliest is None or earliest >= since:
            break
        since = earliest
    held = [one for one, _ in rows]
    lots = {one.id: lot for one, lot in rows if lot is not None}
    for each, credit_type in granted:
        for back in each.taken_back:
            held = [
                _cut(one, each.starts_at, back.amount) if lots.get(one.id) == (credit_type, back.lot) else one for one in held
            ]
        if each.amount or each.known_as:
            unclaimed = HeldAllowance(-len(held) - 1, each.starts_at, each.ends_at, each.amount, _claim_terms(credit_type, each))
            held.append(unclaimed)
            if each.lot:
                lots[unclaimed.id] = _Lot(credit_type, each.lot)
    return [one for one in held if one.start < one.end], lots, since


def _held_row(
    claim_id: int, start: datetime, end: datetime, amount: int, terms: Any, credit_type: str, lot: int | None
) -> tuple[HeldAllowance, _Lot | None]:
    read: list[str] = json.loads(terms) if isinstance(terms, str) else terms
    return HeldAllowance(claim_id, start, end, amount, read), None if lot is None else _Lot(credit_type, lot)


def _cut(claim: HeldAllowance, end: datetime, amount: int) -> HeldAllowance:
    return replace(claim, end=max(claim.start, min(claim.end, end)), amount=max(0, claim.amount - amount))


def _steps(
    spans: Sequence[AllowanceSpan], held: list[HeldAllowance], now: datetime, since: datetime | None
) -> Iterator[tuple[datetime, AllowanceDifference]]:
    """Yield each instant from now on at which runs in time have something to do, with what they do; at most MOST_STEPS."""
    at: datetime | None = now
    for n in range(MOST_STEPS + 1):
        if at is None:
            return
        difference = reconcile_allowances(spans, held, at, since)
        yield at, difference
        replaced = {one.claim.id: one for one in difference.cut}
        kept = [one for one in held if one.id not in replaced]
        cut = [replace(one.claim, end=one.end, amount=one.amount) for one in difference.cut if one.end > one.claim.start]
        new = [
            HeldAllowance(-1_000_000 * (n + 1) - number, *one.part, one.amount, one.of.terms)
            for number, one in enumerate(difference.due)
        ]
        held, since = _unsettled([*kept, *cut, *new], spans, at)
        at = next_allowance(spans, at)


def _unsettled(
    held: Sequence[HeldAllowance], spans: Sequence[AllowanceSpan], at: datetime
) -> tuple[list[HeldAllowance], datetime]:
    """Return the claims that later steps can change, and since when these are: a long history costs one step only."""
    since = settled_start(spans, at)
    while True:
        unsettled = [one for one in held if one.end > since]
        earliest = min((one.start for one in unsettled), default=since)
        if earliest >= since:
            return unsettled, since
        since = settled_start(spans, earliest)


def _spendable(
    holder: Lock, subscription: SubscriptionState, difference: AllowanceDifference, now: datetime
) -> AllowanceDifference:
    """Return what an order grants at once: of the past, what has not expired and has not lapsed above a cap by now.

    The next run claims without credits what is left out.
    """
    due = without_lapsed(holder, subscription, [one for one in difference.due if not one.is_lost(now)])
    return replace(difference, due=due)


def _can_be_granted(
    subscription: SubscriptionState, difference: AllowanceDifference, lots: dict[int, _Lot], waiting: set[str]
) -> bool:
    """Return whether the ledger can take a step: its credits pay for spends alone.

    Args:
        waiting: the credit types in which a run has to grant credits that roll over before: each cap counts what came earlier.
    """
    if waiting & _rolling_over(difference):
        return False
    return all(one.claim.id in lots for one in difference.cut) and all(_pays_spends(subscription, one) for one in difference.due)


def _rolling_over(difference: AllowanceDifference) -> set[str]:
    """Return the credit types in which a step grants or takes back credits that roll over."""
    cut = {one.claim.terms[0] for one in difference.cut if one.claim.terms[2] != "None"}
    return cut | {one.span.credit_type for one in difference.due if one.span.rollover_cap is not None}


def _pays_spends(subscription: SubscriptionState, one: Allowance) -> bool:
    span = one.span
    pays_invoices = subscription.credit_unit_value is not None and subscription.credit_type == span.credit_type
    pays_invoices = pays_invoices and not span.applies_to
    return span.usage_schedule is None and not pays_invoices and one.amount <= MAX_AMOUNT


def _add_parts(coming: dict[str, _Coming], difference: AllowanceDifference, lots: dict[int, _Lot], at: datetime) -> None:
    """Add the parts that are due at an instant, with what goes back then; and those by which credits only go back."""
    for credit_type in sorted({lots[one.claim.id].credit_type for one in difference.cut}):
        cut = [one for one in difference.cut if lots[one.claim.id].credit_type == credit_type]
        if not any(one.span.credit_type == credit_type for one in difference.due):
            start, end = min(one.end for one in cut), max(one.claim.end for one in cut)
            each = coming.setdefault(credit_type, _Coming())
            at_us, end_us = plan_grants.us_of_instant(start), plan_grants.us_of_instant(end)
            each.parts.append(plan_grants.GrantPart(at_us, end_us, 0, None, taken_back=_taken_back(cut, lots)))
    for one in difference.due:
        cut = [each for each in difference.cut if lots[each.claim.id].credit_type == one.span.credit_type]
        is_first = one == next(each for each in difference.due if each.span.credit_type == one.span.credit_type)
        back = _taken_back(cut, lots) if is_first else ()
        if one.amount or back or _cap(one) is not None:
            each_type = coming.setdefault(one.span.credit_type, _Coming())
            each_type.of.append(one.of)
            each_type.parts.append(_part(one, back, at))


def _taken_back(cut: Sequence[CutAllowance], lots: dict[int, _Lot]) -> tuple[tuple[int, int], ...]:
    back: dict[int, int] = {}
    for one in cut:
        lot = lots[one.claim.id].number
        back[lot] = back.get(lot, 0) + one.claim.amount - one.amount
    return tuple(sorted((lot, amount) for lot, amount in back.items() if amount))


def _part(due: Allowance, back: tuple[tuple[int, int], ...], at: datetime) -> plan_grants.GrantPart:
    start, end = due.part
    return plan_grants.GrantPart(
        start_us=plan_grants.us_of_instant(start),
        end_us=plan_grants.us_of_instant(end),
        amount=due.amount,
        expires_us=None if due.expires_at is None else plan_grants.us_of_instant(due.expires_at),
        applies_to=due.span.pays_for,
        known_as=json.dumps(due.of.terms),
        taken_back=back,
        at_us=plan_grants.us_of_instant(at) if at < start else None,
        rollover_cap=_cap(due),
    )


def _cap(due: Allowance) -> int | None:
    """Return how many unspent credits of earlier periods the allowance keeps; None: all, or there were no earlier periods."""
    return due.span.rollover_cap if due.begins else None


def _rhythm_of(difference: AllowanceDifference) -> AllowancePart | None:
    """Return the full period with which a rhythm without an end begins; None if it does not begin now."""
    if difference.cut or len(difference.due) != 1:
        return None
    of = difference.due[0].of
    return of if of.span.end is None and _can_repeat(of) else None


def _can_repeat(of: AllowancePart) -> bool:
    """Return whether the ledger can repeat a period: a full one that brings credits."""
    span, schedule = of.span, of.span.schedule
    is_whole = (of.part.start, of.part.end) == (of.part.full_start, of.part.full_end)
    is_anchored = instant_of(schedule.anchor, schedule.zone) <= of.part.start
    return is_whole and is_anchored and floor(span.amount) > 0 and _interval(of)[1] <= MOST_UNITS


def _find_rhythm(coming: _Coming) -> None:
    """Make a rhythm of the periods of the first span that has full ones, if they are too many to name each."""
    if len(coming.parts) < MOST_STEPS // 2:
        return
    first = next((of for of in coming.of if of.span.end is not None and _can_repeat(of)), None)
    if first is None:
        return
    assert first.span.end is not None
    # The last part is named if the end cuts its period.
    coming.rhythm, coming.rhythm_ends_at = first, first.span.schedule.period_at(first.span.end).start
    start_us, end_us = (plan_grants.us_of_instant(each) for each in (first.part.start, coming.rhythm_ends_at))
    coming.parts = [each for each in coming.parts if not start_us <= each.start_us < end_us]


def _interval(of: AllowancePart) -> tuple[str, int]:
    unit, number = of.span.schedule.interval.unit, of.span.schedule.interval.count
    if unit in (IntervalUnit.QUARTER, IntervalUnit.HALF_YEAR):
        unit, number = IntervalUnit.MONTH, of.span.schedule.interval.months
    return unit.value, number


def _terms(coming: _Coming) -> _Terms | None:
    of = coming.rhythm or (coming.of[-1] if coming.of else None)
    if of is None and not coming.parts:
        return None
    if of is None:
        # Credits only go back.
        start = plan_grants.instant_of_us(coming.parts[0].start_us)
        return _Terms(1, "month", 1, start, "UTC", None, None, None, "", tuple(coming.parts))
    span, schedule = of.span, of.span.schedule
    unit, number = _interval(of)
    terms = _Terms(
        amount=max(1, floor(span.amount)),
        interval=unit,
        interval_count=min(number, MOST_UNITS),
        anchor_at=of.part.full_start,
        time_zone=schedule.zone.key,
        first_at=None,
        ends_at=None,
        applies_to=span.pays_for,
        known_as="",
        parts=tuple(coming.parts),
    )
    if coming.rhythm is None:
        return terms
    return terms._replace(
        anchor_at=instant_of(schedule.anchor, schedule.zone),
        first_at=of.part.start,
        ends_at=coming.rhythm_ends_at,
        known_as=str(span.amount),
        rollover_cap=span.rollover_cap,
    )


def _set(holder: Lock, subscription: SubscriptionState, credit_type: str, wanted: _Terms | None) -> None:
    named: dict[str, Any] = {
        "holder_id": subscription.holder_id,
        "credit_type": credit_type,
        "recurring_grant": name_of(subscription),
    }
    known = plan_grants.recurring_grant_under(holder, **named)
    present = None if known is None or known.next_us is None else known
    if wanted is None and present is None:
        return
    if wanted is not None and present is not None and _as_stored(present) == _as_wanted(wanted):
        return
    named |= {"reason": REASON, "reference": f"subscription {subscription.ref}", "actor": "billing"}
    # Each setting follows the one before it, so the same terms can be set again later.
    key = f"allowance-terms/{subscription.ref}/{credit_type}/{0 if known is None else known.setting}"
    try:
        if wanted is None:
            ledger.end_recurring_grant_under(holder, **named, drops_due=True, idempotency_key=f"{key}/end")
        else:
            digest = hashlib.sha256(json.dumps(_as_wanted(wanted)).encode()).hexdigest()[:16]
            terms = wanted._asdict() | {"starts_at": wanted.anchor_at}
            terms["expiry"] = "period_end" if wanted.rollover_cap is None else "rollover"
            del terms["anchor_at"]
            ledger.set_recurring_grant_under(holder, **named, **terms, idempotency_key=f"{key}/{digest}")
    except Refused as refused:
        log.warning("%s: the allowance is granted by runs, as the ledger refuses its terms: %s", subscription.ref, refused)


def _as_wanted(terms: _Terms) -> list[Any]:
    facts = terms._replace(parts=())
    parts = [each.stored() for each in terms.parts]
    return [*(each.astimezone(UTC).isoformat() if isinstance(each, datetime) else each for each in facts), parts]


def _as_stored(known: Any) -> list[Any]:
    terms = known.terms
    ends_at = None if terms.ends_us is None else plan_grants.instant_of_us(terms.ends_us)
    first_at = None if known.next_period is None else plan_grants.instant_of_us(terms.span(known.next_period).start_us)
    return _as_wanted(
        _Terms(
            terms.amount, terms.interval, terms.interval_count, plan_grants.instant_of_us(terms.starts_us), terms.time_zone,
            first_at, ends_at, terms.applies_to, known.known_as, known.parts[known.next_part :],
            terms.rollover_cap,
        )
    )  # fmt: skip
