"""Every call of the API refuses query parameters that it does not know, and every write can be tried with `?dry_run=true`.

The calls come from the URL conf, so a new one cannot be forgotten.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.urls import URLPattern, URLResolver, get_resolver

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import RequestKey
from ledger.rest.kit.endpoint import Endpoint
from ledger.scopes import SCOPES
from ledger_project.api.documents import openapi_document
from tests.billing.factories import SubscriptionFactory, at, unique
from tests.ledger.rest.conftest import ApiClient, _forget_keys, make_api, way

__all__ = ["_forget_keys", "make_api", "way"]

pytestmark = pytest.mark.django_db

PARTS = {
    "holder:holder": "customer-42", "sequence:sequence": "1", "month:month": "2026-01", "rate:code": "gpt", "ref:ref": "NONE",
    "book_month:month": "2026-01",
    "ref:code": "NONE", "event_key:key": "none", "row_id:invoice_id": "999999", "row_id:credit_note_id": "999999",
    "row_id:purchase_id": "999999", "row_id:intent_id": "999999", "row_id:top_up_id": "999999",
    "row_id:hold_id": "999999",
    "row_id:lookup_id": "999999",
    "provider:provider": "stripe",
    "payment_method:method": "pm_1",
    "row_id:payment_id": "999999",
    "row_id:mail_id": "999999",
    "row_id:move_id": "999999",
    "slug:slug": "not-found", "budget:budget": "daily", "credit_type:credit_type": "credits", "sequence:webhook": "1",
    "budget:alert": "low", "budget:recurring_grant": "monthly", "sequence:key_id": "1",
    "uuid:signal": "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21",
}  # fmt: skip
NOT_WRITES = {
    "/v1/quotes", "/v1/ratings", "/v1/price-trials", "/v1/customers/<ref:ref>/preview", "/v1/plans/<ref:ref>/moves/preview",
    "/v1/holders/<holder:holder>/page-links",
    "/v1/providers/<provider:provider>/events",
}  # fmt: skip
"""What is posted there is only looked at, or sent by a provider: nothing is there to try."""


def _endpoints(patterns: list[Any], prefix: str = "/") -> Iterator[tuple[str, type[Endpoint]]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _endpoints(pattern.url_patterns, prefix + str(pattern.pattern))
        elif isinstance(pattern, URLPattern):
            view = getattr(pattern.callback, "cls", None)
            if isinstance(view, type) and issubclass(view, Endpoint):
                yield prefix + str(pattern.pattern), view


CALLS = [
    (method, route, view)
    for route, view in _endpoints(get_resolver().url_patterns)
    for method in view.http_method_names
    if hasattr(view, method)
]
PROBES = [call for call in CALLS if call[2].is_probe]
WRITES = [call for call in CALLS if call[0] not in ("get", "head") and call[1] not in NOT_WRITES]


def path_of(route: str) -> str:
    """The route with a name in each place."""
    for part, value in PARTS.items():
        route = route.replace(f"<{part}>", value)
    assert "<" not in route, f"give the part of {route} a value"
    return route


def rows() -> dict[str, int]:
    """How many rows each table of the apps has."""
    tables = [t for t in connection.introspection.table_names() if t.startswith(("billing_", "ledger_")) and "_p2" not in t]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{table}', count(*) FROM \"{table}\"" for table in tables))
        return dict(cursor.fetchall())


@pytest.fixture
def api(make_api: Any) -> ApiClient:
    """A client that may do everything."""
    return make_api(*SCOPES)


def test_the_table_has_every_call_of_the_document() -> None:
    documented = {
        (method, path)
        for path, calls in json.loads(openapi_document())["paths"].items()
        for method in calls
        if method != "parameters"
    }
    left_out = ("/problems/", "/v1/schema", "/docs/api.json", "/metrics")
    assert len(documented) == sum(1 for _, route, _ in CALLS if not route.startswith(left_out) and route != "/v1/")


def test_only_probes_let_anything_pass() -> None:
    assert {route for _, route, _ in PROBES} == {"/healthz", "/metrics"}


def test_an_unknown_query_parameter_is_refused_by_every_call(api: ApiClient) -> None:
    before = rows()
    for method, route, view in CALLS:
        if view.is_probe:
            continue
        raw = b"" if method in ("get", "head") else None
        sent = api._send(method.upper(), f"{path_of(route)}?drY_run=true", {}, key="", raw=raw)
        assert sent.status_code == 400, (method, route)
        assert "/drY_run" in [error["pointer"] for error in sent.json()["errors"]], (method, route)
    assert rows() == before


def test_every_write_declares_a_dry_run(api: ApiClient) -> None:
    document = json.loads(openapi_document())["paths"]
    before = rows()
    for method, route, _ in WRITES:
        sent = api._send(method.upper(), f"{path_of(route)}?dry_run=perhaps", {}, key="", raw=None)
        found = [(error["pointer"], error["code"]) for error in sent.json()["errors"]]
        assert found == [("/dry_run", "not-a-boolean")], (method, route)
        parameters = document[re.sub(r"<\w+:(\w+)>", r"{\1}", route)][method]["parameters"]
        assert "dry_run" in [parameter["name"] for parameter in parameters], (method, route)
    assert rows() == before


@pytest.mark.parametrize("path", sorted(NOT_WRITES))
def test_what_writes_nothing_takes_no_dry_run(api: ApiClient, path: str) -> None:
    sent = api.post(f"{path_of(path)}?dry_run=true", {})
    assert [(error["pointer"], error["code"]) for error in sent.json()["errors"]] == [("/dry_run", "unknown-field")]


# What a dry run of billing shows ---------------------------------------------------------------------


@pytest.fixture
def billed() -> Any:
    """A subscription with an open invoice and a draft, a coupon of its customer's, and a one-off charge."""
    subscription = SubscriptionFactory()
    generate_in(ref=subscription.ref, options=Options(as_of=at(1)))
    generate_in(ref=subscription.ref, options=Options(as_of=at(2), finalize=False))
    return subscription


