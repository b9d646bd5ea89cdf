"""Forms that write once: shown, checked, tried without writing, executed by a use-case, and reported.

Note [First what will happen, then done]
    A form with a dry run is sent twice. The first time the use-case runs dry and the page says what would change; nothing is
    written, not even a refusal. That page has the same values and the same key in hidden fields, with computed times, and its
    button sends them with `confirmed`. Nothing is stored between the two, so a page that was left open is only old: the use-case
    decides.

Note [A double click is harmless]
    The idempotency key is made when the form is shown, and a hidden field carries it. The same form sent twice is the same
    request twice: the second one gets the result of the first. A refused key would be refused for ever, so after a refusal the
    form gets a new key; after "try again" it keeps its key.

    So the row must not prevent the second click: a button is hidden if there is nothing left to do, but an operator who was
        permitted to open the form is permitted to send it again, and the use-case refuses it if necessary.

Note [A second operator]
    Every form says what it moves, or why it needs no second operator: a class of forms without a `stake` is refused when it is
    defined, so the process does not start. The stakes follow from what the form would write; a preview finds that out.

    A form whose stakes are above a limit, together with what its operator moved within a day, is not executed: it is recorded,
    and a second operator carries it out by sending the same values to the same page. `request.approval` is then the record: its
    operator is the actor, and the form may not move more than was approved. See Note [The sum of a day].
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Generic, TypeVar

from django import forms
from django.contrib import messages
from django.forms.utils import pretty_name
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from ledger.database.lock_names import OPERATOR_STAKES
from ledger.database.transactions import locked_transaction
from ledger.errors import IdempotencyKeyReused, Invalid, LedgerError, OutcomeUnknown, Refused, Retryable
from ledger.operators import additions, staff_log
from ledger.records import Field, Nested, Record, Shape, shape_of
from ledger.staff import approvals
from ledger.staff.approvals import NoStake, StakeRule
from ledger.staff.kit.fault_words import label_of, say_labels, words_within
from ledger.staff.kit.form_fields import Display, TextInput, as_json, as_typed, made
from ledger.staff.kit.money_fields import HasCurrency, money
from ledger.staff.kit.pages import ReadOnlyAdmin, ReasonForm, actor, describe
from ledger.staff.kit.rows import RowsField, TypedRows, unescaped, with_more_rows
from ledger.values import METADATA_TOO_LARGE, FieldError, Integer

TYPES_IN_WORDS: Final = {
    "not-an-integer": "This must be a whole number.",
    "not-a-decimal": "This must be a number, such as 12.50.",
}
"""What a form says where the API names the types of JSON."""
RecordT = TypeVar("RecordT", bound=Record)
Result = TypeVar("Result")

NEEDS_SECOND: Final = (
    "This needs the approval of a second operator: the amount, with what the same operator moved in the last 24 hours, is above "
    "a limit."
)


@dataclass(frozen=True)
class Done:
    """What was done, in words for the operator ("Grant #3", "+50 credits for ada"), and the page that shows it."""

    what: str
    detail: str
    url: str
    is_replayed: bool = False


@dataclass(frozen=True)
class DryRun:
    """What would happen: sentences, and numbers before and after."""

    sentences: Sequence[str]
    changes: Sequence[tuple[str, str, str]] = ()
    """The name of what changes, before, after; all in words."""
    parts: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """Further tables with their headings, such as the lines of an invoice."""
    picture: tuple[str, str] | None = None
    """The address of a picture of it, and what it shows."""


class MoreThanApproved(Exception):
    """A form that was approved would move more by now, so it has to be asked for again."""

    def __init__(self, totals: Mapping[str, int], approved: Mapping[str, int]) -> None:
        now, then = (", ".join(f"{amount:,} {unit}" for unit, amount in each.items()) for each in (totals, approved))
        super().__init__(
            f"Nothing was done: the form would move {now} by now, and {then} was asked for. It has to be asked for again."
        )


class FieldFaults(Exception):
    """Several fields are wrong, each with its pointer, as the REST API names it."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))


@dataclass(frozen=True)
class FormSection:
    """A part of a form: the fields that are always shown, and those that the operator can unfold."""

    shown: Sequence[forms.BoundField]
    folded: Sequence[forms.BoundField] = ()
    title: str = ""
    summary: str = "More options"
    """The name of the folded fields, in a word or two."""

    @property
    def is_unfolded(self) -> bool:
        """Whether a folded field has a fault, or another value than its first one."""
        return any(field.errors or _is_filled_in(field) for field in self.folded)


