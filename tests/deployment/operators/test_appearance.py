"""The sidebar highlights the page that is shown, and no other; dates are written in one way."""

from datetime import UTC, date, datetime

import pytest
from django.template.base import Template
from django.test.utils import instrumented_test_render
from django.utils.formats import localize

from ledger import services
from tests.ledger.admin.admin_site import operator

pytestmark = pytest.mark.django_db


@pytest.fixture
def contexts(monkeypatch):
    """Responses have the contexts of their templates."""
    monkeypatch.setattr(Template, "_render", instrumented_test_render)


def highlighted(client, address):
    """The titles of the sidebar's items that are highlighted on that page."""
    response = client.get(address)
    assert response.status_code == 200
    return [str(item["title"]) for group in response.context["sidebar_navigation"] for item in group["items"] if item["active"]]


@pytest.mark.slow
def test_each_page_of_the_sidebar_highlights_itself_alone(contexts):
    client = operator()
    items = [item for group in client.get("/admin/").context["sidebar_navigation"] for item in group["items"]]
    assert len(items) > 20
    for item in items:
        assert highlighted(client, str(item["link"])) == [item["title"]]
        title = client.get(str(item["link"])).content.decode().split("<title>")[1].split("</title>")[0].strip()
        assert title.endswith(" | Credit ledger")
        assert title.startswith(str(item["title"]))


def test_pages_below_a_list_highlight_the_list(contexts):
    client = operator()
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    for address in ("holders/ada/", "ada_2Fcredits/grant/"):
        assert highlighted(client, f"/admin/ledger/account/{address}") == ["Holders with balances"]
    assert highlighted(client, "/admin/preferences/") == []


def test_dates_and_times_that_django_writes_look_like_those_in_the_columns_of_the_ledger():
    at = datetime(2026, 3, 1, 14, 3, 20, tzinfo=UTC)
    assert [localize(date(2026, 3, 1)), localize(at)] == ["1 Mar 2026", "1 Mar 2026, 14:03:20 UTC"]
