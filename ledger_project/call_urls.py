"""The paths that `ledger.rest` is needed for: the API, its document and reference, the probes and metrics.

`ledger.rest.kit.front.application` serves the calls; Django serves the others in its usual way.
"""

from importlib.util import find_spec
from typing import Any, NoReturn

from csp.constants import SELF
from csp.decorators import csp_replace
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from ledger.rest.calls.health import Health, Readiness
from ledger.rest.kit import problems
from ledger.rest.kit.request_errors import MethodNotAllowed
from ledger_project.api.documents import ProblemPage, ReferenceSchema, Resources, Schema
from ledger_project.monitoring.metrics_page import Metrics

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
_docs = csp_replace({"script-src": [SELF]})(SpectacularSwaggerSplitView.as_view(url_name="api-reference-schema"))

urlpatterns: list[URLPattern | URLResolver] = [
    path("v1/", include("ledger.rest.urls")),
    *_billing,
    path("v1", Resources.as_view()),
    path("v1/", Resources.as_view()),
    path("v1/schema", Schema.as_view(), name="schema"),
    path("healthz", Health.as_view()),
    path("readyz", Readiness.as_view()),
    path("metrics", Metrics.as_view()),
    path("problems/<slug:slug>", ProblemPage.as_view()),
    path("docs/api", _docs, name="api-reference"),
    path("docs/api.json", ReferenceSchema.as_view(), name="api-reference-schema"),
    path("docs", _lead_to_reference),
    path("docs/", _lead_to_reference),
    path("docs/<path:page>", no_such_page),
    path("", Lead.as_view(url="/docs")),
]
