"""The form that creates a subscription and shows its first invoice beforehand."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from billing import reads
from billing.admin.document_tables import notation_in, short_table
from billing.admin.order_forms.fields import OVERRIDE, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import override_words
from billing.admin.upcoming_invoices import upcoming_part
from billing.errors import BillingSuspended, BillingWouldBeSuspended
from billing.generator.activations import order_subscription
from billing.generator.options import Options
from billing.generator.run import generate
from billing.generator.run.steps import GenerationResult
from billing.generator.state.allowances import AllowanceGrant, AllowanceReturn
from billing.generator.state.plan_budgets import ComparedBudget, compare_budgets
from billing.models import Amendment, Customer, Invoice, Plan, Subscription
from billing.orders.subscriptions import PAYMENT_TIMEOUT_HOURS, NewSubscription
from billing.reads.subscriptions import SubscriptionRow
from billing.tax_asking import asks_taxes
from ledger.services import preview
from ledger.staff.approvals import NoStake
from ledger.staff.kit.cells import instant_words, row_url
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, FormSection, KeyedForm, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.typesetting.languages import ENGLISH
from ledger.units import purpose_words, unit_of

Part = tuple[str, Mapping[str, Any]]
MINUTE: Final = "%Y-%m-%dT%H:%M"
PHASES_HELP: Final = (
    "One after the other: when each ends, and what changes in it. What a phase does not name goes on. The last one does not end."
)
MOST_PLANS: Final = 300
"""The newest plans whose currency the page shows as soon as one is chosen."""
CONSOLIDATION: Final = Display(
    label="Invoices",
    unset="as the customer",
    words={True: "shared with the customer's other subscriptions", False: "its own"},
)


class SubscriptionForm(OrderForm, RequestForm[NewSubscription]):
    """A customer's order."""

    stake = NoStake("It moves no money: invoices follow from it, and a correction of one has a stake.")
    declared = NewSubscription
    shows = {
        "ref": Display(label="Reference", help="Your name for the subscription, such as SUB-1234."),
        "customer": Display(help="The reference of the customer who pays."),
        "plan": Display(help="Its ref; the form takes the newest version."),
        "started_at": Display(label="Starts at (UTC)", help="Billing starts at this time."),
        "quantities": Display(help="The key of a price and its quantity. 1 by default."),
        "time_zone": Display(help="Days and months begin in this zone, such as Europe/Berlin; empty: as the customer."),
        "anchor_at": Display(label="Periods count from (UTC)", help="Empty for the start."),
        "trial_end": Display(label="Trial ends at (UTC)", help="Nothing is charged before; empty: the plan's trial, if any."),
        "trial_days": Display(label="Or days of trial", help="From the start; 0 for none, whatever the plan has."),
        "ends_at": Display(label="Ends at (UTC)", help="Empty for never."),
        "hold_days": Display(label="Invoice delay (days)", help="After the due date; empty: as the customer."),
        "starts_when_paid": Display(
            label="It starts",
            words={False: "at once", True: "when its first invoice is paid"},
            required=False,
            help="When paid: the invoice is made with the order, and nothing else is billed before. Not with a trial.",
        ),
        "payment_timeout_hours": Display(
            label="Hours to pay", help=f"Then the order expires, and its invoice is voided; {PAYMENT_TIMEOUT_HOURS} if empty."
        ),
        "consolidated_invoicing": CONSOLIDATION,
        **OVERRIDE,
        "phases": Display(help=PHASES_HELP),
    }

    def set_currencies(self) -> None:
        """Show the currency of the chosen plan beside negotiated amounts."""
        plans = dict(Plan.objects.order_by("-pk").values_list("code", "currency")[:MOST_PLANS])
        self.fields["plan"].widget.attrs["data-currencies"] = json.dumps(plans)
        super().set_currencies()

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the currency of the chosen plan."""
        plans = Plan.objects.filter(code=self.text_of("plan")).order_by("-version")
        return plans.values_list("currency", flat=True).first() or "", "plan"

    def sections(self) -> list[FormSection]:
        """Return the order, then the rarely needed fields."""
        return [
            FormSection(
                self.bound("ref", "customer", "plan", "started_at"),
                self.bound(
                    "quantities",
                    "time_zone",
                    "anchor_at",
                    "trial_end",
                    "trial_days",
                    "ends_at",
                    "hold_days",
                    "consolidated_invoicing",
                ),
                summary="Quantities, trial, end and time zone",
            ),
            FormSection(self.bound("starts_when_paid"), self.bound("payment_timeout_hours"), summary="Time to pay"),
            FormSection([], self.bound(*OVERRIDE), summary="Negotiated prices"),
            FormSection([], self.bound("phases"), summary="Phases"),
            FormSection(self.bound("reason", "idempotency_key")),
        ]


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new subscription, then its first invoice, then write it."""
    today = timezone.now().replace(hour=0, minute=0)
    return OrderPage(
        form=SubscriptionForm,
        collection="subscriptions",
        rows=Subscription,
        write=lambda form: order_subscription.execute(form.request),
        describe=lambda created, form: _describe_order(created, form.request),
        done=lambda created, form: (f"Subscription {created.ref}", f"{form.request.customer} on {form.request.plan}"),
        initial={"started_at": today.astimezone(UTC).strftime(MINUTE)},
        title="New subscription",
        button="Create the subscription",
        explanation="A customer's order. The next run bills it; one that starts when it is paid has its invoice at once.",
        back=reverse("admin:billing_subscription_changelist"),
    ).view(model_admin, request)


