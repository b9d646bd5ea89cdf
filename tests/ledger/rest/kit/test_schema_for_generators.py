"""The OpenAPI document keeps to what client generators compile. Each rule is over all of its calls or schemas."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledger import services
from ledger.json_values import EXACT_INTEGERS
from ledger.rest.kit import problems
from ledger.values import annotations_of
from ledger_project.api.documents import openapi_document
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.rest.kit.test_schema import documented_operations

REF = "#/components/schemas/"
IN_PATHS = {
    "holder": "ada",
    "budget": "daily",
    "recurring_grant": "monthly",
    "sequence": "1",
    "ref": "NONE",
    "code": "NONE",
    "invoice_id": "999999",
    "purchase_id": "999999",
    "payment_id": "999999",
    "intent_id": "999999",
    "mail_id": "999999",
    "hold_id": "999999",
    "lookup_id": "999999",
    "key_id": "999999",
    "webhook": "999999",
    "alert": "low",
    "signal": "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21",
    "holder_id": "customer-42",
    "credit_type": "credits",
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document as it is served."""
    loaded: dict[str, Any] = json.loads(openapi_document())
    return loaded


def parts(schema: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and every schema in it, with the place where it is."""
    if not isinstance(schema, dict):
        return
    yield at, schema
    for name, part in schema.get("properties", {}).items():
        yield from parts(part, f"{at}.{name}")
    for word in ("items", "additionalProperties"):
        yield from parts(schema.get(word), f"{at}[{word}]")
    for word in ("oneOf", "anyOf", "allOf"):
        for part in schema.get(word, ()):
            yield from parts(part, f"{at}<{word}>")


def all_parts(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every schema of the components, with the place where it is."""
    found = [part for name, schema in document["components"]["schemas"].items() for part in parts(schema, name)]
    assert len(found) > 500
    return found


def test_the_body_of_a_write_is_required_where_the_server_requires_it(db: None, document: dict[str, Any], make_api: Any) -> None:
    api: ApiClient = make_api("ledger:admin", "billing:write", "billing:read", "keys:admin", "signals:write", "pages:write")
    said, done = {}, {}
    for path, method, operation in documented_operations(document):
        if "requestBody" in operation:
            said[method, path] = operation["requestBody"].get("required", False)
            headers = {"Authorization": f"Bearer {api.secret}", "Idempotency-Key": f"{method} {path}"}
            answer = api.client.generic(method.upper(), path.format_map(IN_PATHS), b"", headers=headers)
            done[method, path] = answer.status_code in (400, 415)
    assert said == done
    assert len(said) > 25
    assert {path.rsplit("/", 1)[1] for (_, path), required in said.items() if not required} == {
        "finalize", "pay", "void", "mark-uncollectible", "{webhook}", "send-again", "release", "cancel",
    }  # fmt: skip


def test_a_choice_is_among_types_not_among_lists_of_required_fields(document: dict[str, Any]) -> None:
    bare = [
        at
        for at, schema in all_parts(document)
        for word in ("oneOf", "anyOf", "allOf")
        for part in schema.get(word, ())
        if not {"$ref", "type"} & set(part)
    ]
    assert bare == []


def test_what_may_be_left_out_has_no_default_that_would_make_it_required(document: dict[str, Any]) -> None:
    found = [
        f"{at}.{name}"
        for at, schema in all_parts(document)
        for name, part in schema.get("properties", {}).items()
        if "default" in part and name not in schema.get("required", ())
    ]
    assert found == []
    grant = document["components"]["schemas"]["Grant"]["properties"]
    assert grant["priority"]["description"] == "Lots with a lower number are spent first. Default: `100`."
    assert grant["source"]["description"].endswith('Default: `"purchased"`.')


def test_what_is_told_apart_by_a_member_has_a_name(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    told_apart = {at for at, schema in all_parts(document) if "discriminator" in schema}
    assert told_apart - unions(document) == {"BatchOperation", "OveragePrice", "Price"}
    assert told_apart <= set(schemas)


def test_a_reference_that_may_be_null_is_an_any_of(document: dict[str, Any]) -> None:
    def is_null(part: dict[str, Any]) -> bool:
        schema = document["components"]["schemas"].get(part.get("$ref", "").removeprefix(REF), part)
        return schema.get("type") == "null" or schema.get("enum") == [None]

    choices = {
        word: [at for at, schema in all_parts(document) if any(is_null(part) for part in schema.get(word, ()))]
        for word in ("oneOf", "anyOf")
    }
    assert choices["oneOf"] == []
    assert {"AccountBalance.next_expiry", "Generation.only", "Plan.allowance"} <= set(choices["anyOf"])
    assert [name for name, schema in document["components"]["schemas"].items() if schema.get("enum") == [None]] == []


def test_a_string_beside_an_integer_is_a_choice_of_two_types_without_a_format(document: dict[str, Any]) -> None:
    mixed = [(at, schema) for at, schema in all_parts(document) if {"string", "integer"} <= types_of(schema)]
    assert len(mixed) > 5
    for at, schema in mixed:
        assert "type" not in schema, at
        assert [part.get("format") for part in schema["oneOf"]] == [None, None], at


def types_of(schema: dict[str, Any]) -> set[str]:
    """The types that a schema names itself, or in a choice."""
    own = schema.get("type", [])
    named = [own] if isinstance(own, str) else own
    return {*named, *(part.get("type", "") for part in schema.get("oneOf", ()) if isinstance(part.get("type", ""), str))}


def test_no_schema_has_a_property_of_its_own_name(document: dict[str, Any]) -> None:
    same = [
        (name, member)
        for name, schema in document["components"]["schemas"].items()
        for member in schema.get("properties", {})
        if member.replace("_", "").lower() == name.lower()
    ]
    assert same == []


def test_the_document_says_which_server_it_is_about(document: dict[str, Any]) -> None:
    assert [server["url"] for server in document["servers"]] == ["/"]


def test_every_call_says_whether_it_needs_a_key(document: dict[str, Any]) -> None:
    said = {operation.get("operationId"): operation.get("security") for _, _, operation in documented_operations(document)}
    assert {name for name, security in said.items() if security is None} == set()
    assert {name for name, security in said.items() if security == []} == {
        "listResources", "health", "readiness", "takeInProviderEvent",
    }  # fmt: skip


def test_every_call_that_reads_its_query_says_that_it_may_refuse_it(document: dict[str, Any]) -> None:
    silent = [
        (method, path)
        for path, method, operation in documented_operations(document)
        if any(parameter["in"] == "query" for parameter in operation.get("parameters", ()))
        and problems.MEDIA_TYPE not in operation["responses"].get("400", {}).get("content", {})
    ]
    assert silent == []


def unions(document: dict[str, Any]) -> set[str]:
    """The names of the unions of problems, one for each call."""
    calls = [operation["operationId"] for _, _, operation in documented_operations(document)]
    return {f"{call[0].upper()}{call[1:]}Problem" for call in calls}


def test_a_status_has_its_only_problem_or_the_union_of_the_call(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for _, _, operation in documented_operations(document):
        union = schemas[f"{operation['operationId'][0].upper()}{operation['operationId'][1:]}Problem"]
        named = set()
        for status, response in operation["responses"].items():
            if problems.MEDIA_TYPE not in response.get("content", {}):
                continue
            content = response["content"][problems.MEDIA_TYPE]
            slugs = {schemas[name_of(each)]["properties"]["type"]["enum"][0] for each in union["oneOf"]}
            of_status = {problems.TYPE_BASE + slug for slug in content["examples"]}
            assert of_status <= slugs
            shape = schemas[name_of(content["schema"])]
            if len(of_status) == 1:
                assert shape["properties"]["type"]["enum"] == list(of_status)
                assert shape["properties"]["status"]["minimum"] == shape["properties"]["status"]["maximum"] == int(status)
            else:
                assert shape is union
            named |= of_status
        assert named == set(union["discriminator"]["mapping"])
        assert "500" in operation["responses"]


def name_of(schema: dict[str, Any]) -> str:
    """The name of the component that a reference names."""
    name: str = schema["$ref"].removeprefix(REF)
    return name


def test_the_facts_of_every_problem_have_types(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert problems.problems_by_slug().keys() > {"insufficient-credits", "invalid-transition", "outcome-unknown"}
    for slug, error_classes in problems.problems_by_slug().items():
        shape = schemas["".join(word.capitalize() for word in slug.split("-"))]
        assert shape["properties"]["type"] == {"type": "string", "enum": [problems.TYPE_BASE + slug]}
        for name in {name for each in error_classes for name in annotations_of(each)}:
            assert {"type", "oneOf", "$ref"} & shape["properties"][name].keys(), (slug, name)


def test_credits_in_a_problem_are_integers_of_64_bits(document: dict[str, Any]) -> None:
    shape = document["components"]["schemas"]["InsufficientCredits"]
    for fact in ("available", "balance", "requested", "shortfall", "held", "expired", "not_yet_effective"):
        assert (shape["properties"][fact]["type"], shape["properties"][fact]["format"]) == ("integer", "int64")
    assert set(shape["required"]) == {"type", "title", "status", "detail", "request_id", "outcome", "shortfall"}
    closed = document["components"]["schemas"]["HoldClosed"]["properties"]
    assert closed["closed_by"]["type"] == ["integer", "null"]
    assert closed["how"]["enum"] == ["captured", "released", "expired"]


def test_a_lack_of_credits_has_the_facts_that_the_document_has(db: None, document: dict[str, Any], make_api: Any) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    services.grant(holder_id="ada", amount=2, idempotency_key="r", priority=0, applies_to={"rates": ["chat"]})
    services.hold(holder_id="ada", amount=1, idempotency_key="h")
    api: ApiClient = make_api("ledger:admin")
    problem = api.post("/v1/holders/ada/spends", {"amount": 8}).json()
    schemas = document["components"]["schemas"]
    of_others = {"top_up", "retry_after_seconds", "overage"}
    assert set(problem) == set(schemas["InsufficientCredits"]["properties"]) - {EXACT_INTEGERS} - of_others
    assert set(problem["for_other_things"][0]) == set(schemas["CreditsForOtherThings"]["properties"]) - {EXACT_INTEGERS}
    assert set(problem["lots"][0]) == set(schemas["InsufficientCreditsLot"]["properties"]) - {EXACT_INTEGERS}
    assert set(problem["holds"][0]) == set(schemas["InsufficientCreditsHold"]["properties"]) - {EXACT_INTEGERS}
