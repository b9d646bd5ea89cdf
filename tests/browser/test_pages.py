"""Admin pages in Chromium: they request nothing from other sites, their scripts run, and they show what they should."""

import os
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin.utils import quote
from django.db import transaction

from billing.models import Customer, Plan, Run, RunResult, Subscription, SuspendedBilling
from ledger import journal, services
from ledger.database.locks import holder_lock
from ledger.errors import InsufficientCredits
from ledger.models import CreditType
from ledger.totals.counting import count_entries
from ledger_project.demonstration.seeding import seed_demo
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.browser.billed import billed_with_everything
from tests.browser.chromium import Visit, site_of
from tests.browser.histories import some_weeks
from tests.browser.small_pictures import keep
from tests.ledger.staff.admin_site import operator
from tests.parts import spread

pytestmark = pytest.mark.django_db

PICTURES = os.environ.get("LEDGER_PICTURES")
"""A directory for the screenshots of the docs; see docs/how-to/admin.md."""
REQUESTED_BUT_NOT_SERVED = {"/favicon.ico", "/admin/jsi18n/"}


@pytest.fixture
def history():
    """Twelve weeks of entries of three holders, acme-gmbh among them."""
    now = datetime.now(UTC)
    for holder in ("acme-gmbh", "brightwater-bank", "northwind"):
        entries = some_weeks(holder, start=now - timedelta(days=84), end=now - timedelta(hours=1))
        with transaction.atomic(), holder_lock(holder) as lock:
            journal.append(lock, entries)


@pytest.fixture
def show(chromium):
    """Opens an admin page and returns the document; asserts that the browser has no complaint and asked no other site."""

    def opened(name: str, address: str, *, height: int = 900) -> str:
        def look(visit: Visit) -> str:
            if PICTURES and name:
                keep(PICTURES, name, visit.picture())
            assert (visit.complaints, visit.elsewhere) == ([], [])
            return visit.html

        with site_of(operator()) as site:
            return chromium.visit(f"{site.url}{address}", look, height=height)

    return opened


def test_the_list_of_entries_shows_50_rows_and_requests_nothing_from_other_sites(history, show):
    shown = show("admin-entries", "/admin/ledger/entrylisting/", height=720)
    assert len(re.findall(r'class="data-row', shown)) == 50
    # Alpine removes this attribute when it has run.
    assert "x-cloak" not in re.search(r"<html[^>]*>", shown)[0]


@pytest.mark.slow
def test_a_holder_shows_what_is_available_and_how_long_it_lasts(history, show):
    shown = show("admin-holder", "/admin/ledger/account/holders/acme-gmbh/?days=90", height=1500)
    assert re.search(r"data-available[^>]*>[\d,]+<", shown)
    # The chart's script sets the width of the canvas when it has drawn the chart.
    assert re.search(r'<canvas class="chart"[^>]*style="[^"]*width: \d{3,}px', shown)


@pytest.mark.slow
def test_the_first_page_shows_what_needs_attention(history, show):
    count_entries(patience_seconds=0)
    shown = show("", "/admin/", height=1300)
    assert 'id="attention-heading"' in shown
    assert 'id="totals-heading"' in shown
    assert "Running dry" in shown


@pytest.mark.slow
@pytest.mark.check
def test_a_hold_shows_how_much_is_still_held_and_how_much_was_captured(history, show):
    day = timedelta(days=1)
    common = {"holder_id": "acme-gmbh", "actor": "key:backend", "reference": "job-17"}
    services.grant(holder_id="acme-gmbh", amount=20_000, idempotency_key="for-the-job", actor="key:backend")
    hold = services.hold(**common, amount=6_000, idempotency_key="hold", reason="batch job of 40 documents")
    services.capture(**common, hold=hold.sequence, amount=1_200, final=False, idempotency_key="part-1", reason="8 documents")
    extended_to = datetime.now(UTC) + 2 * day
    services.extend(**common, hold=hold.sequence, expires_at=extended_to, idempotency_key="longer", reason="a long queue")
    services.capture(**common, hold=hold.sequence, amount=900, final=False, idempotency_key="part-2", reason="6 documents")
    address = f"/admin/ledger/entrylisting/{quote(f'acme-gmbh/credits/{hold.sequence}')}/change/"
    shown = show("admin-hold", address, height=1040)
    assert "3,900 still held, 2,100 captured" in shown


