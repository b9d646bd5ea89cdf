"""API keys: made here and shown once; rotated and revoked, never deleted."""

import json
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from ledger.errors import Invalid, OutcomeUnknown
from ledger.keys import api_keys
from ledger.keys.api_keys import Labels
from ledger.keys.errors import KeyEnded, KeyNameTaken, KeyRotating
from ledger.keys.models import ApiKey
from ledger.keys.permissions import REVOKE_APIKEY, ROTATE_APIKEY
from ledger.operators import staff_log
from ledger.operators.permissions import VIEW_ACCOUNT
from ledger.reads import Balance
from ledger.records import declared_fields
from ledger.staff.kit import columns
from ledger.staff.kit.cells import row_url, timestamp
from ledger.staff.kit.columns import Column
from ledger.staff.kit.form_fields import Display, made
from ledger.staff.kit.pages import ReadOnlyAdmin, actor, form_page, operation
from ledger.staff.kit.rows import KeysField, text_cell, with_more_rows
from ledger.staff.links import holder_url
from ledger.units import unit_of
from ledger.values import CREDIT_TYPE, Choice, ListOf


def _scope_boxes(scopes: ListOf, shown: Display) -> forms.Field:
    assert isinstance(scopes.child, Choice)
    choices = [(scope, scope) for scope in scopes.child.choices]
    return forms.MultipleChoiceField(choices=choices, widget=UnfoldAdminCheckboxSelectMultipleWidget())


def _label_rows(labels: Labels, shown: Display) -> forms.Field:
    cells = {"name": text_cell("Label", placeholder="member"), "value": text_cell("Value", placeholder="ada")}
    return KeysField(cells, noun="Label")


NEW_KEY = {
    "name": Display(help="The ledger records the key's operations under key: and this name."),
    "scopes": Display(make=_scope_boxes),
    "holder_id": Display(label="Holder", help="The only holder that the key can use; empty for all holders."),
    "labels": Display(
        make=_label_rows,
        help="All that the key writes carries them, it can name no other values, and it sees only entries that carry them.",
    ),
    "expires_at": Display(help="The time, in UTC, from which the API refuses the key; empty for never."),
    "requests_per_second": Display(help="How many calls a second one process accepts; empty for the settings' limit."),
    "concurrent_requests": Display(help="How many calls at the same time one process accepts; empty for the settings' limit."),
}
FORMER_UNTIL = Display(
    label="Present secret valid until",
    help="In UTC. Empty: every earlier secret ends at once, and a program that still uses one gets 401.",
)
STATE_COLOURS = {"active": "success", "expired": "warning", "revoked": "danger"}
LOST_KEY = (
    "The connection broke, so the outcome is unknown. If the list has a new key of this name, revoke it, because its text is "
    "lost. Then create a key of another name."
)
LOST_ROTATION = (
    "The connection broke, so the outcome is unknown. If this page says that the key was rotated, the new secret is lost. Give "
    "programs another key before the former secret ends."
)
LOST_REVOCATION = (
    "The connection broke, so the outcome is unknown. If this page does not say that the key is revoked, revoke it again."
)


class KeyForm(forms.Form):
    """The form of a new key."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = {each.name: each for each in declared_fields(api_keys.ApiKeyRequest)}
        for name, shown in NEW_KEY.items():
            self.fields[name] = made(name, declared[name].value, shown, required=declared[name].required)


def revocation_text(key: ApiKey) -> str:
    """Return when the key was revoked and by whom, as far as that was recorded; empty if it was not."""
    by = f" by {key.revoked_by}" if key.revoked_by else ""
    return f"{timestamp(key.revoked_at)}{by}" if key.revoked_at else ""


def limits_text(key: ApiKey) -> str:
    """Return the key's own limits in words."""
    own = [
        *([f"{key.requests_per_second:,} a second"] if key.requests_per_second else []),
        *([f"{key.concurrent_requests:,} at the same time"] if key.concurrent_requests else []),
    ]
    return ", ".join(own) or "those of the settings"


TRIED_SCOPES: Final = ("ledger:spend", "ledger:read")
"""The scopes of a key for the calls that the page of a new key shows."""
ANY_HOLDER: Final = "HOLDER"
"""Stands in these calls for the holder, where the key is for all holders."""


