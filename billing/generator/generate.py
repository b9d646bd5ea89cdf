"""Making the invoices of one subscription: lock, then read, then write. The generator never writes the subscription's row.

`generate` owns its transaction, one short durable one per subscription; `generate_under` runs inside a caller's. The lock is
only tried for: whoever does not get it is told at once, and may come back later.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from billing.documents.invoices import (
    Finalizing,
    Settled,
    delete_draft_under,
    invoice_key,
    number_under,
    settle_under,
    show_settled,
)
from billing.errors import InvoiceGenerationBusy, Parked, PeriodAlreadyBilled
from billing.generator import coupon_uses, run_limits, store
from billing.generator.allowance_periods import Allowance, due_allowances
from billing.generator.allowances import EarlyGrants, Granted, grant_allowances, read_granted
from billing.generator.draft import (
    MINIMUM,
    Bill,
    DraftLine,
    credit_lines,
    make_bill,
    one_off_line,
    recurring_line,
    usage_line,
)
from billing.generator.drawdown import Rated, rate_measured
from billing.generator.load import (
    Head,
    Intent,
    late_usage_from,
    read_charges,
    read_claims,
    read_head,
    read_intent,
    settled_until,
    since,
)
from billing.generator.minimums import Billed, BoundClaim, Bounds
from billing.generator.reconcile import (
    Claimed,
    Counted,
    Target,
    UsageDue,
    due_instants,
    late_usage_until,
    recurring_target,
    usage_target,
)
from billing.generator.run_limits import OutOfBounds
from billing.generator.store import Changes
from billing.metering import usage
from billing.models import Claim, Invoice
from billing.orders import suspension
from billing.rating.aggregation import Usage
from billing.rating.limits import check_instant
from billing.rating.price_input import PriceInvalid
from billing.rating.pricing import PriceKind
from ledger.database.lock_decorators import locked, on
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locks import Lock, sqlstate, try_advisory_lock
from ledger.errors import Invalid, LockBusy, Refused

EXCLUSION_VIOLATION = "23P01"
LATE_LOOKBACK_PERIODS = 2


class Scope(StrEnum):
    """What a run bills when not everything."""

    USAGE = "usage"
    RECURRING = "recurring"


KINDS = {
    None: {PriceKind.RECURRING, PriceKind.USAGE},
    Scope.USAGE: {PriceKind.USAGE},
    Scope.RECURRING: {PriceKind.RECURRING},
}


@dataclass(frozen=True, slots=True)
class Options:
    """How to bill.

    Args:
        as_of: up to when; aware.
        only: usage or recurring charges; None for both. One-off charges go with the recurring ones.
        finalize: give numbers; else leave drafts.
        dry_run: do all of it and roll it back.
        max_periods: bill at most so many of the instants at which something became due, oldest first.
        late_lookback: in how many billed periods of a usage price to look for late usage.
    """

    as_of: datetime
    only: Scope | None = None
    finalize: bool = True
    dry_run: bool = False
    max_periods: int | None = None
    late_lookback: int = LATE_LOOKBACK_PERIODS
    include_parked: bool = False
    run_id: UUID | None = None
    grace_ends_at: datetime | None = None
    """Set by the generator: until when the draft that it makes is rated anew."""
    render: Callable[[int], dict[str, Any]] | None = None
    """Shows an invoice before the transaction ends; so a dry run can be seen."""


@dataclass(frozen=True, slots=True)
class Made:
    """An invoice that was made, in figures; in a dry run it is there no more."""

    invoice_id: int
    number: str | None
    currency: str
    total_minor: int
    credits_applied_minor: int
    amount_due_minor: int
    lines: int
    is_draft: bool = False


@dataclass(slots=True)
class Generated:
    """What was done for one subscription."""

    subscription: str
    invoices: list[Made] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    periods: int = 0
    late_usage_minor: int = 0
    granted: list[Granted] = field(default_factory=list)
    """The credits that the plan grants, given to the customer's holder."""
    covered: Counter[str] = field(default_factory=Counter)
    """Credits that were spent on usage, less what was given back, by credit type."""

    def add(self, made: Made, bill: Bill) -> None:
        """Count an invoice that was made."""
        self.invoices.append(made)
        billed = [line for line in bill.lines if line.kind in ("recurring", "usage")]
        self.periods += len({(line.starts_at, line.ends_at) for line in billed})
        self.late_usage_minor += sum(line.amount_minor for line in bill.lines if line.kind == "late_usage")


