"""Pages by axe: no violation of WCAG 2.2 A and AA that it can see, light and dark, wide and narrow; contrast included.

test_every_page.py has a page of each view; here are further states of them, second steps of forms, and pages without a view.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from django.contrib.admin.utils import quote
from django.db import transaction
from django.test import Client

from billing.metering.meters import create_meter
from billing.models import Coupon, Plan, Seller
from billing.payments.testing import PackFactory
from ledger import journal, reads, services
from ledger.database.locks import holder_lock
from ledger.errors import InsufficientCredits
from ledger.totals.counting import count_entries
from tests.billing.factories import CustomerFactory
from tests.browser.billed import billed_with_everything, consolidated_with_taxes, looked_up
from tests.browser.chromium import Chromium, Visit, site_of
from tests.browser.histories import some_weeks
from tests.ledger.staff.admin_site import operator

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

MOST_WINDOWS = 300
"""How many times half a window is scrolled."""
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text()
RUN = """async () => {
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
    const more = ["landmark-one-main", "target-size", "link-in-text-block", "page-has-heading-one", "empty-table-header"];
    const rules = Object.fromEntries(more.map(name => [name, { enabled: true }]));
    const found = await axe.run(document, { runOnly: { type: "tag", values: tags }, rules });
    const told = found.violations.map(each =>
        [each.id, each.nodes.map(node => node.target.join(" ") + ": " + node.failureSummary)]);
    return { checked: found.passes.map(each => each.id), violations: told };
}"""


def violations(visit: Visit) -> list[list[object]]:
    """What axe reports of the page as it is shown."""
    visit.page.evaluate(AXE)
    outcome = visit.page.evaluate(RUN)
    assert {"color-contrast", "landmark-one-main"} <= set(outcome["checked"]) | {each[0] for each in outcome["violations"]}
    return list(outcome["violations"])


@pytest.fixture
def client_of_acme() -> Client:
    """An operator, after some weeks of a holder, a hold and a refusal."""
    now = datetime.now(UTC)
    entries = some_weeks("acme-gmbh", start=now - timedelta(days=40), end=now - timedelta(hours=1))
    with transaction.atomic(), holder_lock("acme-gmbh") as lock:
        journal.append(lock, entries)
    services.hold(holder_id="acme-gmbh", amount=100, idempotency_key="h")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="acme-gmbh", amount=10**9, idempotency_key="no", reference="job-19")
    count_entries(patience_seconds=0)
    return operator()


@pytest.fixture
def client(client_of_acme: Client) -> Client:
    return client_of_acme


def ledger_pages() -> dict[str, str]:
    """The addresses of the ledger's pages that operators open most."""
    with_refusal = reads.refusals("acme-gmbh", limit=1)[0]
    refusal = quote(f"acme-gmbh/credits/{with_refusal.sequence}")
    return {
        "home": "/admin/",
        "holder": "/admin/ledger/account/holders/acme-gmbh/",
        "unknown holder": "/admin/ledger/account/holders/nobody/",
        "holders": "/admin/ledger/account/",
        "entries": "/admin/ledger/entrylisting/",
        "entry": f"/admin/ledger/entrylisting/{quote('acme-gmbh/credits/3')}/change/",
        "refusal": f"/admin/ledger/refusallisting/{refusal}/change/",
        "form": f"/admin/ledger/account/{quote('acme-gmbh/credits')}/grant/",
        "form of a link": f"/admin/ledger/account/{quote('acme-gmbh/credits')}/page-link/",
        "month-end": "/admin/ledger/account/month-end/?month=" + f"{datetime.now(UTC):%Y-%m}",
        "staff log": "/admin/ledger/staffevent/",
        "customers": "/admin/billing/customer/",
        "invoices": "/admin/billing/invoice/",
        "no page": "/admin/nope",
        "two-step login": "/admin/two-step/",
        "preferences": "/admin/preferences/",
    }


