"""The paths of the calls about signals."""

from django.urls import URLPattern, path

from ledger.rest import paths  # noqa: F401 - registers the converters
from ledger.signals import alert_calls, webhook_calls

urlpatterns: list[URLPattern] = [
    path("webhooks", webhook_calls.Webhooks.as_view()),
    path("webhooks/<sequence:webhook>", webhook_calls.OneWebhook.as_view()),
    path("webhooks/<sequence:webhook>/rotate", webhook_calls.Rotation.as_view()),
    path("webhooks/<sequence:webhook>/ping", webhook_calls.Ping.as_view()),
    path("webhooks/<sequence:webhook>/deliveries", webhook_calls.Deliveries.as_view()),
    path("webhooks/<sequence:webhook>/deliveries/<uuid:signal>", webhook_calls.OneDelivery.as_view()),
    path("webhooks/<sequence:webhook>/deliveries/<uuid:signal>/resend", webhook_calls.Resending.as_view()),
    path("alerts", alert_calls.Alerts.as_view()),
    path("alerts/<budget:alert>", alert_calls.OneAlert.as_view()),
    path("alerts/<budget:alert>/accounts", alert_calls.AlertAccounts.as_view()),
]