def _describe_order(created: Subscription, request: NewSubscription) -> DryRun:
    """Describe the invoice of the first run that bills: at the start, or after the trial."""
    row = reads.subscription(created.ref).row
    zone = ZoneInfo(created.time_zone)
    sentences = [f"{row.customer} is on plan {row.plan} v{row.plan_version} from {instant_words(created.started_at, zone)} on."]
    if created.trial_end is not None:
        sentences.append(f"Nothing is charged before the trial ends, {instant_words(created.trial_end, zone)}.")
    if request.price_override is not None:
        order = Amendment.objects.get(subscription_id=created.pk, sequence=1)
        sentences.append(f"It pays {override_words(order.change['price_override'])}.")
    if request.phases:
        sentences.append(f"It has {len(request.phases)} phases.")
    if request.ends_at is not None:
        sentences.append(f"It ends {instant_words(request.ends_at, zone)}.")
    as_of = max(created.started_at, created.trial_end or created.started_at, timezone.now())
    parts: list[Part] = []
    if row.activation is not None:
        return DryRun(sentences=[*sentences, *_first_payment(row, parts, zone)], parts=parts)
    sentences += first_billing(created.ref, as_of, parts, zone)
    return DryRun(sentences=sentences, parts=parts)


def _first_payment(row: SubscriptionRow, parts: list[Part], zone: ZoneInfo) -> list[str]:
    """Describe the first invoice of an order that starts when it is paid, in the caller's preview; add it to `parts`."""
    assert row.activation is not None
    if row.activation.invoice_id is None:
        return ["There is nothing to pay, so it starts at once."]
    document = _english_invoice(row.activation.invoice_id)
    total = f"{notation_in(document['currency']).money(document['amount_due_minor'])} {document['currency']}"
    parts.append((f"The first invoice: {total} is due", short_table(document, zone_of(document["customer"]))))
    parts.append(upcoming_part(row.ref, timezone.now(), zone))
    if row.state != "incomplete":
        return ["Credit pays the first invoice, so it starts at once."]
    return [f"It starts when {total} is paid, and expires {instant_words(row.activation.expires_at, zone)}."]


class RunningUsageForm(KeyedForm):
    """Why usage is invoiced before its period ends."""

    stake = NoStake("It pays nobody: a run would bill the same when the period ends.")


@dataclass(frozen=True, kw_only=True)
class RunningUsagePage(OrderPage[RunningUsageForm, GenerationResult]):
    """The page that invoices the usage of running periods: first the invoice, then done."""

    about: Subscription

    @asks_taxes
    def dry_run(self, form: RunningUsageForm) -> DryRun:
        """Show the invoice that a run would make now."""
        with preview():
            made = generate.generate_in(ref=self.about.ref, options=_so_far(dry_run=True, render=_english_invoice))
        parts = [("The invoice", short_table(document, zone_of(document["customer"]))) for document in made.documents]
        return DryRun(sentences=[] if parts else ["Nothing is to be invoiced now."], parts=parts)