def tries(api: ApiClient, billed: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Each write of billing, as it would succeed: method, path, body."""
    from billing.models import Customer, Invoice, Plan

    customer = Customer.objects.get(pk=billed.customer_id).ref
    plan = Plan.objects.order_by("-id").first()
    assert plan is not None
    opened, draft = Invoice.objects.filter(subscription_id=billed.pk).order_by("id")
    coupon, given = unique("coupon"), unique("coupon")
    percentage = {"kind": "percentage", "value": "10", "duration": "forever"}
    for code in (coupon, given):
        assert api.post("/v1/coupons", {"ref": code, **percentage}).status_code == 201
    assert api.post(f"/v1/customers/{customer}/coupons", {"coupon": given}).status_code == 201
    interval = {"unit": "month", "count": 1}
    price = {"key": "base", "kind": "recurring", "model": "flat", "unit_amount": "1.00"}
    event = {"idempotency_key": unique("use"), "subscription": billed.ref, "meter": "calls", "value": 3}
    return [
        ("POST", "/v1/customers", {"ref": unique("CUST"), "name": "Grace", "currency": "EUR"}),
        ("PATCH", f"/v1/customers/{customer}", {"name": "Grace"}),
        ("POST", f"/v1/customers/{customer}/coupons", {"coupon": coupon}),
        ("DELETE", f"/v1/customers/{customer}/coupons/{given}", {}),
        ("POST", "/v1/plans", {"ref": unique("p"), "name": "P", "currency": "EUR", "interval": interval, "prices": [price]}),
        ("POST", "/v1/coupons", {"ref": unique("coupon"), **percentage}),
        ("POST", "/v1/subscriptions", {"ref": unique("SUB"), "customer": customer, "plan": plan.code,
                                       "started_at": "2026-01-01T00:00:00Z"}),
        ("POST", f"/v1/subscriptions/{billed.ref}/charges", {"amount_minor": 100, "description": "Set-up"}),
        ("POST", f"/v1/subscriptions/{billed.ref}/invoices", {"as_of": "2026-03-01T00:00:00Z"}),
        ("POST", "/v1/usage-events", {"events": [{**event, "occurred_at": "2026-01-05T00:00:00Z"}]}),
        ("POST", f"/v1/invoices/{draft.pk}/finalize", {}),
        ("DELETE", f"/v1/invoices/{draft.pk}?reason=wrong", {}),
        ("POST", f"/v1/invoices/{opened.pk}/credit-notes", {"reason": "Outage"}),
        ("POST", f"/v1/invoices/{opened.pk}/mark-uncollectible", {}),
        ("POST", f"/v1/invoices/{opened.pk}/pay", {}),
        ("POST", f"/v1/invoices/{opened.pk}/void", {}),
    ]  # fmt: skip


# What the server makes each time.
NEW = {"id", "recorded_at", "given_at", "taken_off_at", "finalized_at", "number", "state", "issue_date", "due_date"}


def without_new(body: Any) -> Any:
    """A body without what differs from try to try."""
    if isinstance(body, dict):
        return {name: without_new(value) for name, value in body.items() if name not in NEW}
    return [without_new(item) for item in body] if isinstance(body, list) else body


@pytest.mark.products(most=10)
@pytest.mark.parametrize("number", range(16))
def test_a_dry_run_of_billing_shows_the_response_and_writes_nothing(api: ApiClient, billed: Any, number: int) -> None:
    method, path, body = tries(api, billed)[number]
    before = rows()
    tried = api._send(method, f"{path}{'&' if '?' in path else '?'}dry_run=true", body, key=None, raw=None)
    assert (tried.status_code, rows()) == (200, before), tried.content
    key = unique("key")
    real = api._send(method, path, body, key=key, raw=None)
    assert real.status_code in (200, 201)
    assert without_new(tried.json()) == without_new(real.json())
    again = api._send(method, f"{path}{'&' if '?' in path else '?'}dry_run=true", body, key=key, raw=None)
    assert (again.status_code, again.headers["Idempotency-Replayed"], again.content) == (200, "true", real.content)


@pytest.mark.parametrize(
    ("query", "in_body"), [("?dry_run=true", {}), ("", {"dry_run": True}), ("?dry_run=true", {"dry_run": False})]
)
def test_invoices_are_tried_by_the_query_or_by_the_body(
    api: ApiClient, billed: Any, query: str, in_body: dict[str, bool]
) -> None:
    path, body, key = f"/v1/subscriptions/{billed.ref}/invoices", {"as_of": "2026-03-01T00:00:00Z"}, unique("key")
    before = rows()
    tried = api.post(path + query, body | in_body, key=key)
    assert (tried.status_code, tried.json()["invoices"][0]["number"], rows()) == (200, None, before)
    real = api.post(path, body, key=key)
    assert (real.status_code, "Idempotency-Replayed" in real.headers) == (201, False)


def test_a_refused_dry_run_has_the_problem_and_keeps_no_key(api: ApiClient, billed: Any) -> None:
    key = unique("key")
    refused = api.post("/v1/invoices/999999/pay?dry_run=true", {}, key=key)
    assert refused.status_code == 404
    assert not RequestKey.objects.filter(idempotency_key=key).exists()


def test_a_write_with_its_dry_run_spelled_out_is_the_same_request(api: ApiClient) -> None:
    body, key = {"ref": unique("CUST"), "name": "Ada", "currency": "EUR"}, unique("key")
    first, again = api.post("/v1/customers?dry_run=false", body, key=key), api.post("/v1/customers", body, key=key)
    assert (first.status_code, again.content, again.headers["Idempotency-Replayed"]) == (201, first.content, "true")
