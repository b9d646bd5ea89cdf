"""The pages as Chromium shows them: nothing is asked for from outside, scripts run, the picture is there."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.admin.utils import quote
from django.db import transaction

from billing.invoicing import Options, generate_in
from ledger import journal
from ledger.locks import holder_lock
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, use
from tests.browser.histories import some_weeks
from tests.browser.rendered import CHROMIUM, Site, document, screenshot, serving
from tests.ledger.admin_site import operator

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium; .ci/run installs it"),
]

PICTURES = os.environ.get("LEDGER_PICTURES")
"""A directory to write the pictures of the README to; see docs/ADMIN.md."""
ASKED_OF_THE_SITE = {"/favicon.ico", "/admin/jsi18n/"}


@pytest.fixture
def history():
    """Some weeks of three holders."""
    now = datetime.now(UTC)
    for holder in ("acme-gmbh", "brightwater-bank", "northwind"):
        entries = some_weeks(holder, start=now - timedelta(days=84), end=now - timedelta(hours=1))
        with transaction.atomic(), holder_lock(holder) as lock:
            journal.append(lock, entries)


def show(site: Site, name: str, address: str, *, height: int = 900) -> str:
    """The document that the browser makes of the page; with a picture of it where they are wanted."""
    response = operator_client().get(address)
    assert response.status_code == 200
    site.pages[f"/{name}"] = response.content
    if PICTURES:
        screenshot(f"{site.url}/{name}", Path(PICTURES).absolute() / f"{name}.png", width=1400, height=height)
    shown = document(f"{site.url}/{name}")
    assert set(site.missing) <= ASKED_OF_THE_SITE, site.missing
    return shown


def operator_client():
    from django.contrib.auth.models import User
    from django.test import Client

    found = User.objects.filter(username="mara").first()
    if found is None:
        return operator()
    client = Client()
    client.force_login(found)
    return client


def test_entries_are_shown_without_a_request_to_anywhere_else(history):
    with serving() as site:
        shown = show(site, "admin-entries", "/admin/ledger/entrylisting/", height=720)
    assert len(re.findall(r'class="data-row', shown)) == 50
    # Alpine has run: the page is no longer cloaked.
    assert "x-cloak" not in re.search(r"<html[^>]*>", shown)[0]


def test_an_account_shows_its_balance_line(history):
    with serving() as site:
        shown = show(site, "admin-account", f"/admin/ledger/account/{quote('acme-gmbh/credits')}/change/", height=1000)
    assert re.search(r'<svg class="balance-line"[^>]*role="img"', shown)
    assert len(re.search(r'class="line" d="([^"]+)"', shown)[1]) > 1_000


def test_an_invoice_shows_its_lines(db):
    plan = PlanFactory(
        name="Team",
        prices=[recurring(unit_amount="49.00", tax_rate="19"), metered(key="tokens", unit_amount="0.0004", tax_rate="19")],
    )
    subscription = SubscriptionFactory(plan=plan.code)
    use(subscription, "184250", at(1, 10), meter="tokens")
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    made = generate_in(ref=subscription.ref, options=Options(as_of=at(2, 1)))
    with serving() as site:
        shown = show(site, "admin-invoice", f"/admin/billing/invoice/{made.invoices[0].invoice_id}/change/", height=1000)
    assert "122.70 EUR" in re.sub(r"\s+", " ", shown)