def billing_pages() -> dict[str, str]:
    """The addresses of billing's pages, of a customer with an invoice that has tiers, free units, a coupon and a credit note."""
    invoice, draft, note = billed_with_everything()
    subscription, customer = invoice.subscription_id, invoice.customer_id
    consolidated, waiting, tax = consolidated_with_taxes()
    lookup = looked_up()
    meter = create_meter(code="tokens", expression="round(properties.input_tokens * 1.5 + properties.output_tokens, 2)")
    return {
        "consolidated invoice": f"/admin/billing/invoice/{consolidated.pk}/change/",
        "customer of it": f"/admin/billing/customer/{consolidated.customer_id}/change/",
        "subscription that waits": f"/admin/billing/subscription/{waiting.pk}/change/",
        "tax": f"/admin/billing/tax/{tax.pk}/change/",
        "VAT lookup": f"/admin/billing/vatlookup/{lookup.pk}/change/",
        "customer with a VAT lookup": f"/admin/billing/customer/{lookup.customer_id}/change/",
        "meter": f"/admin/billing/meter/{meter.pk}/change/",
        "form of a meter": "/admin/billing/meter/add/",
        "invoice": f"/admin/billing/invoice/{invoice.pk}/change/",
        "draft": f"/admin/billing/invoice/{draft.pk}/change/",
        "credit note": f"/admin/billing/creditnote/{note.id}/change/",
        "invoices": f"/admin/billing/invoice/?customer={invoice.customer_ref}",
        "subscription": f"/admin/billing/subscription/{subscription}/change/",
        "customer": f"/admin/billing/customer/{customer}/change/",
        "plan": f"/admin/billing/plan/{Plan.objects.get(code='team').pk}/change/",
        "no coupons": "/admin/billing/coupon/?q=nothing",
        "form of a plan": "/admin/billing/plan/add/",
        "form of a customer": "/admin/billing/customer/add/",
        **{f"form of a {noun}": f"/admin/billing/{noun}/add/" for noun in ("coupon", "seller", "subscription")},
        **{f"form of a {noun}": f"/admin/billing_payments/{noun}/add/" for noun in ("pack", "purchase")},
        "form of a credit": f"/admin/billing/invoice/{invoice.pk}/credit/",
        "form of a reminder": f"/admin/billing/invoice/{invoice.pk}/remind-now/",
        "overdue invoices": "/admin/billing/invoice/?overdue=yes",
        "who owes most": "/admin/billing/invoice/debts/",
        "form of a one-off invoice": f"/admin/billing/customer/{customer}/new-invoice/",
        "form of phases": f"/admin/billing/subscription/{subscription}/change-phases/",
        "form of quantities": f"/admin/billing/subscription/{subscription}/change-quantities/",
    }


def other_pages() -> dict[str, str]:
    """Details of nouns that the other pages leave out, after those of billing were made."""
    pack, seller, coupon = PackFactory(name="Starter"), Seller.objects.latest("pk"), Coupon.objects.get(code="WELCOME")
    new = CustomerFactory(ref="C-NEW", holder_id="new-holder")
    return {
        "form of an API key": "/admin/ledger_keys/apikey/add/",
        "pack": f"/admin/billing_payments/pack/{pack.pk}/change/",
        "seller": f"/admin/billing/seller/{seller.pk}/change/",
        "coupon": f"/admin/billing/coupon/{coupon.pk}/change/",
        "new customer": f"/admin/billing/customer/{new.pk}/change/",
        "holder of a new customer": "/admin/ledger/account/holders/new-holder/",
    }


def other_quantities(visit: Visit) -> list[list[object]]:
    """The invoice that an amendment would bring, after the form was filled in."""
    visit.page.get_by_label("Row 1: Price").fill("seats")
    visit.page.get_by_label("Row 1: Quantity").fill("8")
    visit.page.get_by_label("Takes effect at").fill("2026-01-15T00:00")
    visit.click(visit.button("Continue"))
    assert "Unused: seats" in visit.text
    return violations_when_narrow(visit)


def violations_when_narrow(visit: Visit) -> list[list[object]]:
    """What axe reports on a narrow screen; asserts that nobody has to scroll sideways."""
    assert not visit.is_wider_than_the_window
    return violations(visit)


def open_second_step(visit: Visit) -> list[list[object]]:
    """Fill the form in and open the page that says what will happen."""
    visit.page.get_by_label("Amount").fill("5")
    visit.page.get_by_label("Source").select_option("promotional")
    visit.page.get_by_label("Reason").fill("goodwill")
    visit.click(visit.button("Continue"))
    assert "Grant" in visit.text
    return violations(visit)


Looks = dict[str, tuple[str, Callable[[Visit], list[list[object]]]]]


