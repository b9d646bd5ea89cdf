"""Where everything is. API paths are served by `ledger.api.kit.front.application`, the others by Django's usual way."""

from importlib.util import find_spec
from typing import Any

from csp.constants import SELF
from csp.decorators import csp_replace
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from ledger import operator_pages
from ledger.admin.home.search import find_anything
from ledger.api.health import Health, Readiness
from ledger.api.kit.request_errors import MethodNotAllowed
from ledger.api.kit.writing import problems
from ledger_project.api.documents import ProblemPage, Resources, Schema
from ledger_project.monitoring import work_checks
from ledger_project.monitoring.metrics_page import Metrics
from ledger_project.operators import preferences
from ledger_project.operators.login import two_step_pages

admin.autodiscover()
operator_pages.register_attention(work_checks.disk_attention)

_billing = [path("v1/", include("billing.api.urls"))] if find_spec("billing.api.urls") else []


class Root(RedirectView):
    """Leads to the API's documentation."""

    url = "/docs"

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Respond as the API does; also to TRACE and other methods that are hardly ever sent."""
        return problems.problem_response(MethodNotAllowed(method=request.method, allowed=["GET", "HEAD"]), request)


# The scripts of Swagger UI come as files, and none of them evaluates text.
_docs = csp_replace({"script-src": [SELF]})(SpectacularSwaggerSplitView.as_view(url_name="schema"))

urlpatterns = [
    path("v1/", include("ledger.api.urls")),
    *_billing,
    path("v1/", Resources.as_view()),
    path("v1/schema", Schema.as_view(), name="schema"),
    path("healthz", Health.as_view()),
    path("readyz", Readiness.as_view()),
    path("metrics", Metrics.as_view()),
    path("problems/<slug:slug>", ProblemPage.as_view()),
    path("docs", _docs),
    # Instead of unfold's, which keeps what it found for five minutes and asks in lower case.
    path("admin/search/", admin.site.admin_view(find_anything)),
    path("admin/preferences/", admin.site.admin_view(preferences.page), name="preferences"),
    path("admin/two-step/", admin.site.admin_view(two_step_pages.page), name="two-step"),
    path("admin/", admin.site.urls),
    path("", Root.as_view()),
]

handler400 = "ledger_project.api.error_handlers.bad_request"
handler403 = "ledger_project.api.error_handlers.permission_denied"
handler404 = "ledger_project.api.error_handlers.page_not_found"
handler500 = "ledger_project.api.error_handlers.server_error"
