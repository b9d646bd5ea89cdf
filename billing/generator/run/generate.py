"""Makes the invoices of one subscription: lock, then read, then write. The generator never writes the subscription's row.

`generate` opens a short durable transaction per subscription; `generate_under` runs in the caller's. Both only try to take the
lock: if another process has it, they raise at once, and the caller can try again later.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import Error, IntegrityError, transaction
from django.utils import timezone

from billing.documents.invoice_locks import invoice_key
from billing.documents.invoices import delete_draft_under, note_drafts_under
from billing.errors import BillingSuspended, BillingWouldBeSuspended, InvoiceGenerationBusy, PeriodAlreadyBilled
from billing.generator.difference import coupon_uses
from billing.generator.difference.due_drafts import RunStep, write_step
from billing.generator.difference.run_limits import OutOfBounds
from billing.generator.options import Options, Scope
from billing.generator.run.gathering import with_consolidated
from billing.generator.run.steps import GenerationResult, finish_steps, pay_step, pays_with_its_allowance
from billing.generator.state.subscription_state import SubscriptionState, read_subscription
from billing.models import Activation, Claim, Cursor, Customer, Invoice, Subscription
from billing.orders import suspension
from billing.rating.limits import check_instant
from billing.rating.prices.reading import PriceInvalid
from billing.tax_asking import asks_taxes
from ledger import previews
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locking import locked, on
from ledger.database.locks import Lock, sqlstate, try_advisory_lock
from ledger.database.statements import PREPARED_IS_GONE
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid, LockBusy, Refused
from ledger.services import clock_of, preview, time_of

EXCLUSION_VIOLATION = "23P01"


def check_as_of(as_of: datetime, *, dry_run: bool, refs: Collection[str] = (), allow_future: bool = False) -> None:
    """Return if a run may bill up to an instant: it is not in the future, or the run is a dry run.

    Args:
        refs: the subscriptions that the run bills, if it names them: the future begins at the time of their holders' test clocks.
        allow_future: allow it anyway; usage that comes later is then late for its own period.

    Raises:
        Invalid: at `/as_of`: it lies in the future, or outside the years 2000 to 2200.
    """
    check_instant("/as_of", as_of)
    if as_of > timezone.now() and not (dry_run or allow_future or _have_reached(refs, as_of)):
        detail = "lies in the future, which only a dry run may bill"
        raise Invalid(pointer="/as_of", rule="in-the-future", detail=detail)


def _have_reached(refs: Collection[str], instant: datetime) -> bool:
    """Return whether the holders of all these subscriptions have test clocks that have reached the instant."""
    customer_ids = Subscription.objects.filter(ref__in=refs).values("customer_id")
    clocks = [clock_of(customer.holder_id) for customer in Customer.objects.filter(pk__in=customer_ids)]
    return bool(clocks) and all(clock is not None and clock >= instant for clock in clocks)


@asks_taxes
def generate(*, ref: str, options: Options) -> GenerationResult:
    """Bill a subscription up to an instant, or raise and leave nothing behind: no invoice, no number, no lock.

    Raises:
        InvoiceGenerationBusy: another process holds the lock of the subscription; nothing was read.
        NotFound: the subscription does not exist.
        BillingSuspended: a person has to check the subscription first.
        BillingWouldBeSuspended: a dry run exceeds a limit; nothing is suspended.
        PeriodAlreadyBilled: the database refused a claim, because another process bills without the lock.
        TaxesUnavailable, TaxesRefused: the seller's provider of taxes has no answer; nothing is suspended.
    """
    try:
        return _prepared_again(lambda: _generate(ref, options))
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
    except OutOfBounds as out_of_bounds:
        if not options.dry_run:
            suspension.suspend(ref=ref, reason=out_of_bounds.reason, facts=out_of_bounds.facts, run_id=options.run_id)
        raise _refusal(ref, options, out_of_bounds) from None


def _generate(ref: str, options: Options) -> GenerationResult:
    with preview() if options.dry_run else own_or_joined(subscription=ref), try_advisory_lock(invoice_key(ref)) as lock:
        return generate_under(lock, ref=ref, options=options)


def _prepared_again(act: Callable[[], GenerationResult]) -> GenerationResult:
    """Act, and once more if the server has lost a prepared statement: the first try is rolled back, the second prepares it."""
    try:
        return act()
    except Error as error:
        if sqlstate(error) not in PREPARED_IS_GONE:
            raise
        return act()


@asks_taxes
@locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
def generate_in(lock: Lock, *, ref: str, options: Options) -> GenerationResult:
    """Bill as `generate` does, in the caller's transaction; a dry run is a preview."""
    return generate_held(lock, ref=ref, options=options)


