"""From amendments to item versions: which price counted when, after all amendments in the order in which they take effect. Pure.

The order itself is amendment 1. Each time, the timeline is derived from all amendments. So a back-dated amendment changes what
came after it, and keeps what is planned after it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

from billing.orders.overrides import Override

WHOLE = ""
"""The key of the item for the subscription as a whole: its versions say when it was active, and on which plan."""

ActiveTime = tuple[datetime, datetime | None]
"""`[start, end)`; an end of None is open."""
FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AmendmentChange:
    """An amendment. Only what is given changes.

    Args:
        plan_id: the version of a plan from then on.
        quantities: the quantities from then on, by price key; other keys keep theirs.
        ends_at: the end of the subscription, for the time from `effective_at` on; with `sets_end` and None it has no end.
        paused: True stops it, False resumes it.
        override: the negotiated prices from then on; with `sets_override` and None it pays those of the plan.
    """

    sequence: int
    effective_at: datetime
    plan_id: int | None = None
    quantities: Mapping[str, Decimal] = field(default_factory=dict)
    sets_end: bool = False
    ends_at: datetime | None = None
    paused: bool | None = None
    sets_override: bool = False
    override: Override | None = None


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """An item counted at a price and quantity in `[starts_at, ends_at)`; an end of None is open."""

    key: str
    plan_id: int
    price_id: int | None
    quantity: Decimal
    starts_at: datetime
    ends_at: datetime | None
    is_termination: bool
    amendment: int


@dataclass(frozen=True, slots=True)
class _State:
    plan_id: int
    quantities: Mapping[str, Decimal]
    paused: bool
    override: Override | None
    amendment: int


PricesOf = Callable[[int, Override | None], Mapping[str, int]]
"""The price ids by key of a version of a plan, with negotiated prices if there are any."""


def timeline(changes: Sequence[AmendmentChange], prices_of: PricesOf) -> list[VersionSpan]:
    """The spans of every item, the subscription's own included, in order of time for each key.

    Args:
        changes: at least the first, which names the plan.
        prices_of: see `PricesOf`.
    """
    active = _active(changes)
    spans: list[VersionSpan] = []
    for state, starts_at, ends_at in _states(changes):
        if state.paused:
            continue
        keyed: list[tuple[str, int | None]] = [(WHOLE, None), *prices_of(state.plan_id, state.override).items()]
        for active_from, active_to in active:
            start, stop = max(starts_at, active_from), _earlier(ends_at, active_to)
            if stop is not None and stop <= start:
                continue
            terminates = active_to is not None and stop == active_to
            for key, price_id in keyed:
                quantity = state.quantities.get(key, Decimal(1))
                spans.append(VersionSpan(key, state.plan_id, price_id, quantity, start, stop, terminates, state.amendment))
    return _merged(spans)


def plan_at(changes: Sequence[AmendmentChange], instant: datetime) -> int:
    """The version of the plan at an instant, whether the subscription is active or not."""
    planned = [change for change in changes if change.plan_id is not None]
    known = [change for change in planned if change.effective_at <= instant] or planned[:1]
    plan_id = max(known, key=lambda change: (change.effective_at, change.sequence)).plan_id
    assert plan_id is not None
    return plan_id


def _states(changes: Sequence[AmendmentChange]) -> Iterable[tuple[_State, datetime, datetime | None]]:
    ordered = sorted(changes, key=lambda change: (change.effective_at, change.sequence))
    state = _State(plan_id=0, quantities={}, paused=False, override=None, amendment=0)
    for position, change in enumerate(ordered):
        state = _State(
            plan_id=state.plan_id if change.plan_id is None else change.plan_id,
            quantities={**state.quantities, **change.quantities},
            paused=state.paused if change.paused is None else change.paused,
            override=change.override if change.sets_override else state.override,
            amendment=change.sequence,
        )
        following = ordered[position + 1].effective_at if position + 1 < len(ordered) else None
        if following is None or following > change.effective_at:
            yield state, change.effective_at, following


def _active(changes: Iterable[AmendmentChange]) -> list[ActiveTime]:
    """When the subscription was and will be active, in order of time: up to its end, and again from a reactivation on.

    Each amendment of the end holds from its `effective_at` on and replaces what was planned before. The time before that does
    not change: a subscription that had ended was not active until then, and is never billed for it. An end in the past counts
    from there.
    """
    active: list[ActiveTime] = [(FIRST, None)]
    for change in sorted(changes, key=lambda change: change.sequence):
        if change.sets_end and change.ends_at is not None and change.ends_at <= change.effective_at:
            active = _until(active, change.ends_at)
        elif change.sets_end:
            active = _joined([*_until(active, change.effective_at), (change.effective_at, change.ends_at)])
    return active


def _until(stretches: Iterable[ActiveTime], instant: datetime) -> list[ActiveTime]:
    return [(start, _earlier(end, instant)) for start, end in stretches if start < instant]


def _joined(stretches: Iterable[ActiveTime]) -> list[ActiveTime]:
    """Return periods of activity in order of time; adjacent periods are joined."""
    joined: list[ActiveTime] = []
    for start, end in stretches:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((instant for instant in (one, other) if instant is not None), default=None)


def _merged(spans: Iterable[VersionSpan]) -> list[VersionSpan]:
    """Merge adjacent spans with the same terms: an amendment of one item does not cut the others."""
    merged: dict[str, list[VersionSpan]] = {}
    for span in spans:
        before = merged.setdefault(span.key, [])
        if before and _continues(before[-1], span):
            before[-1] = replace(before[-1], ends_at=span.ends_at, is_termination=span.is_termination)
        else:
            before.append(span)
    return [span for key in merged for span in merged[key]]


def _continues(before: VersionSpan, span: VersionSpan) -> bool:
    same = (before.plan_id, before.price_id, before.quantity) == (span.plan_id, span.price_id, span.quantity)
    return same and before.ends_at == span.starts_at