def check_as_of(as_of: datetime, *, dry_run: bool, allow_future: bool = False) -> None:
    """Return when invoices may be made up to an instant: it is not in the future, or only a dry run is asked for.

    Args:
        allow_future: make them all the same; usage that is still to come is then late for its own period.

    Raises:
        Invalid: at `/as_of`: it lies in the future, or outside the years 2000 to 2200.
    """
    check_instant("/as_of", as_of)
    if as_of > timezone.now() and not (dry_run or allow_future):
        detail = "lies in the future: only a dry run may look ahead"
        raise Invalid(pointer="/as_of", rule="in-the-future", detail=detail)


def generate(*, ref: str, options: Options) -> Generated:
    """Bill a subscription up to an instant, or raise and leave nothing behind: no invoice, no number, no lock.

    Raises:
        InvoiceGenerationBusy: somebody else is at it; nothing was read.
        NotFound: there is no such subscription.
        Parked: it waits for somebody to look at it.
        PeriodAlreadyBilled: the database refused a claim: somebody bills without the lock.
    """
    try:
        with transaction.atomic(durable=True), try_advisory_lock(invoice_key(ref)) as lock:
            generated = generate_under(lock, ref=ref, options=options)
            if options.dry_run:
                transaction.set_rollback(True)
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
    except OutOfBounds as out_of_bounds:
        if not options.dry_run:
            suspension.park(ref=ref, reason=out_of_bounds.reason, facts=out_of_bounds.facts, run_id=options.run_id)
        raise Parked(subscription=ref, reason=out_of_bounds.reason, **out_of_bounds.facts) from None
    return generated


@locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
def generate_in(lock: Lock, *, ref: str, options: Options) -> Generated:
    """As `generate`, inside the caller's transaction; a dry run undoes itself with a savepoint."""
    return generate_held(lock, ref=ref, options=options)


def generate_held(lock: Lock, *, ref: str, options: Options) -> Generated:
    """As `generate_in`, under the lock on the subscription that the caller holds."""
    return _in_savepoint(lock, ref=ref, options=options, undone=options.dry_run)


@locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
def dry_run_in(lock: Lock, *, ref: str, options: Options) -> Generated:
    """As `generate_in`, and what a dry run did stays until the caller rolls it back.

    So the dry runs of several subscriptions in one transaction share credits and coupons as their runs would.
    """
    return _in_savepoint(lock, ref=ref, options=options, undone=False)


def _in_savepoint(lock: Lock, *, ref: str, options: Options, undone: bool) -> Generated:
    try:
        with transaction.atomic():
            generated = generate_under(lock, ref=ref, options=options)
            if undone:
                transaction.set_rollback(True)
    except OutOfBounds as out_of_bounds:
        # A refusal undoes what it was raised in: parking is left to the caller. See `park_refused`.
        raise Parked(subscription=ref, reason=out_of_bounds.reason, **out_of_bounds.facts) from None
    return generated


def park_refused(refusal: Refused) -> None:
    """Park what `generate_in` would not bill, in the transaction that outlives the refusal; what is parked stays as it is."""
    if isinstance(refusal, Parked):
        facts = dict(refusal.facts)
        suspension.park(ref=facts.pop("subscription"), reason=facts.pop("reason"), facts=facts)