def look_at(chromium: Chromium, site_url: str, looks: Looks, **window: Any) -> dict[str, list[list[object]]]:
    """What axe reports of each page; one window shows one after the other, so scripts and styles are fetched once."""

    def look(visit: Visit) -> dict[str, list[list[object]]]:
        found = {}
        for name, (address, violations_of) in looks.items():
            visit.open(f"{site_url}{address}")
            found[name] = violations_of(visit)
        return found

    return chromium.look(site_url, look, **window)


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 1400), ("light", 390)])
def test_no_page_violates_wcag_aa(client, chromium, theme, width):
    billing = billing_pages() | other_pages()
    looks = {name: (address, violations) for name, address in ledger_pages().items()}
    looks["what will happen"] = (ledger_pages()["form"], open_second_step)
    looks |= {name: (address, violations_when_narrow) for name, address in billing.items()}
    looks["what an amendment brings"] = (billing["form of quantities"], other_quantities)
    with site_of(client) as site:
        found = look_at(chromium, site.url, looks, theme=theme, width=width)
    looks = {"login": ("/admin/login/", violations), "no page without an operator": ("/admin/login/nope", violations)}
    with site_of(Client()) as site:
        found |= look_at(chromium, site.url, looks, theme=theme, width=width)
    assert {name: each for name, each in found.items() if each} == {}


def test_violations_are_found(client, chromium):
    """The control: a button without a name, a picture that says nothing, grey on grey in oklch, a target of 10 pixels."""
    small = '<a href="#" style="display: inline-block; width: 10px; height: 10px; overflow: hidden">a</a>'
    pale = '<p style="color: oklch(70% 0.02 240); background: oklch(75% 0.02 240)">hardly to be read</p>'
    wrong = f'<img src="/static/x.png"><button type="button"></button>{pale}{small}{small}'

    def with_mistakes(visit: Visit) -> list[list[object]]:
        visit.page.evaluate("html => document.querySelector('#content').insertAdjacentHTML('beforeend', html)", wrong)
        return violations(visit)

    with site_of(client) as site:
        found = chromium.visit(f"{site.url}/admin/preferences/", with_mistakes)
    assert {"button-name", "image-alt", "color-contrast", "target-size"} <= {each[0] for each in found}


# The API's documentation -----------------------------------------------------------------------------


def violations_of_api_docs(visit: Visit) -> list[list[object]]:
    """What axe reports of the API's documentation: as it is opened, and with a call that is tried out."""
    visit.page.wait_for_selector("[id^=operations-]")
    found = violations(visit)
    call = visit.page.locator("#operations-Credits-spendCredits")
    call.locator(".opblock-summary-control").click()
    call.locator(".try-out__btn").click()
    call.locator("textarea[aria-label='Request body']").wait_for()
    assert not visit.is_wider_than_the_window
    return [*found, *violations(visit)]


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 390)])
def test_the_documentation_does_not_violate_wcag_aa_and_has_the_look_that_the_reader_asks_for(
    server_processes, chromium, theme, width
):
    (web,) = server_processes(1)

    def look(visit):
        found = violations_of_api_docs(visit)
        return found, visit.page.evaluate("document.documentElement.classList.contains('dark-mode')")

    assert chromium.visit(f"{web.url}/docs/api", look, theme=theme, width=width) == ([], theme == "dark")


def tags_of_api_docs(visit: Visit) -> list[str]:
    """The groups of calls in their order; the page draws those that are near the window, so somebody scrolls to its end."""
    tags: dict[str, None] = {}
    for _ in range(MOST_WINDOWS):
        tags |= dict.fromkeys(visit.page.eval_on_selector_all("h3.opblock-tag", "each => each.map(one => one.dataset.tag)"))
        if visit.page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 2"):
            break
        visit.page.evaluate("scrollBy(0, innerHeight / 2)")
        # Drawn in the frame after the one in which the page finds out what is near.
        visit.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")
    return list(tags)


def test_the_links_of_the_documentation_lead_somewhere_and_its_calls_come_in_the_order_of_learning(server_processes, chromium):
    (web,) = server_processes(1)

    def look(visit):
        visit.page.wait_for_selector("[id^=operations-]")
        links = visit.page.eval_on_selector_all(".information-container a[href]", "each => each.map(one => one.href)")
        return [(link, visit.page.request.get(link).status) for link in links], tags_of_api_docs(visit)

    links, tags = chromium.visit(f"{web.url}/docs/api", look)
    assert {link.removeprefix(web.url) for link, _ in links} >= {"/v1/", "/v1/schema"}
    assert {status for _, status in links} == {200}
    assert tags[:6] == ["Credits", "Budgets", "History", "Holds", "Rates", "Batches"]
    assert tags.index("Batches") < tags.index("Catalogue") < tags.index("Invoices") < tags.index("Operation")
