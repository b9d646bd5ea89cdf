"""Billing's pages for operators: everything is shown, nothing can be changed, and a page costs the same with more rows."""

import uuid
from decimal import Decimal

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.customers import CreditTerms
from billing.invoicing import Options, Scope, generate_in
from billing.models import Customer, Invoice, Outcome, Parking, Plan, Run, Subscription, UsageEvent
from ledger import services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, use
from tests.ledger.admin_site import older_url, operator

pytestmark = pytest.mark.django_db

BILLING = "/admin/billing"


@pytest.fixture
def client() -> Client:
    return operator()


@pytest.fixture
def billed():
    """A subscription with usage, one finalised invoice and one draft."""
    subscription = SubscriptionFactory()
    use(subscription, "150", at(1, 10), region="eu")
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    generate_in(ref=subscription.ref, options=Options(as_of=at(2, 1), only=Scope.USAGE, finalize=False))
    return subscription


def run_with(outcome, ref, traceback=""):
    run = Run.objects.create(
        run_id=uuid.uuid4(), as_of=at(2, 1), host="worker-1", exit_code=3, summary={"outcomes": {"created": 2, "failed": 1}}
    )
    Outcome.objects.create(run_id=run.pk, subscription_ref=ref, outcome=outcome, detail="no such price", traceback=traceback)
    return run


def every_page(subscription):
    run = run_with("failed", subscription.ref)
    rows = {
        "customer": subscription.customer_id,
        "plan": Plan.objects.get().pk,
        "subscription": subscription.pk,
        "invoice": Invoice.objects.order_by("pk").first().pk,
        "run": run.pk,
    }
    return [f"{BILLING}/{name}/" for name in (*rows, "coupon")], [f"{BILLING}/{name}/{pk}/" for name, pk in rows.items()]


def test_a_superuser_can_look_at_everything_and_change_nothing(client, billed):
    lists, rows = every_page(billed)
    before = {model: list(model.objects.order_by("pk").values()) for model in (Customer, Plan, Subscription, Invoice, Run)}
    for url in lists:
        assert client.get(url).status_code == 200, url
        assert client.post(f"{url}add/", {}).status_code == 403, url
    for url in rows:
        assert client.get(f"{url}change/").status_code == 200, url
        assert client.post(f"{url}change/", {"name": "x", "ref": "x", "state": "paid"}).status_code == 403, url
        assert client.post(f"{url}delete/", {"post": "yes"}).status_code == 403, url
    assert {model: list(model.objects.order_by("pk").values()) for model in before} == before


def test_finalised_invoices_and_drafts_cannot_be_deleted_from_the_list(client, billed):
    pks = list(Invoice.objects.values_list("pk", flat=True))
    assert len(pks) == 2
    client.post(f"{BILLING}/invoice/", {"action": "delete_selected", "_selected_action": pks, "post": "yes"})
    assert Invoice.objects.count() == 2


def test_whoever_has_no_permission_sees_nothing(billed):
    client = operator("ledger.view_entrylisting")
    lists, rows = every_page(billed)
    for url in [*lists, *(f"{row}change/" for row in rows), f"{BILLING}/subscription/{billed.pk}/usage/"]:
        assert client.get(url).status_code == 403, url


def test_an_invoice_is_shown_with_lines_taxes_and_totals(client, billed):
    invoice = Invoice.objects.get(state="open")
    page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
    assert f"Invoice {invoice.number}" in page
    for figure in ("10.00 EUR", "2.00 EUR", "12.00 EUR", "S 20 %"):
        assert figure in page
    assert f'href="{BILLING}/subscription/{billed.pk}/change/"' in page
    assert f'href="{BILLING}/invoice/?q={billed.ref}"' in page


@pytest.mark.parametrize(
    ("query", "count"), [("", 2), ("state=draft", 1), ("state=open", 1), ("state=paid", 0), ("state=stolen", 0), ("q=nobody", 0)]
)
def test_invoices_are_filtered_by_state(client, billed, query, count):
    page = client.get(f"{BILLING}/invoice/?{query}").content.decode()
    assert page.count('class="field-name') == count


