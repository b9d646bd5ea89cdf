"""Billing over REST: the calls of the contract, replays, and what is refused."""

import pytest
from django.db import connection

from billing.models import Amendment, Charge, Coupon, Customer, Invoice, Plan, Subscription, UsageEvent
from ledger.keys import api_keys
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring, unique
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan(api):
    """A plan made over REST: 10.00 in advance, 0.02 per call."""
    body = {
        "ref": unique("plan"), "name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [recurring(tax_rate="20"), metered(tax_rate="20")],
    }  # fmt: skip
    return api.post("/v1/plans", body).json()


@pytest.fixture
def subscribed(api, plan):
    """The ref of a subscription made over REST."""
    customer, ref = unique("CUST"), unique("SUB")
    assert api.post("/v1/customers", {"ref": customer, "name": "Ada", "currency": "EUR"}).status_code == 201
    body = {"ref": ref, "customer": customer, "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z"}
    assert api.post("/v1/subscriptions", body).status_code == 201
    return ref


def record_usage(api, ref, *events):
    """Record usage events of `calls` over REST: (key, value, time) each."""
    sent = [
        {"idempotency_key": key, "subscription": ref, "meter": "calls", "value": value, "occurred_at": occurred_at}
        for key, value, occurred_at in events
    ]
    return api.post("/v1/usage-events", {"events": sent})


