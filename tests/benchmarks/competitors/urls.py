"""The project's paths, and the competitors' under /v1/competitors/, so that they go the same short way past the middleware.

`competitors/key-only/` is what a DRF view costs that goes the ordinary way, like every view outside the API.
"""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.urls import include, path
from rest_framework.response import Response

from tests.benchmarks.competitors import floors, locking, orm, shapes


def rendered(view: Callable[..., Response]) -> Callable[..., Response]:
    """The view with its answer rendered, which Django's handler does behind the middleware."""

    def answer(request: HttpRequest, **path: Any) -> Response:
        return view(request, **path).render()

    return answer


urlpatterns = [
    path("v1/competitors/nothing/<holder>", floors.nothing),
    path("v1/competitors/key-only/<holder>", rendered(floors.KeyOnly.as_view())),
    path("v1/competitors/lean-key-only/<holder>", floors.LeanKeyOnly.as_view()),
    path("v1/competitors/orm/<holder>", rendered(orm.OrmSpends.as_view())),
    *(
        path(f"v1/competitors/{name}/<spender>", locking.LockedSpends.as_view(spend=spend))
        for name, spend in locking.SPENDS.items()
    ),
    path("v1/competitors/double-entry/<holder>", shapes.DoubleEntrySpends.as_view()),
    path("v1/competitors/sum-at-read/<holder>", shapes.SumAtReadSpends.as_view()),
    path("competitors/key-only/<holder>", floors.KeyOnly.as_view()),
    path("", include("ledger_project.urls")),
]

handler400 = "ledger_project.api.error_handlers.bad_request"
handler403 = "ledger_project.api.error_handlers.permission_denied"
handler404 = "ledger_project.api.error_handlers.page_not_found"
handler500 = "ledger_project.api.error_handlers.server_error"