def generate_held(lock: Lock, *, ref: str, options: Options) -> GenerationResult:
    """Bill as `generate_in` does, under the caller's lock on the subscription; then make the invoices that waited only for it."""

    def act() -> GenerationResult:
        with preview() if options.dry_run else transaction.atomic():
            return with_consolidated(generate_under(lock, ref=ref, options=options), options)

    try:
        return _prepared_again(act)
    except OutOfBounds as out_of_bounds:
        # The refusal rolls back this transaction, so the caller suspends billing. See `suspend_refused`.
        raise _refusal(ref, options, out_of_bounds) from None


def dry_run_in(*, ref: str, options: Options) -> GenerationResult:
    """Bill as `generate_in` does, as a part of the caller's preview: the next part sees the credits and coupons that it used.

    The lock of the subscription is released at once.

    Raises:
        InvoiceGenerationBusy: another process bills the subscription, or has billed it since the preview's snapshot.
    """
    try:
        with preview():
            return generate_in(ref=ref, options=options)
    except PeriodAlreadyBilled as billed:
        raise InvoiceGenerationBusy(key=invoice_key(ref), subscription=ref) from billed


def dry_run_staying(*, ref: str, options: Options) -> GenerationResult:
    """Bill as `dry_run_in` does; the rows and the lock stay until the caller's preview ends, for a consolidated invoice.

    Raises:
        InvoiceGenerationBusy: as `dry_run_in`.
        BillingSuspended, BillingWouldBeSuspended: a run would not bill the subscription.
    """
    shown = previews.current()
    assert shown is not None, "the rows stay in the preview of the caller"
    try:
        with shown.attempt(), transaction.atomic(), try_advisory_lock(invoice_key(ref)) as lock:
            generated = generate_under(lock, ref=ref, options=options)
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
    except PeriodAlreadyBilled as billed:
        raise InvoiceGenerationBusy(key=invoice_key(ref), subscription=ref) from billed
    except OutOfBounds as out_of_bounds:
        raise _refusal(ref, options, out_of_bounds) from None
    shown.rows_stay()
    return generated


def _refusal(ref: str, options: Options, out_of_bounds: OutOfBounds) -> BillingSuspended:
    refusal = BillingWouldBeSuspended if options.dry_run else BillingSuspended
    return refusal(subscription=ref, reason=out_of_bounds.reason, **out_of_bounds.facts)


def suspend_refused(refusal: Refused) -> None:
    """Suspend the billing that `generate_in` refused, in the transaction that outlives the refusal; not for a dry run."""
    if isinstance(refusal, BillingSuspended) and not isinstance(refusal, BillingWouldBeSuspended):
        facts = dict(refusal.facts)
        suspension.suspend(ref=facts.pop("subscription"), reason=facts.pop("reason"), facts=facts)


