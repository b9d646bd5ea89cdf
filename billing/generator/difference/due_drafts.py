"""A step of a run for one subscription: it writes the drafts of the due charges with their claims, and moves the cursor."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from billing.documents.finalisation import Settlement
from billing.generator.difference import coupon_uses, run_limits, store
from billing.generator.difference.draft import Bill, freed_by, make_bill
from billing.generator.difference.draft_lines import (
    DraftLine,
    RefundedTimes,
    credit_lines,
    one_off_line,
    owed_minor,
    rate_usage,
    recurring_line,
    usage_lines,
)
from billing.generator.difference.drawdown import RunUsage, rate_measured
from billing.generator.difference.minimums import BilledAmount, Bounds
from billing.generator.difference.reconcile import Target, UsageDue, joined, recurring_target, usage_target
from billing.generator.difference.store import ClaimChanges
from billing.generator.options import KINDS, Options, Scope
from billing.generator.state.allowance_terms import claim_granted, has_terms
from billing.generator.state.allowance_times import Allowance
from billing.generator.state.allowances import AllowanceGrant, AllowanceReturn, EarlyGrants, allowance_difference, give_back
from billing.generator.state.claims import late_usage_from, mark_late, read_charges, read_claims, read_late
from billing.generator.state.cursor import move_cursor
from billing.generator.state.open_claims import OpenClaim
from billing.generator.state.overage import read_late_overage
from billing.generator.state.rated_entries import read_late_entries
from billing.generator.state.spans import BoundClaim, ItemSpan, due_instants, recent_periods
from billing.generator.state.subscription_state import BillableItems, SubscriptionState, compute_settled_until, read_items, since
from billing.metering import measuring
from billing.models import Claim
from billing.orders import plans
from billing.orders.stored_versions import refunded_times
from billing.rating.aggregation import RatingInput
from billing.rating.money import to_minor
from billing.rating.prices.price import PriceKind
from billing.rating.tax_rules import TaxNotDeclared
from ledger.database.locks import Lock


@dataclass(slots=True)
class RunStep:
    """The drafts of a step and the due allowances. The drafts have no numbers yet.

    Args:
        as_of: the end of what it bills.
        due_at: the first due instant of its charges; None if it bills only what has no due date.
        early: grants allowances before their time so that they can pay.
        granted: allowances that were granted early, to cover the usage of the step.
        returned: of earlier allowances, what changes have taken back.
        covered: credits spent on usage, less credits given back, by credit type.
        has_started: False if the subscription waits for the payment of this step.
    """

    subscription: SubscriptionState
    options: Options
    invoices: list[tuple[str, int, Bill]]
    allowances: list[Allowance]
    granted: list[AllowanceGrant]
    returned: list[AllowanceReturn]
    covered: Counter[str]
    as_of: datetime
    due_at: datetime | None
    early: EarlyGrants
    items: BillableItems
    has_started: bool = True
    settled: dict[int, Settlement] | None = None

    @property
    def is_last(self) -> bool:
        """Whether nothing else is due as of the run."""
        return self.as_of == self.options.as_of


def write_step(lock: Lock, subscription: SubscriptionState, options: Options, *, is_paid_next: bool = False) -> RunStep:
    """Write the drafts of the due charges with their claims, and move the cursor.

    Args:
        is_paid_next: `pay_step` comes next, and then a step of later charges. What was recorded after the step's instant is for a
            later step, and allowances stay until the step is paid.
    """
    items = read_items(lock, subscription)
    run_limits.ensure_dates(subscription, items)
    late = {}
    if options.only != Scope.RECURRING:
        late = read_late(lock, subscription) | read_late_overage(lock, subscription, items)
        late |= read_late_entries(lock, subscription, items)
    late_from = late_usage_from(lock, subscription, late, options.late_lookback)
    settled_until = compute_settled_until(subscription, items, late_from)
    claims, bound_claims = read_claims(lock, subscription, settled_until)
    one_offs = [] if options.only == Scope.USAGE else read_charges(lock, subscription)
    unbilled = unbilled_spans(items, claims, settled_until, options.only)
    as_of = last_instant(unbilled, options)
    due_at = next(iter(due_instants([span for spans in unbilled for span in spans], as_of, most=1)), None)
    is_early = is_paid_next and as_of < options.as_of
    if is_early:
        late, one_offs = {}, [(currency, one) for currency, one in one_offs if one.recorded_at <= as_of]
    if not options.include_suspended:
        run_limits.ensure_periods(unbilled, as_of)
    target = target_of(items, claims, late, settled_until, options, as_of)
    adopted, returned, due_now = _allowances(lock, subscription, items, settled_until, options.only, as_of)
    early = EarlyGrants(lock, subscription, due_now, items.allowances)
    reserved: dict[str, int] = {}

    def invoice_of(currency: str) -> int:
        if currency not in reserved:
            reserved[currency] = store.reserve_invoice()
        return reserved[currency]

    most_groups = None if options.include_suspended else run_limits.limits().groups
    measured = measured_usage(subscription, target, most_groups)
    if as_of == options.as_of:
        measured += running_usage(subscription, target.running, most_groups, is_asked_for=options.running_usage)
    run_limits.ensure_countable(measured)
    rated = rate_measured(lock, subscription, target.credits, measured, as_of=as_of, invoice_of=invoice_of, early=early)
    if not options.include_suspended:
        run_limits.ensure_told_once(subscription, rated.usages)
    if not is_paid_next:
        early.end()
    lines, changes = _lines(target, rated, as_of, refunded_times(subscription.id) if target.credits else ())
    billed = [claim for by_item in claims.values() for of_item in by_item.values() for claim in of_item]
    after = partial(store.billed_after, billed, changes)
    bounds = _bounds(subscription, items, after, bound_claims, settled_until, options.only, as_of)
    for currency, charge in one_offs:
        line = one_off_line(charge, items.all_of(KINDS[None]), as_of)
        changes.one_offs.append((charge, line))
        lines.append((currency, line))
    if not options.include_suspended:
        run_limits.ensure_few_lines(lines)
    invoices = _write_invoices(lock, subscription, lines, bounds, changes, replace(options, as_of=as_of), reserved)
    changes.bounds = bounds.changes
    store.write_claims(subscription, changes)
    mark_late(late, left_out=target.left_out, measured=(one.continued[0].id for one in target.unchanged))
    move_cursor(
        subscription, items, claims, kinds=KINDS[options.only], as_of=as_of,
        released={claim.id for claim in changes.released}, written=changes.written, credits_due_at=changes.credits_due_at,
        allowances_are_granted=options.only != Scope.USAGE, late_is_seen=not is_early,
    )  # fmt: skip
    return RunStep(
        subscription,
        options,
        invoices,
        early.due,
        [*adopted, *early.given],
        returned,
        rated.credits(),
        as_of,
        due_at,
        early,
        items,
    )


def _allowances(
    lock: Lock,
    subscription: SubscriptionState,
    items: BillableItems,
    settled_until: datetime | None,
    only: Scope | None,
    as_of: datetime,
) -> tuple[list[AllowanceGrant], list[AllowanceReturn], list[Allowance]]:
    """Claim what the ledger has granted and give back what changes have cut; return both, and the allowances that are due.

    They belong to the recurring charges.
    """
    # An amendment may have replaced all of the time in which a plan granted credits.
    if only == Scope.USAGE or not subscription.holder_id or not (items.allowances or subscription.amendments > 1):
        return [], [], []
    adopted: list[AllowanceGrant] = []
    returned: list[AllowanceReturn] = []
    if has_terms(subscription):
        # The lock of the account comes before the holder's.
        coupon_uses.wait_turn(lock, subscription)
        adopted, returned = claim_granted(lock, subscription, items.allowances)
    difference = allowance_difference(lock, subscription, items.allowances, as_of, settled_until)
    if difference.cut:
        # The lock of the account comes before the holder's.
        coupon_uses.wait_turn(lock, subscription)
    return adopted, [*returned, *give_back(lock, subscription, difference.cut)], difference.due


def _lines(
    target: Target, rated: RunUsage, as_of: datetime, refunded: RefundedTimes
) -> tuple[list[tuple[str, DraftLine]], ClaimChanges]:
    """Return the lines to bill, with their currency, and the changes of claims that belong to them."""
    changes = ClaimChanges(credits_due_at=target.credits_due_at)
    lines: list[tuple[str, DraftLine | None]] = []
    for credit in target.credits:
        change = rated.given_back.get(credit.claim.id)
        given_back = credit_lines(credit, change, refunded)
        changes.credits.append((credit, given_back))
        lines += [(credit.claim.currency, line) for line in given_back]
    for charge in target.charges:
        line = recurring_line(charge) if charge.share.used else None
        changes.charges.append((charge, line))
        lines.append((charge.span.currency, line))
    for one in rated.usages:
        of_usage = usage_lines(one, as_of)
        changes.usages.append((one, of_usage))
        lines += [(one.due.span.currency, line) for line in of_usage]
    return [(currency, line) for currency, line in lines if line is not None], changes


def _bounds(
    subscription: SubscriptionState,
    items: BillableItems,
    billed: Callable[[], Sequence[BilledAmount]],
    bound_claims: Sequence[BoundClaim],
    settled_until: datetime | None,
    only: Scope | None,
    as_of: datetime,
) -> Bounds:
    """Return the subscription's minimums and maximums, for periods that are billed completely after this step."""
    if not items.bounded and not bound_claims:
        return Bounds((), billed, (), as_of)
    until = as_of
    # A run of one kind of prices bounds a period only after the other kind is billed up to the end of the period.
    other_due_at = (
        {Scope.USAGE: subscription.recurring_due_at, Scope.RECURRING: subscription.usage_due_at}.get(only) if only else None
    )
    if only is not None:
        until = min(as_of, other_due_at) if other_due_at is not None else subscription.active_from
    return Bounds(items.bounded, billed, bound_claims, until, settled_until)


