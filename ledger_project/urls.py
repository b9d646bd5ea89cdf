"""All paths: those of the API, of the customer's page and of the admin."""

from django.apps import apps
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from ledger.admin.search import find_anything
from ledger.operators import additions
from ledger_project.monitoring import work_checks
from ledger_project.operators import alert_rules, preferences, request_rates, two_step_pages

admin.autodiscover()
additions.register_attention(work_checks.disk_attention)

_calls: list[URLPattern | URLResolver] = [path("", RedirectView.as_view(pattern_name="admin:index"))]
if apps.is_installed("ledger.rest"):
    from ledger_project.call_urls import urlpatterns as _calls

_customer_page = [path("c/", include("ledger.portal.urls"))] if apps.is_installed("ledger.portal") else []

urlpatterns = [
    *_calls,
    *_customer_page,
    # Instead of unfold's, which keeps what it found for five minutes and asks in lower case.
    path("admin/search/", admin.site.admin_view(find_anything)),
    path("admin/preferences/", admin.site.admin_view(preferences.page), name="preferences"),
    path("admin/monitoring-alerts/", admin.site.admin_view(alert_rules.page), name=alert_rules.NAME),
    path("admin/requests/", admin.site.admin_view(request_rates.page), name=request_rates.NAME),
    path("admin/two-step/", admin.site.admin_view(two_step_pages.page), name="two-step"),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
]

handler400 = "ledger_project.api.error_handlers.bad_request"
handler403 = "ledger_project.api.error_handlers.permission_denied"
handler404 = "ledger_project.api.error_handlers.page_not_found"
handler500 = "ledger_project.api.error_handlers.server_error"
