"""Granting, refunding and revoking by an operator: forms around `ledger.services`.

Note [A double click is harmless]
    The idempotency key is made when the form is shown and travels in a hidden field. The same form sent twice is the same request
    twice: the second one finds the first one's entry. A key that was answered "no" would be answered "no" for ever, so after a
    refusal the form comes back with a new key; after "try again" it keeps its key.
"""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from ledger import services
from ledger.admin.links import entry_url
from ledger.admin.pages import ReadOnlyAdmin, ReasonForm, actor, number, said
from ledger.errors import IdempotencyKeyReused, Invalid, OutcomeUnknown, Refused, Retryable
from ledger.models import EntryListing
from ledger.rules import MAX_AMOUNT, Entry
from ledger.rules.requests import MAX_PRIORITY, MAX_REFERENCE_CHARACTERS

Operation = Callable[..., Entry]


def new_key() -> str:
    """A key for one form shown."""
    return f"admin-{secrets.token_hex(16)}"


def _text(*, label: str, required: bool = False, help_text: str = "", most: int = MAX_REFERENCE_CHARACTERS) -> forms.CharField:
    return forms.CharField(
        label=label, required=required, help_text=help_text, max_length=most, widget=UnfoldAdminTextInputWidget()
    )


def _amount(*, required: bool, help_text: str) -> forms.IntegerField:
    return forms.IntegerField(
        label="Amount",
        required=required,
        help_text=help_text,
        min_value=1,
        max_value=MAX_AMOUNT,
        widget=UnfoldAdminIntegerFieldWidget(attrs={"min": 1, "autocomplete": "off"}),
    )


def _instant(*, label: str, help_text: str) -> forms.DateTimeField:
    widget = UnfoldAdminTextInputWidget()
    widget.input_type = "datetime-local"
    return forms.DateTimeField(
        label=label, required=False, help_text=help_text, widget=widget, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
    )


class OperationForm(ReasonForm):
    """What every operation asks: why, and under which key. See Note [A double click is harmless]."""

    idempotency_key = forms.CharField(widget=forms.HiddenInput(), max_length=255)
    reference = _text(label="Reference", help_text="Your own id of what this is about, such as a ticket.")

    field_order: list[str] | None = None


class AmountForm(OperationForm):
    """A refund or a revocation: how much, or all."""

    amount = _amount(required=False, help_text="Empty for all that is left.")
    field_order = ["amount", "reason", "reference"]


class GrantForm(OperationForm):
    """A grant: to whom, how much, of what sort, and from when to when."""

    holder_id = _text(label="Holder", required=True, most=64)
    credit_type = _text(label="Credit type", required=True, most=32)
    amount = _amount(required=True, help_text="In the smallest unit of the credit type.")
    source = forms.ChoiceField(
        choices=[("purchased", "purchased"), ("promotional", "promotional")], widget=UnfoldAdminSelectWidget()
    )
    expires_at = _instant(label="Expires at (UTC)", help_text="From this instant on it cannot be spent; empty for never.")
    effective_at = _instant(label="Effective at (UTC)", help_text="Empty for now.")
    priority = forms.IntegerField(
        initial=100,
        min_value=0,
        max_value=MAX_PRIORITY,
        widget=UnfoldAdminIntegerFieldWidget(),
        help_text="Lower is used first.",
    )
    field_order = [
        "holder_id",
        "credit_type",
        "amount",
        "source",
        "reason",
        "reference",
        "expires_at",
        "effective_at",
        "priority",
    ]


# The three operations --------------------------------------------------------------------------------


def grant_view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, holder_id: str = "", credit_type: str = "credits"
) -> HttpResponse:
    """Show the form of a grant, or do it."""
    return _operation_view(
        model_admin,
        request,
        form_class=GrantForm,
        initial={"holder_id": holder_id, "credit_type": credit_type, "source": "purchased", "priority": 100},
        operation=services.grant,
        title=f"Grant credits to {holder_id}" if holder_id else "Grant credits",
        button="Grant",
        explanation="A new lot, as a purchase or as a present.",
    )


