"""The sidebar has few entries, each with its pages as tabs; it highlights what is shown alone. Dates are written in one way."""

import re
from datetime import UTC, date, datetime

import pytest
from django.template.base import Template
from django.test.utils import instrumented_test_render
from django.utils.formats import localize

from ledger import services
from ledger_project.operators.appearance import SECTIONS
from tests.ledger.staff.admin_site import operator

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


def tabs(page):
    """The tabs above a page: title, address, and whether it is the page itself."""
    found = re.search(r'<nav class="section-tabs".*?</nav>', page, re.DOTALL)
    return re.findall(r'<a href="([^"]+)"( aria-current="page")?>([^<]+)</a>', found[0]) if found else []


def test_the_sidebar_has_ten_entries_for_what_people_look_for(contexts):
    items = [item for group in operator().get("/admin/").context["sidebar_navigation"] for item in group["items"]]
    assert [item["title"] for item in items] == [
        "Home", "Customers", "Credits", "Subscriptions", "Invoices", "Payments", "Catalogue", "Reports", "Developers", "Settings",
    ]  # fmt: skip


def test_an_entry_opens_its_first_page_that_the_operator_may_see(contexts):
    client = operator("ledger.view_refusallisting")
    items = [item for group in client.get("/admin/").context["sidebar_navigation"] for item in group["items"]]
    assert [item["title"] for item in items if item["has_permission"]] == ["Home", "Credits"]
    page = client.get("/admin/").content.decode()
    assert 'href="/admin/ledger/refusallisting/"' in page
    assert tabs(client.get("/admin/ledger/refusallisting/").content.decode()) == []


@pytest.mark.slow
def test_each_page_of_the_sidebar_highlights_its_section_and_tab_alone(contexts):
    client = operator()
    pages = [(section, tab) for section in SECTIONS for tab in section.tabs]
    assert len(pages) > 35
    for section, tab in pages:
        assert highlighted(client, tab.address) == [section.title]
        page = client.get(tab.address).content.decode()
        expected = [(each.address, ' aria-current="page"' if each is tab else "", each.title) for each in section.tabs]
        assert tabs(page) == (expected if len(expected) > 1 else [])
        title = page.split("<title>")[1].split("</title>")[0].strip()
        assert title.endswith(" | Credit ledger")
        assert title.startswith(tab.title)


def test_pages_below_a_list_highlight_its_section(contexts):
    client = operator()
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    for address in ("holders/ada/", "ada_2Fcredits/grant/"):
        assert highlighted(client, f"/admin/ledger/account/{address}") == ["Credits"]
        assert ("/admin/ledger/account/", ' aria-current="page"', "Holders with balances") in tabs(
            client.get(f"/admin/ledger/account/{address}").content.decode()
        )
    assert highlighted(client, "/admin/preferences/") == []


def test_dates_and_times_that_django_writes_look_like_those_in_the_columns_of_the_ledger():
    at = datetime(2026, 3, 1, 14, 3, 20, tzinfo=UTC)
    assert [localize(date(2026, 3, 1)), localize(at)] == ["1 Mar 2026", "1 Mar 2026, 14:03:20 UTC"]