class KeyedForm(ReasonForm):
    """A form that writes: it has a reason and an idempotency key. See Note [A double click is harmless].

    Args:
        fixed: the values of the request beside the form's fields, in their JSON form.
        actor: the operator.
    """

    idempotency_key = forms.CharField(widget=forms.HiddenInput(), max_length=255)

    folded: tuple[str, ...] = ()
    """Fields that are rarely needed: shown when the operator unfolds them, or when one of them is filled in."""
    reasons: tuple[str, ...] = ()
    """Reasons that the browser offers while one is typed."""
    currency_field: ClassVar[str] = "currency"
    """The name of the field with the currency of the form's money."""
    refers_to: ClassVar[Mapping[str, str]] = {}
    """The nouns of fields that refer to rows without being named so; see `additions.register_references`."""
    more = ""
    """The text of the button that asks for more rows; empty for no button."""
    stake: ClassVar[StakeRule | NoStake | None] = None
    """What the form moves, or why it needs no second operator. See Note [A second operator]."""
    is_abstract: ClassVar[bool] = True
    """The base of other forms, which no page shows. It is not inherited."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.is_abstract = "is_abstract" in vars(cls)
        if cls.stake is None and not cls.is_abstract:
            raise TypeError(f"the form {cls.__qualname__} must say what it moves: stake = StakeRule(...) or NoStake(why)")

    def __init__(self, *args: Any, fixed: Mapping[str, Any] | None = None, actor: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fixed = fixed or {}
        self.actor = actor
        self._offer_reasons()

    def _offer_reasons(self) -> None:
        if self.reasons:
            self.fields["reason"].widget.attrs["list"] = "reasons"

    @property
    def key(self) -> str:
        """The idempotency key that was sent."""
        return str(self.cleaned_data["idempotency_key"])

    def sections(self) -> list[FormSection]:
        """Return the parts of the form in the order of the page."""
        return [FormSection([field for field in self if field.name not in self.folded], self.bound(*self.folded))]

    def set_currencies(self) -> None:
        """Give each field of money its currency: the form's, or that of the field beside it, which begins with the seller's."""
        amounts: dict[str, Any] = {name: field for name, field in self.fields.items() if isinstance(field, HasCurrency)}
        own = self.fields.get(self.currency_field)
        if own is not None and not own.initial:
            own.initial = additions.default_currency()
        for name, amount in amounts.items():
            amount.set_currency(*self.currency_of(name))

    def set_references(self) -> None:
        """Let each text field that refers to rows search among them. See Note [A list that works without scripts]."""
        for name, text in self._texts():
            noun = self.refers_to.get(name) or next((each for each in additions.references() if _names(name, each)), "")
            if noun and type(text.widget) is TextInput:
                text.widget.attrs |= {"list": f"references-{noun}", "autocomplete": "off"}

    def reference_lists(self, may_see: Callable[[str], bool]) -> list[tuple[str, str, Sequence[tuple[str, str]]]]:
        """Return the rows with which the lists of fields begin, as far as the operator may see them: noun, its id, rows."""
        used = {str(text.widget.attrs.get("list", "")) for _, text in self._texts()}
        return [
            (noun, f"references-{noun}", listed.list_rows(""))
            for noun, listed in additions.references().items()
            if f"references-{noun}" in used and (listed.permission is None or may_see(listed.permission))
        ]

    def _texts(self) -> list[tuple[str, forms.Field]]:
        """Return each field and each cell of rows that refers to something, with the name that says to what."""
        rows = [field.columns.values() for field in self.fields.values() if isinstance(field, RowsField)]
        cells = [(str(getattr(cell, "references", "")), cell) for columns in rows for cell in columns]
        named = [(str(getattr(field, "references", "")) or name, field) for name, field in self.fields.items()]
        return [*named, *((noun, cell) for noun, cell in cells if noun)]

    def text_of(self, name: str) -> str:
        """Return the text of a field before it is checked, as the database can be asked for it."""
        return str(self[name].value() or "").strip().replace("\x00", "")

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the currency of a field of money, and the name of the field that has it; empty if it is fixed."""
        if fixed := self.fixed.get("currency"):
            return str(fixed), ""
        if self.currency_field in self.fields:
            return str(self.fields[self.currency_field].to_python(self[self.currency_field].value()) or ""), self.currency_field
        return "", ""

    def bound(self, *names: str) -> list[forms.BoundField]:
        """Return the fields of these names, as far as the form has them."""
        return [self[name] for name in names if name in self.fields]

    def field_of(self, pointer: str) -> str | None:
        """Return the field at which a fault is shown; None: above the form."""
        name = pointer.split("/")[1] if pointer else ""
        return name if name in self.fields else None

    def show(self, errors: Sequence[FieldError]) -> None:
        """Show the faults at the fields, as sentences; a field that has an error already keeps that one."""
        wrong = set(self.errors)
        for error in errors:
            name = self.field_of(error.pointer)
            if name is None or name not in wrong:
                self.add_error(name, self._at_its_row(name, error))

    def _at_its_row(self, name: str | None, error: FieldError) -> str:
        """Return the fault as a sentence; mark the cell to which it belongs."""
        field, detail = self.fields.get(name or ""), sentence(say_labels(error.detail, self.words_at(name or "")))
        if name is None or not isinstance(field, RowsField):
            return detail
        return field.fault_at(unescaped(self.parts_within(name, error.pointer)), self._typed_rows(name, field), detail)

    def words_at(self, name: str) -> dict[str, str]:
        """Return what the form calls the names that a fault at a field may have; the field's own columns and choices first."""
        words: dict[str, str] = {}
        for each in self.fields.values():
            words |= words_within(each)
        words |= {own: label_of(each) for own, each in self.fields.items()}
        return words | (words_within(self.fields[name]) if name in self.fields else {})

    def parts_within(self, name: str, pointer: str) -> Sequence[str]:
        """Return the parts of a fault's pointer within the value of a field."""
        return pointer.split("/")[2:]

    def _typed_rows(self, name: str, field: RowsField) -> TypedRows:
        return field.widget.value_from_datadict(self.data, self.files, self.add_prefix(name))

    def body(self) -> dict[str, Any]:
        """Return the JSON of the typed values, beside reason and key."""
        return {}

    def with_more(self, what: str) -> dict[str, Any]:
        """Return the typed values with which the form is shown again when the operator asks for more rows.

        Args:
            what: the name of a field with rows, or what the form's own button says.
        """
        return with_more_rows(self, what)

    def hidden_values(self) -> dict[str, Any]:
        """Return everything that sends the form again: cleaned values, and the typed text of the others."""
        sent = {
            name: self._typed_rows(name, field)
            if isinstance(field, RowsField)
            else self.cleaned_data.get(name, self.data.get(name))
            for name, field in self.fields.items()
        }
        return {name: self.fields[name].prepare_value(value) for name, value in sent.items()}


