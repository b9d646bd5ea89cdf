"""Words that the API had formerly are answered until 1.0, with a Deprecation header; each has a row in docs/reference/api.md."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from ledger.api.kit import authentication
from ledger.api.kit.endpoint import DEPRECATED
from ledger.models import SCOPES
from ledger.testing import api_key, holder_with_credits
from ledger_project.api.documents import openapi_document
from tests.asgi_client import AsgiClient
from tests.ledger.api.conftest import ApiClient, problem_of_refusal

PLAN = {"name": "Basic", "currency": "EUR", "interval": {"unit": "month", "count": 1}, "prices": [
    {"key": "base", "kind": "recurring", "model": "flat", "unit_amount": "10"},
]}  # fmt: skip
COUPON = {"kind": "percentage", "value": "10", "duration": "once"}
CUSTOMER = {"ref": "CUST-7", "name": "Ada", "currency": "EUR"}
SUBSCRIPTION = {"ref": "SUB-1", "customer": "CUST-7", "plan": "basic", "started_at": "2100-01-01T00:00:00Z"}
TRIAL = "2100-02-01T00:00:00.000000Z"

FIELDS: list[tuple[str, dict[str, Any], str, str, Any]] = [
    ("/v1/plans", PLAN, "code", "ref", "other"),
    ("/v1/coupons", COUPON, "code", "ref", "WELCOME"),
    ("/v1/rates", {"price": 3, "per": 1000}, "code", "ref", "tokens"),
    ("/v1/subscriptions", SUBSCRIPTION, "trial_end", "trial_ends_at", TRIAL),
]
"""A path, the rest of a body that it takes, the former name of a field, the present one, and a value."""


@pytest.fixture(params=[AsgiClient, Client], ids=["front", "django"])
def api(request: pytest.FixtureRequest, db: None) -> Iterator[ApiClient]:
    """A client with a key of all scopes, through one way in, beside a customer and a plan."""
    import ledger_project.serving.application  # noqa: F401

    authentication.forget_keys()
    client = ApiClient(api_key(*SCOPES, name="shop"), request.param())
    assert client.post("/v1/plans", {**PLAN, "ref": "basic"}).status_code == 201
    assert client.post("/v1/customers", CUSTOMER).status_code == 201
    holder_with_credits(100, holder_id="ada")
    yield client
    authentication.forget_keys()


def is_deprecated(response: Any) -> bool:
    """Whether the response says that the request has a former word."""
    found = {name: response.headers.get(name) for name in DEPRECATED}
    assert found in (DEPRECATED, dict.fromkeys(DEPRECATED))
    return found == DEPRECATED


def test_the_header_has_the_form_of_its_standard() -> None:
    assert re.fullmatch(r"@\d{10}", DEPRECATED["Deprecation"])
    assert re.fullmatch(r'<[^>]+>; rel="deprecation"; type="text/html"', DEPRECATED["Link"])


@pytest.mark.parametrize(("path", "body", "former", "name", "value"), FIELDS, ids=[path for path, *_ in FIELDS])
def test_a_former_name_of_a_field_does_the_same_and_is_deprecated(
    api: ApiClient, path: str, body: dict[str, Any], former: str, name: str, value: Any
) -> None:
    old = api.post(path, {**body, former: value}, key="k")
    assert (old.status_code, is_deprecated(old)) == (201, True)
    assert old.json()[name] == old.json()[former] == value
    new = api.post(path, {**body, name: value}, key="k")
    assert (new.status_code, is_deprecated(new), new["Idempotency-Replayed"]) == (201, False, "true")
    assert new.content == old.content


@pytest.mark.parametrize(("path", "body", "former", "name", "value"), FIELDS, ids=[path for path, *_ in FIELDS])
def test_both_names_at_once_are_refused(
    api: ApiClient, path: str, body: dict[str, Any], former: str, name: str, value: Any
) -> None:
    problem_of_refusal(api.post(path, {**body, former: value, name: value}, key="k"), 400, (f"/{former}", "not-both"))
    # Nothing was written under the key.
    assert "Idempotency-Replayed" not in api.post(path, {**body, name: value}, key="k")


@pytest.mark.parametrize(("path", "body", "former", "name", "value"), FIELDS, ids=[path for path, *_ in FIELDS])
def test_an_error_names_the_field_as_the_request_has_it(
    api: ApiClient, path: str, body: dict[str, Any], former: str, name: str, value: Any
) -> None:
    for given in (former, name):
        problem_of_refusal(api.post(path, {**body, given: 1}), 400, (f"/{given}", "not-a-string"))


def test_a_field_that_is_missing_has_its_present_name(api: ApiClient) -> None:
    problem_of_refusal(api.post("/v1/plans", PLAN), 400, ("/ref", "required"))
    problem = problem_of_refusal(api.post("/v1/plans", {**PLAN, "ref": "a", "x": 1}), 400, ("/x", "unknown-field"))
    assert "ref" in problem["errors"][0]["detail"]
    assert "code" not in problem["errors"][0]["detail"]


def test_an_error_of_a_rule_names_the_field_as_the_request_has_it(api: ApiClient) -> None:
    for given in ("trial_end", "trial_ends_at"):
        amended = {"effective_at": "2100-01-15T00:00:00Z", given: TRIAL}
        made = {**SUBSCRIPTION, "ref": f"SUB-{given}"}
        assert api.post("/v1/subscriptions", made).status_code == 201
        response = api.post(f"/v1/subscriptions/SUB-{given}/amendments", amended)
        problem_of_refusal(response, 400, (f"/{given}", "trial-goes-on"))


def test_a_former_name_of_a_filter_is_deprecated(api: ApiClient) -> None:
    old, new = api.get("/v1/plans?code=basic"), api.get("/v1/plans?ref=basic")
    assert old.json()["results"] == new.json()["results"] != []
    assert (is_deprecated(old), is_deprecated(new), is_deprecated(api.get("/v1/plans"))) == (True, False, False)
    assert api.get("/v1/plans?ref=none").json()["results"] == []
    problem_of_refusal(api.get("/v1/plans?ref=basic&code=basic"), 400, ("/code", "not-both"))


@pytest.mark.parametrize(
    ("path", "body", "field", "value"),
    [
        ("/v1/holders/ada/overdraft", {"limit": 50}, "overdraft", 50),
        ("/v1/holders/ada/incoming-transfers", {"accepts_transfers": False}, "accepts_transfers", False),
    ],
)
def test_a_setting_is_put_and_was_posted(api: ApiClient, path: str, body: dict[str, Any], field: str, value: Any) -> None:
    put = api.put(path, body, key="k")
    assert (put.status_code, put.json()[field], is_deprecated(put)) == (201, value, False)
    posted = api.post(path, body, key="k")
    assert (posted.content, posted["Idempotency-Replayed"], is_deprecated(posted)) == (put.content, "true", True)
    assert is_deprecated(api.get("/v1/holders/ada/balance")) is False


def test_a_setting_takes_the_former_name_of_its_field(api: ApiClient) -> None:
    path = "/v1/holders/ada/incoming-transfers"
    old = api.put(path, {"accepted": False}, key="k")
    new = api.put(path, {"accepts_transfers": False}, key="k")
    assert (old.status_code, is_deprecated(old), is_deprecated(new)) == (201, True, False)
    assert new.content == old.content
    read = api.get(path)
    assert (read.json()["accepts_transfers"], read.json()["accepted"], is_deprecated(read)) == (False, False, False)


def test_a_former_path_does_the_same_and_is_deprecated(api: ApiClient) -> None:
    for path, old in (
        ("/v1/invoices/1/transitions", "/v1/invoices/1/moves"),
        ("/v1/subscriptions/X/resume", "/v1/subscriptions/X/unpark"),
    ):
        asked = [api.get(each) if "invoices" in each else api.post(each, {"reason": "x"}) for each in (path, old)]
        assert {response.status_code for response in asked} == {404}
        assert len({response.json()["type"] for response in asked}) == 1
        assert [is_deprecated(response) for response in asked] == [False, True]


def test_problems_of_former_words_are_deprecated_and_others_are_not(api: ApiClient) -> None:
    no_key = ApiClient("", type(api.client)())
    for path in ("/v1/invoices/1/moves", "/v1/invoices/1/transitions"):
        response = no_key.get(path)
        assert (response.status_code, is_deprecated(response)) == (401, path.endswith("moves"))
        wrong = api.delete(path)
        assert (wrong.status_code, is_deprecated(wrong)) == (405, path.endswith("moves"))
    overdraft = "/v1/holders/ada/overdraft"
    for method in (api.post, api.put):
        response = method(overdraft, {"limit": -1}, key="k")
        assert (response.status_code, is_deprecated(response)) == (400, method == api.post)
    for name in ("code", "ref"):
        response = api.post("/v1/coupons", {**COUPON, name: 1})
        assert (response.status_code, is_deprecated(response)) == (400, name == "code")


def test_a_former_path_says_so_in_its_response(api: ApiClient) -> None:
    begun = {**SUBSCRIPTION, "started_at": "2026-01-01T00:00:00Z"}
    assert api.post("/v1/subscriptions", begun).status_code == 201
    [invoice] = api.post("/v1/subscriptions/SUB-1/invoices", {"as_of": "2026-01-01T00:00:00Z"}).json()["invoices"]
    now, formerly = (api.get(f"/v1/invoices/{invoice['id']}/{word}") for word in ("transitions", "moves"))
    assert (now.status_code, formerly.status_code) == (200, 200)
    assert (is_deprecated(now), is_deprecated(formerly)) == (False, True)
    assert now.json()["results"] == formerly.json()["results"]


# The table -------------------------------------------------------------------------------------------


def deprecated() -> set[str]:
    """What the OpenAPI document says is deprecated, as the table names it: calls, fields, parameters."""
    document = json.loads(openapi_document())
    found = set()
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            if call.get("deprecated"):
                found.add(f"{method.upper()} {path}")
            found |= {parameter["name"] for parameter in call.get("parameters", ()) if parameter.get("deprecated")}
    for schema in document["components"]["schemas"].values():
        found |= {name for name, each in schema.get("properties", {}).items() if each.get("deprecated")}
    return found


def rows_of_table() -> list[list[str]]:
    """The rows of the table of former words in docs/reference/api.md."""
    page = (Path(settings.BASE_DIR) / "docs" / "reference" / "api.md").read_text()
    table = page.partition("| formerly | now |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_each_former_word_has_a_row_and_each_row_is_in_the_document() -> None:
    named = set(itertools.chain.from_iterable(re.findall(r"`([^`]+)`", row[0]) for row in rows_of_table()))
    assert {name.replace("{id}", "{invoice_id}") for name in named} == deprecated()
    assert len(deprecated()) > 6
