"""Forms that do something once: shown, checked, tried without writing, done by a use-case, and reported.

Note [First what will happen, then done]
    A form with a dry run is sent twice. The first time the use-case runs dry and the page says what would change; nothing is
    written, a refusal neither. That page carries the same values and the same key in hidden fields, times worked out, and its
    button sends them with `confirmed`. Nothing is kept between the two, so a page left open is only old: the use-case decides.

Note [A double click is harmless]
    The idempotency key is made when the form is shown and travels in a hidden field. The same form sent twice is the same request
    twice: the second one finds what the first one did. A key that was answered "no" would be answered "no" for ever, so after a
    refusal the form comes back with a new key; after "try again" it keeps its key.

    So nothing about the row may close the door between two clicks: a button is hidden once there is nothing left to do, but who
    was permitted to open the form is permitted to send it again, and it is the use-case that says no.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextInputWidget

from ledger import staff_log
from ledger.admin.kit.pages import ReadOnlyAdmin, ReasonForm, actor, said
from ledger.errors import IdempotencyKeyReused, Invalid, LedgerError, OutcomeUnknown, Refused, Retryable
from ledger.values import MAX_AMOUNT, MAX_REFERENCE_CHARACTERS


@dataclass(frozen=True)
class Done:
    """What was done, in words for the operator ("Grant #3", "+50 credits for ada"), and the page that shows it."""

    what: str
    detail: str
    url: str
    is_replayed: bool = False


@dataclass(frozen=True)
class DryRun:
    """What would happen: sentences, and numbers as they are and as they would be."""

    sentences: Sequence[str]
    changes: Sequence[tuple[str, str, str]] = ()
    """What changes, before, after; all written as people read them."""
    parts: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Further tables with their headings, such as the lines of an invoice."""


