"""The pages as Chromium shows them: nothing is asked for from outside, scripts run, the picture is there."""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.admin.utils import quote
from django.db import transaction

from billing.generator.generate import Options, generate_in
from billing.models import Outcome, Run
from ledger import journal, services
from ledger.database.locks import holder_lock
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
    site.policy = response["Content-Security-Policy"]
    if PICTURES:
        screenshot(f"{site.url}/{name}", Path(PICTURES).absolute() / f"{name}.png", width=1400, height=height)
    shown, complaints = document(f"{site.url}/{name}")
    assert complaints == []
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


def test_a_hold_shows_what_became_of_it(history):
    day = timedelta(days=1)
    asked = {"holder_id": "acme-gmbh", "actor": "key:backend", "reference": "job-17"}
    services.grant(holder_id="acme-gmbh", amount=20_000, idempotency_key="for-the-job", actor="key:backend")
    hold = services.hold(**asked, amount=6_000, idempotency_key="hold", reason="batch job of 40 documents")
    services.capture(**asked, hold=hold.sequence, amount=1_200, final=False, idempotency_key="part-1", reason="8 documents")
    extended_to = datetime.now(UTC) + 2 * day
    services.extend(**asked, hold=hold.sequence, expires_at=extended_to, idempotency_key="longer", reason="a long queue")
    services.capture(**asked, hold=hold.sequence, amount=900, final=False, idempotency_key="part-2", reason="6 documents")
    address = f"/admin/ledger/entrylisting/{quote(f'acme-gmbh/credits/{hold.sequence}')}/change/"
    with serving() as site:
        shown = show(site, "admin-hold", address, height=1040)
    assert "3\u202f900 still held, 2\u202f100 captured" in shown


def test_rates_show_which_version_counts(db):
    for code, price, actor, reason in (
        ("gpt-4o.input", 1, "admin:mara", "price list 2026"),
        ("gpt-4o.output", 3, "admin:mara", "price list 2026"),
        ("gpt-4o.output", 4, "admin:ben", "our cost went up"),
        ("image.1024", 40, "key:backoffice", "new product"),
    ):
        per = 1 if code.startswith("image") else 1_000
        services.publish_rate(code=code, price=price, per=per, actor=actor, reason=reason)
    with serving() as site:
        shown = show(site, "admin-rates", "/admin/ledger/ratelisting/", height=440)
    assert re.findall(r">\s*(current|superseded)\s*<", shown) == ["current", "current", "superseded", "current"]


def test_a_run_shows_what_it_did(db):
    refs = [SubscriptionFactory().ref for _ in range(3)]
    figures = {
        "outcomes": {"created": 0, "finalised": 2_998, "nothing_due": 41, "busy": 0, "deferred": 0, "parked": 1, "failed": 1},
        "invoices": 2_998, "lines": 5_996, "periods": 5_996, "seconds": 9.412,
        "money": {"EUR": {"invoices": 2_998, "total_minor": 36_785_460, "credits_applied_minor": 1_204_000}},
        "milliseconds": {"p50": 5.8, "p95": 11.3, "max": 48.9},
        "slowest": [{"subscription": refs[2], "milliseconds": 48.9}],
    }  # fmt: skip
    run = Run.objects.create(
        run_id="6f9619ff-8b86-4d11-b42d-00c04fc964ff",
        as_of=at(2, 1),
        host="worker-1",
        finished_at=datetime.now(UTC) + timedelta(seconds=9),
        exit_code=3,
        options={"workers": 4, "only": "all"},
        summary=figures,
    )
    for ref, outcome, detail in ((refs[0], "failed", "ValueError: no such meter"), (refs[1], "parked", "amount-unusual")):
        Outcome.objects.create(run_id=run.pk, subscription_ref=ref, outcome=outcome, detail=detail)
    with serving() as site:
        shown = show(site, "admin-run", f"/admin/billing/run/{run.pk}/change/", height=1080)
    assert "367\u202f854.60 EUR" in shown
    assert "amount-unusual" in shown


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


def test_a_script_that_the_policy_forbids_is_found(history):
    """The control: the same page with a policy that lets nothing evaluate text, which Alpine has to."""
    with serving() as site:
        show(site, "admin-entries", "/admin/ledger/entrylisting/")
        site.policy = site.policy.replace(" 'unsafe-eval'", "")
        _, complaints = document(f"{site.url}/admin-entries")
    assert any("unsafe-eval" in line for line in complaints)