def _write_invoices(
    lock: Lock,
    subscription: SubscriptionState,
    lines: Sequence[tuple[str, DraftLine]],
    bounds: Bounds,
    changes: ClaimChanges,
    options: Options,
    reserved: Mapping[str, int],
) -> list[tuple[str, int, Bill]]:
    """Write a draft per currency, with its coupons."""
    written: list[tuple[str, int, Bill]] = []
    for currency in sorted({currency for currency, _ in lines} | bounds.currencies):
        held = coupon_uses.hold(lock, subscription, currency)
        drafted = [line for c, line in lines if c == currency]
        freed = [one for credit, _ in changes.credits if credit.claim.currency == currency for one in freed_by(credit)]
        try:
            bill = make_bill(
                drafted, held.coupons, held.periods, partial(bounds.lines, currency), subscription.policy, freed,
                includes_tax=subscription.includes_tax, currency=currency,
            )  # fmt: skip
        except TaxNotDeclared as missing:
            raise run_limits.OutOfBounds("tax-not-declared", **missing.facts) from missing
        if not bill.lines:
            continue
        run_limits.ensure_billable(currency, bill)
        invoice_id = store.insert_invoice(
            store.head_of(subscription, options), currency, bill, reserved_id=reserved.get(currency)
        )
        if not options.include_suspended:
            run_limits.ensure_usual(subscription, currency, invoice_id, bill)
        coupon_uses.record_uses(subscription, held, bill.coupons, invoice_id, currency)
        written.append((currency, invoice_id, bill))
    return written


