"""From amendments to item versions: which price counted when, after all amendments in the order in which they take effect. Pure.

The order itself is amendment 1. Each time, the timeline is derived from all amendments. So a back-dated amendment changes what
came after it, and keeps what is planned after it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import zip_longest

from billing.orders.overrides import Override

WHOLE = ""
"""The key of the item for the subscription as a whole: its versions say when it was active, and on which plan."""


class UnusedTime(StrEnum):
    """What the end of a subscription does with what is charged in advance for the time after it.

    `credit` gives it back as credit of the customer, `refund` also pays this credit out, and `skip` leaves it charged.
    """

    CREDIT = "credit"
    REFUND = "refund"
    SKIP = "skip"


class AllowanceChange(StrEnum):
    """What a change does with the allowance of the running period.

    With `prorate`, the share of the time that is left goes back, and the new allowance gives its share at once. With `full`, it
    gives all credits of its period at once. With `keep`, the credits stay, and the new allowance begins when their period ends.
    """

    PRORATE = "prorate"
    KEEP = "keep"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class ActiveTime:
    """`[start, end)`, and what its end does with unused time; an end of None is open."""

    start: datetime
    end: datetime | None
    unused_time: UnusedTime = UnusedTime.CREDIT


FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AmendmentChange:
    """An amendment. Only what is given changes.

    Args:
        plan_id: the version of a plan from then on.
        quantities: the quantities from then on, by price key; other keys keep theirs.
        ends_at: the end of the subscription, for the time from `effective_at` on; with `sets_end` and None it has no end.
        unused_time: what the end does with what is charged in advance for the period in which it falls.
        paused: True stops it, False resumes it.
        charges_while_paused: in this pause, fees go on and only usage does not count.
        anchor_at: the instant from which periods count, from `effective_at` on, which is one of its boundaries.
        asked_at: of a moved billing day, when the amendment itself takes effect: before `effective_at`, or then.
        override: the negotiated prices from then on; with `sets_override` and None it pays those of the plan.
        allowance_change: what it does with the allowance of the running period.
    """

    sequence: int
    effective_at: datetime
    plan_id: int | None = None
    quantities: Mapping[str, Decimal] = field(default_factory=dict)
    sets_end: bool = False
    ends_at: datetime | None = None
    unused_time: UnusedTime = UnusedTime.CREDIT
    paused: bool | None = None
    charges_while_paused: bool = False
    anchor_at: datetime | None = None
    asked_at: datetime | None = None
    sets_override: bool = False
    override: Override | None = None
    allowance_change: AllowanceChange = AllowanceChange.PRORATE


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """An item counted at a price and quantity in `[starts_at, ends_at)`; an end of None is open.

    Args:
        anchor_at: the instant from which its periods count; None: that of the order.
        skips_unused: its end leaves charged what is charged in advance; only of one that ends because the subscription does.
        allowance_change: what its start does with the allowance of the running period.
    """

    key: str
    plan_id: int
    price_id: int | None
    quantity: Decimal
    starts_at: datetime
    ends_at: datetime | None
    is_termination: bool
    amendment: int
    anchor_at: datetime | None = None
    skips_unused: bool = False
    allowance_change: AllowanceChange = AllowanceChange.PRORATE


@dataclass(frozen=True, slots=True)
class _State:
    plan_id: int
    quantities: Mapping[str, Decimal]
    paused: bool
    charges_while_paused: bool
    anchor_at: datetime | None
    override: Override | None
    amendment: int
    allowance_change: AllowanceChange


UsageKeysOf = Callable[[int], Collection[str]]
"""The keys of the usage prices of a version of a plan."""
PricesOf = Callable[[int, Override | None], Mapping[str, int]]
"""The price ids by key of a version of a plan, with negotiated prices if there are any."""


def timeline(
    changes: Sequence[AmendmentChange], prices_of: PricesOf, usage_keys_of: UsageKeysOf, ordered_anchor: datetime
) -> list[VersionSpan]:
    """The spans of every item, the subscription's own included, in order of time for each key.

    Args:
        changes: at least the first, which names the plan.
        prices_of, usage_keys_of: see `PricesOf` and `UsageKeysOf`.
        ordered_anchor: the anchor of the order: a billing day that is moved to it does not cut a span.
    """
    active = _active(changes)
    spans: list[VersionSpan] = []
    for state, starts_at, ends_at in _states(changes):
        if state.paused and not state.charges_while_paused:
            continue
        keyed: list[tuple[str, int | None]] = [(WHOLE, None), *prices_of(state.plan_id, state.override).items()]
        if state.paused:
            not_counted = usage_keys_of(state.plan_id)
            keyed = [(key, price_id) for key, price_id in keyed if key not in not_counted]
        anchor_at = None if state.anchor_at == ordered_anchor else state.anchor_at
        for stretch in active:
            start, stop = max(starts_at, stretch.start), _earlier(ends_at, stretch.end)
            if stop is not None and stop <= start:
                continue
            terminates = stretch.end is not None and stop == stretch.end
            spans += [
                VersionSpan(
                    key, state.plan_id, price_id, state.quantities.get(key, Decimal(1)), start, stop, terminates, state.amendment,
                    anchor_at, terminates and stretch.unused_time == UnusedTime.SKIP, state.allowance_change,
                )
                for key, price_id in keyed
            ]  # fmt: skip
    return _merge_spans(spans)


@dataclass(frozen=True, slots=True)
class OrderedTerms:
    """What was ordered at an instant, whether the subscription is active or not."""

    plan_id: int
    quantities: Mapping[str, Decimal]
    override: Override | None
    paused: bool
    anchor_at: datetime | None


def terms_at(changes: Sequence[AmendmentChange], instant: datetime) -> OrderedTerms:
    """Return what holds at an instant; before the start, what was ordered for it."""
    state, *later = _states(changes)
    for following in later:
        if following[1] <= instant:
            state = following
    return OrderedTerms(state[0].plan_id, state[0].quantities, state[0].override, state[0].paused, state[0].anchor_at)


def plan_at(changes: Sequence[AmendmentChange], instant: datetime) -> int:
    """The version of the plan at an instant, whether the subscription is active or not."""
    return terms_at(changes, instant).plan_id


def is_over(changes: Sequence[AmendmentChange], instant: datetime) -> bool:
    """Return whether the subscription is not active at an instant or later."""
    return all(stretch.end is not None and stretch.end <= instant for stretch in _active(changes))


def instants_on(changes: Sequence[AmendmentChange], plan_ids: Collection[int], since: datetime) -> list[datetime]:
    """Return the instants from `since` on at which the subscription is, or by a planned amendment gets, on one of these plans.

    The first is not before the start. An amendment at each of them, to another plan, leaves no time on these plans.
    """
    since = max(since, min(change.effective_at for change in changes))
    first = [since] if terms_at(changes, since).plan_id in plan_ids else []
    return [*first, *sorted({one.effective_at for one in changes if one.plan_id in plan_ids and one.effective_at > since})]


def _states(changes: Sequence[AmendmentChange]) -> Iterable[tuple[_State, datetime, datetime | None]]:
    ordered = sorted(changes, key=lambda change: (change.effective_at, change.sequence))
    state = _State(0, {}, False, False, anchor_at=None, override=None, amendment=0, allowance_change=AllowanceChange.PRORATE)
    for position, change in enumerate(ordered):
        is_first_then = position == 0 or ordered[position - 1].effective_at < change.effective_at
        state = _State(
            plan_id=state.plan_id if change.plan_id is None else change.plan_id,
            quantities={**state.quantities, **change.quantities},
            paused=state.paused if change.paused is None else change.paused,
            charges_while_paused=state.charges_while_paused if change.paused is None else change.charges_while_paused,
            anchor_at=state.anchor_at if _is_moved_again(change, ordered[:position]) else change.anchor_at or state.anchor_at,
            override=change.override if change.sets_override else state.override,
            amendment=change.sequence,
            # Of several changes at one instant, the last one that does not prorate decides.
            allowance_change=change.allowance_change
            if is_first_then or change.allowance_change != AllowanceChange.PRORATE
            else state.allowance_change,
        )
        following = ordered[position + 1].effective_at if position + 1 < len(ordered) else None
        if following is None or following > change.effective_at:
            yield state, change.effective_at, following


def _is_moved_again(change: AmendmentChange, earlier: Iterable[AmendmentChange]) -> bool:
    """Return whether a later amendment has moved the billing day before this one begins to count."""
    asked = change.asked_at, change.sequence
    return change.asked_at is not None and any(
        one.asked_at is not None and (one.asked_at, one.sequence) > asked for one in earlier
    )


def _active(changes: Iterable[AmendmentChange]) -> list[ActiveTime]:
    """When the subscription was and will be active, in order of time: up to its end, and again from a reactivation on.

    Each amendment of the end holds from its `effective_at` on and replaces what was planned before. The time before that does
    not change: a subscription that had ended was not active until then, and is never billed for it. An end in the past counts
    from there.
    """
    active = [ActiveTime(FIRST, None)]
    for change in sorted(changes, key=lambda change: change.sequence):
        if change.sets_end and change.ends_at is not None and change.ends_at <= change.effective_at:
            active = _until(active, change.ends_at, change.unused_time)
        elif change.sets_end:
            later = ActiveTime(change.effective_at, change.ends_at, change.unused_time)
            active = _join_times([*_until(active, change.effective_at), later])
    return active


def refunded(changes: Iterable[AmendmentChange]) -> list[tuple[datetime, datetime | None]]:
    """Return the times, from an end that refunds unused time on, in which the subscription is not active."""
    active = _active(changes)
    return [
        (stretch.end, following.start if following is not None else None)
        for stretch, following in zip_longest(active, active[1:])
        if stretch.end is not None and stretch.unused_time == UnusedTime.REFUND
    ]


def _until(stretches: Iterable[ActiveTime], instant: datetime, unused_time: UnusedTime = UnusedTime.CREDIT) -> list[ActiveTime]:
    return [
        one if one.end is not None and one.end < instant else ActiveTime(one.start, instant, unused_time)
        for one in stretches
        if one.start < instant
    ]


def _join_times(stretches: Iterable[ActiveTime]) -> list[ActiveTime]:
    """Return periods of activity in order of time; adjacent periods are joined."""
    joined: list[ActiveTime] = []
    for one in stretches:
        if joined and joined[-1].end == one.start:
            joined[-1] = replace(one, start=joined[-1].start)
        else:
            joined.append(one)
    return joined


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((instant for instant in (one, other) if instant is not None), default=None)


def _merge_spans(spans: Iterable[VersionSpan]) -> list[VersionSpan]:
    """Merge adjacent spans with the same terms: an amendment of one item does not cut the others."""
    merged: dict[str, list[VersionSpan]] = {}
    for span in spans:
        before = merged.setdefault(span.key, [])
        if before and _continues(before[-1], span):
            before[-1] = replace(
                before[-1], ends_at=span.ends_at, is_termination=span.is_termination, skips_unused=span.skips_unused
            )
        else:
            before.append(span)
    return [span for key in merged for span in merged[key]]


def _continues(before: VersionSpan, span: VersionSpan) -> bool:
    return _terms(before) == _terms(span) and before.ends_at == span.starts_at


def _terms(span: VersionSpan) -> tuple[object, ...]:
    return span.plan_id, span.price_id, span.quantity, span.anchor_at
