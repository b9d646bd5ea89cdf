"""The forms that amend a subscription: another plan, other quantities, a pause, a longer trial, an end and its withdrawal.

Each form first shows the invoice of a run after the amendment takes effect, by the same dry run as `dry_run=true` over REST.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from billing.admin.order_forms.fields import OVERRIDE, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.admin.order_forms.subscriptions import CONSOLIDATION, MINUTE, PHASES_HELP, Part, first_billing
from billing.admin.prose import change_words
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import Amendment, CreditRefund, Customer, Plan, Subscription
from billing.orders.item_versions import AllowanceChange, UnusedTime
from billing.orders.subscriptions import AMENDMENT, Wish, amend_subscription, held_back, present
from ledger.records import Record, Shape
from ledger.staff.approvals import NoStake, Stake, StakeRule
from ledger.staff.kit.cells import instant_words, row_url
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin

UNUSED_WORDS: Final = {UnusedTime.CREDIT: "", UnusedTime.REFUND: "is paid out", UnusedTime.SKIP: "stays charged"}
EFFECTIVE: Final = {
    "effective_at": Display(label="Takes effect at (UTC)", help="When the change takes effect, in the past or the future.")
}

CREDITS: Final = {
    "allowance_change": Display(
        label="Credits of the running period",
        unset="go back for the time that is left; the new ones come at once, in proportion",
        words={
            AllowanceChange.PRORATE: "",
            AllowanceChange.KEEP: "stay; the new ones begin with the next period",
            AllowanceChange.FULL: "go back for the time that is left; all new ones come at once",
        },
        help="Of a plan that grants credits. Only what is unspent goes back.",
    )
}


class AmendmentForm(OrderForm, RequestForm[Wish]):
    """An amendment from a time on; if the form has no such time, from now on."""

    stake: ClassVar[StakeRule | NoStake | None] = NoStake(
        "It moves no money: later invoices bill by it, and credit what was charged."
    )
    declared: ClassVar[type[Record] | Shape[Any]] = AMENDMENT
    shows: ClassVar[Mapping[str, Display | forms.Field]] = EFFECTIVE

    @property
    def effective_at(self) -> datetime | None:
        """The time from which it takes effect."""
        instant: datetime | None = self.cleaned_data.get("effective_at")
        return instant


class ChangePlanForm(AmendmentForm):
    """Another plan, or the newest version of the same plan."""

    shows = {"plan": Display(required=True, help="The plan's ref; the form takes the newest version."), **CREDITS, **EFFECTIVE}


class QuantitiesForm(AmendmentForm):
    """Other quantities."""

    shows = {
        "quantities": Display(
            required=True,
            help="The key of a price and its quantity. Other prices keep their quantities.",
        ),
        **CREDITS,
        **EFFECTIVE,
    }


class OverrideForm(AmendmentForm):
    """Negotiated prices."""

    shows = {
        **OVERRIDE,
        **EFFECTIVE,
    }


def _paid_out(form: AmendmentForm, amendment: Amendment) -> list[Stake]:
    """Return what the run after the end would pay out, in the preview of the amendment."""
    subscription = Subscription.objects.get(pk=amendment.subscription_id)
    currency = Customer.objects.get(pk=subscription.customer_id).currency
    if form.request.unused_time != UnusedTime.REFUND:
        return [Stake(currency, 0)]
    assert form.request.ends_at is not None
    as_of = max(form.request.ends_at, timezone.now()) + held_back(subscription)
    known = list(CreditRefund.objects.filter(customer_id=subscription.customer_id).values_list("pk", flat=True))
    generate.generate_in(ref=subscription.ref, options=Options(as_of=as_of, finalize=True))
    refunds = CreditRefund.objects.filter(customer_id=subscription.customer_id).exclude(pk__in=known)
    return [Stake(currency, 0), *(Stake(each.currency, each.amount_minor) for each in refunds)]


class CancellationForm(AmendmentForm):
    """The end of a subscription."""

    stake = StakeRule(_paid_out)
    declared = Wish
    shows = {
        "ends_at": Display(label="Ends at (UTC)", required=True),
        "unused_time": Display(
            label="Unused time",
            unset="is credited",
            words=UNUSED_WORDS,
            help="What was charged in advance for the time after the end. It is paid out as far as it was paid in money.",
        ),
    }


class TrialForm(AmendmentForm):
    """Another end of a trial."""

    declared = Wish
    shows = {"trial_end": Display(label="Trial ends at (UTC)", required=True, help="Earlier or later than its current end.")}


class PauseForm(AmendmentForm):
    """A pause."""

    shows = {
        "charges_while_paused": Display(
            label="Fees in the pause",
            required=False,
            initial=False,
            words={True: "are charged", False: "are not charged"},
            help="Usage in the pause does not count in any case.",
        ),
        **EFFECTIVE,
    }


class AnchorForm(AmendmentForm):
    """Another billing day."""

    shows = {
        "anchor_at": Display(
            label="Periods count from (UTC)",
            required=True,
            help="The running period ends at the next boundary of the new periods.",
        ),
        **CREDITS,
        **EFFECTIVE,
    }


class PhasesForm(AmendmentForm):
    """Other phases."""

    shows = {"phases": Display(required=True, help=PHASES_HELP), **EFFECTIVE}


class HoldForm(AmendmentForm):
    """Invoices that come later than due."""

    declared = Wish
    shows = {"hold_days": Display(label="Invoice delay (days)", help="Empty: as the customer.")}


class ConsolidationForm(AmendmentForm):
    """Whose invoices it is on."""

    declared = Wish
    shows = {"consolidated_invoicing": CONSOLIDATION}


@dataclass(frozen=True)
class FormOfAmendment:
    """A kind of amendment: its words, its form, and the changes that are not fields of the form."""

    title: str
    button: str
    explanation: str
    form: type[AmendmentForm] = AmendmentForm
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sets_end: bool = False
    sets_override: bool = False
    sets_hold: bool = False
    sets_consolidation: bool = False


DIFFERENCE: Final = "The next run bills the difference: a credit for the old terms and a charge for the new ones."
WAYS: Final[Mapping[str, FormOfAmendment]] = {
    "change_plan": FormOfAmendment("Change the plan", "Change the plan", DIFFERENCE, ChangePlanForm),
    "change_quantities": FormOfAmendment("Change quantities", "Change the quantities", DIFFERENCE, QuantitiesForm),
    "negotiate": FormOfAmendment(
        "Negotiate prices",
        "Set the negotiated prices",
        f"The subscription pays these prices until you replace or withdraw them. {DIFFERENCE}",
        OverrideForm,
        sets_override=True,
    ),
    "list_prices": FormOfAmendment(
        "Return to the plan's prices",
        "Withdraw the negotiated prices",
        f"The subscription pays the plan's prices from that time on. {DIFFERENCE}",
        sets_override=True,
    ),
    "pause": FormOfAmendment("Pause", "Pause it", "A paused subscription is not charged.", PauseForm, fixed={"paused": True}),
    "move_billing_day": FormOfAmendment(
        "Move the billing day",
        "Move the billing day",
        "The running period ends at the next boundary of the new periods; what is charged beyond it is credited.",
        AnchorForm,
    ),
    "change_phases": FormOfAmendment(
        "Change the phases",
        "Change the phases",
        "These phases replace those that begin at that time, which is to come, or later.",
        PhasesForm,
    ),
    "withdraw_phases": FormOfAmendment(
        "Withdraw the phases",
        "Withdraw the phases",
        "Phases that begin at that time, which is to come, or later no longer begin; what counts then goes on.",
        fixed={"phases": []},
    ),
    "hold_back": FormOfAmendment(
        "Hold invoices back",
        "Hold invoices back",
        "Invoices are made this number of days after what they bill is due. Their lines stay the same.",
        HoldForm,
        sets_hold=True,
    ),
    "consolidate": FormOfAmendment(
        "Choose its invoices",
        "Choose its invoices",
        "From the next run on. What the subscription is charged stays the same.",
        ConsolidationForm,
        sets_consolidation=True,
    ),
    "go_on": FormOfAmendment("End the pause", "End the pause", "Charges start again at that time.", fixed={"paused": False}),
    "move_trial": FormOfAmendment(
        "Move the end of the trial", "Move the end", "Only the end of a running trial can be moved.", TrialForm
    ),
    "cancel": FormOfAmendment(
        "Cancel",
        "Cancel the subscription",
        "The subscription ends at that time. You can withdraw the cancellation.",
        CancellationForm,
        sets_end=True,
    ),
    "withdraw_cancellation": FormOfAmendment(
        "Withdraw the cancellation",
        "Withdraw the cancellation",
        "The subscription continues without an end. The time after an end in the past is not billed.",
        sets_end=True,
    ),
}


def amend_view(model_admin: ReadOnlyAdmin, request: HttpRequest, subscription: Subscription, name: str) -> HttpResponse:
    """Show the form of an amendment, then what a run would invoice with it, then write it."""
    way = WAYS[name]
    now = timezone.now().astimezone(UTC).strftime(MINUTE)
    zone = ZoneInfo(subscription.time_zone)
    currency = Customer.objects.get(pk=subscription.customer_id).currency

    def write(form: AmendmentForm) -> Amendment:
        return amend_subscription(
            ref=subscription.ref,
            effective_at=form.effective_at or max(present(subscription), subscription.started_at),
            wish=replace(
                form.request,
                sets_end=way.sets_end,
                sets_override=way.sets_override,
                sets_hold=way.sets_hold,
                sets_consolidation=way.sets_consolidation,
            ),
            actor=form.actor,
        )

    def describe(amendment: Amendment, form: AmendmentForm) -> DryRun:
        starts = amendment.counts_from
        as_of = max(starts, form.request.ends_at or starts, timezone.now()) + held_back(subscription)
        parts: list[Part] = []
        billed = first_billing(subscription.ref, as_of, parts, zone)
        return DryRun(sentences=[f"{subscription.ref}: {_words(amendment, zone)} on.", *billed], parts=parts)

    return OrderPage(
        form=way.form,
        collection="amendments",
        rows=Amendment,
        about=subscription,
        pointer="",
        write=write,
        describe=describe,
        done=lambda row, form: (f"Amendment {row.sequence} of {subscription.ref}", f"{_words(row, zone)} on"),
        fixed={**way.fixed, "currency": currency},
        initial={"effective_at": now, "ends_at": now},
        title=f"{way.title}: {subscription.ref}",
        button=way.button,
        explanation=way.explanation,
        back=row_url(Subscription, subscription.pk),
    ).view(model_admin, request)


def _words(amendment: Amendment, zone: ZoneInfo) -> str:
    plan_id = amendment.change.get("plan")
    words = change_words(amendment.change, zone=zone, plans=Plan.objects.in_bulk([plan_id]) if plan_id else {})
    return f"{words}, from {instant_words(amendment.effective_at, zone)}"