class FieldFaults(Exception):
    """Several fields are wrong; each fault is the field's pointer, as the REST API names it, and what a person should know."""

    def __init__(self, faults: Sequence[tuple[str, str]]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{pointer}: {detail}" for pointer, detail in faults))


@dataclass(frozen=True)
class FormSection:
    """A part of a form: what is always shown, and what is shown when somebody unfolds it."""

    shown: Sequence[forms.BoundField]
    folded: Sequence[forms.BoundField] = ()
    title: str = ""
    summary: str = "More options"
    """What is folded, in a word or two."""

    @property
    def is_unfolded(self) -> bool:
        """Whether a folded field has a mistake, or another value than it began with."""
        return any(field.errors or _differs(field.value(), field.field.initial) for field in self.folded)


Operation = Callable[..., Done]
"""Takes what the form asks for, and `actor`; returns what it did, or raises."""


class KeyedForm(ReasonForm):
    """What every operation asks: why, and under which key. See Note [A double click is harmless]."""

    idempotency_key = forms.CharField(widget=forms.HiddenInput(), max_length=255)

    field_order: list[str] | None = None
    folded: tuple[str, ...] = ()
    """Fields that are seldom needed: shown when somebody unfolds them, or when one of them is filled in."""
    reasons: tuple[str, ...] = ()
    """Reasons that are offered while one is typed."""

    def __init__(self, *args: Any, fixed: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Make the form; `fixed` is what the operation takes beside its fields."""
        super().__init__(*args, **kwargs)
        self.fixed = fixed or {}
        if self.reasons:
            self.fields["reason"].widget.attrs["list"] = "reasons"

    def sections(self) -> list[FormSection]:
        """The form as it is shown."""
        return [FormSection([field for field in self if field.name not in self.folded], [self[name] for name in self.folded])]

    def field_of(self, pointer: str) -> str | None:
        """The field that a fault is shown at; None: above the form."""
        name = pointer.split("/")[1] if pointer else ""
        return name if name in self.fields else None

    @classmethod
    def with_more(cls, typed: Mapping[str, str]) -> dict[str, Any]:
        """What the form is filled in with when somebody asks for more rows of it."""
        return dict(typed)

    more = ""
    """The text of the button that asks for more rows; empty for no button."""

    def hidden_values(self) -> dict[str, Any]:
        """All that a form needs to be sent again as it is: what was understood, and what was typed beside."""
        return {name: self.cleaned_data.get(name, self.data.get(name)) for name in self.fields}


def _differs(value: Any, initial: Any) -> bool:
    return str("" if value is None else value) != str("" if initial is None else initial)


def text_field(
    *, label: str, required: bool = False, help_text: str = "", most: int = MAX_REFERENCE_CHARACTERS, initial: str = ""
) -> forms.CharField:
    """A line of text."""
    return forms.CharField(
        label=label,
        required=required,
        help_text=help_text,
        max_length=most,
        initial=initial,
        widget=UnfoldAdminTextInputWidget(),
    )


def amount_field(
    *,
    label: str = "Amount",
    required: bool = True,
    help_text: str = "",
    least: int = 1,
    most: int = MAX_AMOUNT,
    initial: int | None = None,
) -> forms.IntegerField:
    """A whole number; for credits, see `ledger.admin.forms.credit_amounts`."""
    return forms.IntegerField(
        label=label,
        required=required,
        help_text=help_text,
        min_value=least,
        max_value=most,
        initial=initial,
        widget=UnfoldAdminIntegerFieldWidget(attrs={"min": least, "autocomplete": "off"}),
    )


class UTCField(forms.DateTimeField):
    """A time that is typed in UTC, in whichever zone the operator's pages are."""

    def to_python(self, value: Any) -> datetime | None:
        """Read it as UTC."""
        with timezone.override(UTC):
            return super().to_python(value)


def instant_field(*, label: str, help_text: str) -> forms.DateTimeField:
    """A time in UTC, to be left empty."""
    widget = UnfoldAdminTextInputWidget()
    widget.input_type = "datetime-local"
    return UTCField(
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
    dry_run: Callable[..., DryRun] | None = None,
    explain: Callable[[LedgerError, Mapping[str, Any]], str] = lambda error, asked: said(error),
) -> HttpResponse:
    """Show the form; then, with a dry run, what would happen; then do it and go to the page that shows it.

    Args:
        fixed: what the operation takes beside the form's fields.
        initial: what the form is filled in with; the address may name other values of the form's fields.
        dry_run: runs the operation dry. See Note [First what will happen, then done].
        explain: says why it was not done, from the error and from what was asked.
        back: where the button "Back" leads.
    """
    seen: DryRun | None = None
    beside = fixed or {}
    if request.method == "POST" and form_class.more and "more" in request.POST:
        form = form_class(initial=form_class.with_more(request.POST.dict()), fixed=beside)
    elif request.method == "POST":
        form = form_class(request.POST, fixed=beside)
        if form.is_valid() and "edit" not in request.POST:
            if dry_run is not None and "confirmed" not in request.POST:
                seen = _try(request, form, dry_run, explain, beside)
            else:
                done = _try(request, form, operation, explain, beside)
                if done is not None:
                    _tell(request, title, form, done)
                    return HttpResponseRedirect(done.url)
    else:
        given = {name: value for name, value in request.GET.items() if name in form_class.base_fields and "\x00" not in value}
        form = form_class(initial={**(initial or {}), **given, "idempotency_key": _new_key()}, fixed=beside)
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.model._meta,
        "title": title,
        "form": form,
        "button": button,
        "explanation": explanation,
        "has_dry_run": dry_run is not None,
        "back": back,
    }
    if seen is not None:
        context |= {"dry_run": seen, "hidden": [(name, _as_typed(value)) for name, value in form.hidden_values().items()]}
        return TemplateResponse(request, "admin/ledger/kit/operation_dry_run.html", context)
    status = 422 if request.method == "POST" and form.is_bound and "edit" not in request.POST else 200
    return TemplateResponse(request, "admin/ledger/kit/operation.html", context, status=status)


def _as_typed(value: Any) -> str:
    """The value as its field takes it."""
    if value is None:
        return ""
    return value.strftime("%Y-%m-%dT%H:%M:%S") if isinstance(value, datetime) else str(value)


def _tell(request: HttpRequest, title: str, form: KeyedForm, done: Done) -> None:
    """Tell the operator what was done, and the staff log, once."""
    if not done.is_replayed:
        reason = form.cleaned_data.get("reason")
        details = f"{done.what}: {done.detail}{f'; reason: {reason}' if reason else ''}"
        staff_log.record(request, "form", about=title, details=details)
    how = "was already done by the first click" if done.is_replayed else "is done"
    messages.success(request, f"{done.what} {how}: {done.detail}.")


def _try(
    request: HttpRequest,
    form: KeyedForm,
    act: Callable[..., Any],
    explain: Callable[[LedgerError, Mapping[str, Any]], str],
    fixed: Mapping[str, Any],
) -> Any:
    """What came of it; or None, with the form and the messages saying why nothing was done."""
    asked = {name: value for name, value in form.cleaned_data.items() if value not in ("", None)}
    asked |= {name: value.replace(tzinfo=UTC) for name, value in asked.items() if isinstance(value, datetime)}
    try:
        return act(**fixed, **asked, actor=actor(request))
    except Invalid as error:
        _add_faults(form, [(error.facts["pointer"], error.facts["detail"])])
    except FieldFaults as error:
        _add_faults(form, error.faults)
        # Some of them, such as a name that is taken, are on record under the key.
        _renew_key(form)
    except (Refused, IdempotencyKeyReused) as error:
        messages.error(request, explain(error, {**fixed, **asked}))
        _renew_key(form)
    except Retryable as error:
        messages.warning(request, f"{explain(error, {**fixed, **asked})}. Nothing was written; press the button again.")
    except OutcomeUnknown:
        messages.warning(
            request, "The connection broke, so the outcome is unknown. Press the button again; the ledger executes it only once."
        )
    return None


def _add_faults(form: KeyedForm, faults: Sequence[tuple[str, str]]) -> None:
    for pointer, detail in faults:
        form.add_error(form.field_of(pointer), detail)


def _new_key() -> str:
    return f"admin-{secrets.token_hex(16)}"


def _renew_key(form: KeyedForm) -> None:
    form.data = form.data.copy()  # type: ignore[attr-defined]
    form.data["idempotency_key"] = _new_key()  # type: ignore[index]
