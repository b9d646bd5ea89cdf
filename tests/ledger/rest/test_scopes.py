"""The scope of a call is declared once: what the document names is what the call asks for."""

import hashlib
import json
import re
from typing import Any, NamedTuple

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse

from ledger.keys import api_keys
from ledger.keys.models import ApiKey
from ledger.rest.kit.endpoint import Endpoint
from ledger.scopes import SCOPES
from ledger_project.api.documents import openapi_document
from tests.asgi_client import AsgiClient

IN_A_PATH = {
    "holder": "customer-42", "sequence": "1", "code": "code-1", "ref": "REF-1", "invoice_id": "1", "credit_note_id": "1",
    "key": "k", "key_id": "1", "move_id": "1", "month": "2026-01", "credit_type": "credits",
    "webhook": "1", "alert": "low", "signal": "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21",
}  # fmt: skip


class DocumentedCall(NamedTuple):
    """A call under /v1 of the OpenAPI document."""

    method: str
    path: str
    """With values for its parameters."""
    scope: str | None
    security: Any
    responses: dict[str, Any]
    """By status."""


def documented_calls() -> list[DocumentedCall]:
    """Return each call under /v1."""
    paths = json.loads(openapi_document())["paths"]
    return [
        DocumentedCall(
            method.upper(),
            re.sub(r"{(\w+)}", lambda found: IN_A_PATH.get(found[1], "1"), path),
            call["x-scope"],
            call.get("security"),
            call["responses"],
        )
        for path, methods in paths.items()
        if path.startswith("/v1/")
        for method, call in methods.items()
        if "x-scope" in call
    ]


def test_every_call_asks_for_the_scope_that_the_document_names(db: None) -> None:
    with_scope = [call for call in documented_calls() if call.scope]
    assert len(with_scope) > 60
    for asked in sorted({call.scope for call in with_scope if call.scope}):
        others = [scope for scope in SCOPES if scope not in (asked, "ledger:admin")]
        _, secret = api_keys.create_api_key(name=f"all but {asked}", scopes=others, holder_id=None)
        for call in with_scope:
            if call.scope == asked:
                response = AsgiClient().generic(call.method, call.path, headers={"Authorization": f"Bearer {secret}"})
                problem = json.loads(response.content)
                assert (response.status_code, problem.get("scope")) == (403, asked), f"{call.method} {call.path}: {problem}"


SCOPES_OF_THE_LEDGER = {
    "GET /v1/holders": "ledger:read",
    "GET /v1/holders/{holder}": "ledger:read",
    "GET /v1/holders/{holder}/balance": "ledger:read",
    "GET /v1/holders/{holder}/usage": "ledger:read",
    "GET /v1/holders/{holder}/entries": "ledger:read",
    "GET /v1/holders/{holder}/grants": "ledger:read",
    "GET /v1/holders/{holder}/lots": "ledger:read",
    "GET /v1/entries": "ledger:read",
    "GET /v1/entries/{holder}/{credit_type}/{sequence}": "ledger:read",
    "GET /v1/balances": "ledger:read",
    "GET /v1/holders/{holder}/entries/{sequence}": "ledger:read",
    "GET /v1/holders/{holder}/entries/{sequence}/explanation": "ledger:read",
    "GET /v1/holders/{holder}/holds": "ledger:read",
    "GET /v1/holders/{holder}/refusals": "ledger:read",
    "GET /v1/holders/{holder}/statements/{month}.pdf": "ledger:read",
    "GET /v1/rates": "ledger:read",
    "GET /v1/rates/{code}": "ledger:read",
    "GET /v1/key": None,
    "GET /v1/keys": "keys:admin",
    "GET /v1/keys/{key_id}": "keys:admin",
    "POST /v1/keys": "keys:admin",
    "POST /v1/keys/{key_id}/revoke": "keys:admin",
    "POST /v1/keys/{key_id}/rotate": "keys:admin",
    "POST /v1/batches": None,
    "POST /v1/holders/{holder}/grants": "ledger:grant",
    "POST /v1/holders/{holder}/holds": "ledger:hold",
    "POST /v1/holders/{holder}/holds/{sequence}/captures": "ledger:hold",
    "POST /v1/holders/{holder}/holds/{sequence}/extend": "ledger:hold",
    "POST /v1/holders/{holder}/holds/{sequence}/release": "ledger:hold",
    "GET /v1/holders/{holder}/incoming-transfers": "ledger:read",
    "PUT /v1/holders/{holder}/freeze": "ledger:admin",
    "PUT /v1/holders/{holder}/overage": "ledger:admin",
    "GET /v1/holders/{holder}/overage": "ledger:read",
    "DELETE /v1/holders/{holder}/overage": "ledger:admin",
    "PUT /v1/holders/{holder}/test-clock": "ledger:admin",
    "PUT /v1/holders/{holder}/incoming-transfers": "ledger:transfer",
    "PUT /v1/holders/{holder}/overdraft": "ledger:admin",
    "GET /v1/holders/{holder}/recurring-grants": "ledger:read",
    "GET /v1/holders/{holder}/recurring-grants/{recurring_grant}": "ledger:read",
    "PUT /v1/holders/{holder}/recurring-grants/{recurring_grant}": "ledger:admin",
    "DELETE /v1/holders/{holder}/recurring-grants/{recurring_grant}": "ledger:admin",
    "GET /v1/holders/{holder}/budgets": "ledger:read",
    "GET /v1/holders/{holder}/budgets/{budget}": "ledger:read",
    "GET /v1/holders/{holder}/budgets/{budget}/usage": "ledger:read",
    "PUT /v1/holders/{holder}/budgets/{budget}": "ledger:admin",
    "DELETE /v1/holders/{holder}/budgets/{budget}": "ledger:admin",
    "POST /v1/holders/{holder}/page-links": "pages:write",
    "POST /v1/holders/{holder}/refunds": "ledger:refund",
    "POST /v1/holders/{holder}/revocations": "ledger:grant",
    "POST /v1/holders/{holder}/spends": "ledger:spend",
    "POST /v1/holders/{holder}/reissues": "ledger:grant",
    "POST /v1/holders/{holder}/reversals": "ledger:admin",
    "POST /v1/holders/{holder}/voids": "ledger:grant",
    "GET /v1/holders/{holder}/freeze": "ledger:read",
    "GET /v1/holders/{holder}/test-clock": "ledger:read",
    "POST /v1/holders/{holder}/transfers": "ledger:transfer",
    "POST /v1/quotes": "ledger:read",
    "POST /v1/rates": "ledger:admin",
}


