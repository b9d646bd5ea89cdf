"""The customer's page in Chromium: light and dark, wide and narrow, by axe, without a request elsewhere, and in a frame."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.test import Client

from ledger import journal, services
from ledger.database.locks import holder_lock
from ledger.portal.links import link
from tests.browser.billed import billed_with_everything
from tests.browser.chromium import Visit, site_of
from tests.browser.histories import some_weeks
from tests.browser.test_accessibility import violations

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

PICTURES = os.environ.get("LEDGER_PICTURES")


@pytest.fixture
def links() -> dict[str, str]:
    """Links to the pages of a customer with some weeks of history and an invoice, and one that has ended."""
    now = datetime.now(UTC)
    entries = some_weeks("acme-gmbh", start=now - timedelta(days=40), end=now - timedelta(hours=1))
    with transaction.atomic(), holder_lock("acme-gmbh") as lock:
        journal.append(lock, entries)
    services.grant(
        holder_id="acme-gmbh", amount=90, expires_at=now + timedelta(days=9), idempotency_key="x", source="promotional"
    )
    services.grant(holder_id="acme-gmbh", amount=400, credit_type="sms", idempotency_key="y")
    billed_with_everything()
    shown = link(holder_id="acme-gmbh").url
    return {
        "page": shown,
        "page-de": link(holder_id="acme-gmbh", language="de").url,
        "page-hidden": link(holder_id="acme-gmbh", hide_amounts=True).url,
        "page-nobody": link(holder_id="nobody").url,
        "page-gone": f"{shown}x",
    }


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_the_page_is_accessible_and_asks_nothing_of_others(links, chromium, theme, width):
    found = {}

    def look(visit: Visit) -> None:
        for name, url in links.items():
            visit.open(f"{site.url}{url}")
            assert not visit.is_wider_than_the_window, name
            found[name] = violations(visit)
            if PICTURES:
                (Path(PICTURES) / f"{name}-{theme}-{width}.png").write_bytes(visit.page.screenshot(full_page=True))
        assert (visit.complaints, visit.elsewhere) == ([], [])

    with site_of(Client()) as site:
        chromium.look(f"{site.url}/", look, theme=theme, width=width)
    assert found == {name: [] for name in links}


@pytest.mark.parametrize("is_allowed", [True, False])
def test_only_an_origin_of_the_setting_frames_it(links, chromium, settings, is_allowed):
    with site_of(Client()) as site:
        origin = site.url.rstrip("/") if is_allowed else "https://shop.example"
        settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_FRAMED_BY": [origin]}

        def look(visit: Visit) -> str:
            visit.page.goto(f"{site.url}/problems/not-found")
            visit.page.evaluate(
                """url => new Promise(done => {
                    const frame = document.createElement("iframe");
                    frame.onload = done;
                    frame.src = url;
                    document.body.append(frame);
                })""",
                links["page"],
            )
            return visit.page.frames[-1].content()

        assert ("Usage by day" in chromium.look(f"{site.url}/", look)) == is_allowed