def test_two_prices_of_a_plan_with_one_key_are_refused(api):
    """A dry run and the form refuse them too; nothing is written."""
    code = unique("plan")
    body = {"ref": code, "name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1}}
    for query in ("", "?dry_run=true"):
        refused = api.post(f"/v1/plans{query}", {**body, "prices": [recurring("seats"), recurring("seats")]})
        assert refused.status_code == 400
        assert [(error["pointer"], error["code"]) for error in refused.json()["errors"]] == [("/prices/1/key", "duplicate")]
    assert not Plan.objects.filter(code=code).exists()
    assert api.post("/v1/plans", {**body, "prices": [recurring("seats"), recurring("rooms")]}).status_code == 201


def test_a_subscription_is_billed_from_its_plan_to_a_paid_invoice(api, subscribed):
    used = record_usage(api, subscribed, (unique("a"), "150", "2026-01-10T00:00:00Z"), (unique("b"), 50, "2026-01-11T00:00:00Z"))
    assert [one["result"] for one in used.json()["results"]] == ["accepted", "accepted"]

    made = api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-02-01T00:00:00Z"})
    assert made.status_code == 201
    [invoice] = made.json()["invoices"]
    assert [(line["kind"], line["amount_minor"]) for line in invoice["lines"]] == [
        ("recurring", 1000), ("recurring", 1000), ("usage", 400),
    ]  # fmt: skip
    assert (invoice["state"], invoice["tax_minor"], invoice["total_minor"]) == ("open", 480, 2880)

    assert api.get(f"/v1/invoices/{invoice['id']}").json() == invoice
    listed = api.get(f"/v1/invoices?subscription={subscribed}&state=open").json()
    assert listed["results"] == [invoice]
    paid = api.post(f"/v1/invoices/{invoice['id']}/pay", {})
    assert (paid.status_code, paid.json()["state"]) == (200, "paid")
    again = api.post(f"/v1/invoices/{invoice['id']}/void", {})
    assert (again.status_code, again.json()["type"].rsplit("/", 1)[1]) == (409, "invalid-transition")


def test_generating_with_nothing_due_is_200_with_an_empty_list(api, subscribed):
    api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-01T00:00:00Z"})
    response = api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-01T00:00:00Z"})
    assert (response.status_code, response.json()) == (200, {"invoices": [], "allowances": []})


def test_a_repeated_key_gets_the_first_response(api, subscribed):
    path, body = f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-01T00:00:00Z"}
    key = unique("key")
    first, second = api.post(path, body, key=key), api.post(path, body, key=key)
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert Invoice.objects.filter(subscription_ref=subscribed).count() == 1
    other = api.post(path, {"as_of": "2026-02-01T00:00:00Z"}, key=key)
    assert other.status_code == 422
    assert Invoice.objects.filter(subscription_ref=subscribed).count() == 1


def test_a_409_is_replayed_for_the_same_key(api):
    ref, key = unique("CUST"), unique("key")
    body = {"ref": ref, "name": "Ada", "currency": "EUR"}
    assert api.post("/v1/customers", body).status_code == 201
    first, second = api.post("/v1/customers", body, key=key), api.post("/v1/customers", body, key=key)
    assert (first.status_code, second.status_code) == (409, 409)
    assert second.content == first.content
    assert second.headers["Idempotency-Replayed"] == "true"
    assert first.json()["request_id"] == first.headers["X-Request-Id"] != second.headers["X-Request-Id"]
    assert Customer.objects.filter(ref=ref).count() == 1


@pytest.mark.parametrize(
    "spelled",
    [
        {"as_of": "2026-01-01T01:00:00+01:00"},
        {"as_of": "2026-01-01T00:00:00.000000Z", "finalize": True, "dry_run": False},
        {"only": None, "as_of": "2026-01-01T00:00:00Z"},
    ],
)
def test_the_same_request_spelled_otherwise_gets_the_first_response(api, subscribed, spelled):
    path, key = f"/v1/subscriptions/{subscribed}/invoices", unique("key")
    first = api.post(path, {"as_of": "2026-01-01T00:00:00Z"}, key=key)
    second = api.post(path, spelled, key=key)
    assert (first.status_code, second.status_code, second.content) == (201, 201, first.content)
    assert Invoice.objects.filter(subscription_ref=subscribed).count() == 1


def test_a_zero_below_zero_is_zero_in_the_first_response_too(api):
    ref, key = unique("CUST"), unique("key")
    raw = b'{"ref": "%s", "name": "Ada", "currency": "EUR", "address": {"floor": -0.0}}' % ref.encode()
    first, second = api.post("/v1/customers", raw=raw, key=key), api.post("/v1/customers", raw=raw, key=key)
    assert b'"floor":0.0' in first.content
    assert (first.status_code, second.status_code, second.content) == (201, 201, first.content)
    assert Customer.objects.filter(ref=ref).count() == 1


def test_a_number_spelled_otherwise_is_the_same_and_another_one_is_not(api, subscribed):
    path, key = f"/v1/subscriptions/{subscribed}/amendments", unique("key")

    def amended(quantity):
        return api.post(path, {"effective_at": "2026-01-11T00:00:00Z", "quantities": {"base": quantity}}, key=key)

    first = amended("20")
    assert (first.status_code, amended(20).content, amended("20.0").content) == (201, first.content, first.content)
    assert amended("2").status_code == 422
    assert Amendment.objects.filter(subscription__ref=subscribed).count() == 2


def test_a_usage_event_with_a_used_key_is_never_counted_again(api, subscribed):
    key = unique("event")
    assert record_usage(api, subscribed, (key, "5", "2026-01-10T00:00:00Z")).json()["results"][0]["result"] == "accepted"
    results = record_usage(
        api, subscribed,
        (key, "5.0", "2026-01-10T01:00:00+01:00"),
        (key, "6", "2026-01-10T00:00:00Z"),
        ("", "6", "2026-01-10T00:00:00Z"),
        (unique("event"), "6", "2026-01-10T00:00:00"),
    ).json()["results"]  # fmt: skip
    assert [one["result"] for one in results] == ["duplicate", "conflict", "invalid", "invalid"]
    assert "offset" in results[3]["detail"]
    assert UsageEvent.objects.filter(subscription__ref=subscribed).count() == 1


def test_an_unknown_key_with_slashes_is_named_by_a_json_pointer(api, subscribed):
    body = {"effective_at": "2026-01-11T00:00:00Z", "quantities": {"a/b~c": 1}}
    refused = api.post(f"/v1/subscriptions/{subscribed}/amendments", body)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/quantities/a~1b~0c")
    assert Amendment.objects.filter(subscription__ref=subscribed).count() == 1


def test_an_event_of_an_unknown_subscription_is_invalid_and_does_not_use_up_its_key(api, subscribed):
    key = unique("event")
    assert record_usage(api, unique("SUB"), (key, "5", "2026-01-10T00:00:00Z")).json()["results"][0]["result"] == "invalid"
    assert record_usage(api, subscribed, (key, "5", "2026-01-10T00:00:00Z")).json()["results"][0]["result"] == "accepted"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"prices": [recurring(unit_amount="-1")]}, "/prices/0/unit_amount"),
        ({"prices": [metered(aggregation=None)]}, "/prices/0/aggregation"),
        (
            {"prices": [recurring(model="graduated", unit_amount=None, tiers=[{"up_to": 5, "unit_amount": "1"}])]},
            "/prices/0/tiers",
        ),
    ],
)
def test_an_invalid_plan_is_refused_with_the_pointer_to_the_field(api, change, pointer):
    code = unique("plan")
    body = {
        "ref": code, "name": "Basic", "currency": "EUR", "interval": {"unit": "month"}, "prices": [recurring()],
    } | change  # fmt: skip
    response = api.post("/v1/plans", body)
    assert response.status_code == 400
    assert any(one["pointer"].startswith(pointer) for one in response.json()["errors"])
    assert not Plan.objects.filter(code=code).exists()