def key_for_holder_view(model_admin: ReadOnlyAdmin, request: HttpRequest, account: Balance) -> HttpResponse:
    """Lead to the form of a key that reads and spends the credits of this holder. The key's page shows calls for this account."""
    asked = {"holder_id": account.holder_id, "credit_type": account.credit_type, "scopes": TRIED_SCOPES}
    return HttpResponseRedirect(f"{reverse('admin:ledger_keys_apikey_add')}?{urlencode(asked, doseq=True)}")


def _initial_values(request: HttpRequest) -> dict[str, Any]:
    """Return the values with which the form of a new key begins, as the link to it says."""
    return {"holder_id": request.GET.get("holder_id", ""), "scopes": request.GET.getlist("scopes")}


class FirstCall(NamedTuple):
    """A call for a terminal: what it does in words, its name on the page, and its text, which reads the key from LEDGER_KEY."""

    words: str
    name: str
    text: str


def first_calls(request: HttpRequest, key: ApiKey) -> list[FirstCall]:
    """Return calls that a new key can send, in the credit type that the address of its form names.

    Returns:
        no calls if the key has not their scopes, or if the project does not serve the API.
    """
    holder = key.holder_id or ANY_HOLDER
    try:
        account = request.build_absolute_uri(reverse("ledger-spends", args=[holder])).removesuffix("/spends")
    except NoReverseMatch:
        return []
    asked = request.GET.get("credit_type", "")
    credit_type = asked if CREDIT_TYPE.fullmatch(asked) else "credits"
    named = {} if credit_type == "credits" else {"credit_type": credit_type}
    body = json.dumps({"amount": 1, **named, "reference": "first call"})
    query = f"?{urlencode(named)}" if named else ""
    head = 'curl -s -H "Authorization: Bearer $LEDGER_KEY"'
    write = f"{head} -H 'Content-Type: application/json' -H 'Idempotency-Key: first-call-{key.prefix}'"
    one = unit_of(credit_type).amount(1)
    calls = {
        "ledger:spend": FirstCall(f"Spend {one} of {holder}", "spend", f"{write} -d '{body}' '{account}/spends'"),
        "ledger:read": FirstCall(f"Read the balance of {holder}", "balance", f"{head} '{account}/balance{query}'"),
    }
    return [calls[scope] for scope in TRIED_SCOPES if scope in key.granted_scopes]


