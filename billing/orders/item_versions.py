"""From wishes to facts: which prices counted when, after all amendments in the order in which they take effect. Pure.

The order itself is amendment 1. A timeline is derived from all amendments anew each time, so a back-dated one changes what
came after it and a later one that is effective earlier does not undo what is planned behind it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

WHOLE = ""
"""The key of the item that stands for the subscription itself: its versions say when it was active, and on which plan."""

Stretch = tuple[datetime, datetime | None]
"""`[start, end)`; an end of None is open."""
FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """One amendment. Only what is given changes.

    Args:
        plan_id: from then on this version of a plan.
        quantities: from then on, by price key; other keys keep theirs.
        ends_at: where the subscription ends, as far as `effective_at` and what follows it are concerned; with `sets_end` and None
            it goes on for ever.
        paused: True stops it, False resumes it.
    """

    sequence: int
    effective_at: datetime
    plan_id: int | None = None
    quantities: Mapping[str, Decimal] = field(default_factory=dict)
    sets_end: bool = False
    ends_at: datetime | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """That an item counted at a price and quantity in `[starts_at, ends_at)`; an end of None is open."""

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
    amendment: int


def timeline(changes: Sequence[Change], prices_of: Callable[[int], Mapping[str, int]]) -> list[Span]:
    """The spans of every item, the subscription's own included, in order of time for each key.

    Args:
        changes: at least the first, which names the plan.
        prices_of: price ids by key of a version of a plan.
    """
    active = _active(changes)
    spans: list[Span] = []
    for state, starts_at, ends_at in _states(changes):
        if state.paused:
            continue
        keyed: list[tuple[str, int | None]] = [(WHOLE, None), *prices_of(state.plan_id).items()]
        for active_from, active_to in active:
            start, stop = max(starts_at, active_from), _earlier(ends_at, active_to)
            if stop is not None and stop <= start:
                continue
            terminates = active_to is not None and stop == active_to
            for key, price_id in keyed:
                quantity = state.quantities.get(key, Decimal(1))
                spans.append(Span(key, state.plan_id, price_id, quantity, start, stop, terminates, state.amendment))
    return _merged(spans)


def plan_at(changes: Sequence[Change], instant: datetime) -> int:
    """The version of the plan that counts at an instant, active or not."""
    planned = [change for change in changes if change.plan_id is not None]
    known = [change for change in planned if change.effective_at <= instant] or planned[:1]
    plan_id = max(known, key=lambda change: (change.effective_at, change.sequence)).plan_id
    assert plan_id is not None
    return plan_id


def _states(changes: Sequence[Change]) -> Iterable[tuple[_State, datetime, datetime | None]]:
    ordered = sorted(changes, key=lambda change: (change.effective_at, change.sequence))
    state = _State(plan_id=0, quantities={}, paused=False, amendment=0)
    for position, change in enumerate(ordered):
        state = _State(
            plan_id=state.plan_id if change.plan_id is None else change.plan_id,
            quantities={**state.quantities, **change.quantities},
            paused=state.paused if change.paused is None else change.paused,
            amendment=change.sequence,
        )
        following = ordered[position + 1].effective_at if position + 1 < len(ordered) else None
        if following is None or following > change.effective_at:
            yield state, change.effective_at, following


def _active(changes: Iterable[Change]) -> list[Stretch]:
    """When the subscription was and will be active, in order of time: up to its end, and again from a reactivation on.

    Each amendment that speaks of the end says what holds from its `effective_at` on, whatever was planned before it. Time before
    that stays as it was: what had ended by then was not active until then, and is never billed. An end in the past ends it there.
    """
    active: list[Stretch] = [(FIRST, None)]
    for change in sorted(changes, key=lambda change: change.sequence):
        if change.sets_end and change.ends_at is not None and change.ends_at <= change.effective_at:
            active = _until(active, change.ends_at)
        elif change.sets_end:
            active = _joined([*_until(active, change.effective_at), (change.effective_at, change.ends_at)])
    return active


def _until(stretches: Iterable[Stretch], instant: datetime) -> list[Stretch]:
    return [(start, _earlier(end, instant)) for start, end in stretches if start < instant]


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Stretches in order of time, those that touch as one."""
    joined: list[Stretch] = []
    for start, end in stretches:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((instant for instant in (one, other) if instant is not None), default=None)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Adjacent spans that say the same are one: an amendment of one item does not cut the others."""
    merged: dict[str, list[Span]] = {}
    for span in spans:
        before = merged.setdefault(span.key, [])
        if before and _continues(before[-1], span):
            before[-1] = replace(before[-1], ends_at=span.ends_at, is_termination=span.is_termination)
        else:
            before.append(span)
    return [span for key in merged for span in merged[key]]


def _continues(before: Span, span: Span) -> bool:
    same = (before.plan_id, before.price_id, before.quantity) == (span.plan_id, span.price_id, span.quantity)
    return same and before.ends_at == span.starts_at
