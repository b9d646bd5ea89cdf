"""The paths that `ledger.staff` is needed for: the operators' pages."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from ledger.operators import additions
from ledger.staff.search import find_anything
from ledger_project.monitoring import work_checks
from ledger_project.operators import alert_rules, preferences, request_rates, two_step_pages

admin.autodiscover()
additions.register_attention(work_checks.disk_attention)

urlpatterns: list[URLPattern | URLResolver] = [
    # Instead of unfold's, which keeps what it found for five minutes and asks in lower case.
    path("admin/search/", admin.site.admin_view(find_anything)),
    path("admin/preferences/", admin.site.admin_view(preferences.page), name="preferences"),
    path("admin/monitoring-alerts/", admin.site.admin_view(alert_rules.page), name=alert_rules.NAME),
    path("admin/requests/", admin.site.admin_view(request_rates.page), name=request_rates.NAME),
    path("admin/two-step/", admin.site.admin_view(two_step_pages.page), name="two-step"),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
]