def _so_far(**options: Any) -> Options:
    return Options(as_of=timezone.now(), running_usage=True, **options)


def running_usage_view(model_admin: ReadOnlyAdmin, request: HttpRequest, subscription: Subscription) -> HttpResponse:
    """Show the invoice of what is due and of the usage of running periods so far, then make it."""
    return RunningUsagePage(
        form=RunningUsageForm,
        collection="subscription-invoices",
        write=lambda form: generate.generate_in(ref=subscription.ref, options=_so_far()),
        describe=lambda made, form: DryRun(sentences=[]),
        done=lambda row, form: ("Usage so far", f"what {row.ref} owes now is invoiced"),
        about=subscription,
        title=f"Invoice the usage of {subscription.ref} so far",
        button="Make the invoice",
        explanation="The invoice has all that is due, and the usage of running periods up to now. The invoice at the end of a "
        "period has the rest.",
        back=row_url(Subscription, subscription.pk),
    ).view(model_admin, request)


def first_billing(ref: str, as_of: datetime, parts: list[Part], zone: ZoneInfo) -> list[str]:
    """Describe the invoice of a run at that time, in a transaction that the caller rolls back; add the invoices to `parts`.

    Args:
        zone: the contract's, for times.
    """
    options = Options(as_of=as_of, finalize=False, dry_run=True, render=_english_invoice)
    when = instant_words(as_of, zone)
    budgets = [sentence for each in compare_budgets(ref, as_of) if (sentence := budget_change(each))]
    try:
        following = upcoming_part(ref, as_of, zone)
        made = generate.generate_in(ref=ref, options=options)
    except BillingWouldBeSuspended as refusal:
        return [f"A run at {when} would suspend its billing: {refusal.facts['reason']}."]
    except BillingSuspended as refusal:
        return [f"Its billing is suspended ({refusal.facts['reason']}): no run makes an invoice until a person resumes it."]
    sentences = budgets
    for document in made.documents:
        total = f"{notation_in(document['currency']).money(document['total_minor'])} {document['currency']}"
        parts.append((f"The invoice of a run at {when}: {total}", short_table(document, zone_of(document["customer"]))))
    parts.append(following)
    sentences += [f"It would take back {_credits_of(one)} of the allowance before the change." for one in made.returned]
    sentences += [f"It would also grant {_credits_of(one)} to the customer's holder." for one in made.granted]
    return sentences if made.documents else [*sentences, f"A run at {when} would make no invoice."]


def budget_change(compared: ComparedBudget) -> str:
    """Return what becomes of a budget of the account; empty if it stays as it is."""
    unit, present = unit_of(compared.credit_type), compared.account.present
    if compared.is_set_by_hand and present is not None and compared.wanted is not None:
        by = compared.account.last.actor if compared.account.last else "somebody"
        return f"The budget {compared.name} stays at {unit.amount(present.limit)}, which {by} set."
    if compared.wanted is None:
        return f"The budget {compared.name} would end."
    limit = compared.wanted.terms["limit"]
    if present is None:
        return f"The account would have the budget {compared.name}: {unit.amount(limit)}."
    return "" if present.limit == limit else f"The budget {compared.name} would be {unit.amount(limit)}."


def _credits_of(one: AllowanceGrant | AllowanceReturn) -> str:
    """Return the credits, with what they can pay for if that is not everything."""
    purpose = purpose_words(one.applies_to)
    return f"{unit_of(one.credit_type).amount(one.amount)}{purpose and f' {purpose}'}"


def _english_invoice(invoice_id: int) -> dict[str, Any]:
    return reads.invoice_documents([Invoice.objects.get(pk=invoice_id)], language=ENGLISH.code)[0]


def zone_of(customer: str) -> ZoneInfo:
    """Return the zone in which a customer reads dates."""
    return ZoneInfo(Customer.objects.filter(ref=customer).values_list("time_zone", flat=True).first() or "UTC")
