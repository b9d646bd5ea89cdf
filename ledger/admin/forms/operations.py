"""What an operator can do about credits: forms around `ledger.services`. See Note [A double click is harmless]."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from ledger import reads, services
from ledger.admin.forms.credit_amounts import CreditAmountField, CreditAmountsForm
from ledger.admin.forms.credit_types import fact_writer
from ledger.admin.forms.dry_runs import dry_run_of
from ledger.admin.kit.idempotent_forms import Done, KeyedForm, Operation, instant_field, operation_view, text_field
from ledger.admin.kit.pages import ReadOnlyAdmin, said
from ledger.admin.links import account_url, entry_url
from ledger.errors import LedgerError
from ledger.models import EntryListing
from ledger.rules import KINDS, Entry
from ledger.rules.kinds import taken_by
from ledger.rules.requests import MAX_PRIORITY
from ledger.rules.texts.refusal_texts import are
from ledger.units import unit_of
from ledger.values import HOLDER_ID

EXPIRY_PRESETS = [("", "never"), ("7", "in 7 days"), ("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year")]
"""Days, and what they are called."""


def end_of_day_in(days: int, *, now: datetime) -> datetime:
    """The end of the UTC day that is this many days away, without a zone, as the form's fields have it."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return day + timedelta(days=days + 1)


class OperationForm(KeyedForm):
    """What every entry takes beside what it is about."""

    reference = text_field(label="Reference", help_text="Your id of the related case, such as a ticket.")
    folded: tuple[str, ...] = ("reference",)
    reasons = ("goodwill", "requested by the customer", "correction of a mistake", "service was interrupted")


class AmountForm(OperationForm, CreditAmountsForm):
    """A refund or a revocation: how much, or all."""

    amount = CreditAmountField(required=False, help_text="Empty for the whole rest.")
    field_order = ["amount", "reason", "reference"]


class RecipientForm(OperationForm):
    """Gives credits to the holder whose id is typed; a new holder's is asked for twice, because a mistyped one is new too."""

    recipient = "holder_id"
    holder_again = text_field(label="New holder, again", most=64)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._again = self.fields.pop("holder_again")

    def clean(self) -> dict[str, Any]:
        """Return what was asked, or ask for the id once more."""
        asked = super().clean() or {}
        holder_id = asked.get(self.recipient, "")
        if HOLDER_ID.fullmatch(holder_id) and not reads.is_known(holder_id):
            self._show_again()
            if self.data.get("holder_again", "").strip() != holder_id:
                why = f"{holder_id} is a new holder without credits. Type the id again to confirm it."
                self.add_error("holder_again", why)
        return asked

    def _show_again(self) -> None:
        fields = list(self.fields.items())
        place = next(index for index, (name, _) in enumerate(fields) if name == self.recipient) + 1
        self.fields = dict([*fields[:place], ("holder_again", self._again), *fields[place:]])


class GrantForm(RecipientForm, CreditAmountsForm):
    """A grant: to whom, how much, of what sort, and from when to when."""

    holder_id = text_field(label="Holder", required=True, most=64)
    credit_type = text_field(label="Credit type", required=True, most=32)
    amount = CreditAmountField(help_text="In the unit of the credit type, with its decimals.")
    source = forms.ChoiceField(
        choices=[("", "Choose one"), ("purchased", "purchased"), ("promotional", "promotional")],
        widget=UnfoldAdminSelectWidget(),
        help_text="Purchased: the holder paid for the credits.",
    )
    expires_in = forms.ChoiceField(
        label="Expires",
        required=False,
        choices=EXPIRY_PRESETS,
        widget=UnfoldAdminSelectWidget(),
        help_text="At the end of that day (UTC). For another time, unfold the rest.",
    )
    expires_at = instant_field(label="Expires at (UTC)", help_text="The credits expire at this time; empty for never.")
    effective_at = instant_field(label="Effective at (UTC)", help_text="The credits are usable from this time; empty for now.")
    priority = forms.IntegerField(
        initial=100,
        min_value=0,
        max_value=MAX_PRIORITY,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text="The ledger uses lots with a lower number first.",
    )
    field_order = [
        "holder_id",
        "credit_type",
        "amount",
        "source",
        "expires_in",
        "reason",
        "reference",
        "expires_at",
        "effective_at",
        "priority",
    ]
    folded = ("reference", "expires_at", "effective_at", "priority")

    def clean(self) -> dict[str, Any]:
        """Work the chosen expiry out: the end of a day, so that the same form asks for the same all day."""
        asked = super().clean()
        chosen = asked.get("expires_in")
        if chosen and asked.get("expires_at"):
            self.add_error("expires_in", "Choose an expiry here, or a time below, not both.")
        elif chosen:
            asked["expires_at"] = end_of_day_in(int(chosen), now=timezone.now())
            asked["expires_in"] = ""
        return asked