def test_a_rating_stores_nothing_and_shows_its_steps(api):
    price = metered(model="graduated", unit_amount=None, tiers=[
        {"up_to": 100, "unit_amount": "0.10", "flat_amount": "1.00"}, {"up_to": None, "unit_amount": "0.05"},
    ])  # fmt: skip
    response = api.post("/v1/ratings", {"currency": "EUR", "price": price, "quantity": 150}, key=None).json()
    # 100 x 0.10 + 1.00 + 50 x 0.05 = 13.50
    assert (response["amount_minor"], [step["amount"] for step in response["steps"]]) == (1350, ["11", "2.5"])
    rest = api.post("/v1/ratings", {"currency": "EUR", "price": price, "quantity": 150, "already_billed": "100"}, key=None).json()
    assert rest["amount_minor"] == 250


def test_a_rating_converts_quantity_events_and_what_is_billed_already(api):
    price = metered(unit_amount="0.10", conversion={"divide_by": "1000", "rounding": "up"})
    body = {"currency": "EUR", "price": price}
    response = api.post("/v1/ratings", body | {"quantity": 2_001}, key=None).json()
    # 2,001 bytes are 3 started kB
    assert (response["amount_minor"], response["steps"][0]["units"]) == (30, "3")
    conversion = {"measured": "2001", "quantity": "3", "divide_by": "1000", "multiply_by": None, "rounding": "up"}
    assert response["conversion"] == conversion
    events = [{"value": value, "occurred_at": "2026-01-05T00:00:00Z"} for value in (2_000, 1)]
    assert api.post("/v1/ratings", body | {"events": events}, key=None).json() == response
    rest = api.post("/v1/ratings", body | {"quantity": 3_500, "already_billed": "2001"}, key=None).json()
    assert rest["amount_minor"] == 10


def test_a_rating_shows_what_the_bounds_of_events_add_and_take_off(api):
    price = metered(model="percentage", unit_amount=None, rate="2", event_minimum="0.50", event_maximum="5")
    events = [{"value": value, "occurred_at": "2026-01-05T00:00:00Z"} for value in (10, 100, 400)]
    response = api.post("/v1/ratings", {"currency": "EUR", "price": price, "events": events}, key=None).json()
    # 510 x 2 % = 10.20; 0.30 more for the first, 3.00 less for the last
    assert response["amount_minor"] == 750
    steps = [(step.get("reason"), step["amount"]) for step in response["steps"]]
    assert steps == [(None, "10.2"), ("event_minimum", "0.3"), ("event_maximum", "-3")]
    one = api.post("/v1/ratings", {"currency": "EUR", "price": price, "quantity": 400}, key=None).json()
    assert one["amount_minor"] == 500