def generate_under(lock: Lock, *, ref: str, options: Options) -> Generated:
    """As `generate`, under the lock on the subscription that the caller holds. Every read comes after it."""
    lock.ensure_held(invoice_key(ref))
    head = read_head(lock, ref)
    if head.parked is not None and not options.include_parked:
        raise Parked(subscription=ref, reason=head.parked)
    try:
        return _with_grace(lock, head, options)
    except OverflowError as error:
        raise OutOfBounds("date-out-of-range", date=str(error)) from error
    except PriceInvalid as error:
        raise OutOfBounds("price-not-valid", detail=str(error)[:500]) from error
    except IntegrityError as error:
        if sqlstate(error) == EXCLUSION_VIOLATION:
            raise PeriodAlreadyBilled(subscription=ref) from error
        raise


def _with_grace(lock: Lock, head: Head, options: Options) -> Generated:
    """Rate the drafts anew whose grace has not ended, finalise those whose grace has, then bill what is due since.

    A draft is rated anew by taking it back and billing up to its own instant again, so what came late is on it. All of that is
    written before anything is paid or numbered: the locks are taken in their order, however many drafts there are.
    """
    steps: list[_Written] = []
    if head.has_drafts_in_grace:
        # What a draft spent on usage goes back under the holder's lock, and the new draft's coupons come before that.
        coupon_uses.wait_turn(lock, head)
        for draft in _taken_back(lock, head):
            over = options.finalize and options.as_of >= draft.grace_ends_at
            again = replace(
                options, as_of=draft.as_of, only=draft.scope, finalize=over, max_periods=None,
                grace_ends_at=None if over else draft.grace_ends_at,
            )  # fmt: skip
            steps.append(_write(lock, read_head(lock, head.ref), again))
        head = read_head(lock, head.ref)
    if options.finalize and head.grace_days:
        grace = timedelta(days=head.grace_days)
        options = replace(options, finalize=False, grace_ends_at=options.as_of + grace)
    steps.append(_write(lock, head, options))
    return _finished(lock, steps)


@dataclass(frozen=True, slots=True)
class _Written:
    """The drafts of one step with their claims, and the allowances that were found due; nothing is paid or numbered yet.

    Args:
        granted: what was given early, to cover the usage that was rated.
        covered: credits spent on usage, less what was given back, by credit type.
    """

    head: Head
    options: Options
    invoices: list[tuple[str, int, Bill]]
    allowances: list[Allowance]
    granted: list[Granted]
    covered: Counter[str]


@dataclass(frozen=True, slots=True)
class _TakenBack:
    """What a draft was about that is to be made again; one for the drafts of one run, in however many currencies."""

    as_of: datetime
    scope: Scope | None
    grace_ends_at: datetime


def _taken_back(lock: Lock, head: Head) -> list[_TakenBack]:
    """Delete the drafts that are in their grace, the newest first, and say what they were, oldest first.

    Raises:
        InvoiceCorrectedLater: somebody has finalised an invoice that corrects one of them; finalise that draft by hand.
    """
    drafts = Invoice.objects.filter(subscription_id=head.subscription_id, state=Invoice.State.DRAFT, grace_ends_at__isnull=False)
    found: dict[_TakenBack, None] = {}
    for draft in drafts.order_by("-id"):
        assert draft.grace_ends_at is not None
        delete_draft_under(lock, draft)
        found[_TakenBack(draft.as_of, Scope(draft.scope) if draft.scope else None, draft.grace_ends_at)] = None
    return list(found)[::-1]