@pytest.mark.slow
@pytest.mark.check
def test_the_list_of_rates_shows_which_version_is_current(show):
    for code, price, actor, reason in (
        ("gpt-4o.input", 1, "admin:mara", "price list 2026"),
        ("gpt-4o.output", 3, "admin:mara", "price list 2026"),
        ("gpt-4o.output", 4, "admin:ben", "our cost went up"),
        ("image.1024", 40, "key:backoffice", "new product"),
    ):
        per = 1 if code.startswith("image") else 1_000
        services.publish_rate(code=code, price=price, per=per, actor=actor, reason=reason)
    shown = show("admin-rates", "/admin/ledger/ratelisting/", height=440)
    assert re.findall(r">\s*(current|superseded)\s*<", shown) == ["current", "current", "superseded", "current"]


@pytest.mark.slow
def test_a_run_of_the_generator_shows_its_total_and_the_outcomes(show):
    refs = [SubscriptionFactory().ref for _ in range(3)]
    summary = {
        "outcomes": {"created": 0, "finalised": 2_998, "nothing_due": 41, "busy": 0, "deferred": 0, "suspended": 1, "failed": 1},
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
        summary=summary,
    )
    for ref, outcome, detail in ((refs[0], "failed", "ValueError: no such meter"), (refs[1], "suspended", "unusual-amount")):
        RunResult.objects.create(run_id=run.pk, subscription_ref=ref, outcome=outcome, detail=detail)
    shown = show("admin-run", f"/admin/billing/run/{run.pk}/change/", height=1080)
    assert "367,854.60 EUR" in shown
    assert "the amount is far above the usual one" in shown
    assert "no such meter" in shown
    assert "ValueError" not in shown


def test_an_invoice_looks_like_a_document_with_the_arithmetic_of_each_line(show):
    invoice, _, _ = billed_with_everything()
    shown = show("admin-invoice", f"/admin/billing/invoice/{invoice.pk}/change/", height=1400)
    assert "5,390,000 − 1,000,000 free = 4,390,000 × 0.00002 = 87.80" in shown
    assert "days overdue" in shown
    assert '<span class="overdue">overdue</span>' in shown


@pytest.mark.slow
def test_a_pages_name_is_not_cut_off_beside_its_buttons(chromium):
    invoice, *_ = billed_with_everything()
    SuspendedBilling.objects.create(subscription_id=invoice.subscription_id, reason="unusual-amount")  # brings another button

    def is_whole(visit: Visit) -> bool:
        name = visit.page.locator("#header-inner h1 > :last-child")
        return name.is_visible() and bool(name.evaluate("each => each.scrollWidth <= each.clientWidth"))

    with site_of(operator()) as site:
        for page in (f"customer/{invoice.customer_id}", f"invoice/{invoice.pk}", f"subscription/{invoice.subscription_id}"):
            for width in (1400, 390):
                assert chromium.visit(f"{site.url}/admin/billing/{page}/change/", is_whole, width=width), (page, width)


@pytest.mark.parametrize("width", spread([1400, 390], test=[390]))
def test_the_unit_beside_an_amount_follows_the_credit_type_that_is_typed(chromium, width):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)

    def job(visit: Visit) -> None:
        unit = visit.page.locator("#id_amount_unit")
        credit_type = visit.page.get_by_label("Credit type")
        for typed, shown in (("usd_cents", "USD"), ("api_calls", "api calls"), ("", "credits"), ("usd_cents", "USD")):
            credit_type.fill(typed)
            assert unit.inner_text() == shown
            assert unit.evaluate("each => each.querySelector('span').getClientRects().length") == 1, "on one line"
        assert visit.page.get_by_label("Amount").evaluate("each => each.getAttribute('aria-describedby')") == "id_amount_unit"
        assert not visit.is_wider_than_the_window
        visit.page.get_by_label("Holder").fill("ada")
        visit.page.get_by_label("Amount").fill("12.505")
        visit.page.get_by_label("Source").select_option("purchased")
        visit.page.get_by_label("Reason").fill("top-up")
        visit.page.get_by_role("button", name="Continue").click()
        again = visit.page.get_by_label("New holder, again")
        again.wait_for()
        again.fill("ada")
        assert "Amount has 3 decimals; an amount of USD has at most 2." in visit.text
        assert unit.inner_text() == "USD"
        visit.page.get_by_label("Amount").fill("12.50")
        visit.page.get_by_role("button", name="Continue").click()
        visit.page.get_by_role("button", name="Grant", exact=True).wait_for()
        assert "12.50 added, for ada (US dollars)." in visit.text
        # Back to the form: the browser fills in what was typed, and the unit is that of it.
        visit.page.get_by_role("button", name="Change").click()
        visit.page.get_by_label("Amount").wait_for()
        assert (visit.page.get_by_label("Amount").input_value(), unit.inner_text()) == ("12.50", "USD")
        assert (visit.complaints, visit.elsewhere) == ([], [])

    with site_of(operator()) as site:
        chromium.visit(f"{site.url}/admin/ledger/account/grant-credits/", job, width=width)