def generate_under(lock: Lock, *, ref: str, options: Options) -> GenerationResult:
    """Bill as `generate` does, under the caller's lock on the subscription. Every read comes after the lock."""
    lock.ensure_held(invoice_key(ref))
    subscription = read_subscription(lock, ref)
    options = _at_holders_time(subscription, options)
    if subscription.suspended_reason is not None and not options.include_suspended:
        raise BillingSuspended(subscription=ref, reason=subscription.suspended_reason)
    try:
        if subscription.activation in (None, Activation.State.STARTED):
            return _with_grace(lock, subscription, options)
        return _before_its_start(lock, subscription, options)
    except OverflowError as error:
        raise OutOfBounds("date-out-of-range", date=str(error)) from error
    except PriceInvalid as error:
        raise OutOfBounds("price-not-valid", detail=str(error)[:500]) from error
    except IntegrityError as error:
        if sqlstate(error) == EXCLUSION_VIOLATION:
            raise PeriodAlreadyBilled(subscription=ref) from error
        raise


def _before_its_start(lock: Lock, subscription: SubscriptionState, options: Options) -> GenerationResult:
    """Make the first invoice of a subscription that waits for its payment; nothing else, and nothing once it has expired."""
    made = GenerationResult(subscription.ref)
    if subscription.activation != Activation.State.WAITING:
        return made
    if subscription.first_invoice is None:
        made = _first_invoice(lock, subscription, options)
    if options.as_if_paid:
        later = _with_grace(lock, read_subscription(lock, subscription.ref), options)
        made = replace(
            later, invoices=[*made.invoices, *later.invoices], documents=[*made.documents, *later.documents],
            periods=made.periods + later.periods,
        )  # fmt: skip
    return made


def _first_invoice(lock: Lock, subscription: SubscriptionState, options: Options) -> GenerationResult:
    """Make the invoice of what is due at the start, to be paid before the order expires; without anything to pay, start."""
    assert subscription.must_be_paid_by is not None
    zone = ZoneInfo(subscription.customer_time_zone)
    days = [at.astimezone(zone).date() for at in (time_of(subscription.holder_id), subscription.must_be_paid_by)]
    subscription = replace(subscription, terms_days=max((days[1] - days[0]).days, 0))
    options = replace(
        options, as_of=subscription.active_from, only=None, finalize=True, max_periods=None, running_usage=False,
        grace_ends_at=None,
    )  # fmt: skip
    step = write_step(lock, subscription, options)
    # Without a cursor, the first run after the start looks at everything, and grants the first allowance.
    step.allowances, step.has_started = [], False
    Cursor.objects.filter(pk=subscription.id).delete()
    waiting = Activation.objects.filter(subscription_id=subscription.id, state=Activation.State.WAITING)
    waiting.update(invoice_id=next((invoice_id for _, invoice_id, _ in step.invoices), None))
    made = finish_steps(lock, [step])
    if not any(one.amount_due_minor for one in made.invoices):
        waiting.update(state=Activation.State.STARTED, settled_at=timezone.now())
    return made


def _at_holders_time(subscription: SubscriptionState, options: Options) -> Options:
    """Bill up to the time of the holder's test clock, if there is one, or up to an `as_of` that lies beyond it in the future."""
    shown = clock_of(subscription.holder_id)
    if shown is None:
        return options
    return replace(options, as_of=shown if options.as_of <= timezone.now() else max(shown, options.as_of))