class RequestForm(KeyedForm, Generic[RecordT]):
    """A form with fields from the declaration of a request, which checks the typed values as it does over REST."""

    is_abstract = True
    declared: ClassVar[type[Record] | Shape[Any]]
    shows: ClassVar[Mapping[str, Display | forms.Field]]
    """The fields in their order: how each of the request's is shown, and fields that only the form has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shape = self.declared if isinstance(self.declared, Shape) else shape_of(self.declared)
        self.pointers: dict[str, str] = {}
        self._rules: dict[str, str] = {}
        for name, shown in self.shows.items():
            self.fields[name] = self._make_field(name, shown) if isinstance(shown, Display) else deepcopy(shown)
        self.order_fields([*self.shows, *self.fields])
        self._offer_reasons()
        self.set_currencies()
        self.set_references()

    def _make_field(self, name: str, shown: Display) -> forms.Field:
        self.pointers[name] = shown.at or f"/{name}"
        value, required, default = shown.value, bool(shown.required), None
        if value is None:
            _, value, required, default, _ = declared_at(self.shape, self.pointers[name])
        if shown.make is None and self.pointers[name].endswith("_minor") and isinstance(value, Integer):
            shown = replace(shown, make=money)
        # The rule for a name, or for each of several names, in words instead of a pattern.
        self._rules[name] = getattr(value, "rule", "") or getattr(getattr(value, "child", None), "rule", "")
        return made(name, value, shown, required=required, default=default)

    def field_of(self, pointer: str) -> str | None:
        """Return the field of the value that the pointer names, or of an object or list that contains it."""
        for name, own in self.pointers.items():
            if pointer == own or pointer.startswith(f"{own}/"):
                return name
        within = (name for name, own in self.pointers.items() if pointer and own.startswith(f"{pointer}/"))
        return super().field_of(pointer) or next(within, None)

    def words_at(self, name: str) -> dict[str, str]:
        """Return also the names that the request has beside the form's fields, in words."""
        beside = {each: pretty_name(each) for each in names_of(self.shape)}
        shown = {pointer: self.fields[own] for own, pointer in self.pointers.items() if own in self.fields}
        named = {pointer.rpartition("/")[2]: label_of(field) for pointer, field in shown.items()}
        within = words_within(self.fields[name]) if name in self.fields else {}
        return beside | super().words_at("") | named | within

    def parts_within(self, name: str, pointer: str) -> Sequence[str]:
        """Return the parts of a fault's pointer within the value of a field."""
        own = self.pointers.get(name, f"/{name}")
        return pointer[len(own) + 1 :].split("/") if pointer.startswith(f"{own}/") else ()

    def body(self) -> dict[str, Any]:
        """Return the request's JSON: the typed values, without empty fields and objects that lack what they need."""
        body: dict[str, Any] = {}
        for name, pointer in self.pointers.items():
            value = self.cleaned_data.get(name)
            if value not in ("", None, [], {}):
                *parents, last = pointer.split("/")[1:]
                place = body
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = as_json(value)
        _leave_out_lacking(body, self.shape)
        return body

    def _post_clean(self) -> None:
        """Let the declaration read the typed values, and show its errors at their fields."""
        sent = {"idempotency_key": self.cleaned_data.get("idempotency_key"), "reason": self.cleaned_data.get("reason")}
        beside = {name: value for name, value in {**sent, **self.fixed}.items() if name in self.shape.names and value is not None}
        errors: list[FieldError] = []
        taken = self.shape.take_by_attributes(self.body() | beside, "", errors)
        self.show([self._in_words(error) for error in errors])
        if not self.errors:
            if "actor" in self.shape.declared.__dataclass_fields__:
                taken["actor"] = self.actor
            try:
                self._request = self.shape.make(taken)
            except Invalid as error:
                self.show([FieldError(error.facts["pointer"], error.facts["rule"], error.facts["detail"])])

    def _in_words(self, error: FieldError) -> FieldError:
        if error.code == "pattern":
            rule = rule_at(self.shape, error.pointer) or self._rules.get(self.field_of(error.pointer) or "", "")
            return error._replace(detail=f"This must be {rule}.") if rule else error
        if error.detail == METADATA_TOO_LARGE:
            return error._replace(detail="This is too long.")
        return error._replace(detail=TYPES_IN_WORDS.get(error.code, error.detail))

    @property
    def request(self) -> RecordT:
        """The request of a form without errors."""
        return self._request  # type: ignore[return-value]