def test_each_call_of_the_ledger_has_the_scope_of_this_table() -> None:
    paths = json.loads(openapi_document())["paths"]
    of_the_ledger = ("/v1/holders", "/v1/entries", "/v1/balances", "/v1/rates", "/v1/quotes", "/v1/batches", "/v1/key")
    found = {
        f"{method.upper()} {path}": call["x-scope"]
        for path, methods in paths.items()
        if path.startswith(of_the_ledger)
        for method, call in methods.items()
        if "x-scope" in call
    }
    assert found == SCOPES_OF_THE_LEDGER


def scopes_let_in(secret: str) -> set[str]:
    """The scopes of the calls that a key may make; each other one is refused with its scope."""
    let_in = set()
    for call in documented_calls():
        if call.scope:
            response = AsgiClient().generic(call.method, call.path, headers={"Authorization": f"Bearer {secret}"})
            if response.status_code != 403:
                let_in.add(call.scope)
            else:
                assert json.loads(response.content)["scope"] == call.scope
    return let_in


@pytest.mark.products(most=4)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_of_one_scope_makes_the_calls_of_that_scope_and_no_others(db: None, scope: str) -> None:
    _, secret = api_keys.create_api_key(name=f"only {scope}", scopes=[scope])
    asked = {call.scope for call in documented_calls() if call.scope}
    of_the_ledger = {each for each in asked if each.startswith("ledger:")}
    assert scopes_let_in(secret) == (of_the_ledger if scope == "ledger:admin" else {scope})


def test_a_key_made_before_the_split_keeps_what_it_could(db: None) -> None:
    secret = "a-key-of-an-earlier-release"
    with connection.cursor() as cursor:
        # As the release before the split wrote a key: it names no is_before_split.
        cursor.execute(
            "INSERT INTO ledger_api_key (name, prefix, key_digest, scopes, created_at, created_by)"
            " VALUES ('old', %s, %s, '[\"ledger:spend\"]', now(), '')",
            [secret[:8], hashlib.sha256(secret.encode()).digest()],
        )
    assert scopes_let_in(secret) == {"ledger:spend", "ledger:refund", "ledger:hold", "ledger:transfer"}
    assert ApiKey.objects.get(name="old").granted_scopes == ["ledger:spend", "ledger:refund", "ledger:hold", "ledger:transfer"]
    assert api_keys.create_api_key(name="new", scopes=["ledger:spend"])[0].granted_scopes == ["ledger:spend"]


def test_a_call_without_a_scope_is_public_or_looks_at_scopes_itself() -> None:
    unscoped = {(call.method, call.path) for call in documented_calls() if not call.scope and call.security}

    # Each operation of a batch needs the scope of the same call alone, and every key may learn who it is.
    assert unscoped == {("POST", "/v1/batches"), ("GET", "/v1/key")}


def test_a_handler_that_declares_no_scope_is_a_mistake_of_the_programmer() -> None:
    with pytest.raises(TypeError, match="Forgotten does not declare which scope get needs"):

        class Forgotten(Endpoint):
            def get(self, request: HttpRequest) -> HttpResponse:
                raise NotImplementedError