def chart_in(visit: Visit, type_: str) -> str:
    """The expression of the page's first chart of that type, once it is drawn."""
    chart = f"Chart.getChart(document.querySelector('canvas[data-type={type_}]'))"
    visit.page.wait_for_function(f"{chart} !== undefined")
    return chart


def test_refusals_per_hour_are_whole_numbers_on_the_axis(chromium):
    services.grant(holder_id="ada", amount=1, idempotency_key="g")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=2, idempotency_key="s")

    def ticks(visit: Visit) -> list[float]:
        found: list[float] = visit.page.evaluate(f"{chart_in(visit, 'bar')}.scales.y.ticks.map(tick => tick.value)")
        return found

    with site_of(operator()) as site:
        assert chromium.visit(f"{site.url}/admin/", ticks) == [0, 1]


def axis(visit: Visit) -> list[str]:
    """What is written at the vertical axis of a page's first line chart, from below."""
    axis = f"{chart_in(visit, 'line')}.scales.y"
    found: list[str] = visit.page.evaluate(f"[{axis}.options.title.text, ...{axis}.ticks.map(tick => tick.label)]")
    return found


@pytest.mark.parametrize(
    ("credit_type", "expected"),
    [
        pytest.param("credits", ["credits", "0", "500,000", "1,000,000", "1,500,000"], marks=pytest.mark.slow),
        ("usd_cents", ["USD", "0", "5,000", "10,000", "15,000"]),
    ],
)
def test_a_charts_axis_begins_at_0_and_has_the_unit_and_groups_of_thousands(chromium, credit_type, expected):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    services.grant(holder_id="ada", amount=1_200_000, idempotency_key="g", credit_type=credit_type)
    with site_of(operator()) as site:
        address = f"{site.url}/admin/ledger/account/holders/ada/?type={credit_type}"
        assert chromium.visit(address, axis) == expected
        assert chromium.visit(address, axis, width=390, theme="dark") == expected


OUTSIDE_THEIR_VALUES = """chart => chart.data.datasets.flatMap((_, index) => {
    const points = chart.getDatasetMeta(index).data;
    return points.slice(1).filter((point, number) => {
        const ends = [points[number].y, point.y];
        const handles = [points[number].cp2y ?? ends[0], point.cp1y ?? ends[1]];
        return Math.max(...handles) > Math.max(...ends) + 0.01 || Math.min(...handles) < Math.min(...ends) - 0.01;
    }).length;
})"""
"""How many pieces of each line bend beyond their ends, told by the handles of their curves."""


@pytest.mark.slow
def test_a_line_is_never_drawn_above_or_below_its_values(history, chromium):
    """The control gives the same lines a tension: they bend beyond their values."""
    count_entries(patience_seconds=0)

    def outside(visit: Visit) -> tuple[list[int], list[int]]:
        chart = chart_in(visit, "line")
        as_drawn = visit.page.evaluate(f"({OUTSIDE_THEIR_VALUES})({chart})")
        bend = "each.cubicInterpolationMode = 'default'; each.stepped = false; each.tension = 0.2"
        visit.page.evaluate(f"{{ const chart = {chart}; chart.data.datasets.forEach(each => {{ {bend} }}); chart.update() }}")
        return as_drawn, visit.page.evaluate(f"({OUTSIDE_THEIR_VALUES})({chart})")

    with site_of(operator()) as site:
        for page in ("", "ledger/account/holders/acme-gmbh/?days=90"):
            as_drawn, control = chromium.visit(f"{site.url}/admin/{page}", outside)
            assert as_drawn == [0, 0]
            assert sum(control) > 0


def test_control_a_script_that_the_policy_forbids_is_reported(chromium):
    """A page with a policy that forbids evaluating text, which Alpine needs; so it is never shown."""

    def complaints(visit: Visit) -> list[str]:
        visit.page.goto(visit.url)
        return visit.complaints

    client = operator()
    policy = client.get("/admin/ledger/entrylisting/")["Content-Security-Policy"]
    with site_of(client) as site:
        assert chromium.look(f"{site.url}/admin/ledger/entrylisting/", complaints) == []
        site.policy = policy.replace(" 'unsafe-eval'", "")
        assert any("unsafe-eval" in line for line in chromium.look(f"{site.url}/admin/ledger/entrylisting/", complaints))


