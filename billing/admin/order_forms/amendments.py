"""Amending a subscription: another plan, other quantities, a pause, a longer trial, an end and its withdrawal.

Each form first shows the invoice of a run after the amendment takes effect, by the same dry run as `dry_run=true` over REST.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from billing.admin.order_forms.fields import OrderForm, ref_field
from billing.admin.order_forms.once import tried, written_once
from billing.admin.order_forms.subscriptions import (
    MINUTE,
    Part,
    first_billing,
    needed_instant_field,
    quantities_field,
    read_quantities,
)
from billing.admin.prose import change_words
from billing.models import Amendment, Plan, Subscription
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from ledger.admin.kit.cells import instant_words, row_url
from ledger.admin.kit.idempotent_forms import Done, DryRun, operation_view
from ledger.admin.kit.pages import ReadOnlyAdmin


class AmendmentForm(OrderForm):
    """An amendment from a time on."""

    effective_at = needed_instant_field(label="Takes effect at (UTC)", help_text="Past or future.")


class PlanForm(AmendmentForm):
    """Another plan, or the newest version of the same plan."""

    plan = ref_field(label="Plan", help_text="Its code; the form takes the newest version.")
    field_order = ["plan", "effective_at", "reason"]


class QuantitiesForm(AmendmentForm):
    """Other quantities."""

    quantities = quantities_field()
    field_order = ["quantities", "effective_at", "reason"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["quantities"].required = True
        self.fields[
            "quantities"
        ].help_text = "One per line: the key of a price and its quantity. Other prices keep their quantities."

    def clean_quantities(self) -> str:
        """Check that each line has a key and a number."""
        text: str = self.cleaned_data["quantities"]
        read_quantities(text)
        return text

    def field_of(self, pointer: str) -> str | None:
        """The field for a mistake in the quantities, or in another field."""
        return "quantities" if pointer.startswith("/quantities/") else super().field_of(pointer)


class CancellationForm(OrderForm):
    """The end of a subscription."""

    ends_at = needed_instant_field(label="Ends at (UTC)", help_text="Charges in advance for the time after it are credited.")
    field_order = ["ends_at", "reason"]


class TrialForm(OrderForm):
    """A longer trial."""

    trial_end = needed_instant_field(label="Trial ends at (UTC)", help_text="Later than its present end.")
    field_order = ["trial_end", "reason"]


@dataclass(frozen=True)
class Way:
    """A kind of amendment: its words, its form, and how the form becomes a wish."""

    title: str
    button: str
    explanation: str
    form: type[OrderForm]
    wish: Callable[[Mapping[str, Any]], Wish]


WAYS: Final[Mapping[str, Way]] = {
    "change_plan": Way(
        "Change the plan",
        "Change the plan",
        "The next run bills the difference: a credit for the old terms and a charge for the new ones.",
        PlanForm,
        lambda asked: Wish(plan=asked["plan"]),
    ),
    "change_quantities": Way(
        "Change quantities",
        "Change the quantities",
        "The next run bills the difference: a credit for the old terms and a charge for the new ones.",
        QuantitiesForm,
        lambda asked: Wish(quantities=read_quantities(asked["quantities"])),
    ),
    "pause": Way("Pause", "Pause it", "A paused subscription is not charged.", AmendmentForm, lambda asked: Wish(paused=True)),
    "go_on": Way(
        "End the pause", "End the pause", "Charges start again at that time.", AmendmentForm, lambda asked: Wish(paused=False)
    ),
    "extend_trial": Way(
        "Extend the trial",
        "Extend the trial",
        "Only a running trial can be extended.",
        TrialForm,
        lambda asked: Wish(trial_end=asked["trial_end"]),
    ),
    "cancel": Way(
        "Cancel",
        "Cancel the subscription",
        "The subscription ends at that time. You can withdraw the cancellation.",
        CancellationForm,
        lambda asked: Wish(sets_end=True, ends_at=asked["ends_at"]),
    ),
    "withdraw_cancellation": Way(
        "Withdraw the cancellation",
        "Withdraw the cancellation",
        "The subscription continues without an end. The time after an end in the past is not billed.",
        AmendmentForm,
        lambda asked: Wish(sets_end=True, ends_at=None),
    ),
}


def amend_view(model_admin: ReadOnlyAdmin, request: HttpRequest, subscription: Subscription, name: str) -> HttpResponse:
    """Show the form of an amendment, then what a run would invoice with it, then write it."""
    way = WAYS[name]
    now = timezone.now().astimezone(UTC).strftime(MINUTE)
    return operation_view(
        model_admin,
        request,
        form_class=way.form,
        operation=partial(_amend, subscription, way),
        dry_run=partial(_dry_run, subscription, way),
        initial={"effective_at": now, "ends_at": now},
        title=f"{way.title}: {subscription.ref}",
        button=way.button,
        explanation=way.explanation,
        back=row_url(Subscription, subscription.pk),
    )


def _wished(subscription: Subscription, way: Way, asked: Mapping[str, Any], actor: str) -> Amendment:
    """Write the wish. If the form has no time of effect, as the one for an end, the amendment takes effect now."""
    return subscriptions.amend_subscription(
        ref=subscription.ref,
        effective_at=asked.get("effective_at") or max(timezone.now(), subscription.started_at),
        wish=way.wish(asked),
        actor=actor,
    )


def _words(amendment: Amendment, zone: ZoneInfo) -> str:
    plan_id = amendment.change.get("plan")
    return change_words(amendment.change, zone=zone, plans=Plan.objects.in_bulk([plan_id]) if plan_id else {})


def _amend(subscription: Subscription, way: Way, *, idempotency_key: str, actor: str, **asked: Any) -> Done:
    pk, replayed = written_once(
        "amendments",
        idempotency_key=idempotency_key,
        asked={"subscription": subscription.ref, "way": way.title, **asked},
        act=lambda: _wished(subscription, way, asked, actor).pk,
        field="",
    )
    amendment = Amendment.objects.get(pk=pk)
    zone = ZoneInfo(subscription.time_zone)
    return Done(
        f"Amendment {amendment.sequence} of {subscription.ref}",
        f"{_words(amendment, zone)}, from {instant_words(amendment.effective_at, zone)} on",
        row_url(Subscription, subscription.pk),
        replayed,
    )


def _dry_run(subscription: Subscription, way: Way, *, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    def act() -> DryRun:
        amendment = _wished(subscription, way, asked, actor)
        zone = ZoneInfo(subscription.time_zone)
        sentence = f"{subscription.ref}: {_words(amendment, zone)}, from {instant_words(amendment.effective_at, zone)} on."
        as_of = max(amendment.effective_at, asked.get("ends_at", amendment.effective_at), timezone.now())
        parts: list[Part] = []
        billed = first_billing(subscription.ref, as_of, parts, zone)
        return DryRun(sentences=[sentence, *billed], parts=parts)

    return tried(act, field="")