# What is due ----------------------------------------------------------------------------------------


def unbilled_spans(
    items: BillableItems, claims: dict[Claim.Kind, dict[int, list[OpenClaim]]], settled_until: datetime | None, only: Scope | None
) -> list[list[ItemSpan]]:
    """Return the spans after the last claim of each item that this run bills."""
    return [
        _after(since(of_item, claims[kind].get(item_id, []), settled_until), claims[kind].get(item_id, []))
        for kind, spans in ((Claim.Kind.RECURRING, items.recurring), (Claim.Kind.USAGE, items.usage))
        for item_id, of_item in spans.items()
        if _kind_of(kind) in KINDS[only]
    ]


def last_instant(unbilled: Sequence[Sequence[ItemSpan]], options: Options) -> datetime:
    """Return the end of what to bill: earlier than `as_of` if `max_periods` allows no more."""
    most = options.max_periods
    if most is None:
        return options.as_of
    instants = due_instants([span for spans in unbilled for span in spans], options.as_of, most=most + 1)
    return instants[most - 1] if len(instants) > most else options.as_of


def _after(spans: Sequence[ItemSpan], claims: Sequence[OpenClaim]) -> list[ItemSpan]:
    """Return the parts of the spans after the last claim."""
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
    """Return the target of the run, and the unchanged periods whose usage it measures again.

    Args:
        late: the ids of the claims that may have late usage.
    """
    targets: list[Target] = []
    if options.only != Scope.USAGE:
        billed = claims[Claim.Kind.RECURRING]
        for item_id in sorted(items.recurring.keys() | billed.keys()):
            spans = since(items.recurring.get(item_id, []), billed.get(item_id, []), settled_until)
            targets.append(recurring_target(spans, billed.get(item_id, []), as_of))
    if options.only != Scope.RECURRING:
        billed = claims[Claim.Kind.USAGE]
        for item_id in sorted(items.usage.keys() | billed.keys()):
            spans = since(items.usage.get(item_id, []), billed.get(item_id, []), settled_until)
            target = usage_target(spans, billed.get(item_id, []), as_of)
            targets.append(_with_late_usage(target, billed.get(item_id, []), late, options.late_lookback))
    return joined(targets)