def _with_grace(lock: Lock, subscription: SubscriptionState, options: Options) -> GenerationResult:
    """Rate drafts again, finalise those whose grace has ended, then bill what has become due since.

    To rate a draft again, the run deletes it and bills up to its instant again, so the new draft has the late usage. All drafts
    are written before any is paid or numbered, so locks are taken in their order for any number of drafts.
    """
    steps: list[RunStep] = []
    day = _consolidates_on(lock, subscription, options)
    if subscription.has_drafts_in_grace:
        # Deleting a draft takes the holder's lock for the returned credits; the lock of the account comes before it.
        coupon_uses.wait_turn(lock, subscription)
        for draft, notes in _taken_back(lock, subscription):
            over = options.finalize and options.as_of >= draft.grace_ends_at
            again = replace(
                options, as_of=draft.as_of, only=draft.scope, finalize=over and day is None, max_periods=None,
                consolidates_on=day if over else None,
                grace_ends_at=None if over else draft.grace_ends_at, running_usage=draft.running_usage,
            )  # fmt: skip
            steps.append(write_step(lock, read_subscription(lock, subscription.ref), again))
            for currency, invoice_id, _ in steps[-1].invoices:
                note_drafts_under(lock, invoice_key(subscription.ref), [invoice_id], notes.get(currency, ""))
        subscription = read_subscription(lock, subscription.ref)
    if options.finalize and subscription.grace_days:
        grace = timedelta(days=subscription.grace_days)
        options = replace(options, finalize=False, grace_ends_at=options.as_of + grace)
    elif day is not None:
        options = replace(options, finalize=False, consolidates_on=day, stays_draft=not options.finalize)
    rated_again = len(steps)
    # Lines, claims and cursor are those of a run that number of days ago.
    options = replace(options, as_of=options.as_of - timedelta(days=subscription.hold_days))
    if pays_with_its_allowance(lock, subscription, options):
        steps += _one_due_date_at_a_time(lock, subscription, options)
    else:
        steps.append(write_step(lock, subscription, options))
    made = [invoice_id for step in steps[rated_again:] for _, invoice_id, _ in step.invoices]
    if options.note and made:
        note_drafts_under(lock, invoice_key(subscription.ref), made, options.note)
    return finish_steps(lock, steps)


def _consolidates_on(lock: Lock, subscription: SubscriptionState, options: Options) -> date | None:
    """Return the day of the customer whose consolidated invoice takes what the run bills; None: its invoices are separate.

    Where allowances may pay invoices, the next allowance waits until the invoice is paid, so the invoice waits for nobody else.
    """
    if not subscription.is_consolidated or pays_with_its_allowance(lock, subscription, replace(options, finalize=True)):
        return None
    return options.as_of.astimezone(ZoneInfo(subscription.customer_time_zone)).date()


def _one_due_date_at_a_time(lock: Lock, subscription: SubscriptionState, options: Options) -> list[RunStep]:
    """Bill, pay and grant in the order of runs in time, because each changes the credits that the next finds."""
    # A step takes the holder's lock; the next step may need the lock of the account, which comes before it.
    coupon_uses.wait_turn(lock, subscription)
    steps: list[RunStep] = []
    while not steps or not (steps[-1].is_last or len(steps) == options.max_periods):
        if steps:
            subscription = read_subscription(lock, subscription.ref)
        steps.append(write_step(lock, subscription, replace(options, max_periods=1), is_paid_next=True))
        pay_step(lock, steps[-1], has_credit=len(steps) > 1)
    return steps


@dataclass(frozen=True, slots=True)
class _DraftInGrace:
    """The target of a deleted draft; the drafts of a run in several currencies have the same.

    Args:
        running_usage: it billed usage of running periods.
    """

    as_of: datetime
    scope: Scope | None
    grace_ends_at: datetime
    running_usage: bool


def _taken_back(lock: Lock, subscription: SubscriptionState) -> list[tuple[_DraftInGrace, dict[str, str]]]:
    """Delete the drafts with a grace, the newest first, and return their targets and notes by currency, the oldest first.

    Raises:
        InvoiceCorrectedLater: an operator has finalised an invoice that corrects one of them; finalise that draft by hand.
    """
    drafts = Invoice.objects.filter(subscription_id=subscription.id, state=Invoice.State.DRAFT, grace_ends_at__isnull=False)
    taken_back: dict[_DraftInGrace, dict[str, str]] = {}
    for draft in drafts.order_by("-id"):
        assert draft.grace_ends_at is not None
        coupon_uses.keep_in_preview(subscription, draft.pk, is_made=False)
        running = Claim.objects.filter(made_by=draft.pk, released_at=None, snapshot__running=True).exists()
        delete_draft_under(lock, draft)
        target = _DraftInGrace(draft.as_of, Scope(draft.scope) if draft.scope else None, draft.grace_ends_at, running)
        taken_back.setdefault(target, {})[draft.currency] = draft.note
    return list(taken_back.items())[::-1]