def declared_at(shape: Shape[Any], pointer: str) -> Field:
    """Return the field of a request, or of an object in it, at that pointer."""
    name, *rest = pointer.split("/")[1:]
    declared_field = next(each for each in shape.fields if each.name == name)
    return (
        declared_at(declared_field.value.shape, "/" + "/".join(rest))
        if rest and isinstance(declared_field.value, Nested)
        else declared_field
    )


def names_of(shape: Shape[Any]) -> set[str]:
    """Return the names of a request's fields, and of those of the objects and lists in it."""
    names: set[str] = set()
    for each in shape.fields:
        inner = getattr(each.value, "shape", None) or getattr(getattr(each.value, "child", None), "shape", None)
        names |= {each.name} | (names_of(inner) if isinstance(inner, Shape) else set())
    return names


def rule_at(shape: Shape[Any], pointer: str) -> str:
    """Return the rule for the text at that pointer of a request, in words; empty if it has none."""
    value: Any = SimpleNamespace(shape=shape)
    for part in pointer.split("/")[1:]:
        inner = getattr(value, "shape", None)
        named = [each.value for each in inner.fields if each.name == part] if isinstance(inner, Shape) else []
        value = named[0] if named else getattr(value, "child", None)
    return getattr(value, "rule", "")


def sentence(detail: str) -> str:
    """Return a fault as a sentence."""
    return f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith(('.', '?')) else '.'}"


def _names(field_name: str, noun: str) -> bool:
    return field_name in (noun, f"{noun}s") or field_name.endswith(f"_{noun}")


def _is_filled_in(field: forms.BoundField) -> bool:
    """Return whether a field has another value than its first one, which may be a text or what the text stands for."""
    value, first = field.value(), field.field.initial
    texts = {str("" if each in (None, []) else each) for each in (first, field.field.prepare_value(first))}
    return str("" if value in (None, []) else value) not in texts


