"""The operators' form that makes a link to the customer's page: shown once, on record without the link."""

import html
import re

import pytest

from ledger import services
from ledger.models import StaffEvent
from ledger.portal import links
from ledger.portal.links import read_link
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db
FORM = "/admin/ledger/account/ada_2Fcredits/page-link/"


@pytest.fixture(autouse=True)
def ada():
    services.grant(holder_id="ada", amount=5, idempotency_key="1")


def test_a_link_is_made_shown_once_and_on_record_without_its_token():
    client = operator("ledger.view_account", "ledger.make_page_link")
    assert FORM in client.get("/admin/ledger/account/holders/ada/").content.decode()
    assert client.get(FORM).status_code == 200
    response = client.post(FORM, {"expires_in": "3600", "hide_amounts": "on", "language": "de"})
    assert response.status_code == 200
    assert response["Cache-Control"].startswith("no-store")
    url = html.unescape(re.search(r'id="page-link"[^>]*>([^<]+)<', response.content.decode())[1])
    link = read_link(url.partition("link=")[2])
    assert (link.holder_id, link.hides_amounts, link.language) == ("ada", True, "de")
    assert client.get(url.removeprefix("http://testserver")).status_code == 200
    event = StaffEvent.objects.get(action="page-link-made")
    assert (event.actor, event.object) == ("admin:mara", "holder ada")
    assert re.fullmatch(r"until \d{4}-\d\d-\d\d \d\d:\d\d UTC, without amounts", event.details)


def test_plans_on_offer_are_typed_in_rows_that_search_among_them():
    client = operator()
    page = client.get(FORM).content.decode()
    assert 'list="references-plan"' in page
    assert 'id="references-plan"' in page
    plans = {"plans-0-name": "solo", "plans-1-name": "", "plans-2-name": "team"}
    response = client.post(FORM, {"expires_in": "900", "allow_plan_changes": "on"} | plans)
    url = html.unescape(re.search(r'id="page-link"[^>]*>([^<]+)<', response.content.decode())[1])
    assert list(read_link(url.partition("link=")[2]).plans) == ["solo", "team"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"plans-0-name": "solo"},
        {"plans-0-name": "a" * 300, "allow_plan_changes": "on"},
        {"plans-0-name": "a\x00", "allow_plan_changes": "on"},
    ],
)
def test_wrong_plans_make_no_link(wrong):
    response = operator().post(FORM, {"expires_in": "900"} | wrong)
    assert response.status_code == 422
    assert not StaffEvent.objects.filter(action="page-link-made").exists()


def test_more_rows_are_shown_without_scripts_and_make_no_link():
    page = operator().post(FORM, {"expires_in": "900", "plans-0-name": "solo", "more": "plans"}).content.decode()
    assert page.count('name="plans-') == 5
    assert not StaffEvent.objects.filter(action="page-link-made").exists()


def test_wrong_choices_make_no_link():
    response = operator().post(FORM, {"expires_in": "999999", "language": "fr"})
    assert response.status_code == 422
    assert not StaffEvent.objects.filter(action="page-link-made").exists()


def test_nobody_makes_a_link_without_the_permission():
    assert operator("ledger.view_account").post(FORM, {"expires_in": "900"}).status_code == 403
    assert not StaffEvent.objects.filter(action="page-link-made").exists()


def test_a_project_without_the_page_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(links, "is_served", lambda: False)
    response = operator().get(FORM, follow=True)
    assert "ledger.portal.urls" in response.content.decode()