@pytest.mark.parametrize("width", spread([1440, 390], test=(), check=[390]))
def test_the_form_of_a_plan_shows_the_fields_of_the_model_and_what_an_example_costs(chromium, width):
    def build(visit: Visit) -> None:
        page = visit.page
        page.get_by_label("Currency").fill("EUR")
        page.locator("[name=name]").fill("Team")
        page.locator("[name=price_0_key]").fill("calls")
        assert not page.locator("[name=price_0_package_size]").is_visible()
        page.locator("[name=price_0_kind]").select_option("usage")
        page.locator("[name=price_0_model]").select_option("graduated")
        page.locator("[name=price_0_meter]").fill("calls")
        page.locator("[name=price_0_aggregation]").select_option("sum")
        assert not page.locator("[name=price_0_unit_amount]").is_visible()
        price = page.locator("[data-price]").first
        price.get_by_label("Tier 1: Up to").fill("1000")
        price.get_by_label("Tier 1: Unit amount").fill("0.02")
        price.get_by_label("Tier 2: Up to").fill("2000")
        price.get_by_label("Tier 2: Unit amount").fill("0.01")
        price.get_by_role("button", name="Add a tier").click()
        price.get_by_label("Tier 3: Unit amount").fill("0.005")
        price.get_by_role("button", name="Remove tier 2").click()
        price.get_by_text("1,500 calls: 22.50 EUR, because").wait_for()
        assert "Team: calls" in price.inner_text()
        assert page.locator("[name=price_0_tiers-1-unit_amount]").input_value() == "0.005"
        assert not visit.is_wider_than_the_window
        page.locator("[name=code]").fill("team")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("each part at its own price: up to 1,000 at 0.02 EUR; beyond at 0.005 EUR").wait_for()
        assert (visit.complaints, visit.elsewhere) == ([], [])

    with site_of(operator()) as site:
        chromium.visit(f"{site.url}/admin/billing/plan/add/", build, width=width)


@pytest.mark.parametrize("width", spread([1400, 390], test=(), check=[390]))
def test_rows_are_added_and_removed_by_mouse_and_by_keyboard(chromium, width):
    plan = PlanFactory(prices=[recurring(model="unit", tax_rate="20")])
    customer = CustomerFactory()

    def order(visit: Visit) -> None:
        page = visit.page
        for name, text in (("ref", "SUB-9"), ("customer", customer.ref), ("plan", plan.code)):
            page.locator(f"[name={name}]").fill(text)
        assert not page.get_by_label("Row 1: Quantity").is_visible()
        for folded in ("Negotiated prices", "Phases"):
            page.locator("summary", has_text=folded).click()
        page.get_by_label("Amount 1: Price").fill("base")
        page.get_by_label("Amount 1: What").select_option("Price")
        page.get_by_label("Amount 1: Amount").fill("9,50")
        assert page.locator("#id_prices-0-amount_currency").inner_text() == plan.currency
        page.get_by_label("Phase 1: It ends").select_option("after periods")
        page.get_by_label("Phase 1: Periods").fill("2")
        page.get_by_label("Phase 1: Prices").select_option("free: a trial")
        for number in (2, 3):
            page.get_by_role("button", name="Add a phase").focus()
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.ariaLabel") == f"Phase {number}: It ends"
        assert page.locator("[data-rows=phases] tbody tr").count() == 3
        page.get_by_role("button", name="Remove phase 2").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.ariaLabel") == "Remove phase 2"
        page.get_by_label("Phase 2: It ends").select_option("does not end: the last phase")
        page.get_by_label("Phase 2: Price", exact=True).fill("base")
        page.get_by_label("Phase 2: Quantity").fill("x")
        assert not visit.is_wider_than_the_window
        page.get_by_role("button", name="Continue").click()
        page.locator("#id_phases-1-quantity_fault").wait_for()
        assert page.get_by_label("Phase 1: Periods").input_value() == "2"
        page.get_by_label("Phase 2: Quantity").fill("4")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("It has 2 phases.").wait_for()
        assert (visit.complaints, visit.elsewhere) == ([], [])

    with site_of(operator()) as site:
        chromium.visit(f"{site.url}/admin/billing/subscription/add/", order, width=width)
    assert not Subscription.objects.exists()


@pytest.mark.slow
def test_the_first_page_of_a_company_shows_its_income(show):
    seed_demo()
    assert "MRR now: Scale" in show("admin-home", "/admin/", height=1300)


@pytest.mark.slow
def test_a_customer_shows_what_is_asked_first(show):
    seed_demo()
    customer = Customer.objects.get(ref="CUST-LUMEN")
    shown = show("admin-customer", f"/admin/billing/customer/{customer.pk}/change/", height=1500)
    assert "195.00 EUR" in shown
    assert re.search(r'<canvas class="chart"[^>]*style="[^"]*width: \d{3,}px', shown)


@pytest.mark.slow
def test_the_next_version_of_a_plan_begins_with_the_last(show):
    seed_demo()
    plan = Plan.objects.get(code="team")
    shown = show("admin-plan", f"/admin/billing/plan/{plan.pk}/new-version/", height=1300)
    assert "1,500,000 tokens: 10.00" in shown