def test_invoices_are_found_by_number_subscription_and_customer(client, billed):
    other = SubscriptionFactory()
    generate_in(ref=other.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get(state="open", subscription_ref=billed.ref)
    for word, count in ((invoice.number, 1), (billed.ref, 2), (invoice.customer_ref, 2), (other.ref, 1)):
        assert client.get(f"{BILLING}/invoice/?q={word}").content.decode().count('class="field-name') == count, word


def test_a_subscription_shows_items_periods_billed_invoices_and_usage(client, billed):
    page = client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()
    invoice = Invoice.objects.get(state="open")
    for fact in ("base", "calls", invoice.number, "Latest periods billed", "2026-02-01 00:00:00"):
        assert fact in page
    usage = client.get(f"{BILLING}/subscription/{billed.pk}/usage/").content.decode()
    assert "<code>region</code>: eu" in usage
    assert ">150<" in usage.replace(" ", "").replace("\n", "")
    assert client.get(f"{BILLING}/subscription/999999/usage/").status_code == 404


def test_a_parked_subscription_says_so(client, billed):
    Parking.objects.create(subscription=billed, reason="too-many-periods")
    assert "too-many-periods" in client.get(f"{BILLING}/subscription/").content.decode()
    assert "too-many-periods" in client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()


def test_unparking_takes_a_reason_and_is_recorded_with_the_operators_name(client, billed):
    url = f"{BILLING}/subscription/{billed.pk}/unpark/"
    assert client.get(url).status_code == 403
    parked = Parking.objects.create(subscription=billed, reason="too-many-periods")
    assert url in client.get(f"{BILLING}/subscription/{billed.pk}/change/").content.decode()
    assert client.post(url, {"reason": " "}).status_code == 422
    parked.refresh_from_db()
    assert parked.unparked_at is None
    assert operator("billing.view_subscription", name="ben").post(url, {"reason": "x"}).status_code == 403
    assert client.post(url, {"reason": "looked at it"}).status_code == 302
    parked.refresh_from_db()
    assert (parked.unparked_by, parked.unparked_reason) == ("admin:mara", "looked at it")
    assert parked.unparked_at is not None


def test_usage_is_paged_without_gap_or_repetition(client):
    subscription = SubscriptionFactory()
    for value in range(120):
        # Several at one instant, so that the key must tell them apart.
        use(subscription, str(value), at(1, 1 + value // 10))
    ordered = UsageEvent.objects.filter(subscription=subscription).order_by("-occurred_at", "-idempotency_key")
    expected = [event.idempotency_key for event in ordered]
    seen, url = [], f"{BILLING}/subscription/{subscription.pk}/usage/"
    while url:
        page = client.get(url).content.decode()
        seen += [key for key in expected if f">{key}<" in page]
        url = older_url(page)
    assert seen == expected


def test_a_run_shows_what_failed_with_its_traceback(client, billed):
    run = run_with("failed", billed.ref, traceback="Traceback: ZeroDivisionError")
    page = client.get(f"{BILLING}/run/{run.pk}/change/").content.decode()
    assert "Traceback: ZeroDivisionError" in page
    assert f'href="{BILLING}/subscription/{billed.pk}/change/"' in page
    assert "created 2, failed 1" in client.get(f"{BILLING}/run/").content.decode()


def test_credits_that_paid_lead_to_the_spend_in_the_ledger(client):
    services.grant(holder_id="ada", amount=1_000, idempotency_key="g")
    customer = CustomerFactory(holder_id="ada", credits=CreditTerms(credit_type="credits", unit_value=Decimal("0.01")))
    subscription = SubscriptionFactory(customer=customer.ref)
    generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    page = client.get(f"{BILLING}/invoice/{invoice.pk}/change/").content.decode()
    assert 'href="/admin/ledger/entrylisting/ada_2Fcredits_2F2/change/"' in page
    assert "−10.00 EUR" in page


@pytest.mark.parametrize("name", ["customer", "subscription", "invoice", "plan"])
def test_more_rows_cost_no_more_queries(client, name):
    def count():
        with CaptureQueriesContext(connection) as captured:
            response = client.get(f"{BILLING}/{name}/")
        assert response.status_code == 200
        assert not [query for query in captured.captured_queries if "COUNT(" in query["sql"]]
        return len(captured)

    def subscribe():
        subscription = SubscriptionFactory(plan=PlanFactory().code)
        generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))

    subscribe()
    one = count()
    for _ in range(9):
        subscribe()
    assert count() == one <= 7


def test_lists_are_paged_by_key(client):
    for _ in range(51):
        CustomerFactory()
    newest_first = list(Customer.objects.order_by("-pk").values_list("ref", flat=True))
    first = client.get(f"{BILLING}/customer/").content.decode()
    assert [ref for ref in newest_first if f">{ref}<" in first] == newest_first[:50]
    second = client.get(f"{BILLING}/customer/{older_url(first)}").content.decode()
    assert [ref for ref in newest_first if f">{ref}<" in second] == newest_first[50:]
    assert older_url(second) is None
    assert "is not a place in this list" in client.get(f"{BILLING}/customer/?p=x").content.decode()