FormT = TypeVar("FormT", bound=KeyedForm)


@dataclass(frozen=True, kw_only=True)
class FormPage(Generic[FormT]):
    """The page of a form: its words, and its operation.

    Args:
        back: where the button "Back" leads.
        fixed: what the request takes beside the form's fields.
        initial: the first values of the form; the address may have other values of its fields.
    """

    form: type[FormT]
    title: str
    button: str
    explanation: str
    back: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)

    template: ClassVar[str] = "admin/ledger/kit/operation.html"
    is_tried: ClassVar[bool] = False
    """Whether there is a dry run. See Note [First what will happen, then done]."""

    def __post_init__(self) -> None:
        if self.form.is_abstract:
            raise TypeError(f"{self.form.__qualname__} is the base of other forms: it does not say what it moves")

    def operation(self, form: FormT) -> Done:
        """Execute a form without errors; return what was done, or raise."""
        raise NotImplementedError

    def dry_run(self, form: FormT) -> DryRun:
        """Return what the operation would do, or raise what it would raise; write nothing."""
        raise NotImplementedError

    def try_out(self, form: FormT, look: Callable[[FormT, Any], Result]) -> Result:
        """Do in a preview what the operation would do, and return what `look` makes of the form and what was written.

        A form with a StakeRule needs it; the others need it not.
        """
        raise NotImplementedError

    def explain(self, error: LedgerError, form: FormT) -> str:
        """Return why it was not done."""
        return describe(error)

    def view(self, model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
        """Show the form; then, with a dry run, what would happen; then execute it and go to the page that shows it."""
        seen: DryRun | None = None
        form = self._form(request)
        approval = getattr(request, "approval", None)
        waits = False
        if form.is_bound and form.is_valid() and "edit" not in request.POST:
            # None: what it moves is not known, so nothing is done.
            totals = self._try(request, form, partial(self._totals, request))
            # A second operator sees what would happen, also of a form that its first operator sends at once.
            if (self.is_tried or approval is not None) and "confirmed" not in request.POST:
                waits = totals is not None and approval is None and approvals.needs_second(totals, form.actor)
                seen = None if totals is None else self._try(request, form, self.dry_run)
            elif totals is not None and (response := self._execute(request, form, totals)) is not None:
                return response
        context = {
            **model_admin.admin_site.each_context(request),
            "opts": model_admin.model._meta,
            "form": form,
            "reference_lists": form.reference_lists(request.user.has_perm),
            "has_dry_run": self.is_tried,
            "approval": approval,
            "waits": NEEDS_SECOND if waits else "",
            **{name: getattr(self, name) for name in ("title", "button", "explanation", "back")},
        }
        if seen is not None:
            context |= {"dry_run": seen, "hidden": [(name, as_typed(value)) for name, value in form.hidden_values().items()]}
            return TemplateResponse(request, "admin/ledger/kit/operation_dry_run.html", context)
        status = 422 if form.is_bound and "edit" not in request.POST else 200
        return TemplateResponse(request, self.template, context, status=status)

    def _totals(self, request: HttpRequest, form: FormT) -> Mapping[str, int]:
        """Return what the form would move; nothing if that does not matter, or if the form was let through before."""
        rule = form.stake
        if not isinstance(rule, StakeRule) or not approvals.limits():
            return {}
        if approvals.is_admitted(form.key, self._digest_of(request, form)):
            return {}
        totals = approvals.totals_of(self.try_out(form, rule.stakes_of))
        approval = getattr(request, "approval", None)
        if approval is not None and approvals.exceeds(totals, approval.stakes):
            raise MoreThanApproved(totals, approval.stakes)
        return totals

    def _execute(self, request: HttpRequest, form: FormT, totals: Mapping[str, int]) -> HttpResponse | None:
        """Execute the form, or have it wait; return the page that shows that, or None if nothing was done."""
        approval = getattr(request, "approval", None)
        operator = form.actor if approval is None else f"{form.actor} with {actor(request)}"

        def let_through(form: FormT) -> bool:
            with locked_transaction(OPERATOR_STAKES(operator)):
                return approvals.admit(
                    key=form.key,
                    form_digest=self._digest_of(request, form),
                    totals=totals,
                    operator=operator,
                    approved=None if approval is None else approval.stakes,
                )

        is_let_through = self._try(request, form, let_through) if totals else True
        if is_let_through is False:
            return self._ask(request, form, totals)
        if is_let_through and (done := self._try(request, form, self.operation)) is not None:
            _record(request, self.title, form, done)
            return HttpResponseRedirect(done.url)
        return None

    def _values(self, form: FormT) -> dict[str, str]:
        return {**{name: as_typed(value) for name, value in form.hidden_values().items()}, "confirmed": "yes"}

    def _digest_of(self, request: HttpRequest, form: FormT) -> bytes:
        # Not over the fields: the first form for a new holder asks for its id twice, the same form sent again does not.
        content = {"body": form.body(), "reason": form.cleaned_data.get("reason") or ""}
        return approvals.digest_of(request.path_info, request.GET.urlencode(), content)

    def _ask(self, request: HttpRequest, form: FormT, totals: Mapping[str, int]) -> HttpResponse:
        """Record the form for a second operator, and show it among those that wait."""
        number = approvals.ask(
            key=form.key,
            title=self.title,
            path=request.path_info,
            query=request.GET.urlencode(),
            form=self._values(form),
            totals=totals,
            reason=str(form.cleaned_data.get("reason") or ""),
            requested_by=form.actor,
        )
        staff_log.record(request, "approval-requested", about=self.title, details=f"approval {number}")
        messages.warning(request, f"Nothing was done yet. {NEEDS_SECOND}")
        return HttpResponseRedirect(reverse("admin:ledger_staff_approval_change", args=[number]))

    def _form(self, request: HttpRequest) -> FormT:
        approval = getattr(request, "approval", None)
        by: dict[str, Any] = {"fixed": self.fixed, "actor": actor(request) if approval is None else approval.requested_by}
        if request.method == "POST" and "more" in request.POST:
            typed = self.form(request.POST, request.FILES, **by)
            return self.form(initial=typed.with_more(request.POST["more"]), **by)
        if request.method == "POST":
            return self.form(request.POST, request.FILES, **by)
        given = {name: value for name, value in request.GET.items() if "\x00" not in value}
        return self.form(initial={**self.initial, **given, "idempotency_key": _new_key()}, **by)

    def _try(self, request: HttpRequest, form: FormT, act: Callable[[FormT], Result]) -> Result | None:
        """Return the result; or None, and then the form and the messages say why nothing was done."""
        try:
            return act(form)
        except Invalid as error:
            form.show([FieldError(error.facts["pointer"], error.facts["rule"], error.facts["detail"])])
        except FieldFaults as error:
            form.show(error.errors)
            # Some faults, such as a name that is taken, are on record under the key.
            _renew_key(form)
        except (Refused, IdempotencyKeyReused) as error:
            messages.error(request, self.explain(error, form))
            _renew_key(form)
        except MoreThanApproved as error:
            messages.error(request, str(error))
        except Retryable as error:
            messages.warning(request, f"{self.explain(error, form)}. Nothing was written; press the button again.")
        except OutcomeUnknown:
            messages.warning(
                request,
                "The connection broke, so the outcome is unknown. Press the button again; the ledger executes it only once.",
            )
        return None


def _record(request: HttpRequest, title: str, form: KeyedForm, done: Done) -> None:
    """Report what was done to the operator, and once to the staff log."""
    if not done.is_replayed:
        reason = form.cleaned_data.get("reason")
        details = f"{done.what}: {done.detail}{f'; reason: {reason}' if reason else ''}"
        staff_log.record(request, "form", about=title, details=details)
    how = "was already done by the first click" if done.is_replayed else "is done"
    messages.success(request, f"{done.what} {how}: {done.detail}.")


def _new_key() -> str:
    return f"admin-{secrets.token_hex(16)}"


def _renew_key(form: KeyedForm) -> None:
    form.data = form.data.copy()  # type: ignore[attr-defined]
    form.data["idempotency_key"] = _new_key()  # type: ignore[index]


def _leave_out_lacking(body: dict[str, Any], shape: Shape[Any]) -> None:
    """Remove the optional objects, at any depth, in which the operator filled in nothing that they need."""
    for each in shape.fields:
        if isinstance(each.value, Nested) and isinstance(body.get(each.name), dict):
            _leave_out_lacking(body[each.name], each.value.shape)
            needed = {item.name for item in each.value.shape.fields if item.required}
            if not each.required and needed and needed.isdisjoint(body[each.name]):
                del body[each.name]
