"""Finishes the steps of a run for one subscription: pays the drafts, grants allowances, gives numbers; and the result."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from billing.documents.finalisation import (
    FinalizedInvoice,
    InvoiceDraft,
    Settlement,
    number_under,
    settle_under,
    show_settlement,
)
from billing.documents.unused_time import UnusedCredit, is_refunded
from billing.generator.difference.draft import Bill
from billing.generator.difference.due_drafts import RunStep
from billing.generator.options import Options
from billing.generator.state.allowances import AllowanceGrant, AllowanceReturn, grant_allowances
from billing.generator.state.plan_terms import set_terms
from billing.generator.state.subscription_state import SubscriptionState, read_items
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
    is_part: bool = False
    """It goes onto a consolidated invoice, which counts in its place."""


class AllowanceMove(NamedTuple):
    """Credits of a plan's allowance for `[starts_at, ends_at)`: granted if `amount` is above 0, given back if it is below.

    `applies_to` says what they can pay for; None: everything.
    """

    credit_type: str
    amount: int
    starts_at: datetime
    ends_at: datetime
    applies_to: dict[str, Any] | None


def _move_of(one: AllowanceGrant | AllowanceReturn, sign: int) -> AllowanceMove:
    return AllowanceMove(one.credit_type, sign * one.amount, one.starts_at, one.ends_at, one.applies_to)


@dataclass(slots=True)
class GenerationResult:
    """The result of a run for one subscription."""

    subscription: str
    invoices: list[InvoiceSummary] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    periods: int = 0
    late_usage_minor: int = 0
    granted: list[AllowanceGrant] = field(default_factory=list)
    """The allowances of the plan that the run granted to the customer's holder."""
    returned: list[AllowanceReturn] = field(default_factory=list)
    """What changes took back of earlier allowances."""
    covered: Counter[str] = field(default_factory=Counter)
    """Credits spent on usage, less credits given back, by credit type."""
    replaced: set[int] = field(default_factory=set)
    """The drafts that are on these invoices."""

    @property
    def allowances(self) -> list[AllowanceMove]:
        """What the run gave back and granted of allowances, in this order."""
        return [*(_move_of(one, -1) for one in self.returned), *(_move_of(one, 1) for one in self.granted)]

    def add(self, made: InvoiceSummary, bill: Bill) -> None:
        """Count a new invoice."""
        self.invoices.append(made)
        billed = [line for line in bill.lines if line.kind in ("recurring", "usage")]
        self.periods += len({(line.starts_at, line.ends_at) for line in billed})
        self.late_usage_minor += sum(line.amount_minor for line in bill.lines if line.kind == "late_usage")


def pays_with_its_allowance(lock: Lock, subscription: SubscriptionState, options: Options) -> bool:
    """Return whether allowances may pay invoices of the subscription: then each due instant is a separate step."""
    if not (options.finalize and subscription.holder_id and subscription.credit_type and subscription.credit_unit_value):
        return False
    spans = read_items(lock, subscription).allowances
    return any(span.credit_type == subscription.credit_type and not span.applies_to for span in spans)


def settle_step(lock: Lock, step: RunStep, *, has_credit: bool = False) -> None:
    """Pay the drafts of a step with the available credits, if it finalises them. A second call changes nothing.

    Args:
        has_credit: an earlier step may have made a credit note after the subscription was read.
    """
    if step.settled is not None:
        return
    subscription = replace(step.subscription, has_credit=True) if has_credit else step.subscription
    step.settled = {}
    if step.options.finalize:
        for currency, invoice_id, bill in step.invoices:
            step.settled[invoice_id] = settle_under(lock, _finalizing(subscription, currency, bill, invoice_id))


def pay_step(lock: Lock, step: RunStep, *, has_credit: bool) -> None:
    """Pay the drafts of a step, also with allowances that a run in time would have found; then grant the later allowances."""
    if step.due_at is not None:
        step.early.give_before(step.due_at)
    settle_step(lock, step, has_credit=has_credit)
    step.early.end()
    step.granted += grant_allowances(lock, step.subscription, step.early.due)
    step.allowances = []


def finish_steps(lock: Lock, steps: Sequence[RunStep]) -> GenerationResult:
    """Pay with the available credits, grant allowances, set what the plan brings to the account, then give the numbers."""
    last = steps[-1]
    for step in steps:
        settle_step(lock, step, has_credit=len(steps) > 1)
    # Drafts that are rated again grant no allowances, so the last step has found all that are due.
    last.granted += grant_allowances(lock, last.subscription, last.allowances)
    if last.has_started:
        set_terms(lock, last.subscription, last.items)
    generated = GenerationResult(last.subscription.ref, granted=[one for step in steps for one in step.granted])
    generated.returned = [one for step in steps for one in step.returned]
    for step in steps:
        settled = step.settled or {}
        generated.covered.update(step.covered)
        for currency, invoice_id, bill in step.invoices:
            issued = _issue_invoice(lock, settled.get(invoice_id), step.options)
            generated.add(_make_summary(currency, invoice_id, bill, settled.get(invoice_id), issued, step.options), bill)
            if step.options.render is not None:
                generated.documents.append(step.options.render(invoice_id))
    return generated


def _issue_invoice(lock: Lock, settled: Settlement | None, options: Options) -> FinalizedInvoice | None:
    if settled is None:
        return None
    return show_settlement(lock, settled) if options.dry_run else number_under(lock, settled)


def _make_summary(
    currency: str,
    invoice_id: int,
    bill: Bill,
    settled: Settlement | None,
    issued: FinalizedInvoice | None,
    options: Options,
) -> InvoiceSummary:
    return InvoiceSummary(
        invoice_id=invoice_id,
        number=issued.number if issued else None,
        currency=currency,
        total_minor=bill.total_minor,
        credits_applied_minor=settled.credits_applied_minor if settled else 0,
        amount_due_minor=issued.amount_due_minor if issued else bill.payable_minor,
        lines=len(bill.lines),
        is_draft=settled is None,
        is_part=options.consolidates_on is not None,
    )


def _finalizing(subscription: SubscriptionState, currency: str, bill: Bill, invoice_id: int) -> InvoiceDraft:
    return InvoiceDraft(
        invoice_id=invoice_id,
        subscription_id=subscription.id,
        subscription_ref=subscription.ref,
        refunded_refs=subscription.ref,
        customer_id=subscription.customer_id,
        customer_ref=subscription.customer_ref,
        currency=currency,
        payable_minor=bill.payable_minor,
        own_note_minor=sum(one.total_minor for one in bill.carried),
        refunds=tuple(
            UnusedCredit(line.rating["credits"]["invoice"], -line.taxable_minor, line.tax_category, line.tax_rate, line.taxes)
            for line in bill.lines
            if is_refunded(line.rating)
        ),
        terms_days=subscription.terms_days,
        time_zone=subscription.customer_time_zone,
        holder_id=subscription.holder_id,
        credit_type=subscription.credit_type,
        credit_unit_value=subscription.credit_unit_value if currency == subscription.currency else None,
        has_credit=subscription.has_credit,
    )