def _write(lock: Lock, head: Head, options: Options) -> _Written:
    """Write what is due as drafts, with their claims, and move the cursor."""
    intent = read_intent(lock, head)
    run_limits.ensure_dates(head, intent)
    mark = settled_until(head, intent, late_usage_from(lock, head, options.late_lookback))
    claims, bound_claims = read_claims(lock, head, mark)
    one_offs = [] if options.only == Scope.USAGE else read_charges(lock, head)
    unbilled = _unbilled(intent, claims, mark, options.only)
    as_of = _as_of(unbilled, options)
    if not options.include_parked:
        run_limits.ensure_periods(unbilled, as_of)
    target, standing = _target(intent, claims, mark, options, as_of)
    early = EarlyGrants(lock, head, _allowances(lock, head, intent, mark, options.only, as_of), intent.allowances)
    reserved: dict[str, int] = {}

    def invoice_of(currency: str) -> int:
        if currency not in reserved:
            reserved[currency] = store.reserve_invoice()
        return reserved[currency]

    measured = _measured(head, target, standing)
    run_limits.ensure_countable(measured)
    rated = rate_measured(lock, head, target.credits, measured, as_of=as_of, invoice_of=invoice_of, early=early)
    early.end()
    lines, changes = _lines(target, rated, as_of)
    billed = [claim for by_item in claims.values() for of_item in by_item.values() for claim in of_item]
    after = partial(store.billed_after, billed, changes)
    bounds = _bounds(head, intent, after, bound_claims, mark, options.only, as_of)
    for currency, charge in one_offs:
        line = one_off_line(charge)
        changes.one_offs.append((charge, line))
        lines.append((currency, line))
    if not options.include_parked:
        run_limits.ensure_few_lines(lines)
    invoices = _write_invoices(lock, head, lines, bounds, changes, replace(options, as_of=as_of), reserved)
    changes.bounds = bounds.changes
    changes.allowances_seen_to = options.only != Scope.USAGE
    store.write_claims(head, changes)
    store.move_cursor(head, intent, claims, changes, KINDS[options.only], as_of)
    return _Written(head, options, invoices, early.due, early.given, rated.credits())


def _allowances(
    lock: Lock, head: Head, intent: Intent, mark: datetime | None, only: Scope | None, as_of: datetime
) -> list[Allowance]:
    """The credits that the plan grants for the periods that have begun; they go with the recurring charges."""
    if not intent.allowances or only == Scope.USAGE:
        return []
    return due_allowances(intent.allowances, read_granted(lock, head, mark), as_of, mark)


def _bounds(
    head: Head,
    intent: Intent,
    billed: Callable[[Sequence[DraftLine]], Sequence[Billed]],
    bound_claims: Sequence[BoundClaim],
    mark: datetime | None,
    only: Scope | None,
    as_of: datetime,
) -> Bounds:
    """The subscription's minimums and maximums, of the periods of which everything is or will now be billed."""
    if not intent.bounded and not bound_claims:
        return Bounds((), billed, (), as_of)
    until = as_of
    # A run of one kind bounds a period only once the other kind has been billed up to its end.
    other_due_at = {Scope.USAGE: head.recurring_due_at, Scope.RECURRING: head.usage_due_at}.get(only) if only else None
    if only is not None:
        until = min(as_of, other_due_at) if other_due_at is not None else head.active_from
    return Bounds(intent.bounded, billed, bound_claims, until, mark)


def _write_invoices(
    lock: Lock,
    head: Head,
    lines: Sequence[tuple[str, DraftLine]],
    bounds: Bounds,
    changes: Changes,
    options: Options,
    reserved: Mapping[str, int],
) -> list[tuple[str, int, Bill]]:
    """One draft per currency, with its coupons."""
    written: list[tuple[str, int, Bill]] = []
    for currency in sorted({currency for currency, _ in lines} | bounds.currencies):
        held = coupon_uses.hold(lock, head, currency)
        drafted = [line for c, line in lines if c == currency]
        bill = make_bill(drafted, held.coupons, held.periods_left, partial(bounds.lines, currency), head.vat_status)
        if not bill.lines:
            continue
        run_limits.ensure_billable(currency, bill)
        invoice_id = store.insert_invoice(
            head, currency, bill, as_of=options.as_of, only=options.only, run_id=options.run_id,
            grace_ends_at=options.grace_ends_at, reserved_id=reserved.get(currency),
        )  # fmt: skip
        if not options.include_parked:
            run_limits.ensure_usual(head, currency, invoice_id, bill)
        changes.true_ups += [line for line in bill.lines if line.kind == MINIMUM and isinstance(line.source, DraftLine)]
        coupon_uses.record_uses(held, bill.coupons, invoice_id, currency)
        written.append((currency, invoice_id, bill))
    return written


