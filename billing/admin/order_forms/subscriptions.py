"""The form that creates a subscription and shows its first invoice beforehand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from billing import reads
from billing.admin.documents.tables import notation_in, short_table
from billing.admin.order_forms.fields import OrderForm, ZoneField, lines_field, ref_field
from billing.admin.order_forms.once import tried, written_once
from billing.errors import BillingSuspended, BillingWouldBeSuspended
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import Customer, Subscription
from billing.orders import subscriptions
from ledger.admin.kit.cells import instant_words, row_url
from ledger.admin.kit.idempotent_forms import Done, DryRun, FormSection, instant_field, operation_view
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.units import unit_of

MAX_QUANTITIES: Final = 100
Part = tuple[str, Mapping[str, Any]]
MINUTE: Final = "%Y-%m-%dT%H:%M"


def needed_instant_field(*, label: str, help_text: str = "") -> Any:
    """A required time in UTC."""
    field = instant_field(label=label, help_text=help_text)
    field.required = True
    return field


def quantities_field() -> Any:
    """Quantities by price key, one per line."""
    return lines_field(
        label="Quantities", placeholder="seats 5", help_text="One per line: the key of a price and its quantity. 1 by default."
    )


def read_quantities(text: str) -> dict[str, Decimal]:
    """Read quantities from their lines, or raise ValidationError."""
    found: dict[str, Decimal] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        parts = line.replace(":", " ").replace("=", " ").split()
        try:
            key, quantity = parts[0], Decimal(parts[1])
            is_right = len(parts) == 2 and quantity.is_finite() and "e" not in parts[1].lower()
        except (IndexError, InvalidOperation):
            is_right = False
        if not is_right:
            raise ValidationError(f"“{line[:60]}” is not a key and a number, such as “seats 5”.")
        found[key] = quantity
    if len(found) > MAX_QUANTITIES:
        raise ValidationError(f"Give at most {MAX_QUANTITIES} quantities.")
    return found


class SubscriptionForm(OrderForm):
    """A customer's order."""

    ref = ref_field(label="Reference", help_text="Your name for the subscription, such as SUB-1234.")
    customer = ref_field(label="Customer", help_text="The reference of the customer who pays.")
    plan = ref_field(label="Plan", help_text="Its code; the form takes the newest version.")
    started_at = needed_instant_field(label="Starts at (UTC)", help_text="Billing starts at this time.")
    quantities = quantities_field()
    time_zone = ZoneField(
        label="Time zone", initial="UTC", help_text="Days and months begin in this zone, such as Europe/Berlin."
    )
    anchor_at = instant_field(label="Periods count from (UTC)", help_text="Empty for the start.")
    trial_end = instant_field(label="Trial ends at (UTC)", help_text="Nothing is charged before; empty for no trial.")
    ends_at = instant_field(label="Ends at (UTC)", help_text="Empty for never.")

    def sections(self) -> list[FormSection]:
        """The order, then the fields that are seldom needed."""
        folded = ("quantities", "time_zone", "anchor_at", "trial_end", "ends_at")
        return [
            FormSection(
                [self[name] for name in ("ref", "customer", "plan", "started_at")],
                [self[name] for name in folded],
                summary="Quantities, trial, end and time zone",
            ),
            FormSection([self["reason"], self["idempotency_key"]]),
        ]

    def clean_quantities(self) -> str:
        """Check that each line has a key and a number."""
        text: str = self.cleaned_data["quantities"]
        read_quantities(text)
        return text

    def field_of(self, pointer: str) -> str | None:
        """The field for a mistake in the quantities, or in another field."""
        return "quantities" if pointer.startswith("/quantities/") else super().field_of(pointer)


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new subscription, then its first invoice, then write it."""
    today = timezone.now().replace(hour=0, minute=0)
    return operation_view(
        model_admin,
        request,
        form_class=SubscriptionForm,
        operation=_create,
        dry_run=_dry_run,
        initial={"started_at": today.astimezone(UTC).strftime(MINUTE)},
        title="New subscription",
        button="Create the subscription",
        explanation="A customer's order. The next run of the generator bills it.",
        back=reverse("admin:billing_subscription_changelist"),
    )


def _fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    names = ("ref", "customer", "plan", "started_at", "anchor_at", "time_zone", "trial_end", "ends_at")
    fields: dict[str, Any] = {name: asked[name] for name in names if name in asked}
    return fields | {"quantities": read_quantities(asked.get("quantities", ""))}


def _create(*, idempotency_key: str, actor: str, **asked: Any) -> Done:
    fields = _fields(asked)
    pk, replayed = written_once(
        "subscriptions",
        idempotency_key=idempotency_key,
        asked=asked,
        act=lambda: subscriptions.create_subscription(**fields, actor=actor).pk,
    )
    return Done(f"Subscription {fields['ref']}", f"{fields['customer']} on {fields['plan']}", row_url(Subscription, pk), replayed)


def _dry_run(*, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    """The invoice of the first run that bills: at the start, or after the trial."""

    def act() -> DryRun:
        created = subscriptions.create_subscription(**_fields(asked), actor=actor)
        row = reads.subscription(created.ref).row
        zone = ZoneInfo(created.time_zone)
        starts = f"{row.customer} is on plan {row.plan} v{row.plan_version} from {instant_words(created.started_at, zone)} on."
        as_of = max(created.started_at, created.trial_end or created.started_at, timezone.now())
        parts: list[Part] = []
        billed = first_billing(created.ref, as_of, parts, zone)
        return DryRun(sentences=[starts, *_terms(created, asked), *billed], parts=parts)

    return tried(act)


def _terms(created: Subscription, asked: Mapping[str, Any]) -> list[str]:
    sentences = []
    zone = ZoneInfo(created.time_zone)
    if created.trial_end is not None:
        sentences.append(f"Nothing is charged before the trial ends, {instant_words(created.trial_end, zone)}.")
    if "ends_at" in asked:
        sentences.append(f"It ends {instant_words(asked['ends_at'], zone)}.")
    return sentences


def first_billing(ref: str, as_of: datetime, parts: list[Part], zone: ZoneInfo) -> list[str]:
    """Say what a run at that time would invoice, in a transaction that the caller rolls back; add the invoices to `parts`.

    Args:
        zone: the contract's, for times.
    """
    options = Options(as_of=as_of, finalize=False, dry_run=True, render=reads.invoice_document)
    when = instant_words(as_of, zone)
    try:
        made = generate.generate_in(ref=ref, options=options)
    except BillingWouldBeSuspended as refusal:
        return [f"A run at {when} would suspend its billing: {refusal.facts['reason']}."]
    except BillingSuspended as refusal:
        return [f"Its billing is suspended ({refusal.facts['reason']}): no run invoices anything until somebody resumes it."]
    sentences = []
    for document in made.documents:
        total = f"{notation_in(document['currency']).money(document['total_minor'])} {document['currency']}"
        parts.append((f"The invoice of a run at {when}: {total}", short_table(document, zone_of(document["customer"]))))
    sentences += [
        f"It would grant {unit_of(one.credit_type).amount(one.amount)} to the customer's holder." for one in made.granted
    ]
    return sentences if made.documents else [*sentences, f"A run at {when} would invoice nothing."]


def zone_of(customer: str) -> ZoneInfo:
    """The zone in which a customer reads dates."""
    return ZoneInfo(Customer.objects.filter(ref=customer).values_list("time_zone", flat=True).first() or "UTC")
