"""Every call that takes a body refuses each mistake in a declared field by field and code, over HTTP, and writes nothing.

The mistakes are those of `tests/ledger/test_declarations.py`, one for each field and code.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ledger import services
from ledger.database.statements import fetch_rows, fetch_value
from ledger.keys import api_keys
from ledger.records import Field, Shape
from ledger.scopes import SCOPES
from ledger_project.api.documents import openapi_document
from tests.ledger.rest.conftest import ApiClient, problem_of_refusal
from tests.ledger.test_declarations import SHAPES, body, cases, errors_of, good, is_raw, without_others

IN_PATH = {
    "holder": "customer-42", "budget": "daily", "sequence": "1", "invoice_id": "1", "purchase_id": "1", "intent_id": "1",
    "payment_id": "1", "mail_id": "1", "top_up_id": "1", "hold_id": "1", "provider": "stripe", "method": "pm_1",
    "ref": "SUB-1", "key_id": "1", "webhook": "1",
    "recurring_grant": "monthly", "alert": "low", "move_id": "1",
}  # fmt: skip


def calls() -> list[tuple[str, str, Shape[Any]]]:
    """Method, path and body of every call that takes one, as documented."""
    found = []
    for path, methods in json.loads(openapi_document())["paths"].items():
        for method, call in methods.items():
            if "requestBody" in call:
                component = call["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                address = re.sub(r"{(\w+)}", lambda name: IN_PATH[name[1]], path)
                found.append((method.upper(), address, SHAPES[component.removeprefix("Patched")]))
    return found


def mistakes(field: Field) -> dict[tuple[str, str], Any]:
    """A wrong value for each place and code; null too."""
    tried = [(item, at, code) for item, at, code in cases(field.value) if code]
    if not field.value.null:
        tried.append((None, "", "null"))
    return {(f"/{field.json_name}{at}", code): item for item, at, code in reversed(tried)}


def rows() -> int:
    """How many rows the tables of the ledger and of billing have."""
    tables = fetch_rows(str, "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relname ~ '^(ledger|billing)_'")
    return fetch_value(int, "SELECT " + " + ".join(f"(SELECT count(*) FROM {table})" for table in tables))


def mistakes_of_whole(shape: Shape[Any]) -> Iterator[dict[str, Any]]:
    """Bodies with a field too many, with none, with both of two groups, and with half of one."""
    whole = body(shape)
    yield {**whole, "surprise": 1}
    if errors_of(shape, {}):
        yield {}
    for group in shape.either[1:]:
        both = {**whole, **{each.json_name: good(each.value) for each in shape.fields if each.json_name in group}}
        yield both
        yield from ({name: item for name, item in both.items() if name not in (*shape.either[0], gone)} for gone in group)


CALLS = calls()


def test_every_call_with_a_body_is_tried():
    assert len(CALLS) > 30


@pytest.mark.products(most=24)
@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path", "shape"), CALLS, ids=[f"{method} {path}" for method, path, _ in CALLS])
def test_a_mistake_in_a_declared_field_is_a_400_and_nothing_is_written(method, path, shape):
    _, secret = api_keys.create_api_key(name="test", scopes=SCOPES)
    api = ApiClient(secret)
    services.grant(holder_id="customer-42", amount=100, idempotency_key="first")
    send = {"PATCH": api.patch, "PUT": api.put}.get(method, api.post)
    before, tried = rows(), 0
    for field in shape.fields:
        for (pointer, code), item in {} if is_raw(field.value) else mistakes(field).items():
            given = {**without_others(shape, field), field.json_name: item}
            problem_of_refusal(send(path, given), 400, (pointer, code))
            tried += 1
    for given in mistakes_of_whole(shape):
        problem_of_refusal(send(path, given), 400, *((error.pointer, error.code) for error in errors_of(shape, given)))
    assert rows() == before
    assert tried or not shape.fields


def test_control_a_body_without_mistakes_writes(db):
    _, secret = api_keys.create_api_key(name="test", scopes=SCOPES)
    before = rows()
    assert ApiClient(secret).post("/v1/holders/customer-42/grants", {"amount": 1}).status_code == 201
    assert rows() > before
