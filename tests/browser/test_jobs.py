"""What people come for, done in Chromium from the first page: each within three clicks, wide and narrow.

A click is a press of the mouse or a finger on a link or button; keys and what is typed do not count. Where the sidebar is, Ctrl+K
opens the search; on a narrow screen, which may have no such key, a button of the first page does.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from billing.models import CreditPayment
from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.totals.closing import close_months
from ledger.totals.counting import count_entries
from tests.browser.chromium import Visit, site_of
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


TRIES, PATIENCE_MS = 5, 12_000


def find(visit: Visit, word: str, result: str) -> None:
    """Open the search, type the word, and click on the result."""
    if visit.is_narrow:
        visit.click(visit.page.locator("#content").get_by_role("button", name="Find anything"))
    else:
        visit.page.keyboard.press("Control+k")
    field = visit.page.locator("#search-input-command")
    found = visit.page.locator("#command-results-list").get_by_role("link", name=result).first
    field.fill(word[:-1])
    for _ in range(TRIES):  # a server that is busy drops a search; people then type again
        field.press_sequentially(word[-1])
        with suppress(PlaywrightTimeout):
            found.wait_for(timeout=PATIENCE_MS)
            break
        field.press("Backspace")
    visit.click(found)


@pytest.mark.slow
def test_the_first_page_has_the_button_of_the_search_where_there_is_no_sidebar(chromium):
    def buttons(visit: Visit) -> list[bool]:
        button = visit.page.get_by_role("button", name="Find anything")
        return [
            visit.page.locator("#content").locator(button).is_visible(),
            visit.page.locator("#nav-sidebar").locator(button).is_visible(),
        ]

    with site_of(operator()) as site:
        seen = {width: chromium.visit(f"{site.url}/admin/", buttons, width=width) for width in (1400, 1000, 390)}
    assert seen == {1400: [False, True], 1000: [True, False], 390: [True, False]}


YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).replace(hour=14, minute=3, second=20, microsecond=0)


@pytest.fixture
def ada(ledger_clock: Callable[[float], None]) -> None:
    """Ada has 262 spendable; 60 are held, 1,000 start next year, 62 expire in a week; yesterday at 14:03 she was refused 700."""

    def at(moment: datetime) -> None:
        ledger_clock((moment - datetime.now(UTC)) / timedelta(days=1))

    ada: dict[str, Any] = {"holder_id": "ada", "actor": "key:shop"}
    at(YESTERDAY - timedelta(days=40))
    services.grant(**ada, amount=200, idempotency_key="g1", reason="top-up by card", reference="pay_4711")
    promotional = {"source": "promotional", "actor": "admin:mara", "reason": "welcome credits"}
    expires = datetime.now(UTC) + timedelta(days=7)
    services.grant(**{**ada, **promotional}, amount=500, idempotency_key="g2", expires_at=expires)
    at(YESTERDAY - timedelta(days=12))
    services.spend(**ada, amount=328, idempotency_key="s1", reason="batch job", reference="job-18")
    at(YESTERDAY - timedelta(days=2))
    services.spend(**ada, amount=50, idempotency_key="s2", reason="chat completion", reference="job-19")
    at(YESTERDAY - timedelta(hours=3))
    services.hold(**ada, amount=60, idempotency_key="h", reason="image", expires_at=YESTERDAY + timedelta(days=9))
    start = datetime(YESTERDAY.year + 1, 1, 1, tzinfo=UTC)
    services.grant(**{**ada, **promotional, "reason": "new year"}, amount=1_000, idempotency_key="g3", effective_at=start)
    at(YESTERDAY)
    with pytest.raises(InsufficientCredits):
        services.spend(**ada, amount=700, idempotency_key="no", reason="batch job", reference="job-20")
    ledger_clock(0)


@pytest.mark.slow
@pytest.mark.check
def test_why_was_she_refused_at_14_03(ada, do):
    def job(visit: Visit) -> None:
        visit.click(visit.link("Latest refusals"))
        visit.click(visit.page.get_by_role("link", name=re.compile(r"14:03:\d\d")).first)
        assert "Refused: 700 requested, 262 spendable. 60 are held until" in visit.text
        assert "1,000 start on 1 Jan" in visit.text
        assert "Short by 438." in visit.text

    do("refused", job)


@pytest.mark.slow
def test_what_does_she_have_what_expires_and_who_granted_it(ada, do):
    def job(visit: Visit) -> None:
        find(visit, "ada", "ada")
        assert "262 available" in visit.text
        assert re.search(r"#2 62 of 500 left expires \d+ \w+( \d{4})?, in 7 days", visit.text)
        assert "Promotional, by admin:mara on" in visit.text
        assert "welcome credits" in visit.text

    do("holder", job, height=1500)


@pytest.mark.slow
@pytest.mark.check
def test_give_her_50_back(ada, do):
    given = 0

    def job(visit: Visit) -> None:
        nonlocal given
        find(visit, "job-18", "Refund spend #3")
        visit.page.get_by_label("Amount").fill("50")
        visit.page.get_by_label("Reason").fill("goodwill")
        visit.page.get_by_label("Reason").press("Enter")
        visit.button("Refund").wait_for()
        assert "50 of spend #3 returned" in visit.text
        visit.click(visit.button("Refund"))
        given += 50
        assert "is done: +50 credits for ada" in " ".join(visit.page.inner_text("body").split())

    do("refund", job)
    assert given >= 100
    assert reads.balance("ada").available == 262 + given


@pytest.mark.slow
def test_close_october_and_tie_it(ledger_clock, do):
    """The month that is over is closed by a worker; the page shows that it is, and what it ties to."""
    over = datetime.now(UTC).replace(day=1) - timedelta(days=3)
    ledger_clock((over - datetime.now(UTC)) / timedelta(days=1))
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    entry = services.spend(holder_id="ada", amount=40, idempotency_key="invoice/1/pay", actor="billing")
    paid = {"credits": 40, "amount_minor": 40, "spend_sequence": entry.sequence}
    CreditPayment.objects.create(invoice_id=1, holder_id="ada", credit_type="credits", **paid)
    ledger_clock(0)
    services.spend(holder_id="ada", amount=5, idempotency_key="s")
    count_entries(patience_seconds=0)
    close_months()

    def job(visit: Visit) -> None:
        visit.click(visit.link("The month before, for finance", within=visit.page.locator("#content")))
        assert "This month is final: its figures never change." in visit.text
        assert "At the end 960" in visit.text
        assert "Invoices paid with credits, by the documents 40" in visit.text
        assert "Invoices paid with credits, by the entries 40" in visit.text

    do("month-end", job)


@pytest.mark.slow
def test_what_is_stuck_right_now(do):
    from billing.models import SuspendedBilling
    from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory

    customer, plan = CustomerFactory(ref="C-7"), PlanFactory(code="team", name="Team")
    subscription = SubscriptionFactory(ref="SUB-1234", customer=customer.ref, plan=plan.code)
    SuspendedBilling.objects.create(subscription_id=subscription.pk, reason="unusual-amount")

    def job(visit: Visit) -> None:
        sentence = f"1 subscription is suspended from billing until a person resumes it, such as {subscription.ref}"
        assert sentence in visit.page.locator(".attention").inner_text()
        visit.click(visit.page.locator(".attention a", has_text="Resume billing").first)
        assert "the amount is far above the usual one" in visit.text

    do("stuck", job)


@pytest.mark.slow
def test_a_job_of_four_clicks_is_noticed(do):
    """The control."""

    def job(visit: Visit) -> None:
        for _ in range(4):
            visit.click(visit.link("Home"))

    with pytest.raises(AssertionError, match="4 clicks"):
        do("too-long", job)
