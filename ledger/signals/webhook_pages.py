"""Webhooks, what they got or will get, and each attempt; signals are sent again, webhooks enabled and disabled."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse

from ledger.operators import staff_log
from ledger.signals import reads
from ledger.signals.errors import WebhookNotFound
from ledger.signals.models import Webhook
from ledger.signals.permissions import RESEND_SIGNAL, SWITCH_WEBHOOK, VIEW_WEBHOOK
from ledger.signals.webhooks import ResendRequest, WebhookChangeRequest, change_webhook, resend
from ledger.staff.kit import columns
from ledger.staff.kit.cells import link, mono, row_url, timestamp
from ledger.staff.kit.columns import Column, shortened, table_of
from ledger.staff.kit.pages import ReadOnlyAdmin, actor, form_page, guarded, operation
from ledger.values import encode_json

STATE_COLOURS = {"enabled": "success", "failing": "warning", "disabled": "danger"}
DELIVERIES_SHOWN = 50


def _time(text: str | None) -> Any:
    return "" if text is None else timestamp(datetime.fromisoformat(text))


def _state(row: Any) -> str:
    return "disabled" if row.disabled_at else "failing" if row.failing_since else "enabled"


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    """The webhooks that were not removed. Their secrets are on no page."""

    address = Column("URL", lambda row: shortened(row.url, most=60), "url")
    types_text = Column("Types", lambda row: ", ".join(row.types))
    holder = Column("Holder", lambda row: row.holder_id or "all holders")
    created = columns.instant("Created", "created_at")
    state = columns.badge("State", _state, STATE_COLOURS)
    failing = Column("Failing since", lambda row: timestamp(row.failing_since) or "-")
    disabled = Column("Disabled", lambda row: timestamp(row.disabled_at) or "no")
    because = Column("Because", lambda row: row.disabled_because or "-")
    rotated = Column("Secret rotated", lambda row: timestamp(row.rotated_at) or "never")

    list_display = ("address", "types_text", "holder", "description", "created", "created_by", "state")
    fieldsets = (
        (None, {"fields": (("address", "state"), ("types_text", "holder"), ("description",))}),
        ("History", {"fields": (("created", "created_by"), ("failing", "rotated"), ("disabled", "because"))}),
    )
    actions_detail = ("enable", "disable")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Webhook]:
        """Return those that were not removed."""
        return super().get_queryset(request).filter(removed_at=None)

    def get_urls(self) -> list[URLPattern]:
        """Return the pages, with that of a delivery."""
        route = "<int:webhook>/deliveries/<uuid:signal>/"
        return [
            guarded(self, route, self.delivery_view, name="ledger_delivery", permission=VIEW_WEBHOOK),
            *super().get_urls(),
        ]

    def prepare(self, rows: Any) -> None:
        """Give the rows the time since when they fail."""
        failing = reads.failing_since([row.pk for row in rows])
        for row in rows:
            row.failing_since = failing.get(row.pk)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the newest deliveries."""
        deliveries = reads.deliveries(row.pk, limit=DELIVERIES_SHOWN)
        return {"title": f"Webhook {row.pk}", "parts": [("Newest deliveries", _deliveries_table(row.pk, deliveries))]}

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide what would change nothing."""
        row = self.row_of(request, object_id)
        return ["disable"] if row.disabled_at else ["enable"]

    @operation("Enable", icon="play_arrow", permission=SWITCH_WEBHOOK)
    def enable(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then enable the webhook."""
        return self._switch(request, object_id, enabled=True)

    @operation("Disable", icon="pause", permission=SWITCH_WEBHOOK)
    def disable(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask, then disable the webhook."""
        return self._switch(request, object_id, enabled=False)

    def _switch(self, request: HttpRequest, object_id: str, *, enabled: bool) -> HttpResponse:
        row = self.row_of(request, object_id)
        back = row_url(Webhook, row.pk)
        if request.method == "POST":
            with staff_log.during(request):
                change_webhook(WebhookChangeRequest(webhook=row.pk, enabled=enabled, actor=actor(request)))
            messages.success(request, f"The webhook is {'enabled' if enabled else 'disabled'}.")
            return HttpResponseRedirect(back)
        what = "The ledger sends what was kept for it, in order." if enabled else "The ledger keeps its signals and sends none."
        word = "Enable" if enabled else "Disable"
        title = f"{word} webhook {row.pk}"
        return form_page(request, forms.Form(), title=title, button=word, explanation=what, back=back, opts=self.opts)

    def delivery_view(self, request: HttpRequest, webhook: int, signal: UUID) -> HttpResponseBase:
        """Show a signal with its attempts, or send it again."""
        here = reverse("admin:ledger_delivery", args=[webhook, signal])
        try:
            if request.method == "POST":
                return self._sent_again(request, webhook, signal, here)
            delivery = reads.delivery(webhook, signal)
        except WebhookNotFound as error:
            raise Http404 from error
        context = {
            **self.admin_site.each_context(request),
            "title": f"Signal {delivery['type']}",
            "opts": self.opts,
            "facts": _facts(delivery),
            "payload": encode_json(delivery["payload"]),
            "attempts": _attempts_table(delivery["tried"]),
            "may_send": request.user.has_perm(RESEND_SIGNAL),
            "back": row_url(Webhook, webhook),
        }
        return TemplateResponse(request, "admin/ledger/signals/delivery.html", context)

    def _sent_again(self, request: HttpRequest, webhook: int, signal: UUID, here: str) -> HttpResponse:
        if not request.user.has_perm(RESEND_SIGNAL):
            return HttpResponse(status=403)
        with staff_log.during(request):
            resend(ResendRequest(webhook=webhook, signal=signal, actor=actor(request)))
        messages.success(request, "The next round of a worker sends the signal again, with the same id.")
        return HttpResponseRedirect(here)


def _deliveries_table(webhook: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    def page(row: dict[str, Any]) -> Any:
        return link(reverse("admin:ledger_delivery", args=[webhook, row["signal"]]), row["type"])

    return table_of(
        found,
        ("Signal", page),
        ("Holder", lambda row: row["holder_id"] or "-"),
        ("Occurred", lambda row: _time(row["occurred_at"])),
        ("State", lambda row: row["state"].replace("_", " ")),
        ("Attempts", lambda row: row["attempts"]),
        ("Next attempt", lambda row: _time(row["next_attempt_at"]) or "-"),
    )


def _facts(found: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        ("Id", mono(found["signal"])),
        ("Holder", found["holder_id"] or "none"),
        ("Occurred", _time(found["occurred_at"])),
        ("State", found["state"].replace("_", " ")),
        ("Attempts", found["attempts"]),
        ("Next attempt", _time(found["next_attempt_at"]) or "none"),
    ]


def _attempts_table(tried: list[Any]) -> dict[str, Any]:
    return table_of(
        tried,
        ("Sent", lambda row: _time(row["started_at"])),
        ("Took", lambda row: f"{row['took_ms']:,} ms"),
        ("Status", lambda row: row["status"] or ("no answer" if row["error"] else "-")),
        ("Error", lambda row: row["error"] or "-"),
        ("Answer", lambda row: shortened(row["response"], most=80)),
    )
