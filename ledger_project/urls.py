"""All paths: those of the API, of the customer's page and of the operators' pages, as far as they are installed."""

from django.apps import apps
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

_calls: list[URLPattern | URLResolver] = [path("", RedirectView.as_view(url="/admin/"))]
_pages: list[URLPattern | URLResolver] = []
if apps.is_installed("ledger.rest"):
    from ledger_project.call_urls import urlpatterns as _calls
if apps.is_installed("ledger.staff"):
    from ledger_project.page_urls import urlpatterns as _pages

_customer_page = [path("c/", include("ledger.portal.urls"))] if apps.is_installed("ledger.portal") else []

urlpatterns = [*_calls, *_customer_page, *_pages]

handler400 = "ledger_project.api.error_handlers.bad_request"
handler403 = "ledger_project.api.error_handlers.permission_denied"
handler404 = "ledger_project.api.error_handlers.page_not_found"
handler500 = "ledger_project.api.error_handlers.server_error"
