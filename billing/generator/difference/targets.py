"""What a run has to bill of a subscription: its target, from items and claims, and the usage to rate."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from billing.generator.difference.reconcile import Target, UsageDue, joined, recurring_target, usage_target
from billing.generator.options import KINDS, Options, Scope
from billing.generator.state.items import BillableItems, since
from billing.generator.state.open_claims import OpenClaim
from billing.generator.state.spans import ItemSpan, due_instants, recent_periods
from billing.generator.state.subscription_state import SubscriptionState
from billing.metering import usage
from billing.models import Claim
from billing.rating.aggregation import Usage
from billing.rating.prices import PriceKind


def unbilled_spans(
    items: BillableItems, claims: dict[Claim.Kind, dict[int, list[OpenClaim]]], settled_until: datetime | None, only: Scope | None
) -> list[list[ItemSpan]]:
    """The spans after the last claim of each item that this run bills."""
    return [
        _after(since(of_item, claims[kind].get(item_id, []), settled_until), claims[kind].get(item_id, []))
        for kind, spans in ((Claim.Kind.RECURRING, items.recurring), (Claim.Kind.USAGE, items.usage))
        for item_id, of_item in spans.items()
        if _kind_of(kind) in KINDS[only]
    ]


def last_instant(unbilled: Sequence[Sequence[ItemSpan]], options: Options) -> datetime:
    """Up to when to bill: earlier than `as_of` where `max_periods` allows no more."""
    most = options.max_periods
    if most is None:
        return options.as_of
    instants = due_instants([span for spans in unbilled for span in spans], options.as_of, most=most + 1)
    return instants[most - 1] if len(instants) > most else options.as_of


def _after(spans: Sequence[ItemSpan], claims: Sequence[OpenClaim]) -> list[ItemSpan]:
    """The parts of the spans after the last claim."""
    if not claims:
        return list(spans)
    last = max(claim.end for claim in claims)
    return [replace(span, start=max(span.start, last)) for span in spans if span.end is None or span.end > last]


def _kind_of(kind: Claim.Kind) -> PriceKind:
    return PriceKind.RECURRING if kind == Claim.Kind.RECURRING else PriceKind.USAGE


def target_of(
    items: BillableItems,
    claims: dict[Claim.Kind, dict[int, list[OpenClaim]]],
    late: Collection[int],
    settled_until: datetime | None,
    options: Options,
    as_of: datetime,
) -> Target:
    """What the run has to bill, and the unchanged periods whose usage it measures again.

    Args:
        late: the ids of the claims that may have late usage.
    """
    found: list[Target] = []
    if options.only != Scope.USAGE:
        billed = claims[Claim.Kind.RECURRING]
        for item_id in sorted(items.recurring.keys() | billed.keys()):
            spans = since(items.recurring.get(item_id, []), billed.get(item_id, []), settled_until)
            found.append(recurring_target(spans, billed.get(item_id, []), as_of))
    if options.only != Scope.RECURRING:
        billed = claims[Claim.Kind.USAGE]
        for item_id in sorted(items.usage.keys() | billed.keys()):
            spans = since(items.usage.get(item_id, []), billed.get(item_id, []), settled_until)
            target = usage_target(spans, billed.get(item_id, []), as_of)
            found.append(_with_late_usage(target, billed.get(item_id, []), late, options.late_lookback))
    return joined(found)


def _with_late_usage(target: Target, claims: Sequence[OpenClaim], late: Collection[int], lookback: int | None) -> Target:
    """The target with those of its unchanged periods that may have late usage, or that the run has to rate again."""
    again = [one for one in target.unchanged if one.continued[0].short_of or one.continued[0].id in late]
    if lookback is None or not again:
        return replace(target, unchanged=tuple(again))
    recent = recent_periods([(claim.schedule.period_at(claim.start), claim.start) for claim in claims], lookback)

    def is_looked_at(one: UsageDue) -> bool:
        return bool(one.continued[0].short_of) or (one.part.full_start, one.part.full_end) in recent

    return replace(
        target,
        unchanged=tuple(one for one in again if is_looked_at(one)),
        left_out=tuple(one.continued[0].id for one in again if not is_looked_at(one)),
    )


def measured_usage(subscription: SubscriptionState, target: Target) -> list[tuple[UsageDue, Usage]]:
    """The usage to rate: the periods that are due, and unchanged periods whose usage differs from what was billed."""
    looked_at = [*target.usages, *target.unchanged]
    windows = [
        usage.Measure(one.span.price, one.part.start, one.part.end, one.part.full_start, one.part.full_end) for one in looked_at
    ]
    measured = list(zip(looked_at, usage.measure(subscription.id, windows), strict=True))
    due, unchanged = measured[: len(target.usages)], measured[len(target.usages) :]
    return [*due, *((one, quantity) for one, quantity in unchanged if not _is_as_billed(one.continued[0], quantity))]


def _is_as_billed(claim: OpenClaim, quantity: Usage) -> bool:
    return claim.usage == quantity and not claim.short_of
