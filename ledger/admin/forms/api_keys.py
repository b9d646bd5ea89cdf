"""API keys: made here and shown once; revoked, never deleted."""

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminTextInputWidget

from ledger import services, staff_log
from ledger.admin.kit import columns
from ledger.admin.kit.cells import row_url, timestamp
from ledger.admin.kit.columns import Column
from ledger.admin.kit.pages import ReadOnlyAdmin, actor, form_page, operation
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid, OutcomeUnknown
from ledger.models import SCOPES, ApiKey

STATE_COLOURS = {"active": "success", "revoked": "danger"}
LOST_KEY = (
    "The connection broke, so the outcome is unknown. If the list has a new key of this name, revoke it, because its text is "
    "lost. Then create a key of another name."
)
LOST_REVOCATION = (
    "The connection broke, so the outcome is unknown. If this page does not say that the key is revoked, revoke it again."
)


class KeyForm(forms.Form):
    """What a new key is for."""

    name = forms.CharField(
        max_length=100,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="The ledger records the key's operations under key: and this name.",
    )
    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in SCOPES], widget=UnfoldAdminCheckboxSelectMultipleWidget()
    )
    holder_id = forms.CharField(
        label="Holder",
        required=False,
        max_length=64,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="The only holder that the key can use; empty for all holders.",
    )


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """Who may call the API. A key's text exists only on the page that is shown when it is made."""

    prefix_text = columns.code("Begins with", lambda row: f"{row.prefix}…")
    scopes_text = Column("Scopes", lambda row: ", ".join(row.granted_scopes))
    holder = Column("Confined to", lambda row: row.holder_id or "all holders")
    created = columns.instant("Created", "created_at")
    revoked = Column("Revoked", lambda row: timestamp(row.revoked_at) or "no")
    state = columns.badge("State", lambda row: "active" if row.revoked_at is None else "revoked", STATE_COLOURS)

    list_display = ("name", "prefix_text", "scopes_text", "holder", "created", "created_by", "state")
    fieldsets = (
        (None, {"fields": (("name", "state"), ("prefix_text", "holder"), "scopes_text")}),
        ("History", {"fields": (("created", "created_by"), "revoked")}),
    )
    actions_detail = ("revoke",)

    def create_view(self, request: HttpRequest) -> HttpResponse:
        """Make a key, and show it in this one response: it is kept nowhere, not even in the session."""
        form = KeyForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                stored, secret = services.create_api_key(
                    name=form.cleaned_data["name"],
                    scopes=form.cleaned_data["scopes"],
                    holder_id=form.cleaned_data["holder_id"] or None,
                    actor=actor(request),
                )
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
            back=reverse("admin:ledger_apikey_changelist"),
            opts=self.opts,
        )

    def _shown_once(self, request: HttpRequest, stored: ApiKey, secret: str) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "title": f"API key {stored.name}", "stored": stored, "secret": secret}
        response = TemplateResponse(request, "admin/ledger/forms/api_key_made.html", context)
        response["Cache-Control"] = "no-store"
        return response

    @operation("Revoke", icon="block", permission="ledger.revoke_apikey")
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then make the key worthless."""
        key = self.get_object(request, unquote(object_id))
        if key is None:
            return HttpResponseRedirect(reverse("admin:ledger_apikey_changelist"))
        if request.method == "POST":
            if key.revoked_at is None:
                try:
                    with own_or_joined():
                        services.revoke_api_key(key)
                        staff_log.record(request, "key-revoked", about=f"key {key.name}")
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
            explanation="The ledger refuses all further requests with this key. You cannot undo this.",
            back=row_url(ApiKey, key.pk),
            opts=self.opts,
        )
