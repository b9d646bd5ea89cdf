"""The paths of the calls about signals."""

from django.urls import URLPattern, path

from ledger.api import paths  # noqa: F401 - registers the converters
from ledger.signals.api import alerts, webhooks

urlpatterns: list[URLPattern] = [
    path("webhooks", webhooks.Webhooks.as_view()),
    path("webhooks/<sequence:webhook>", webhooks.OneWebhook.as_view()),
    path("webhooks/<sequence:webhook>/rotate", webhooks.Rotation.as_view()),
    path("webhooks/<sequence:webhook>/ping", webhooks.Ping.as_view()),
    path("webhooks/<sequence:webhook>/deliveries", webhooks.Deliveries.as_view()),
    path("webhooks/<sequence:webhook>/deliveries/<uuid:signal>", webhooks.OneDelivery.as_view()),
    path("webhooks/<sequence:webhook>/deliveries/<uuid:signal>/resend", webhooks.Resending.as_view()),
    path("alerts", alerts.Alerts.as_view()),
    path("alerts/<budget:alert>", alerts.OneAlert.as_view()),
    path("alerts/<budget:alert>/accounts", alerts.AlertAccounts.as_view()),
]