def test_an_amendment_is_billed_by_the_next_run(api, subscribed):
    api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-01T00:00:00Z"})
    path = f"/v1/subscriptions/{subscribed}/amendments"
    body = {"effective_at": "2026-01-17T00:00:00Z", "quantities": {"base": 3}}
    dry = api.post(f"{path}?dry_run=true", body)
    assert dry.status_code == 200
    assert Amendment.objects.filter(subscription__ref=subscribed).count() == 1
    assert api.post(path, body).status_code == 201
    [invoice] = api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-17T00:00:00Z"}).json()["invoices"]
    # 15 of 31 days: 10.00 x 15/31 = 4.838… back, 30.00 x 15/31 = 14.516… instead
    assert [(line["kind"], line["amount_minor"]) for line in invoice["lines"]] == [("credit", -484), ("recurring", 1452)]


def test_the_dry_run_of_a_planned_amendment_shows_both_sides_as_of_when_it_takes_effect(api, subscribed):
    api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-01T00:00:00Z"})
    path = f"/v1/subscriptions/{subscribed}/amendments"
    body = {"effective_at": "2026-01-17T00:00:00Z", "quantities": {"base": 3}}

    def lines(as_of):
        made = api.post(f"{path}?dry_run=true&as_of={as_of}", body).json()["invoices"]
        return [(line["kind"], line["amount_minor"]) for one in made for line in one["lines"]]

    assert lines("2026-01-16T23:59:59Z") == []
    assert lines("2026-01-17T00:00:00Z") == [("credit", -484), ("recurring", 1452)]
    assert not Amendment.objects.filter(subscription__ref=subscribed, sequence__gt=1).exists()


def test_the_dry_run_of_an_amendment_is_as_of_when_it_takes_effect_unless_said(api, subscribed):
    later = {"effective_at": "2199-12-17T00:00:00Z", "ends_at": "2199-12-17T00:00:00Z"}
    path = f"/v1/subscriptions/{subscribed}/amendments"
    refused = api.post(f"{path}?as_of=2026-01-17T00:00:00Z", later)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/as_of")
    assert not Amendment.objects.filter(subscription__ref=subscribed, sequence__gt=1).exists()
    sooner = {"effective_at": "2026-01-17T00:00:00Z", "ends_at": "2026-01-17T00:00:00Z"}
    [bill_until_the_end] = api.post(f"{path}?dry_run=true", sooner).json()["invoices"]
    assert bill_until_the_end["lines"][0]["period"]["end"].startswith("2026-01-17")


def test_an_end_of_null_withdraws_a_planned_end(api, subscribed):
    path = f"/v1/subscriptions/{subscribed}/amendments"
    planned = {"effective_at": "2026-01-17T00:00:00Z", "ends_at": "2026-01-17T00:00:00Z"}
    assert api.post(path, planned).status_code == 201
    assert api.post(path, {"effective_at": "2026-01-05T00:00:00Z", "ends_at": None}).status_code == 201
    [invoice] = api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-20T00:00:00Z"}).json()["invoices"]
    assert invoice["lines"][0]["period"]["end"].startswith("2026-02-01")


def test_a_one_off_charge_is_billed_once(api, subscribed):
    charge = {"amount_minor": 5000, "description": "Set-up", "tax_rate": "20"}
    assert api.post(f"/v1/subscriptions/{subscribed}/charges", charge).status_code == 201
    [invoice] = api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-01T00:00:00Z"}).json()["invoices"]
    assert {line["kind"]: line["amount_minor"] for line in invoice["lines"]} == {"charge": 5000, "recurring": 1000}
    response = api.post(f"/v1/subscriptions/{subscribed}/invoices", {"as_of": "2026-01-02T00:00:00Z"})
    assert response.json() == {"invoices": [], "allowances": []}
    assert Charge.objects.filter(subscription__ref=subscribed).count() == 1


