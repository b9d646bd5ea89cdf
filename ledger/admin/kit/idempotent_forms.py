"""Forms that do something once: shown, checked, done by a use-case, and told about.

Note [A double click is harmless]
    The idempotency key is made when the form is shown and travels in a hidden field. The same form sent twice is the same request
    twice: the second one finds what the first one did. A key that was answered "no" would be answered "no" for ever, so after a
    refusal the form comes back with a new key; after "try again" it keeps its key.

    So nothing about the row may close the door between two clicks: a button is hidden once there is nothing left to do, but who
    was permitted to open the form is permitted to send it again, and it is the use-case that says no.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextInputWidget

from ledger.admin.kit.pages import ReadOnlyAdmin, ReasonForm, actor, said
from ledger.errors import IdempotencyKeyReused, Invalid, OutcomeUnknown, Refused, Retryable
from ledger.rules.requests import MAX_AMOUNT, MAX_REFERENCE_CHARACTERS


@dataclass(frozen=True)
class Done:
    """What was done, in words for the operator ("Grant #3", "+50 credits for ada"), and the page that shows it."""

    what: str
    detail: str
    url: str
    is_replayed: bool = False


Operation = Callable[..., Done]
"""Takes what the form asks for, and `actor`; returns what it did, or raises."""


class KeyedForm(ReasonForm):
    """What every operation asks: why, and under which key. See Note [A double click is harmless]."""

    idempotency_key = forms.CharField(widget=forms.HiddenInput(), max_length=255)

    field_order: list[str] | None = None


def text_field(
    *, label: str, required: bool = False, help_text: str = "", most: int = MAX_REFERENCE_CHARACTERS
) -> forms.CharField:
    """A line of text."""
    return forms.CharField(
        label=label, required=required, help_text=help_text, max_length=most, widget=UnfoldAdminTextInputWidget()
    )


def amount_field(
    *, label: str = "Amount", required: bool = True, help_text: str = "", least: int = 1, most: int = MAX_AMOUNT
) -> forms.IntegerField:
    """A whole number of the smallest unit."""
    return forms.IntegerField(
        label=label,
        required=required,
        help_text=help_text,
        min_value=least,
        max_value=most,
        widget=UnfoldAdminIntegerFieldWidget(attrs={"min": least, "autocomplete": "off"}),
    )


def instant_field(*, label: str, help_text: str) -> forms.DateTimeField:
    """A time in UTC, to be left empty."""
    widget = UnfoldAdminTextInputWidget()
    widget.input_type = "datetime-local"
    return forms.DateTimeField(
        label=label, required=False, help_text=help_text, widget=widget, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
    )


def operation_view(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    *,
    form_class: type[KeyedForm],
    operation: Operation,
    title: str,
    button: str,
    explanation: str,
    back: str,
    fixed: dict[str, Any] | None = None,
    initial: dict[str, Any] | None = None,
) -> HttpResponse:
    """Show the form, or do what it asks for and go to the page that shows it.

    Args:
        fixed: what the operation takes beside the form's fields.
        back: where the button "Back" leads.
    """
    if request.method == "POST":
        form = form_class(request.POST)
        done = _do(request, form, operation, fixed or {}) if form.is_valid() else None
        if done is not None:
            return HttpResponseRedirect(done.url)
    else:
        form = form_class(initial={**(initial or {}), "idempotency_key": _new_key()})
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.model._meta,
        "title": title,
        "form": form,
        "button": button,
        "explanation": explanation,
        "back": back,
    }
    status = 200 if request.method != "POST" else 422
    return TemplateResponse(request, "admin/ledger/operation.html", context, status=status)


def _do(request: HttpRequest, form: KeyedForm, operation: Operation, fixed: dict[str, Any]) -> Done | None:
    """What was done; or None, with the form and the messages saying why nothing was."""
    asked = {name: value for name, value in form.cleaned_data.items() if value not in ("", None)}
    for name in ("effective_at", "expires_at"):
        if isinstance(asked.get(name), datetime):
            asked[name] = asked[name].replace(tzinfo=UTC)
    try:
        done = operation(**fixed, **asked, actor=actor(request))
    except Invalid as error:
        field = error.facts["pointer"].removeprefix("/")
        form.add_error(field if field in form.fields else None, error.facts["detail"])
    except (Refused, IdempotencyKeyReused) as error:
        messages.error(request, said(error))
        _renew_key(form)
    except Retryable as error:
        messages.warning(request, f"{said(error)}. Nothing was written; press the button again.")
    except OutcomeUnknown:
        messages.warning(
            request, "The connection broke, so the outcome is unknown. Press the button again; the ledger executes it only once."
        )
    else:
        how = "was already done by the first click" if done.is_replayed else "is done"
        messages.success(request, f"{done.what} {how}: {done.detail}.")
        return done
    return None


def _new_key() -> str:
    return f"admin-{secrets.token_hex(16)}"


def _renew_key(form: KeyedForm) -> None:
    form.data = {**form.data.dict(), "idempotency_key": _new_key()}  # type: ignore[attr-defined]