class OverdraftForm(OperationForm, CreditAmountsForm):
    """How far below 0 spends may take the balance."""

    limit = CreditAmountField(label="Limit", least=0, help_text="0 for no overdraft. An existing debt stays.")
    field_order = ["limit", "reason", "reference"]


class IncomingTransfersForm(OperationForm):
    """Whether others may transfer credits into the account."""

    accepted = forms.TypedChoiceField(
        label="Transfers from others",
        choices=[("yes", "accept"), ("no", "refuse")],
        coerce=lambda value: value == "yes",
        widget=UnfoldAdminSelectWidget,
        help_text="Grants and refunds are not touched, nor is what arrived before.",
    )
    field_order = ["accepted", "reason", "reference"]


class TransferForm(RecipientForm, CreditAmountsForm):
    """To whom, and how much."""

    recipient = "to"
    to = text_field(label="To holder", required=True, most=64)
    amount = CreditAmountField(help_text="Only available credits can be transferred.")
    field_order = ["to", "amount", "reason", "reference"]


# About an entry --------------------------------------------------------------------------------------


def refund_view(model_admin: ReadOnlyAdmin, request: HttpRequest, spend: EntryListing, *, refunded: int) -> HttpResponse:
    """Show the form of a refund of this spend or capture, of which `refunded` was given back before, or do it."""
    left, unit = taken_by(spend) - refunded, unit_of(spend.credit_type)
    before = f"; earlier refunds returned {unit.number(refunded)}" if refunded else ""
    return operation_view(
        model_admin,
        request,
        form_class=AmountForm,
        operation=_booked(services.refund),
        dry_run=dry_run_of(services.refund),
        fixed=_account_of(spend) | {"spend": spend.sequence},
        title=f"Refund {spend.kind} #{spend.sequence} of {spend.holder_id}",
        button="Refund",
        initial={"amount": left or None},
        explanation=(
            f"The entry took {unit.amount(taken_by(spend))}{before}. You can refund {unit.number(left)}. "
            f"The credits return to their lots."
        ),
        explain=_explained,
        back=_url_of(spend),
    )


def revoke_view(model_admin: ReadOnlyAdmin, request: HttpRequest, grant: EntryListing, *, unspent: int) -> HttpResponse:
    """Show the form of a revocation of what is unspent of this grant, or do it."""
    unit = unit_of(grant.credit_type)
    return operation_view(
        model_admin,
        request,
        form_class=AmountForm,
        operation=_booked(services.revoke),
        dry_run=dry_run_of(services.revoke),
        fixed=_account_of(grant) | {"grant": grant.sequence},
        title=f"Revoke the rest of grant #{grant.sequence} of {grant.holder_id}",
        button="Revoke",
        initial={"amount": unspent or None},
        explanation=(
            f"The grant added {unit.amount(grant.amount)}; {unit.number(unspent)} {are(unspent, unit)} unspent. "
            f"Revoking takes back only unspent credits."
        ),
        explain=_explained,
        back=_url_of(grant),
    )


def release_view(model_admin: ReadOnlyAdmin, request: HttpRequest, hold: EntryListing, *, how_it_stands: str) -> HttpResponse:
    """Show the form of a release of this hold, or do it."""
    return operation_view(
        model_admin,
        request,
        form_class=OperationForm,
        operation=_booked(services.release),
        dry_run=dry_run_of(services.release),
        fixed=_account_of(hold) | {"hold": hold.sequence},
        title=f"Release hold #{hold.sequence} of {hold.holder_id}",
        button="Release",
        explanation=f"{how_it_stands} The held credits return to their lots.",
        explain=_explained,
        back=_url_of(hold),
    )


# About an account ------------------------------------------------------------------------------------