def refund_view(model_admin: ReadOnlyAdmin, request: HttpRequest, spend: EntryListing) -> HttpResponse:
    """Show the form of a refund of this spend, or do it."""
    return _operation_view(
        model_admin,
        request,
        form_class=AmountForm,
        operation=services.refund,
        fixed={"holder_id": spend.holder_id, "credit_type": spend.credit_type, "spend": spend.sequence},
        title=f"Refund spend #{spend.sequence} of {spend.holder_id}",
        button="Refund",
        explanation=f"{number(-spend.amount)} {spend.credit_type} were spent by it. Credits go back to the lots they came from.",
        back=entry_url(spend.holder_id, spend.credit_type, spend.sequence),
    )


def revoke_view(model_admin: ReadOnlyAdmin, request: HttpRequest, grant: EntryListing) -> HttpResponse:
    """Show the form of a revocation of what is unspent of this grant, or do it."""
    return _operation_view(
        model_admin,
        request,
        form_class=AmountForm,
        operation=services.revoke,
        fixed={"holder_id": grant.holder_id, "credit_type": grant.credit_type, "grant": grant.sequence},
        title=f"Revoke the rest of grant #{grant.sequence} of {grant.holder_id}",
        button="Revoke",
        explanation=f"{number(grant.amount)} {grant.credit_type} were granted by it. Only what is unspent can be taken back.",
        back=entry_url(grant.holder_id, grant.credit_type, grant.sequence),
    )


# How a form becomes an entry -------------------------------------------------------------------------


def _operation_view(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    *,
    form_class: type[OperationForm],
    operation: Operation,
    title: str,
    button: str,
    explanation: str,
    fixed: dict[str, Any] | None = None,
    initial: dict[str, Any] | None = None,
    back: str = "",
) -> HttpResponse:
    if request.method == "POST":
        form = form_class(request.POST)
        entry = _do(request, form, operation, fixed or {}) if form.is_valid() else None
        if entry is not None:
            return HttpResponseRedirect(entry_url(entry.holder_id, entry.credit_type, entry.sequence))
    else:
        form = form_class(initial={**(initial or {}), "idempotency_key": new_key()})
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.model._meta,
        "title": title,
        "form": form,
        "button": button,
        "explanation": explanation,
        "back": back or reverse(f"admin:ledger_{model_admin.model._meta.model_name}_changelist"),
    }
    status = 200 if request.method != "POST" else 422
    return TemplateResponse(request, "admin/ledger/operation.html", context, status=status)


def _do(request: HttpRequest, form: OperationForm, operation: Operation, fixed: dict[str, Any]) -> Entry | None:
    """The entry; or None, with the form and the messages saying why there is none."""
    asked = {name: value for name, value in form.cleaned_data.items() if value not in ("", None)}
    for name in ("effective_at", "expires_at"):
        if isinstance(asked.get(name), datetime):
            asked[name] = asked[name].replace(tzinfo=UTC)
    try:
        entry = operation(**fixed, **asked, actor=actor(request))
    except Invalid as error:
        field = error.facts["pointer"].removeprefix("/")
        form.add_error(field if field in form.fields else None, error.facts["detail"])
    except (Refused, IdempotencyKeyReused) as error:
        messages.error(request, said(error))
        _renew_key(form)
    except Retryable as error:
        messages.warning(request, f"{said(error)}. Nothing was written; press the button again.")
    except OutcomeUnknown:
        messages.warning(request, "The connection was lost: done or not, nobody knows. Press the button again; it is done once.")
    else:
        done = "was done already, by the first click" if entry.replayed else "is done"
        words = (
            f"{entry.kind.capitalize()} #{entry.sequence} {done}: {entry.amount:+d} {entry.credit_type} for {entry.holder_id}."
        )
        messages.success(request, words)
        return entry
    return None


def _renew_key(form: OperationForm) -> None:
    form.data = {**form.data.dict(), "idempotency_key": new_key()}  # type: ignore[attr-defined]