class RotationForm(forms.Form):
    """How long the present secret stays valid beside the new one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        value = next(each.value for each in declared_fields(api_keys.RotationRequest) if each.name == "former_until")
        self.fields["former_until"] = made("former_until", value, FORMER_UNTIL)
        self.fields["former_until"].initial = f"{timezone.now() + timedelta(days=1):%Y-%m-%dT%H:%M}"


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """The API keys. The text of a key exists only on the page that is shown when it is made."""

    prefix_text = columns.code("Begins with", lambda row: f"{row.prefix}…")
    scopes_text = Column("Scopes", lambda row: ", ".join(row.granted_scopes))
    holder = Column("Confined to", lambda row: row.holder_id or "all holders")
    labels_as_text = Column("Labels", lambda row: row.labels_text or "-")
    created = columns.instant("Created", "created_at")
    revoked = Column("Revoked", lambda row: revocation_text(row) or "no")
    expires = Column("Expires", lambda row: timestamp(row.expires_at) or "never")
    limits = Column("Limits", limits_text)
    rotated = Column("Rotated", lambda row: timestamp(row.rotated_at) or "never")
    former = Column("Former secret valid until", lambda row: timestamp(row.former_until) or "-")
    used = Column("Last used", lambda row: timestamp(row.last_used_at) or "never")
    state = columns.badge("State", lambda row: row.state, STATE_COLOURS)

    list_display = ("name", "prefix_text", "scopes_text", "holder", "limits", "created", "created_by", "used", "expires", "state")
    fieldsets = (
        (None, {"fields": (("name", "state"), ("prefix_text", "holder"), ("scopes_text", "limits"), ("labels_as_text",))}),
        ("History", {"fields": (("created", "created_by"), ("used", "rotated"), ("former", "expires"), ("revoked",))}),
    )
    actions_detail = ("rotate", "revoke")

    def create_view(self, request: HttpRequest) -> HttpResponse:
        """Make a key, and show it in this one response; it is stored nowhere, not even in the session."""
        form = KeyForm(request.POST or None, initial=_initial_values(request))
        if "more" in request.POST:
            form = KeyForm(initial=with_more_rows(form, request.POST["more"]))
        elif request.method == "POST" and form.is_valid():
            try:
                given = {name: value for name, value in form.cleaned_data.items() if value not in (None, "", {})}
                with staff_log.during(request):
                    stored, secret = api_keys.create_api_key(**given, actor=actor(request))
            except KeyNameTaken as error:
                form.add_error("name", error.answer.detail.format(**error.facts))
            except Invalid as error:
                field = error.facts["pointer"].removeprefix("/")
                form.add_error(field if field in form.fields else None, error.facts["detail"])
            except OutcomeUnknown:
                form.add_error(None, LOST_KEY)
            else:
                return self._shown_once(request, stored, secret)
        return form_page(
            request,
            form,
            title="New API key",
            button="Create the key",
            explanation="The next page shows the key once.",
            back=reverse("admin:ledger_keys_apikey_changelist"),
            opts=self.opts,
        )

    def _shown_once(self, request: HttpRequest, stored: ApiKey, secret: str) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"API key {stored.name}",
            "stored": stored,
            "secret": secret,
            "calls": first_calls(request, stored),
            "any_holder": "" if stored.holder_id else ANY_HOLDER,
            "holder_url": holder_url(stored.holder_id) if stored.holder_id and request.user.has_perm(VIEW_ACCOUNT) else "",
        }
        response = TemplateResponse(request, "admin/ledger/keys/api_key_made.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @operation("Rotate", icon="autorenew", permission=ROTATE_APIKEY)
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the key another secret, and show it in this one response."""
        key = self.row_of(request, object_id)
        form = RotationForm(request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            try:
                with staff_log.during(request):
                    rotated, secret = api_keys.rotate_api_key(
                        id=key.pk, former_until=form.cleaned_data["former_until"], actor=actor(request)
                    )
            except Invalid as error:
                form.add_error("former_until", error.facts["detail"])
            except (KeyEnded, KeyRotating) as error:
                form.add_error(None, error.answer.detail.format(**error.facts))
            except OutcomeUnknown:
                form.add_error(None, LOST_ROTATION)
            else:
                return self._shown_once(request, rotated, secret)
        return form_page(
            request,
            form,
            title=f"Rotate API key {key}",
            button="Rotate",
            explanation="The key gets a new secret, which the next page shows once. Scopes, holder, expiry and limits stay.",
            back=row_url(ApiKey, key.pk),
            opts=self.opts,
        )

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the rotation of a key that has ended, and the revocation of a revoked key."""
        key: ApiKey | None = self.get_object(request, unquote(object_id))
        ended = {"revoked": ["rotate", "revoke"], "expired": ["rotate"]}
        return [] if key is None else ended.get(key.state, [])

    @operation("Revoke", icon="block", permission=REVOKE_APIKEY)
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then revoke the key."""
        key = self.get_object(request, unquote(object_id))
        if key is None:
            return HttpResponseRedirect(reverse("admin:ledger_keys_apikey_changelist"))
        if request.method == "POST":
            try:
                with staff_log.during(request):
                    api_keys.revoke_api_key(key, actor=actor(request))
            except OutcomeUnknown:
                messages.warning(request, LOST_REVOCATION)
                return HttpResponseRedirect(row_url(ApiKey, key.pk))
            messages.success(request, f"The key {key} is revoked.")
            return HttpResponseRedirect(row_url(ApiKey, key.pk))
        return form_page(
            request,
            forms.Form(),
            title=f"Revoke API key {key}",
            button="Revoke",
            explanation=(
                "The ledger refuses all further requests with this key"
                + (", and with the keys that it has made" if key.labels else "")
                + ". You cannot undo this."
            ),
            back=row_url(ApiKey, key.pk),
            opts=self.opts,
        )
