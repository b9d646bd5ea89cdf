"""Usage paid in credits first, over REST from the plan to the balance; and how the admin shows it."""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import Plan, Run, Subscription
from tests.billing.factories import metered, recurring, unique
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

IN_CREDITS = {"credit_type": "credits", "per_unit": "2.5"}


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client that may read and write in billing, and grant and spend credits."""
    return make_api("billing:read", "billing:write", "ledger:read", "ledger:grant", "ledger:spend")


def plan_body(**credits_of_calls: Any) -> dict[str, Any]:
    """The body of a new plan whose calls take credits, with a fee."""
    return {
        "ref": unique("plan"), "name": "Calls", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [metered(credits=credits_of_calls or IN_CREDITS, tax_rate="20"), recurring()],
    }  # fmt: skip


@pytest.fixture
def ordered_with_250_credits(api: ApiClient) -> tuple[str, str]:
    """A holder with 250 credits, and a subscription whose calls take 2.5 of them; made over REST."""
    plan = api.post("/v1/plans", plan_body()).json()
    customer, ref, holder = unique("CUST"), unique("SUB"), unique("holder")
    api.post("/v1/customers", {"ref": customer, "name": "Ada", "currency": "EUR", "holder_id": holder})
    body = {"ref": ref, "customer": customer, "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z"}
    assert api.post("/v1/subscriptions", body).status_code == 201
    assert api.post(f"/v1/holders/{holder}/grants", {"amount": 250, "source": "purchased"}).status_code == 201
    return holder, ref


def use_calls(api: ApiClient, ref: str, value: str, day: int = 10) -> None:
    """Record calls of a day in January over REST."""
    occurred_at = f"2026-01-{day}T00:00:00Z"
    event = {
        "idempotency_key": unique("use"), "subscription": ref, "meter": "calls", "value": value, "occurred_at": occurred_at,
    }  # fmt: skip
    assert api.post("/v1/usage-events", {"events": [event]}).json()["results"][0]["result"] == "accepted"


def available_credits(api: ApiClient, holder: str) -> int:
    """The credits that the holder can spend, over REST."""
    available: int = api.get(f"/v1/holders/{holder}/balance?credit_type=credits").json()["available"]
    return available


def test_from_a_plan_to_the_invoice_and_the_balance(api: ApiClient, ordered_with_250_credits: tuple[str, str]) -> None:
    holder, ref = ordered_with_250_credits
    use_calls(api, ref, "150")
    body = {"as_of": "2026-02-01T00:00:00Z", "only": "usage"}
    dry = api.post(f"/v1/subscriptions/{ref}/invoices", body | {"dry_run": True}).json()["invoices"]
    assert available_credits(api, holder) == 250
    [invoice] = api.post(f"/v1/subscriptions/{ref}/invoices", body).json()["invoices"]
    [line] = invoice["lines"]
    assert [one["rating"] for one in dry[0]["lines"]] == [line["rating"]]
    # 100 of 150 calls are covered; 50 at 0.02 are 1.00, and 20 percent of tax are 0.20.
    assert (line["quantity"], line["amount_minor"], invoice["total_minor"]) == ("150", 100, 120)
    covered = {"units": "100", "credits": 250, "credit_type": "credits", "holder_id": holder, "entries": [2]}
    assert line["rating"]["covered"] == covered
    entry = api.get(f"/v1/holders/{holder}/entries/2?credit_type=credits").json()
    assert (entry["amount"], entry["reference"], entry["actor"]) == (-250, f"usage of invoice {invoice['id']}", "billing")
    assert available_credits(api, holder) == 0

    assert api.post(f"/v1/invoices/{invoice['id']}/void", {}).status_code == 200
    assert api.post(f"/v1/invoices/{invoice['id']}/void", {}).status_code == 200
    assert available_credits(api, holder) == 250


def test_an_amendments_dry_run_changes_no_credits(api: ApiClient, ordered_with_250_credits: tuple[str, str]) -> None:
    holder, ref = ordered_with_250_credits
    use_calls(api, ref, "40")
    api.post(f"/v1/subscriptions/{ref}/invoices", {"as_of": "2026-02-01T00:00:00Z"})
    assert available_credits(api, holder) == 150
    cheaper = api.post("/v1/plans", plan_body(per_unit="1")).json()["ref"]
    change = {"effective_at": "2026-01-01T00:00:00Z", "plan": cheaper}
    dry = api.post(f"/v1/subscriptions/{ref}/amendments?dry_run=true", change)
    lines = [line for one in dry.json()["invoices"] for line in one["lines"] if line["price_key"] == "calls"]
    assert sorted(line["rating"]["covered"]["credits"] for line in lines) == [-100, 40]
    assert available_credits(api, holder) == 150


def test_a_plan_shows_its_credits_and_gives_the_type_where_it_was_left_out(api: ApiClient) -> None:
    made = api.post("/v1/plans", plan_body(per_unit="0.50"))
    assert made.json()["prices"][0]["credits"] == {"credit_type": "credits", "per_unit": "0.5"}


@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ({"per_unit": "0"}, "/prices/0/credits/per_unit", "not-positive"),
        ({"per_unit": 2}, "/prices/0/credits/per_unit", "type"),
        ({"per_unit": "1", "credit_type": "A B"}, "/prices/0/credits/credit_type", "format"),
        ({"per_unit": "1", "worth": "1"}, "/prices/0/credits/worth", "unknown-field"),
    ],
)
def test_bad_credits_are_refused_and_nothing_is_written(api: ApiClient, given: Any, pointer: str, code: str) -> None:
    body = plan_body(**given)
    response = api.post("/v1/plans", body)
    assert response.status_code == 400
    assert [(one["pointer"], one["code"]) for one in response.json()["errors"]] == [(pointer, code)]
    assert not Plan.objects.filter(code=body["ref"]).exists()


def test_a_rating_says_what_a_number_of_credits_covers(api: ApiClient) -> None:
    price = metered(credits=IN_CREDITS, free_units=20)
    body = {"currency": "EUR", "price": price, "quantity": 150, "credits_available": 250}
    response = api.post("/v1/ratings", body, key=None).json()
    # 20 free, 100 covered, 30 x 0.02.
    assert response["amount_minor"] == 60
    assert response["covered"] == {"units": "100", "credits": 250, "credit_type": "credits"}
    # Of the 50 after 100 that are billed, 3 credits cover one; without credits nothing is said of them.
    later = api.post("/v1/ratings", body | {"already_billed": "100", "credits_available": 3}, key=None).json()
    assert (later["amount_minor"], later["covered"]["units"], later["covered"]["credits"]) == (98, "1", 3)
    assert "covered" not in api.post("/v1/ratings", {"currency": "EUR", "price": price, "quantity": 150}, key=None).json()


def test_a_rating_with_credits_for_a_price_that_takes_none_is_refused(api: ApiClient) -> None:
    body = {"currency": "EUR", "price": metered(), "quantity": 1, "credits_available": 5}
    response = api.post("/v1/ratings", body, key=None)
    assert response.status_code == 400
    assert [(one["pointer"], one["code"]) for one in response.json()["errors"]] == [("/credits_available", "not-used")]


def test_the_admin_shows_credits_on_the_price_the_line_and_the_claim(
    api: ApiClient, ordered_with_250_credits: tuple[str, str]
) -> None:
    _, ref = ordered_with_250_credits
    use_calls(api, ref, "150")
    [invoice] = api.post(f"/v1/subscriptions/{ref}/invoices", {"as_of": "2026-02-01T00:00:00Z"}).json()["invoices"]
    client, subscription = operator(), Subscription.objects.get(ref=ref)
    page = client.get(f"/admin/billing/invoice/{invoice['id']}/change/").content.decode()
    assert "100 units paid with 250 credits" in page
    assert ">entry #2</a>" in page
    assert "250 credits" in client.get(f"/admin/billing/subscription/{subscription.pk}/change/").content.decode()
    plan = Plan.objects.order_by("-pk")[0]
    assert "Paid with 2.5 credits each first" in client.get(f"/admin/billing/plan/{plan.pk}/change/").content.decode()


def test_the_admin_shows_what_a_run_spent_on_usage(api: ApiClient, ordered_with_250_credits: tuple[str, str]) -> None:
    _, ref = ordered_with_250_credits
    use_calls(api, ref, "150")
    arguments = ("--as-of", "2026-02-01", "--subscription", ref, "--no-progress")
    call_command("generate_invoices", *arguments, stdout=StringIO(), stderr=StringIO())
    run = Run.objects.latest("started_at")
    assert run.summary["credits_spent_on_usage"] == {"credits": 250}
    page = operator().get(f"/admin/billing/run/{run.pk}/change/").content.decode()
    assert "<code>credits spent on usage</code>: 250 credits" in page
