"""Rate cards over REST: published in versions, quoted, and kept by the entries that they price."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ledger import services
from ledger.models import Rate
from tests.ledger.rest.conftest import TIME, ApiClient, entry_of_201, nothing_written, problem_of_refusal, rows_of

RATE = {"ref": "gpt-4o.output", "price": 3, "per": 1000}


@pytest.fixture
def admin(make_api: Callable[..., ApiClient], holder: str) -> ApiClient:
    """A client that may publish rates, beside a holder with 100 credits."""
    return make_api("ledger:admin", name="prices")


def test_a_rate_is_published_in_versions(admin: ApiClient) -> None:
    first = json.loads(admin.post("/v1/rates", RATE | {"reason": "February"}).content)
    assert TIME.fullmatch(first.pop("published_at"))
    assert first == {
        "ref": "gpt-4o.output",
        "credit_type": "credits",
        "version": 1,
        "price": 3,
        "per": 1000,
        "published_by": "key:prices",
        "reason": "February",
    }
    assert json.loads(admin.post("/v1/rates", RATE | {"price": 4}).content)["version"] == 2
    listed = json.loads(admin.get("/v1/rates/gpt-4o.output").content)
    assert [(rate["version"], rate["price"]) for rate in listed["results"]] == [(2, 4), (1, 3)]


def test_the_same_publication_again_gets_the_same_bytes_and_makes_no_version(admin: ApiClient) -> None:
    first = admin.post("/v1/rates", RATE, key="k")
    services.publish_rate(code="gpt-4o.output", price=9, per=1000)
    again = admin.post("/v1/rates", RATE, key="k")
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    assert ("Idempotency-Replayed" in first, again["Idempotency-Replayed"]) == (False, "true")
    assert Rate.objects.filter(code="gpt-4o.output").count() == 2


@pytest.mark.parametrize("other", [{"price": 4}, {"per": 1}, {"credit_type": "sms"}, {"ref": "other"}, {"reason": "x"}])
def test_the_key_of_another_publication_is_a_422(admin: ApiClient, other: dict[str, Any]) -> None:
    admin.post("/v1/rates", RATE, key="k")
    response = admin.post("/v1/rates", RATE | other, key="k")
    assert (response.status_code, json.loads(response.content)["idempotency_key"]) == (422, "k")
    assert Rate.objects.count() == 1


def test_a_dry_run_says_which_version_it_would_be(admin: ApiClient) -> None:
    response = admin.post("/v1/rates?dry_run=true", RATE, key=None)
    assert (response.status_code, json.loads(response.content)["version"], Rate.objects.count()) == (200, 1, 0)


def test_a_confined_key_publishes_nothing(make_api: Callable[..., ApiClient], holder: str) -> None:
    response = make_api("ledger:admin", holder_id=holder).post("/v1/rates", RATE)
    assert (response.status_code, Rate.objects.count()) == (404, 0)


def test_rates_are_listed_in_their_newest_version_by_the_page(admin: ApiClient) -> None:
    for code in ("b", "a", "c"):
        for price in (1, 2):
            services.publish_rate(code=code, price=price, per=10)
    services.publish_rate(code="a", price=7, per=10, credit_type="sms")
    seen: list[tuple[str, str, int]] = []
    url = "/v1/rates?limit=2"
    while url:
        page = json.loads(admin.get(url).content)
        seen += [(rate["credit_type"], rate["ref"], rate["version"]) for rate in page["results"]]
        url = page["next"]
    assert seen == [("credits", "a", 2), ("credits", "b", 2), ("credits", "c", 2), ("sms", "a", 1)]
    back = json.loads(admin.get(page["previous"]).content)
    assert [rate["ref"] for rate in back["results"]] == ["a", "b"]
    only = json.loads(admin.get("/v1/rates?credit_type=sms").content)["results"]
    assert [(rate["ref"], rate["price"]) for rate in only] == [("a", 7)]


@pytest.mark.parametrize("path", ["/v1/rates/nothing", "/v1/rates/gpt-4o.output?credit_type=sms", "/v1/rates/UPPER"])
def test_a_rate_that_is_not_there_is_a_404(admin: ApiClient, path: str) -> None:
    services.publish_rate(code="gpt-4o.output", price=3, per=1000)
    assert admin.get(path).status_code == 404


def test_versions_are_listed_by_the_page(admin: ApiClient) -> None:
    for price in range(1, 6):
        services.publish_rate(code="a", price=price, per=1)
    first = json.loads(admin.get("/v1/rates/a?limit=2").content)
    second = json.loads(admin.get(first["next"]).content)
    back = json.loads(admin.get(second["previous"]).content)
    assert [rate["version"] for rate in first["results"] + second["results"]] == [5, 4, 3, 2]
    assert back["results"] == first["results"]


def test_a_quote_needs_no_key_and_writes_nothing(make_api: Callable[..., ApiClient], admin: ApiClient, holder: str) -> None:
    services.publish_rate(code="gpt-4o.output", price=3, per=1000)
    with nothing_written(holder):
        response = make_api("ledger:read").post("/v1/quotes", {"rate": "gpt-4o.output", "quantity": 1250}, key=None)
    assert response.status_code == 200
    assert response.content == b'{"amount":4,"rating":{"rate":"gpt-4o.output","version":1,"quantity":1250}}'


def test_a_quantity_of_0_and_a_rate_of_0_cost_0_on_all_calls(admin: ApiClient, holder: str) -> None:
    free = admin.post("/v1/rates", {"ref": "free", "price": 0, "per": 1000}, key="free")
    assert (free.status_code, json.loads(free.content)["price"]) == (201, 0)
    services.publish_rate(code="answer", price=3, per=1000)
    for rate, quantity in (("answer", 0), ("free", 900)):
        asked = {"rate": rate, "quantity": quantity}
        rating = asked | {"version": 1}
        quoted = json.loads(admin.post("/v1/quotes", asked, key=None).content)
        assert quoted == {"amount": 0, "rating": rating}
        spent = json.loads(admin.post(f"/v1/holders/{holder}/spends", asked, key=f"s-{rate}").content)
        assert (spent["kind"], spent["amount"], spent["rating"]) == ("spend", 0, rating)
        held = json.loads(admin.post(f"/v1/holders/{holder}/holds", asked, key=f"h-{rate}").content)
        assert (held["kind"], held["amount"], held["held"]) == ("hold", 0, 0)
        captured = admin.post(f"/v1/holders/{holder}/holds/{held['sequence']}/captures", {"amount": 0}, key=f"c-{rate}")
        assert (captured.status_code, json.loads(captured.content)["kind"]) == (201, "capture")
        operations = [{"operation": "spend", "holder": holder, "idempotency_key": f"b-{rate}", **asked}]
        batch = admin.post("/v1/batches", {"mode": "each", "operations": operations}, key=f"b-{rate}")
        assert (batch.status_code, json.loads(batch.content)["failed"]) == (200, 0)
    balance = json.loads(admin.get(f"/v1/holders/{holder}/balance").content)
    assert (balance["balance"], balance["held"]) == (100, 0)
    with nothing_written(holder):
        for path in ("spends", "holds"):
            refused = admin.post(f"/v1/holders/{holder}/{path}", {"amount": 0})
            assert (refused.status_code, json.loads(refused.content)["errors"][0]["code"]) == (400, "too-small")


@pytest.mark.parametrize(("path", "kind"), [("spends", "spend"), ("holds", "hold")])
def test_a_rate_and_a_quantity_stand_for_an_amount(admin: ApiClient, holder: str, path: str, kind: str) -> None:
    services.publish_rate(code="gpt-4o.output", price=3, per=1000)
    body = {"rate": "gpt-4o.output", "quantity": 1250}
    more = ["expires_at", "rating"] if kind == "hold" else ["rating"]
    response = admin.post(f"/v1/holders/{holder}/{path}", body, key="k")
    entry = entry_of_201(response, *more)
    assert (entry["kind"], entry["amount"]) == (kind, -4)
    assert entry["rating"] == {"rate": "gpt-4o.output", "version": 1, "quantity": 1250}
    services.publish_rate(code="gpt-4o.output", price=30, per=1000)
    again = admin.post(f"/v1/holders/{holder}/{path}", body, key="k")
    assert (again.content, again["Idempotency-Replayed"]) == (response.content, "true")


def test_what_has_no_price_is_refused_and_succeeds_under_the_same_key_once_it_has_one(admin: ApiClient, holder: str) -> None:
    spends = f"/v1/holders/{holder}/spends"
    response = admin.post(spends, {"rate": "nothing", "quantity": 1}, key="k")
    found = json.loads(response.content)
    assert (response.status_code, found["type"].rsplit("/", 1)[1]) == (409, "unknown-rate")
    assert (found["rate"], found["credit_type"]) == ("nothing", "credits")
    assert rows_of(holder) == (1, 0)
    services.publish_rate(code="nothing", price=3, per=1)
    assert admin.post(spends, {"rate": "nothing", "quantity": 1}, key="k").status_code == 201
    services.publish_rate(code="dear", price=2**53 - 1, per=1)
    response = admin.post("/v1/quotes", {"rate": "dear", "quantity": 2}, key=None)
    assert (response.status_code, json.loads(response.content)["type"].rsplit("/", 1)[1]) == (409, "amount-limit")


def test_a_field_has_its_name_in_json_only(admin: ApiClient) -> None:
    """The attribute of the declaration is called `code`; a request and its errors never say so."""
    for body, faults in (
        ({"code": "a", "price": 1, "per": 1}, [("/ref", "required"), ("/code", "unknown-field")]),
        ({"ref": "a", "code": "a", "price": 1, "per": 1}, [("/code", "unknown-field")]),
        ({"ref": 1, "price": 1, "per": 1}, [("/ref", "not-a-string")]),
    ):
        problem = problem_of_refusal(admin.post("/v1/rates", body), 400, *faults)
        assert all("code" not in error["detail"] for error in problem["errors"])
    assert admin.get("/v1/rates").json()["results"] == []


COMPONENTS = {"input": {"price": 1, "per": 1000}, "cached": {"price": 1, "per": 2000}, "output": {"price": 3, "per": 1000}}


def test_an_ai_answer_is_two_calls_with_the_prices_of_the_server(admin: ApiClient, holder: str) -> None:
    published = admin.post("/v1/rates", {"ref": "gpt", "components": COMPONENTS}, key="r")
    rate = json.loads(published.content)
    assert (published.status_code, rate["components"], "price" in rate, "per" in rate) == (201, COMPONENTS, False, False)
    assert json.loads(admin.get("/v1/rates").content)["results"] == [rate]
    asked = {"rate": "gpt", "quantities": {"input": 1500, "output": "1000"}}
    kept = {"cached": "0", "input": "1500", "output": "1000"}
    quoted = admin.post("/v1/quotes", asked, key=None)
    assert json.loads(quoted.content) == {"amount": 5, "rating": {"rate": "gpt", "version": 1, "quantities": kept}}
    held = json.loads(admin.post(f"/v1/holders/{holder}/holds", asked, key="h").content)
    assert (held["amount"], held["rating"]["quantities"]) == (-5, kept)
    services.publish_rate(code="gpt", price=1000, per=1)
    used = {"quantities": {"input": 900, "cached": "600.0", "output": 400}}
    path = f"/v1/holders/{holder}/holds/{held['sequence']}/captures"
    tried = admin.post(f"{path}?dry_run=true", used, key=None)
    captured = admin.post(path, used, key="c")
    entry = json.loads(captured.content)
    # 0.9 + 0.3 + 1.2
    assert (captured.status_code, sum(part["amount"] for part in entry["drawn"]), entry["balance"]) == (201, 3, 97)
    rating = {"rate": "gpt", "version": 1, "quantities": {"cached": "600", "input": "900", "output": "400"}}
    assert entry["rating"] == json.loads(tried.content)["rating"] == rating
    again = admin.post(path, {"quantities": {"output": "400.000", "cached": 600, "input": 900}}, key="c")
    assert (again.content, again["Idempotency-Replayed"]) == (captured.content, "true")
    assert json.loads(admin.get(f"/v1/holders/{holder}/entries/{entry['sequence']}").content)["rating"] == rating


def test_a_batch_spends_by_components_and_names_the_wrong_one(admin: ApiClient, holder: str) -> None:
    admin.post("/v1/rates", {"ref": "gpt", "components": COMPONENTS}, key="r")
    spend = {"operation": "spend", "holder": holder, "rate": "gpt"}
    operations = [spend | {"quantities": quantities} for quantities in ({"output": 400}, {"inptu": 1})]
    batch = json.loads(admin.post("/v1/batches", {"mode": "each", "operations": operations}, key="b").content)
    first, second = batch["results"]
    assert (first["status"], first["body"]["rating"]["quantities"]["output"]) == (201, "400")
    [error] = second["problem"]["errors"]
    assert (second["status"], error["pointer"].rpartition("/quantities")[2], error["code"]) == (
        400, "/inptu", "unknown-component",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"quantities": {"inptu": 5}}, ("/quantities/inptu", "unknown-component")),
        ({"quantity": 5}, ("/quantity", "unknown-component")),
        ({"quantities": {"input": -1}}, ("/quantities/input", "too-small")),
        ({"quantities": {"input": 1.5}}, ("/quantities/input", "not-a-decimal")),
        ({"quantities": {"input": "NaN"}}, ("/quantities/input", "not-a-decimal")),
        ({"quantities": {"input": "0.0000000000001"}}, ("/quantities/input", "not-a-decimal")),
        ({"quantities": {"input": None}}, ("/quantities/input", "null")),
        ({"quantities": {"In put": 1}}, ("/quantities/In put", "pattern")),
        ({"quantities": {}}, ("/quantities", "too-few")),
        ({"quantities": {"input": 1}, "quantity": 1}, ("/quantities", "not-both")),
        ({"quantities": {"input": 1}, "amount": 1}, ("/rate", "not-both")),
        ({}, ("/quantity", "required")),
    ],
)
def test_quantities_are_refused_by_component_and_rule(
    admin: ApiClient, holder: str, body: dict[str, Any], fault: tuple[str, str]
) -> None:
    admin.post("/v1/rates", {"ref": "gpt", "components": COMPONENTS}, key="r")
    with nothing_written(holder):
        for path in ("spends", "holds"):
            problem_of_refusal(admin.post(f"/v1/holders/{holder}/{path}", {"rate": "gpt", **body}), 400, fault)
