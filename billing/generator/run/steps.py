"""A step of a run for one subscription: writing the drafts of what is due with their claims, then finishing them; its result."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from billing.documents.finalisation import InvoiceDraft, Settlement, number_under, settle_under, show_settlement
from billing.generator.difference import coupon_uses, run_limits, store
from billing.generator.difference.draft import Bill, freed_by, make_bill
from billing.generator.difference.draft_lines import DraftLine, credit_lines, one_off_line, recurring_line, usage_line
from billing.generator.difference.drawdown import RunUsage, rate_measured
from billing.generator.difference.minimums import BilledAmount, Bounds
from billing.generator.difference.reconcile import Target
from billing.generator.difference.store import ClaimChanges
from billing.generator.difference.targets import last_instant, measured_usage, target_of, unbilled_spans
from billing.generator.options import KINDS, Options, Scope
from billing.generator.run.cursor import move_cursor
from billing.generator.state.allowances import AllowanceGrant, EarlyGrants, grant_allowances, read_granted
from billing.generator.state.claims import late_usage_from, mark_late, read_charges, read_claims, read_late
from billing.generator.state.items import BillableItems, compute_settled_until, read_items
from billing.generator.state.spans import Allowance, BoundClaim, due_allowances, due_instants
from billing.generator.state.subscription_state import SubscriptionState
from ledger.database.locks import Lock


@dataclass(frozen=True, slots=True)
class InvoiceSummary:
    """The numbers of a new invoice; after a dry run the invoice does not exist."""

    invoice_id: int
    number: str | None
    currency: str
    total_minor: int
    credits_applied_minor: int
    amount_due_minor: int
    lines: int
    is_draft: bool = False


@dataclass(slots=True)
class GenerationResult:
    """What a run did for one subscription."""

    subscription: str
    invoices: list[InvoiceSummary] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    periods: int = 0
    late_usage_minor: int = 0
    granted: list[AllowanceGrant] = field(default_factory=list)
    """The allowances of the plan that the run granted to the customer's holder."""
    covered: Counter[str] = field(default_factory=Counter)
    """Credits spent on usage, less credits given back, by credit type."""

    def add(self, made: InvoiceSummary, bill: Bill) -> None:
        """Count a new invoice."""
        self.invoices.append(made)
        billed = [line for line in bill.lines if line.kind in ("recurring", "usage")]
        self.periods += len({(line.starts_at, line.ends_at) for line in billed})
        self.late_usage_minor += sum(line.amount_minor for line in bill.lines if line.kind == "late_usage")


@dataclass(slots=True)
class RunStep:
    """The drafts of a step and the allowances that are due. Nothing is numbered yet.

    Args:
        as_of: up to when it bills.
        due_at: when the first of it became due; None where it bills only what has no due date.
        early: grants allowances that may pay before they would be granted.
        granted: allowances that were granted early, to cover the usage of the step.
        covered: credits spent on usage, less credits given back, by credit type.
    """

    subscription: SubscriptionState
    options: Options
    invoices: list[tuple[str, int, Bill]]
    allowances: list[Allowance]
    granted: list[AllowanceGrant]
    covered: Counter[str]
    as_of: datetime
    due_at: datetime | None
    early: EarlyGrants
    settled: dict[int, Settlement] | None = None

    @property
    def is_last(self) -> bool:
        """True when nothing else is due as of the run."""
        return self.as_of == self.options.as_of


def pays_with_its_allowance(lock: Lock, subscription: SubscriptionState, options: Options) -> bool:
    """True when credits of an allowance may pay invoices of the subscription: then each due date is a step of its own."""
    if not (options.finalize and subscription.holder_id and subscription.credit_type and subscription.credit_unit_value):
        return False
    return any(span.credit_type == subscription.credit_type for span in read_items(lock, subscription).allowances)


def write_step(lock: Lock, subscription: SubscriptionState, options: Options, *, is_paid_next: bool = False) -> RunStep:
    """Write the drafts of what is due with their claims, and move the cursor.

    Args:
        is_paid_next: `pay_step` comes next, and then a step of what was due later. What was recorded after the step's instant is
            for a later step, and allowances stay until the step is paid.
    """
    items = read_items(lock, subscription)
    run_limits.ensure_dates(subscription, items)
    late = read_late(lock, subscription, options.only)
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
    early = EarlyGrants(
        lock, subscription, _allowances(lock, subscription, items, settled_until, options.only, as_of), items.allowances
    )
    reserved: dict[str, int] = {}

    def invoice_of(currency: str) -> int:
        if currency not in reserved:
            reserved[currency] = store.reserve_invoice()
        return reserved[currency]

    measured = measured_usage(subscription, target)
    run_limits.ensure_countable(measured)
    rated = rate_measured(lock, subscription, target.credits, measured, as_of=as_of, invoice_of=invoice_of, early=early)
    if not is_paid_next:
        early.end()
    lines, changes = _lines(target, rated, as_of)
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
    changes.allowances_seen_to = options.only != Scope.USAGE
    store.write_claims(subscription, changes)
    mark_late(late, left_out=target.left_out, measured=(one.continued[0].id for one in target.unchanged))
    move_cursor(subscription, items, claims, changes, KINDS[options.only], as_of, late_is_seen=not is_early)
    return RunStep(subscription, options, invoices, early.due, early.given, rated.credits(), as_of, due_at, early)


