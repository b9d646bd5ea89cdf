"""Where everything is. API paths are answered by `ledger_project.api_path`, the others by Django's usual way."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerView

from ledger.api.health import Health, Readiness
from ledger_project.documents import ProblemPage, Schema

admin.autodiscover()

_billing = [path("v1/", include("billing.api.urls"))] if find_spec("billing.api.urls") else []

urlpatterns = [
    path("v1/", include("ledger.api.urls")),
    *_billing,
    path("v1/schema", Schema.as_view(), name="schema"),
    path("healthz", Health.as_view()),
    path("readyz", Readiness.as_view()),
    path("problems/<slug:slug>", ProblemPage.as_view()),
    path("docs", SpectacularSwaggerView.as_view(url_name="schema", authentication_classes=[], permission_classes=[])),
    path("admin/", admin.site.urls),
    path("", RedirectView.as_view(url="/docs")),
]

handler400 = "ledger_project.problems.bad_request"
handler403 = "ledger_project.problems.permission_denied"
handler404 = "ledger_project.problems.page_not_found"
handler500 = "ledger_project.problems.server_error"
