"""Class-based views whose writes run under declared locks: Django's and DRF's."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.views import View
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from ledger import reads, services
from ledger.database.lock_names import HOLDER
from ledger.database.locking import LockedHandlers, on
from tests.ledger.database.locking.test_decorators import can_take

Connect = Callable[..., psycopg.Connection[Any]]
REQUEST = RequestFactory()

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def other(raw_connection: Connect) -> psycopg.Connection[Any]:
    """A second session."""
    return raw_connection()


def spend_twice_if_it_is_enough(team: str) -> int:
    """Business logic that names no lock: what it reads stays true until it has spent."""
    holder = f"team-{team}"
    if reads.balance(holder).available >= 2:
        for key in ("a", "b"):
            services.spend(holder_id=holder, amount=1, idempotency_key=key)
    return reads.balance(holder).available


def views(other: psycopg.Connection[Any], seen: dict[str, bool]) -> list[Any]:
    """The same page as a view of Django and of DRF; notes for each method whether the lock is free while it runs."""

    class Page(LockedHandlers):
        locks = (on(HOLDER, "team-{team}"),)

        def get(self, request: HttpRequest, team: str) -> Any:
            """Show."""
            seen["get"] = can_take(other, HOLDER(f"team-{team}"))
            return self.answer({})

        def post(self, request: HttpRequest, team: str) -> Any:
            """Spend."""
            seen["post"] = can_take(other, HOLDER(f"team-{team}"))
            self.lock.ensure_held(HOLDER(f"team-{team}"))
            return self.answer({"left": spend_twice_if_it_is_enough(team)})

        def put(self, request: HttpRequest, team: str) -> Any:
            """Spend, and fail."""
            spend_twice_if_it_is_enough(team)
            raise ValidationError("wrong")

    class OfDjango(Page, View):
        def answer(self, body: dict[str, Any]) -> HttpResponse:
            return HttpResponse(str(body))

    class OfDrf(Page, APIView):
        authentication_classes = ()
        permission_classes = ()

        def get_exception_handler(self) -> Any:
            return exception_handler

        def answer(self, body: dict[str, Any]) -> Response:
            return Response(body)

    return [OfDjango, OfDrf]


@pytest.mark.parametrize("index", [0, 1], ids=["Django's", "DRF's"])
def test_a_write_has_the_lock_and_a_read_has_none(new_holder, other, index):
    team = new_holder().removeprefix("holder-")
    services.grant(holder_id=f"team-{team}", amount=3, idempotency_key="g")
    seen: dict[str, bool] = {}
    view = views(other, seen)[index].as_view()

    assert view(REQUEST.get("/"), team=team).status_code == 200
    assert view(REQUEST.post("/"), team=team).status_code == 200
    assert seen == {"get": True, "post": False}
    assert can_take(other, HOLDER(f"team-{team}"))
    assert reads.balance(f"team-{team}").available == 1
    assert not connection.in_atomic_block


@pytest.mark.parametrize("index", [0, 1], ids=["Django's", "DRF's"])
def test_a_handler_that_raises_writes_nothing_and_frees_its_lock(new_holder, other, index):
    """DRF answers such a request itself, outside the handler, so the handler's writes are undone there too."""
    team = new_holder().removeprefix("holder-")
    services.grant(holder_id=f"team-{team}", amount=3, idempotency_key="g")
    view = views(other, {})[index].as_view()
    if index:
        assert view(REQUEST.put("/"), team=team).status_code == 400
    else:
        with pytest.raises(ValidationError):
            view(REQUEST.put("/"), team=team)
    assert reads.balance(f"team-{team}").available == 3
    assert can_take(other, HOLDER(f"team-{team}"))


def test_inside_a_transaction_of_the_request_the_lock_is_held_to_its_end(new_holder, other):
    team = new_holder().removeprefix("holder-")
    view = views(other, {})[0].as_view()
    with transaction.atomic():
        view(REQUEST.post("/"), team=team)
        assert not can_take(other, HOLDER(f"team-{team}"))
    assert can_take(other, HOLDER(f"team-{team}"))


def test_a_template_that_names_no_argument_of_a_handler_is_refused_with_the_class():
    with pytest.raises(ValueError, match="is not among the arguments"):

        class Page(LockedHandlers, View):
            locks = (on(HOLDER, "team-{team}"),)

            def post(self, request: HttpRequest, group: str) -> HttpResponse:
                """Never defined."""
                return HttpResponse()


def test_an_async_handler_is_refused_with_the_class():
    with pytest.raises(ValueError, match="post is async or yields"):

        class Page(LockedHandlers, View):
            locks = (on(HOLDER, "team-{team}"),)

            async def post(self, request: HttpRequest, team: str) -> HttpResponse:
                """Never defined."""
                return HttpResponse()


def test_a_handler_keeps_its_name_and_documentation(other):
    page = views(other, {})[0]
    assert (page.post.__name__, page.post.__doc__) == ("post", "Spend.")