def grant_view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, holder_id: str = "", credit_type: str = "credits"
) -> HttpResponse:
    """Show the form of a grant, or do it."""
    return operation_view(
        model_admin,
        request,
        form_class=GrantForm,
        initial={"holder_id": holder_id, "credit_type": credit_type, "priority": 100},
        operation=_booked(services.grant),
        dry_run=dry_run_of(services.grant),
        title=f"Grant credits to {holder_id}" if holder_id else "Grant credits",
        button="Grant",
        explanation="The grant adds a new lot.",
        explain=_explained,
        back=account_url(holder_id, credit_type) if holder_id else reverse("admin:ledger_account_changelist"),
    )


def overdraft_view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, holder_id: str, credit_type: str, overdraft: int
) -> HttpResponse:
    """Show the form of an overdraft, or agree it."""
    unit = unit_of(credit_type)
    return operation_view(
        model_admin,
        request,
        form_class=OverdraftForm,
        initial={"limit": overdraft},
        operation=_booked(services.set_overdraft),
        dry_run=dry_run_of(services.set_overdraft),
        fixed={"holder_id": holder_id, "credit_type": credit_type},
        title=f"Overdraft of {holder_id}",
        button="Set the limit",
        explanation=(f"Spends may take the balance of {unit.name} down to this far below 0. Holds and transfers may not."),
        explain=_explained,
        back=account_url(holder_id, credit_type),
    )


def incoming_transfers_view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, holder_id: str, credit_type: str
) -> HttpResponse:
    """Show the form that accepts or refuses transfers from others, or do it."""
    is_accepted = reads.incoming_transfers(holder_id, credit_type).accepted
    return operation_view(
        model_admin,
        request,
        form_class=IncomingTransfersForm,
        initial={"accepted": "yes" if is_accepted else "no"},
        operation=_booked(services.set_incoming_transfers),
        dry_run=dry_run_of(services.set_incoming_transfers),
        fixed={"holder_id": holder_id, "credit_type": credit_type},
        title=f"Transfers to {holder_id}",
        button="Save",
        explanation=(
            f"{holder_id} {'accepts' if is_accepted else 'refuses'} transfers of {unit_of(credit_type).name} from others."
        ),
        explain=_explained,
        back=account_url(holder_id, credit_type),
    )


def transfer_view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, holder_id: str, credit_type: str, available: int
) -> HttpResponse:
    """Show the form of a transfer, or do it."""
    unit = unit_of(credit_type)
    return operation_view(
        model_admin,
        request,
        form_class=TransferForm,
        operation=_booked(services.transfer),
        dry_run=dry_run_of(services.transfer),
        fixed={"holder_id": holder_id, "credit_type": credit_type},
        title=f"Transfer credits of {holder_id}",
        button="Transfer",
        explanation=(
            f"{unit.amount(available)} {are(available, unit)} available. The credits keep their expiry, priority and source."
        ),
        explain=_explained,
        back=account_url(holder_id, credit_type),
    )


# How a form becomes an entry -------------------------------------------------------------------------


def _booked(use_case: Callable[..., Entry]) -> Operation:
    """The use-case, reported by its entry."""

    def act(**asked: Any) -> Done:
        entry = use_case(**asked)
        return Done(
            f"{KINDS[entry.kind].title} #{entry.sequence}",
            f"{_change(entry)} for {entry.holder_id}",
            entry_url(entry.holder_id, entry.credit_type, entry.sequence),
            entry.replayed,
        )

    return act


def _change(entry: Entry) -> str:
    """What the entry changed, in words."""
    unit = unit_of(entry.credit_type)
    if entry.accepts_transfers is not None:
        return f"transfers from others {'accepted' if entry.accepts_transfers else 'refused'}"
    return f"limit {unit.amount(entry.overdraft or 0)}" if entry.kind == "adjust" else unit.signed_amount(entry.amount)


def _explained(error: LedgerError, asked: Mapping[str, Any]) -> str:
    """Why it was not done, with amounts as pages write them."""
    return said(error, fact_writer(unit_of(asked["credit_type"])))


def _account_of(row: EntryListing) -> dict[str, Any]:
    return {"holder_id": row.holder_id, "credit_type": row.credit_type}


def _url_of(row: EntryListing) -> str:
    return entry_url(row.holder_id, row.credit_type, row.sequence)