def _finished(lock: Lock, steps: Sequence[_Written]) -> Generated:
    """Pay with what credits there are, then grant new ones, then give the numbers; and say what was done."""
    last = steps[-1]
    settled: dict[int, Settled] = {}
    for step in steps:
        if step.options.finalize:
            # What an earlier step left as a credit note was not there yet when the head was read.
            head = step.head if len(steps) == 1 else replace(step.head, has_notes=True)
            for currency, invoice_id, bill in step.invoices:
                settled[invoice_id] = settle_under(lock, _finalizing(head, currency, bill, invoice_id))
    # Nothing was granted meanwhile, so the last step has found all that is due.
    early = [one for step in steps for one in step.granted]
    generated = Generated(last.head.ref, granted=[*early, *grant_allowances(lock, last.head, last.allowances)])
    for step in steps:
        generated.covered.update(step.covered)
        for currency, invoice_id, bill in step.invoices:
            number = _numbered(lock, settled.get(invoice_id), step.options)
            generated.add(_made(currency, invoice_id, bill, settled.get(invoice_id), number), bill)
            if step.options.render is not None:
                generated.documents.append(step.options.render(invoice_id))
    return generated


def _numbered(lock: Lock, settled: Settled | None, options: Options) -> str | None:
    if settled is None:
        return None
    if options.dry_run:
        show_settled(lock, settled)
        return None
    return number_under(lock, settled)


def _made(currency: str, invoice_id: int, bill: Bill, settled: Settled | None, number: str | None) -> Made:
    return Made(
        invoice_id=invoice_id,
        number=number,
        currency=currency,
        total_minor=bill.total_minor,
        credits_applied_minor=settled.credits_applied_minor if settled else 0,
        amount_due_minor=settled.amount_due_minor if settled else bill.total_minor,
        lines=len(bill.lines),
        is_draft=settled is None,
    )


def _unbilled(
    intent: Intent, claims: dict[Claim.Kind, dict[int, list[Claimed]]], mark: datetime | None, only: Scope | None
) -> list[list[Counted]]:
    """Of each item that is billed now, the spans behind its last claim."""
    return [
        _after(since(of_item, claims[kind].get(item_id, []), mark), claims[kind].get(item_id, []))
        for kind, spans in ((Claim.Kind.RECURRING, intent.recurring), (Claim.Kind.USAGE, intent.usage))
        for item_id, of_item in spans.items()
        if _kind_of(kind) in KINDS[only]
    ]


def _as_of(unbilled: Sequence[Sequence[Counted]], options: Options) -> datetime:
    """Up to when to bill: earlier than asked for when that would be more periods than allowed."""
    most = options.max_periods
    if most is None:
        return options.as_of
    instants = due_instants([span for spans in unbilled for span in spans], options.as_of, most=most + 1)
    return instants[most - 1] if len(instants) > most else options.as_of


def _after(spans: Sequence[Counted], claims: Sequence[Claimed]) -> list[Counted]:
    """What of the spans lies behind the last claim."""
    if not claims:
        return list(spans)
    last = max(claim.end for claim in claims)
    return [replace(span, start=max(span.start, last)) for span in spans if span.end is None or span.end > last]


def _kind_of(kind: Claim.Kind) -> PriceKind:
    return PriceKind.RECURRING if kind == Claim.Kind.RECURRING else PriceKind.USAGE


