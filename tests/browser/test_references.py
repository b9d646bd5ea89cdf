"""A list of a form asks for what is typed, by keyboard, also in a row that was added."""

import pytest

from billing.testing import PlanFactory
from ledger import services
from tests.browser.chromium import Chromium, Visit, site_of
from tests.ledger.staff.admin_site import operator

pytestmark = [pytest.mark.slow, pytest.mark.django_db]


def offered_for(visit: Visit, field: str, typed: str) -> list[str]:
    """Type into a field, wait for the answer, and return what its list then offers."""
    with visit.page.expect_response(lambda response: "/references/" in response.url):
        visit.page.locator(f"input[name={field}]").press_sequentially(typed, delay=1)
    visit.page.wait_for_function(
        "([field, typed]) => [...document.querySelector(`input[name=${field}]`).list.options]"
        ".every((each) => each.value.startsWith(typed))",
        arg=[field, typed],
    )
    offered: list[str] = visit.page.evaluate(
        "(field) => [...document.querySelector(`input[name=${field}]`).list.options].map((each) => each.value)", field
    )
    return offered


def test_a_list_offers_what_fits_the_typed_text(chromium: Chromium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.staff.references.MOST_LISTED", 1)
    monkeypatch.setattr("billing.admin.references.MOST_LISTED", 1)
    for holder_id in ("anna", "brightwater"):
        services.grant(holder_id=holder_id, amount=1, idempotency_key=holder_id)
    for code in ("solo", "team", "yearly"):
        PlanFactory(code=code)
    with site_of(operator()) as site:
        holders = chromium.visit(
            f"{site.url}/admin/ledger/account/grant-credits/", lambda visit: offered_for(visit, "holder_id", "bright")
        )

        def plans(visit: Visit) -> list[str]:
            visit.page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
            visit.page.get_by_role("button", name="Add a plan").click()
            return offered_for(visit, "plans-1-name", "te")

        assert (holders, chromium.visit(f"{site.url}/admin/billing/coupon/add/", plans)) == (["brightwater"], ["team"])


def test_the_name_of_a_currency_shows_its_code_beside_the_amounts(chromium: Chromium) -> None:
    def shown(visit: Visit) -> str:
        visit.page.get_by_label("Currency").fill("Euro")
        return visit.page.locator("[data-currency-of=currency]").first.inner_text()

    with site_of(operator()) as site:
        assert chromium.visit(f"{site.url}/admin/billing/coupon/add/", shown) == "EUR"