def test_unknown_paths_are_404_and_unknown_references_in_a_body_400(api, plan):
    assert api.post(f"/v1/subscriptions/{unique('SUB')}/invoices", {"as_of": "2026-01-01T00:00:00Z"}).status_code == 404
    assert api.get("/v1/invoices/999999999999").status_code == 404
    ref = unique("SUB")
    body = {"ref": ref, "customer": unique("CUST"), "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z"}
    response = api.post("/v1/subscriptions", body)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, "/customer")
    assert not Subscription.objects.filter(ref=ref).exists()


def test_billing_calls_need_a_billing_scope_and_an_unconfined_key():
    _, reader = api_keys.create_api_key(name=unique("key"), scopes=["billing:read"])
    _, confined = api_keys.create_api_key(name=unique("key"), scopes=["billing:read"], holder_id="someone")
    assert ApiClient(reader).post("/v1/customers", {}).status_code == 403
    assert ApiClient(reader).get("/v1/invoices").status_code == 200
    assert ApiClient(confined).get("/v1/invoices").status_code == 404


def test_the_period_of_a_voided_invoice_is_billed_again(api):
    ref = SubscriptionFactory().ref
    path = f"/v1/subscriptions/{ref}/invoices"
    [first] = api.post(path, {"as_of": "2026-01-01T00:00:00Z"}).json()["invoices"]
    assert api.post(f"/v1/invoices/{first['id']}/void", raw=b"").status_code == 200
    assert api.post(f"/v1/invoices/{first['id']}/void", raw=b"").status_code == 200
    [second] = api.post(path, {"as_of": "2026-01-01T00:00:00Z"}).json()["invoices"]
    assert second["total_minor"] == first["total_minor"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_claim WHERE invoice_id = %s AND released_at IS NULL", [first["id"]])
        assert cursor.fetchone() == (0,)


# Names that would never mean anything ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("limited_to", "fault"),
    [
        ({"plans": ["nothing"]}, ("/plans/0", "plan 'nothing' does not exist")),
        ({"prices": ["base", "nothing"]}, ("/prices/1", "no plan has a price 'nothing'")),
        ({"plans": ["PLAN"], "prices": ["other"]}, ("/prices/0", "none of the plans has a price 'other'")),
    ],
)
def test_a_coupon_for_a_plan_or_price_that_does_not_exist_is_refused(api, plan, limited_to, fault):
    other = recurring("other")
    PlanFactory(prices=[other])
    body = {"ref": unique("C"), "kind": "percentage", "value": "10", "duration": "forever"}
    limited_to = {name: [plan["ref"] if one == "PLAN" else one for one in ones] for name, ones in limited_to.items()}
    refused = api.post("/v1/coupons", body | limited_to)
    assert (refused.status_code, [(e["pointer"], e["code"], e["detail"]) for e in refused.json()["errors"]]) == (
        400, [(fault[0], "exists", fault[1])],
    )  # fmt: skip
    assert not Coupon.objects.filter(code=body["ref"]).exists()
    # A version that is not the newest has subscriptions too.
    PlanFactory(code=plan["ref"], prices=[other])
    assert api.post("/v1/coupons", body | {"plans": [plan["ref"]], "prices": ["base", "other"]}).status_code == 201


@pytest.mark.parametrize("zone", ["posixrules", "Factory", "posix/Europe/Berlin", "right/UTC", "Berlin", "UTC+1"])
def test_what_is_no_zone_of_the_iana_database_is_refused(api, plan, zone):
    customer = {"ref": unique("CUST"), "name": "Ada", "currency": "EUR", "time_zone": zone}
    order = {"ref": unique("SUB"), "customer": CustomerFactory().ref, "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z"}
    for path, body in (("/v1/customers", customer), ("/v1/subscriptions", order | {"time_zone": zone})):
        refused = api.post(path, body)
        assert [(error["pointer"], error["code"]) for error in refused.json()["errors"]] == [("/time_zone", "unknown-time-zone")]
    assert not Customer.objects.filter(ref=customer["ref"]).exists()
    assert not Subscription.objects.filter(ref=order["ref"]).exists()
