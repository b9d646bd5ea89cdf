"""All paths. `ledger.api.kit.front.application` serves those of the API; Django serves the others in its usual way."""

from importlib.util import find_spec
from typing import Any, NoReturn

from csp.constants import SELF
from csp.decorators import csp_replace
from django.apps import apps
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from ledger.admin.search import find_anything
from ledger.api.calls.health import Health, Readiness
from ledger.api.kit import problems
from ledger.api.kit.request_errors import MethodNotAllowed
from ledger.operators import additions
from ledger_project.api.documents import ProblemPage, Resources, Schema
from ledger_project.monitoring import work_checks
from ledger_project.monitoring.metrics_page import Metrics
from ledger_project.operators import alert_rules, preferences, two_step_pages

admin.autodiscover()
additions.register_attention(work_checks.disk_attention)

_customer_page = [path("c/", include("ledger.portal.urls"))] if apps.is_installed("ledger.portal") else []
_billing = [path("v1/", include("billing.api.urls"))] if find_spec("billing.api.urls") else []


class Lead(RedirectView):
    """Leads to the documentation."""

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Respond as the API does; also to TRACE and other methods that are hardly ever sent."""
        return problems.problem_response(MethodNotAllowed(method=request.method or "", allowed=["GET", "HEAD"]), request)


def no_such_page(request: HttpRequest, page: str) -> NoReturn:
    """The built docs are served before any view is called (`ledger_project.serving.static_files`)."""
    raise Http404


# Where the docs are not built, the API reference is all there is.
_lead_to_reference = Lead.as_view(url="/docs/api")
# The scripts of Swagger UI come as files, and none of them evaluates text.
_docs = csp_replace({"script-src": [SELF]})(SpectacularSwaggerSplitView.as_view(url_name="schema"))

urlpatterns = [
    path("v1/", include("ledger.api.urls")),
    *_billing,
    path("v1", Resources.as_view()),
    path("v1/", Resources.as_view()),
    path("v1/schema", Schema.as_view(), name="schema"),
    path("healthz", Health.as_view()),
    path("readyz", Readiness.as_view()),
    path("metrics", Metrics.as_view()),
    path("problems/<slug:slug>", ProblemPage.as_view()),
    *_customer_page,
    path("docs/api", _docs, name="api-reference"),
    path("docs", _lead_to_reference),
    path("docs/", _lead_to_reference),
    path("docs/<path:page>", no_such_page),
    # Instead of unfold's, which keeps what it found for five minutes and asks in lower case.
    path("admin/search/", admin.site.admin_view(find_anything)),
    path("admin/preferences/", admin.site.admin_view(preferences.page), name="preferences"),
    path("admin/monitoring-alerts/", admin.site.admin_view(alert_rules.page), name=alert_rules.NAME),
    path("admin/two-step/", admin.site.admin_view(two_step_pages.page), name="two-step"),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("", Lead.as_view(url="/docs")),
]

handler400 = "ledger_project.api.error_handlers.bad_request"
handler403 = "ledger_project.api.error_handlers.permission_denied"
handler404 = "ledger_project.api.error_handlers.page_not_found"
handler500 = "ledger_project.api.error_handlers.server_error"
