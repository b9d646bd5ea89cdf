"""The scope of a call is declared once: what the document names is what the call asks for."""

import json
import re
from typing import Any, NamedTuple

import pytest
from django.http import HttpRequest, HttpResponse

from ledger import services
from ledger.api.kit.endpoint import Endpoint
from ledger.models import SCOPES
from ledger_project.api.documents import openapi_document
from tests.asgi_client import AsgiClient

IN_A_PATH = {
    "holder": "customer-42", "sequence": "1", "code": "code-1", "ref": "REF-1", "invoice_id": "1", "credit_note_id": "1",
    "key": "k", "move_id": "1", "month": "2026-01",
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
        _, secret = services.create_api_key(name=f"all but {asked}", scopes=others, holder_id=None)
        for call in with_scope:
            if call.scope == asked:
                response = AsgiClient().generic(call.method, call.path, headers={"Authorization": f"Bearer {secret}"})
                problem = json.loads(response.content)
                assert (response.status_code, problem.get("scope")) == (403, asked), f"{call.method} {call.path}: {problem}"


def test_a_call_without_a_scope_is_public_or_looks_at_scopes_itself() -> None:
    unscoped = {(call.method, call.path) for call in documented_calls() if not call.scope and call.security}

    # Each operation of a batch needs the scope of the same call alone.
    assert unscoped == {("POST", "/v1/batches")}


def test_a_handler_that_declares_no_scope_is_a_mistake_of_the_programmer() -> None:
    with pytest.raises(TypeError, match="Forgotten does not declare which scope get needs"):

        class Forgotten(Endpoint):
            def get(self, request: HttpRequest) -> HttpResponse:
                raise NotImplementedError