def _with_late_usage(target: Target, claims: Sequence[OpenClaim], late: Collection[int], lookback: int | None) -> Target:
    """Return the target with only those unchanged periods that may have late usage, or that the run has to rate again."""
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


def measured_usage(
    subscription: SubscriptionState, target: Target, most_groups: int | None = None
) -> list[tuple[UsageDue, RatingInput]]:
    """Return the usage to rate: the due periods, and unchanged periods whose usage differs from the billed usage.

    Args:
        most_groups: the most groups of a price in a period; None: not limited.

    Raises:
        OutOfBounds: `too-many-groups`.
    """
    measured = _measure_usage(subscription, [*target.usages, *target.unchanged], most_groups)
    due, unchanged = measured[: len(target.usages)], measured[len(target.usages) :]
    return [*due, *((one, quantity) for one, quantity in unchanged if not _is_as_billed(one.continued[0], quantity))]


def _measure_usage(
    subscription: SubscriptionState, looked_at: Sequence[UsageDue], most_groups: int | None
) -> list[tuple[UsageDue, RatingInput]]:
    windows = [
        measuring.Measure(
            one.span.price, one.part.start, one.part.end, one.part.full_start, one.part.full_end, one.span.schedule.zone
        )
        for one in looked_at
    ]
    measured = list(zip(looked_at, measuring.measure(subscription.id, windows, most_groups=most_groups), strict=True))
    run_limits.ensure_few_groups(measured, most_groups)
    return measured


def running_usage(
    subscription: SubscriptionState, running: Sequence[UsageDue], most_groups: int | None = None, *, is_asked_for: bool
) -> list[tuple[UsageDue, RatingInput]]:
    """Return the usage of running periods to invoice before their end.

    That is all of it if it is asked for, what is charged as it is recorded, and the rest if it reaches the plan's threshold.

    What the bounds of the prices leave of it counts, before coupons and tax, less what was invoiced of these periods before.
    """
    terms = {one.span.price_id: plans.price_of(one.span.price_id)[0] for one in running}
    if not is_asked_for:
        running = [
            one for one in running if one.span.price.is_due_as_recorded() or terms[one.span.price_id].usage_threshold is not None
        ]
    measured = _measure_usage(subscription, running, most_groups)
    owed = [(one, quantity, owed_minor(rate_usage(one, quantity))) for one, quantity in measured]
    found: list[tuple[UsageDue, RatingInput]] = []
    for plan in {plan.id: plan for plan in terms.values()}.values():
        of_plan = [(one, quantity, minor) for one, quantity, minor in owed if terms[one.span.price_id].id == plan.id and minor]
        waiting = sum(minor for one, _, minor in of_plan if not one.span.price.is_due_as_recorded())
        reached = plan.usage_threshold is not None and waiting >= to_minor(plan.usage_threshold, plan.currency)
        found += [
            (one, quantity) for one, quantity, _ in of_plan if is_asked_for or reached or one.span.price.is_due_as_recorded()
        ]
    return found


def _is_as_billed(claim: OpenClaim, quantity: RatingInput) -> bool:
    return claim.usage == quantity and not claim.short_of