def _target(
    intent: Intent,
    claims: dict[Claim.Kind, dict[int, list[Claimed]]],
    mark: datetime | None,
    options: Options,
    as_of: datetime,
) -> tuple[Target, list[UsageDue]]:
    """What is to be billed, and of what stands as it was billed, where to look for late usage."""
    target, standing, only = Target(), list[UsageDue](), options.only
    if only != Scope.USAGE:
        held = claims[Claim.Kind.RECURRING]
        for item_id in sorted(intent.recurring.keys() | held.keys()):
            spans = since(intent.recurring.get(item_id, []), held.get(item_id, []), mark)
            recurring_target(spans, held.get(item_id, []), as_of, target)
    if only != Scope.RECURRING:
        held = claims[Claim.Kind.USAGE]
        for item_id in sorted(intent.usage.keys() | held.keys()):
            spans = since(intent.usage.get(item_id, []), held.get(item_id, []), mark)
            stands = usage_target(spans, held.get(item_id, []), as_of, target)
            recent = _recent(stands, held.get(item_id, []), options.late_lookback)
            untils = [(one, late_usage_until(one.counted, spans, options.late_lookback)) for one in recent]
            late = [one for one, until in untils if until is None or as_of < until]
            standing += [one for one in stands if one.continued[0].short_of or one in late]
    return target, standing


def _measured(head: Head, target: Target, standing: Sequence[UsageDue]) -> list[tuple[UsageDue, Usage]]:
    """The usage to be rated: what is due, and of what stands that of which the usage is another than was billed."""
    looked_at = [*target.usages, *standing]
    windows = [
        usage.Measure(one.counted.price, one.part.start, one.part.end, one.part.full_start, one.part.full_end)
        for one in looked_at
    ]
    measured = zip(looked_at, usage.measure(head.subscription_id, windows), strict=True)
    return [(one, quantity) for one, quantity in measured if one not in standing or not _stands(one.continued[0], quantity)]


def _stands(claim: Claimed, quantity: Usage) -> bool:
    return claim.usage == quantity and not claim.short_of


def _lines(target: Target, rated: Rated, as_of: datetime) -> tuple[list[tuple[str, DraftLine]], Changes]:
    """Lines with their currency for what is to be billed, and the claims that change with them."""
    changes = Changes(credits_due_at=target.credits_due_at)
    lines: list[tuple[str, DraftLine | None]] = []
    for credit in target.credits:
        moved = rated.given_back.get(credit.claim.id)
        given_back = credit_lines(credit, moved)
        changes.credits.append((credit, given_back))
        lines += [(credit.claim.currency, line) for line in given_back]
    for charge in target.charges:
        line = recurring_line(charge) if charge.share.used else None
        changes.charges.append((charge, line))
        lines.append((charge.counted.currency, line))
    for one in rated.usages:
        line = usage_line(one, as_of)
        changes.usages.append((one, line))
        lines.append((one.due.counted.currency, line))
    return [(currency, line) for currency, line in lines if line is not None], changes


def _recent(standing: Sequence[UsageDue], claims: Sequence[Claimed], lookback: int) -> list[UsageDue]:
    """What stands of the last billed periods of a usage item, in however many parts.

    They are counted by what has been billed, so after a change of plan a longer period may begin before ones that were over by
    then; and what this run gives back or bills anew counts as well.
    """
    billed: dict[tuple[datetime, datetime], datetime] = {}
    for claim in claims:
        period = claim.schedule.period_at(claim.start)
        full = (period.start, period.end)
        billed[full] = max(claim.start, billed.get(full, claim.start))
    last = sorted(billed, key=lambda full: billed[full])[-lookback:] if lookback else []
    return [one for one in standing if (one.part.full_start, one.part.full_end) in last]


def _finalizing(head: Head, currency: str, bill: Bill, invoice_id: int) -> Finalizing:
    return Finalizing(
        invoice_id=invoice_id,
        subscription_id=head.subscription_id,
        subscription_ref=head.ref,
        currency=currency,
        total_minor=bill.total_minor,
        own_note_minor=sum(one.total_minor for one in bill.carried),
        series="INV",
        terms_days=head.terms_days,
        time_zone=head.customer_time_zone,
        holder_id=head.holder_id,
        credit_type=head.credit_type,
        credit_unit_value=head.credit_unit_value if currency == head.currency else None,
        has_notes=head.has_notes,
    )
