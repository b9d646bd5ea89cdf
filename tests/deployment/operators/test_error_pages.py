"""What people see instead of a page: why there is none, in the look of the admin, whatever failed."""

from unittest import mock

import pytest
from django.contrib import admin
from django.core.exceptions import BadRequest
from django.test import Client, RequestFactory

from ledger_project.api import error_handlers
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


def test_an_address_that_is_nothing_leads_an_operator_on_in_the_look_of_the_admin():
    response = operator().get("/admin/nope")
    page = response.content.decode()
    assert response.status_code == 404
    for shown in ("There is no such page", "The address is mistyped", 'role="main"', "Find anything", 'href="/admin/"'):
        assert shown in page, shown
    assert page.count("<h1") == 1


def test_a_page_without_the_permission_says_who_can_give_it():
    response = operator("ledger.view_account").get("/admin/billing/plan/")
    assert response.status_code == 403
    assert "Your account lacks the permission" in response.content.decode()
    assert 'role="main"' in response.content.decode()


def test_a_form_that_has_expired_says_that_nothing_was_written():
    client = Client(enforce_csrf_checks=True)
    response = client.post("/admin/login/", {"username": "mara", "password": "x"})
    assert response.status_code == 403
    assert "The form has expired" in response.content.decode()
    assert "Nothing was written" in response.content.decode()


@pytest.mark.parametrize(
    ("status", "handle"),
    [
        (400, lambda request: error_handlers.bad_request(request, BadRequest())),
        (500, error_handlers.server_error),
    ],
)
def test_what_fails_has_a_page_of_its_own_also_without_the_database(status, handle):
    request = RequestFactory().get("/admin/x")
    request.user = mock.Mock(is_staff=True)
    with mock.patch.object(admin.site, "each_context", side_effect=OSError("no database")):
        response = handle(request)
    page = response.content.decode()
    assert response.status_code == status
    assert error_handlers.TEXTS[status][0] in page
    assert "<main" in page


def test_programs_get_a_problem_all_the_same():
    response = Client().get("/nope")
    assert (response.status_code, response["Content-Type"]) == (404, "application/problem+json")