def _allowances(
    lock: Lock,
    subscription: SubscriptionState,
    items: BillableItems,
    settled_until: datetime | None,
    only: Scope | None,
    as_of: datetime,
) -> list[Allowance]:
    """The allowances of the periods that have begun. They belong to the recurring charges."""
    if not items.allowances or only == Scope.USAGE:
        return []
    return due_allowances(items.allowances, read_granted(lock, subscription, settled_until), as_of, settled_until)


def _lines(target: Target, rated: RunUsage, as_of: datetime) -> tuple[list[tuple[str, DraftLine]], ClaimChanges]:
    """The lines of what is to be billed, with their currency, and the changes of claims that belong to them."""
    changes = ClaimChanges(credits_due_at=target.credits_due_at)
    lines: list[tuple[str, DraftLine | None]] = []
    for credit in target.credits:
        change = rated.given_back.get(credit.claim.id)
        given_back = credit_lines(credit, change)
        changes.credits.append((credit, given_back))
        lines += [(credit.claim.currency, line) for line in given_back]
    for charge in target.charges:
        line = recurring_line(charge) if charge.share.used else None
        changes.charges.append((charge, line))
        lines.append((charge.span.currency, line))
    for one in rated.usages:
        line = usage_line(one, as_of)
        changes.usages.append((one, line))
        lines.append((one.due.span.currency, line))
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
    """The minimums and maximums of the subscription, for periods that are billed completely after this step."""
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
        bill = make_bill(drafted, held.coupons, held.periods, partial(bounds.lines, currency), subscription.vat_status, freed)
        if not bill.lines:
            continue
        run_limits.ensure_billable(currency, bill)
        invoice_id = store.insert_invoice(
            subscription, currency, bill, as_of=options.as_of, only=options.only, run_id=options.run_id,
            grace_ends_at=options.grace_ends_at, reserved_id=reserved.get(currency),
        )  # fmt: skip
        if not options.include_suspended:
            run_limits.ensure_usual(subscription, currency, invoice_id, bill)
        coupon_uses.record_uses(subscription, held, bill.coupons, invoice_id, currency)
        written.append((currency, invoice_id, bill))
    return written


def settle_step(lock: Lock, step: RunStep, *, has_notes: bool = False) -> None:
    """Pay the drafts of a step with the available credits, where it finalises them. A second call changes nothing.

    Args:
        has_notes: an earlier step may have made a credit note after the subscription was read.
    """
    if step.settled is not None:
        return
    subscription = replace(step.subscription, has_notes=True) if has_notes else step.subscription
    step.settled = {}
    if step.options.finalize:
        for currency, invoice_id, bill in step.invoices:
            step.settled[invoice_id] = settle_under(lock, _finalizing(subscription, currency, bill, invoice_id))


def pay_step(lock: Lock, step: RunStep, *, has_notes: bool) -> None:
    """Pay the drafts of a step, also with allowances that a run in time would have found, and grant what is due after that."""
    if step.due_at is not None:
        step.early.give_before(step.due_at)
    settle_step(lock, step, has_notes=has_notes)
    step.early.end()
    step.granted += grant_allowances(lock, step.subscription, step.early.due)
    step.allowances = []


def finish_steps(lock: Lock, steps: Sequence[RunStep]) -> GenerationResult:
    """Pay with the available credits, then grant allowances, then give the numbers; return what was done."""
    last = steps[-1]
    for step in steps:
        settle_step(lock, step, has_notes=len(steps) > 1)
    # Drafts that are rated again grant nothing, so the last step has found all allowances that are due.
    last.granted += grant_allowances(lock, last.subscription, last.allowances)
    generated = GenerationResult(last.subscription.ref, granted=[one for step in steps for one in step.granted])
    for step in steps:
        settled = step.settled or {}
        generated.covered.update(step.covered)
        for currency, invoice_id, bill in step.invoices:
            number = _numbered(lock, settled.get(invoice_id), step.options)
            generated.add(_made(currency, invoice_id, bill, settled.get(invoice_id), number), bill)
            if step.options.render is not None:
                generated.documents.append(step.options.render(invoice_id))
    return generated


def _numbered(lock: Lock, settled: Settlement | None, options: Options) -> str | None:
    if settled is None:
        return None
    if options.dry_run:
        show_settlement(lock, settled)
        return None
    return number_under(lock, settled)


def _made(currency: str, invoice_id: int, bill: Bill, settled: Settlement | None, number: str | None) -> InvoiceSummary:
    return InvoiceSummary(
        invoice_id=invoice_id,
        number=number,
        currency=currency,
        total_minor=bill.total_minor,
        credits_applied_minor=settled.credits_applied_minor if settled else 0,
        amount_due_minor=settled.amount_due_minor if settled else bill.total_minor,
        lines=len(bill.lines),
        is_draft=settled is None,
    )


def _finalizing(subscription: SubscriptionState, currency: str, bill: Bill, invoice_id: int) -> InvoiceDraft:
    return InvoiceDraft(
        invoice_id=invoice_id,
        subscription_id=subscription.id,
        subscription_ref=subscription.ref,
        currency=currency,
        total_minor=bill.total_minor,
        own_note_minor=sum(one.total_minor for one in bill.carried),
        series="INV",
        terms_days=subscription.terms_days,
        time_zone=subscription.customer_time_zone,
        holder_id=subscription.holder_id,
        credit_type=subscription.credit_type,
        credit_unit_value=subscription.credit_unit_value if currency == subscription.currency else None,
        has_notes=subscription.has_notes,
    )
