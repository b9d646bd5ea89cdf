"""What was created over REST can be read by its reference, listed with filters, and changed or ended."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from billing.models import Customer, CustomerCoupon, Subscription
from ledger.keys import api_keys
from tests.billing.factories import metered, recurring, unique
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db


def created(response):
    """The body of a 201."""
    assert response.status_code == 201, response.content
    return response.json()


def listed(api, path):
    """All results of a list, by pages of two."""
    results, url = [], f"{path}{'&' if '?' in path else '?'}limit=2"
    while url:
        response = api.get(url.removeprefix("http://testserver"))
        assert response.status_code == 200, response.content
        page = response.json()
        results += page["results"]
        url = page["next"]
    return results


def new_customer(api, **more):
    """A customer made over REST."""
    return created(api.post("/v1/customers", {"ref": unique("CUST"), "name": "Ada", "currency": "EUR", **more}))


def new_plan(api, code=None, **more):
    """A plan made over REST: the next version where the code is known."""
    body = {
        "ref": code or unique("plan"), "name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [recurring(), metered()], **more,
    }  # fmt: skip
    return created(api.post("/v1/plans", body))


def new_subscription(api, customer, plan, **more):
    """A subscription since 1 January, made over REST."""
    body = {"ref": unique("SUB"), "customer": customer["ref"], "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z", **more}
    return created(api.post("/v1/subscriptions", body))


# Customers, plans, coupons ---------------------------------------------------------------------------


def test_a_customer_is_read_as_it_was_created_and_listed_newest_first(api):
    holder = unique("holder")
    made = [new_customer(api, holder_id=holder) for _ in range(5)]
    assert api.get(f"/v1/customers/{made[0]['ref']}").json() == made[0]
    assert listed(api, f"/v1/customers?holder_id={holder}") == made[::-1]
    assert listed(api, f"/v1/customers?holder_id={holder}&currency=USD") == []


def test_a_list_is_of_what_was_created_within_a_time(api):
    holder = unique("holder")
    old, new = new_customer(api, holder_id=holder), new_customer(api, holder_id=holder)
    Customer.objects.filter(ref=old["ref"]).update(created_at=datetime(2025, 3, 1, tzinfo=UTC))
    assert listed(api, f"/v1/customers?holder_id={holder}&until=2025-03-02T00:00:00Z") == [old]
    assert listed(api, f"/v1/customers?holder_id={holder}&since=2025-03-02T00:00:00Z") == [new]


def test_a_customer_changes_and_keeps_what_was_billed_by(api):
    made = new_customer(api, address={"city": "Berlin"})
    path = f"/v1/customers/{made['ref']}"
    changed = api.patch(path, {"address": {"city": "Potsdam"}, "terms_days": 7}, key="move")
    assert (changed.status_code, changed.json()) == (200, {**made, "address": {"city": "Potsdam"}, "terms_days": 7})
    assert api.get(path).json() == changed.json()
    assert (
        api.patch(path, {"address": {"city": "Potsdam"}, "terms_days": 7}, key="move").headers["Idempotency-Replayed"] == "true"
    )


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "", "required"),
        ({"vat_status": "reverse_charge"}, "/vat_id", "needed-for-reverse-charge"),
    ],
)
def test_what_a_customer_cannot_become_is_refused_and_nothing_changes(api, body, pointer, code):
    made = new_customer(api)
    response = api.patch(f"/v1/customers/{made['ref']}", body)
    assert response.status_code == 400
    assert [(one["pointer"], one["code"]) for one in response.json()["errors"]] == [(pointer, code)]
    assert api.get(f"/v1/customers/{made['ref']}").json() == made


def test_a_plan_is_read_in_its_newest_version_and_in_any(api):
    first = new_plan(api)
    second = new_plan(api, code=first["ref"], name="Basic, cheaper")
    path = f"/v1/plans/{first['ref']}"
    assert api.get(path).json() == second
    assert api.get(f"{path}?version=1").json() == first
    assert api.get(f"{path}?version=3").status_code == 404
    assert listed(api, f"/v1/plans?ref={first['ref']}") == [second, first]
    assert listed(api, f"/v1/plans?ref={first['ref']}&newest=true") == [second]


def test_a_coupon_is_read_and_listed(api):
    made = [
        created(api.post("/v1/coupons", {"ref": unique("C"), "kind": "percentage", "value": str(value), "duration": "forever"}))
        for value in (10, 20, 30)
    ]
    assert api.get(f"/v1/coupons/{made[0]['ref']}").json() == made[0]
    assert listed(api, "/v1/coupons?kind=percentage")[:3] == made[::-1]
    assert listed(api, "/v1/coupons?kind=amount") == []


# A customer's coupons --------------------------------------------------------------------------------


@pytest.fixture
def discounted(api):
    """A customer with a coupon of 10 %, and the path of the coupons."""
    customer, coupon = new_customer(api), unique("C")
    created(api.post("/v1/coupons", {"ref": coupon, "kind": "percentage", "value": "10", "duration": "forever"}))
    path = f"/v1/customers/{customer['ref']}/coupons"
    created(api.post(path, {"coupon": coupon}))
    return customer, coupon, path


def test_a_coupon_that_is_taken_off_is_used_no_more(api, discounted):
    customer, coupon, path = discounted
    subscription = new_subscription(api, customer, new_plan(api))
    invoices = f"/v1/subscriptions/{subscription['ref']}/invoices"
    [january] = created(api.post(invoices, {"as_of": "2026-01-01T00:00:00Z"}))["invoices"]
    assert january["discount_minor"] == 100

    taken_off = api.delete(f"{path}/{coupon}", key="off")
    assert taken_off.status_code == 200
    assert (taken_off.json()["used_minor"], taken_off.json()["used_invoices"]) == (100, 1)
    assert taken_off.json()["taken_off_at"] is not None
    assert listed(api, path) == [taken_off.json()]
    [february] = created(api.post(invoices, {"as_of": "2026-02-01T00:00:00Z"}))["invoices"]
    assert february["discount_minor"] == 0

    assert api.delete(f"{path}/{coupon}", key="off").headers["Idempotency-Replayed"] == "true"
    assert api.delete(f"{path}/{coupon}", key="off again").status_code == 404
    assert api.post(path, {"coupon": coupon}).status_code == 409
    assert CustomerCoupon.objects.filter(customer__ref=customer["ref"]).count() == 1


# Subscriptions ---------------------------------------------------------------------------------------


def test_a_subscription_is_read_with_what_it_is_now(api):
    customer, plan = new_customer(api), new_plan(api)
    ref = new_subscription(api, customer, plan)["ref"]
    created(api.post(f"/v1/subscriptions/{ref}/amendments", {"effective_at": "2026-02-01T00:00:00Z", "quantities": {"base": 3}}))
    found = api.get(f"/v1/subscriptions/{ref}").json()
    now = timezone.now()
    assert (found["state"], found["customer"], found["plan"], found["plan_version"]) == (
        "active",
        customer["ref"],
        plan["ref"],
        1,
    )
    assert [(item["price_key"], item["quantity"]) for item in found["items"]] == [("calls", "1"), ("base", "3")]
    assert [one["sequence"] for one in found["amendments"]] == [1, 2]
    assert found["current_period"]["start"] <= now.strftime("%Y-%m-%dT%H:%M:%S") < found["current_period"]["end"]
    assert (found["due_at"], found["suspended"], found["ends_at"]) == ("2026-01-01T00:00:00.000000Z", None, None)
    assert [one["sequence"] for one in listed(api, f"/v1/subscriptions/{ref}/amendments")] == [2, 1]


def test_a_subscription_says_when_it_is_next_due(api):
    ref = new_subscription(api, new_customer(api), new_plan(api), started_at=f"{timezone.now():%Y-%m}-01T00:00:00Z")["ref"]
    created(api.post(f"/v1/subscriptions/{ref}/invoices", {"as_of": timezone.now().isoformat()}))
    found = api.get(f"/v1/subscriptions/{ref}").json()
    assert found["due_at"] == found["current_period"]["end"]


def test_subscriptions_are_listed_by_customer_plan_and_state(api):
    customer, plan, other = new_customer(api), new_plan(api), new_plan(api)
    soon = (timezone.now() + timedelta(days=9)).isoformat()
    refs = {
        "active": new_subscription(api, customer, plan)["ref"],
        "scheduled": new_subscription(api, customer, plan, started_at=soon)["ref"],
        "ended": new_subscription(api, customer, plan, ends_at="2026-03-01T00:00:00Z")["ref"],
        "paused": new_subscription(api, customer, plan)["ref"],
    }
    paused = {"effective_at": "2026-02-01T00:00:00Z", "paused": True}
    created(api.post(f"/v1/subscriptions/{refs['paused']}/amendments", paused))
    another = new_subscription(api, customer, other)["ref"]

    mine = f"/v1/subscriptions?customer={customer['ref']}"
    assert [one["ref"] for one in listed(api, mine)] == [another, *[*refs.values()][::-1]]
    assert [one["ref"] for one in listed(api, f"{mine}&plan={other['ref']}")] == [another]
    for state, ref in refs.items():
        assert [(one["ref"], one["state"]) for one in listed(api, f"{mine}&plan={plan['ref']}&state={state}")] == [(ref, state)]
    assert listed(api, f"{mine}&suspended=true") == []
    assert api.get(f"{mine}&state=asleep").status_code == 400


def test_a_subscription_that_ended_while_paused_is_ended(api):
    ref = new_subscription(api, new_customer(api), new_plan(api))["ref"]
    for change in ({"paused": True}, {"ends_at": "2026-03-01T00:00:00Z"}):
        created(api.post(f"/v1/subscriptions/{ref}/amendments", {"effective_at": "2026-02-01T00:00:00Z", **change}))
    assert api.get(f"/v1/subscriptions/{ref}").json()["state"] == "ended"


def test_charges_are_listed(api):
    ref = new_subscription(api, new_customer(api), new_plan(api))["ref"]
    path = f"/v1/subscriptions/{ref}/charges"
    made = [created(api.post(path, {"amount_minor": amount, "description": "Set-up"})) for amount in (100, 200, 300)]
    assert listed(api, path) == made[::-1]


def test_a_trial_that_goes_on_is_extended(api):
    start = timezone.now() - timedelta(days=3)
    first, later = start + timedelta(days=10), start + timedelta(days=20)
    ref = new_subscription(
        api, new_customer(api), new_plan(api), started_at=start.isoformat(), trial_ends_at=first.isoformat()
    )["ref"]  # fmt: skip
    amend = f"/v1/subscriptions/{ref}/amendments"
    amended = created(api.post(amend, {"effective_at": start.isoformat(), "trial_ends_at": later.isoformat()}))
    assert amended["change"] == {"trial_ends_at": later.isoformat()}
    found = api.get(f"/v1/subscriptions/{ref}").json()
    assert found["trial_ends_at"] == found["due_at"] == later.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    dry = {"as_of": later.isoformat(), "dry_run": True}
    [invoice] = api.post(f"/v1/subscriptions/{ref}/invoices", dry).json()["invoices"]
    assert min(line["period"]["start"] for line in invoice["lines"]) == found["trial_ends_at"]


@pytest.mark.parametrize(("trial_end_days", "wanted_days", "code"), [(None, 20, "trial-goes-on"), (-1, 20, "trial-goes-on")])
def test_no_other_trial_is_extended(api, trial_end_days, wanted_days, code):
    start = timezone.now() - timedelta(days=3)
    trial = {} if trial_end_days is None else {"trial_ends_at": (timezone.now() + timedelta(days=trial_end_days)).isoformat()}
    ref = new_subscription(api, new_customer(api), new_plan(api), started_at=start.isoformat(), **trial)["ref"]
    before = Subscription.objects.get(ref=ref).trial_end
    wanted = {"effective_at": start.isoformat(), "trial_ends_at": (timezone.now() + timedelta(days=wanted_days)).isoformat()}
    response = api.post(f"/v1/subscriptions/{ref}/amendments", wanted)
    [error] = response.json()["errors"]
    # The rule names the attribute, the problem the field of the request.
    assert (response.status_code, error["pointer"], error["code"]) == (400, "/trial_ends_at", code)
    assert Subscription.objects.get(ref=ref).trial_end == before
    assert len(listed(api, f"/v1/subscriptions/{ref}/amendments")) == 1


# Usage events ----------------------------------------------------------------------------------------


def test_usage_events_are_read_by_their_key_and_listed_by_subscription(api):
    ref, other = (new_subscription(api, new_customer(api), new_plan(api))["ref"] for _ in range(2))
    times = [f"2026-01-{day:02}T00:00:00Z" for day in (3, 1, 2, 2, 5)]
    sent = [
        {"idempotency_key": unique(f"a/b {n}"), "subscription": ref, "meter": meter, "value": n, "occurred_at": at}
        for n, (at, meter) in enumerate(zip(times, ("calls", "calls", "calls", "data", "data"), strict=True))
    ]
    sent.append({**sent[0], "idempotency_key": unique("other"), "subscription": other})
    assert {one["result"] for one in api.post("/v1/usage-events", {"events": sent}).json()["results"]} == {"accepted"}

    found = listed(api, f"/v1/usage-events?subscription={ref}")
    assert [(event["occurred_at"][8:10], event["meter"], event["value"]) for event in found] == [
        ("05", "data", "4"), ("03", "calls", "0"), ("02", "data", "3"), ("02", "calls", "2"), ("01", "calls", "1"),
    ]  # fmt: skip
    calls = f"/v1/usage-events?subscription={ref}&meter=calls&since=2026-01-02T00:00:00Z&until=2026-01-03T00:00:00Z"
    assert [event["value"] for event in listed(api, calls)] == ["2"]
    page = api.get(f"/v1/usage-events?subscription={ref}&limit=2").json()
    second = api.get(page["next"].removeprefix("http://testserver")).json()
    assert api.get(second["previous"].removeprefix("http://testserver")).json()["results"] == page["results"]
    assert api.get(f"/v1/usage-events/{found[0]['idempotency_key']}").json() == found[0]
    both = api.get(f"/v1/usage-events?subscription={ref}&customer=C")
    assert both.json()["errors"] == [
        {"pointer": "/customer", "code": "not-both", "detail": "Give either this or subscription, not both."}
    ]


def test_usage_events_of_a_meter_are_listed_over_all_subscriptions(api):
    refs = [new_subscription(api, new_customer(api), new_plan(api))["ref"] for _ in range(2)]
    meter, other = unique("meter"), unique("other")
    sent = [
        {"idempotency_key": unique(f"{n}"), "subscription": refs[n % 2], "meter": meter, "value": n, "occurred_at": at}
        for n, at in enumerate(["2026-03-01T00:00:00Z", "2026-01-02T00:00:00Z"] + ["2026-02-01T00:00:00Z"] * 5)
    ]
    stray = {**sent[0], "idempotency_key": unique("stray"), "meter": other}
    assert {one["result"] for one in api.post("/v1/usage-events", {"events": [*sent, stray]}).json()["results"]} == {"accepted"}

    found = listed(api, f"/v1/usage-events?meter={meter}")
    in_order = sorted(sent, key=lambda event: (event["occurred_at"], event["idempotency_key"]), reverse=True)
    assert [event["idempotency_key"] for event in found] == [event["idempotency_key"] for event in in_order]
    assert {event["subscription"] for event in found} == set(refs)
    first = api.get(f"/v1/usage-events?meter={meter}&limit=3").json()
    second = api.get(first["next"].removeprefix("http://testserver")).json()
    assert api.get(second["previous"].removeprefix("http://testserver")).json()["results"] == first["results"]
    february = f"/v1/usage-events?meter={meter}&since=2026-02-01T00:00:00Z&until=2026-03-01T00:00:00Z"
    assert len(listed(api, february)) == 5
    assert [event["value"] for event in listed(api, f"/v1/usage-events?meter={meter}&subscription={refs[1]}")][:1] == ["5"]
    assert listed(api, f"/v1/usage-events?meter={unique('no-meter')}") == []
    assert api.get("/v1/usage-events?meter=").status_code == 400


def test_usage_events_of_all_are_listed_without_a_filter(api):
    refs = [new_subscription(api, new_customer(api), new_plan(api))["ref"] for _ in range(2)]
    # A time that no other test uses: events of other tests are in the list too.
    days = ["2033-03-03", "2033-03-01", "2033-03-02", "2033-03-02", "2033-03-02", "2033-03-05"]
    sent = [
        {"idempotency_key": unique(f"{n}"), "subscription": refs[n % 2], "meter": ("b", "a", "c")[n % 3], "value": n,
         "occurred_at": f"{day}T00:00:00Z"}
        for n, day in enumerate(days)
    ]  # fmt: skip
    taken = api.post("/v1/usage-events", {"events": sent, "allow_future": True}).json()["results"]
    assert {one["result"] for one in taken} == {"accepted"}

    in_order = sorted(sent, key=lambda event: (event["occurred_at"], event["meter"], event["idempotency_key"]), reverse=True)
    march = "/v1/usage-events?since=2033-03-01T00:00:00Z&until=2033-04-01T00:00:00Z"
    assert [event["idempotency_key"] for event in listed(api, march)] == [event["idempotency_key"] for event in in_order]
    everything = [event["idempotency_key"] for event in listed(api, "/v1/usage-events")]
    assert {event["idempotency_key"] for event in sent} <= set(everything)
    assert len(everything) == len(set(everything))
    first = api.get(f"{march}&limit=4").json()
    second = api.get(first["next"].removeprefix("http://testserver")).json()
    assert api.get(second["previous"].removeprefix("http://testserver")).json()["results"] == first["results"]


def test_what_was_made_is_where_location_says(api):
    customer, plan = new_customer(api), new_plan(api)
    ref = new_subscription(api, customer, plan)["ref"]
    coupon = {"ref": unique("C"), "kind": "percentage", "value": "10", "duration": "forever"}
    bodies = {
        "/v1/customers": {"ref": unique("C"), "name": "Ada", "currency": "EUR"},
        "/v1/plans": {
            "ref": plan["ref"], "name": "Next", "currency": "EUR", "interval": {"unit": "month"}, "prices": [recurring()],
        },
        "/v1/coupons": coupon,
        "/v1/subscriptions": {
            "ref": unique("S"), "customer": customer["ref"], "plan": plan["ref"], "started_at": "2026-01-01T00:00:00Z",
        },
    }  # fmt: skip
    for path, body in bodies.items():
        made = api.post(path, body, key=f"{path} {ref}")
        assert made.status_code == 201, made.content
        got, ordered = api.get(made["Location"]).json(), made.json()
        assert {name: got.get(name) for name in ordered} == ordered
        again = api.post(path, body, key=f"{path} {ref}")
        assert (again["Idempotency-Replayed"], again["Location"]) == ("true", made["Location"])
    charged = api.post(f"/v1/subscriptions/{ref}/charges", {"amount_minor": 500, "description": "Setup", "tax_rate": "0"})
    assert charged["Location"] == f"/v1/subscriptions/{ref}"
    given = api.post(f"/v1/customers/{customer['ref']}/coupons", {"coupon": coupon["ref"]})
    assert given["Location"] == f"/v1/customers/{customer['ref']}/coupons"
    billed = api.post(f"/v1/subscriptions/{ref}/invoices", {"as_of": "2026-01-01T00:00:00Z"})
    assert [each["subscription"] for each in api.get(billed["Location"]).json()["results"]] == [ref]
    assert "Location" not in api.post("/v1/coupons?dry_run=true", {**coupon, "ref": unique("D")})


def test_a_merge_patch_changes_what_it_names_of_an_address(api):
    made = new_customer(api, address={"line1": "1 Old St", "city": "Berlin", "extra": {"floor": 1, "door": 2}})
    path, patch = f"/v1/customers/{made['ref']}", {"address": {"city": "Potsdam", "line1": None, "extra": {"door": 3}}}
    merged = api.patch(path, patch, key="p", content_type="application/merge-patch+json")
    assert (merged.status_code, merged.json()["address"]) == (200, {"city": "Potsdam", "extra": {"door": 3, "floor": 1}})
    again = api.patch(path, patch, key="p", content_type="application/merge-patch+json; charset=utf-8")
    assert (again["Idempotency-Replayed"], again.content) == ("true", merged.content)
    assert api.patch(path, patch, key="p").status_code == 422
    assert api.patch(path, patch).json()["address"] == patch["address"]


@pytest.mark.parametrize(
    ("address", "pointer"), [({f"k{n}": "x" for n in range(50)}, "/address"), ({"k": "x" * 8190}, "/address")]
)
def test_a_merge_patch_cannot_make_an_address_too_large(api, address, pointer):
    made = new_customer(api, address={"line1": "1 Old St"})
    path = f"/v1/customers/{made['ref']}"
    response = api.patch(path, {"address": address}, content_type="application/merge-patch+json")
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (400, pointer)
    assert api.get(path).json() == made


def test_only_a_change_is_taken_as_a_merge_patch(api):
    response = api.post(
        "/v1/customers", {"ref": "X", "name": "X", "currency": "EUR"}, content_type="application/merge-patch+json"
    )
    assert (response.status_code, response["Accept"]) == (415, "application/json")
    customer = new_customer(api)
    refused = api.patch(f"/v1/customers/{customer['ref']}", {"name": "Y"}, content_type="text/plain")
    assert (refused.status_code, refused["Accept"]) == (415, "application/json, application/merge-patch+json")
    assert api.get(f"/v1/customers/{customer['ref']}").json() == customer


def test_usage_events_are_listed_by_customer(api):
    customer, plan = new_customer(api), new_plan(api)
    one, other = (new_subscription(api, customer, plan)["ref"] for _ in range(2))
    stranger = new_subscription(api, new_customer(api), plan)["ref"]
    nobody = new_customer(api)
    sent = [
        {"idempotency_key": unique(f"e{n}"), "subscription": ref, "meter": meter, "value": n, "occurred_at": at}
        for n, (ref, meter, at) in enumerate(
            [
                (one, "calls", "2026-01-03T00:00:00Z"),
                (other, "calls", "2026-01-03T00:00:00Z"),
                (other, "data", "2026-01-01T00:00:00Z"),
                (one, "data", "2026-01-02T00:00:00Z"),
                (stranger, "calls", "2026-01-02T00:00:00Z"),
            ]
        )
    ]
    assert {each["result"] for each in api.post("/v1/usage-events", {"events": sent}).json()["results"]} == {"accepted"}

    path = f"/v1/usage-events?customer={customer['ref']}"
    assert [(event["subscription"], event["meter"]) for event in listed(api, path)] == [
        (other, "calls"), (one, "calls"), (one, "data"), (other, "data"),
    ]  # fmt: skip
    assert [event["value"] for event in listed(api, f"{path}&meter=data&since=2026-01-02T00:00:00Z")] == ["3"]
    page = api.get(f"{path}&limit=1").json()
    second = api.get(page["next"].removeprefix("http://testserver")).json()
    assert [event["value"] for event in second["results"]] == ["0"]
    assert api.get(second["previous"].removeprefix("http://testserver")).json()["results"] == page["results"]
    assert listed(api, f"/v1/usage-events?customer={nobody['ref']}") == []
    assert api.get("/v1/usage-events?customer=NONE").status_code == 404
    both = api.get(f"{path}&subscription={one}")
    assert (both.status_code, both.json()["errors"][0]["pointer"]) == (400, "/customer")


def test_the_properties_of_a_usage_event_come_back_as_they_were_sent(api):
    ref = new_subscription(api, new_customer(api), new_plan(api))["ref"]
    sent = {
        "idempotency_key": unique("p"),
        "subscription": ref,
        "meter": "calls",
        "value": 1,
        "occurred_at": "2026-01-02T00:00:00Z",
    }
    for properties in ({}, {"region": "eu", "size": {"b": [1, None], "a": 1.5}}):
        event = sent | {"idempotency_key": unique("p"), "properties": properties}
        assert api.post("/v1/usage-events", {"events": [event]}).json()["results"][0]["result"] == "accepted"
        assert api.get(f"/v1/usage-events/{event['idempotency_key']}").json()["properties"] == properties
        assert properties in [each["properties"] for each in listed(api, f"/v1/usage-events?subscription={ref}")]


# Documents -------------------------------------------------------------------------------------------


def test_invoices_are_listed_by_what_a_client_has(api):
    customer, plan = new_customer(api), new_plan(api)
    ref = new_subscription(api, customer, plan)["ref"]
    made = [
        created(api.post(f"/v1/subscriptions/{ref}/invoices", {"as_of": as_of}))["invoices"][0]
        for as_of in ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    ]
    mine = f"/v1/invoices?customer={customer['ref']}"
    assert listed(api, mine) == made[::-1]
    assert listed(api, f"{mine}&subscription={ref}&currency=EUR&state=open") == made[::-1]
    assert listed(api, f"{mine}&number={made[0]['number']}") == [made[0]]
    assert listed(api, f"{mine}&since={made[0]['issue_date']}") == made[::-1]
    assert listed(api, f"{mine}&until={made[0]['issue_date']}") == []
    note = created(api.post(f"/v1/invoices/{made[0]['id']}/credit-notes", {"reason": "by mistake"}))
    assert (
        listed(api, f"/v1/credit-notes?subscription={ref}") == listed(api, f"/v1/credit-notes?number={note['number']}") == [note]
    )


# What is not there, and who may not look -------------------------------------------------------------

PATHS = [
    "/v1/customers/NOBODY", "/v1/customers/NOBODY/coupons", "/v1/plans/none", "/v1/coupons/NONE", "/v1/subscriptions/NONE",
    "/v1/subscriptions/NONE/amendments", "/v1/subscriptions/NONE/charges", "/v1/usage-events/none",
    "/v1/usage-events?subscription=NONE",
]  # fmt: skip


LISTS = ["/v1/customers", "/v1/plans", "/v1/coupons", "/v1/subscriptions", "/v1/usage-events?subscription=S"]


@pytest.mark.parametrize("path", PATHS)
def test_what_is_not_there_is_a_404_that_names_it(api, path):
    response = api.get(path)
    assert (response.status_code, response.json()["type"].rsplit("/", 1)[1]) == (404, "not-found")
    assert response.json()["ref"] in path


@pytest.mark.parametrize(
    "path", ["/v1/customers", "/v1/plans", "/v1/coupons", "/v1/subscriptions", "/v1/usage-events?subscription=S"]
)
def test_a_key_that_is_confined_to_a_holder_sees_nothing_of_billing(path):
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=["billing:read"], holder_id="ada")
    assert ApiClient(secret).get(path).status_code == 404


@pytest.mark.parametrize(
    "path", ["/v1/customers", "/v1/plans", "/v1/coupons", "/v1/subscriptions", "/v1/usage-events?subscription=S"]
)
def test_reading_needs_the_scope(path):
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=["billing:write"])
    assert ApiClient(secret).get(path).status_code == 403
