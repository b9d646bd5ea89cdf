"""The Python client has every call and every field of the OpenAPI document, and every problem with its facts."""

import inspect
import json
import keyword
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from clients.python import generate
from credit_ledger import AsyncClient, Client, problems
from credit_ledger.call import ListCall
from credit_ledger.generated import calls
from credit_ledger.problem import facts_of
from ledger.json_values import EXACT_INTEGERS
from ledger.rest.kit.problems import problems_by_slug
from ledger.values import annotations_of
from ledger_project.api.documents import openapi_document

ROOT = Path(__file__).parents[2]
HEADERS = {"Idempotency-Key": "idempotency_key", "If-Match": "if_match"}


@cache
def document() -> dict[str, Any]:
    return json.loads(openapi_document())


def operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """All operations of the document, by id."""
    return {
        call["operationId"]: (path, method, call)
        for path, of_path in document()["paths"].items()
        for method, call in of_path.items()
        if method in ("get", "post", "put", "patch", "delete")
    }


def wanted() -> list[str]:
    return [each for each in operations() if each not in generate.LEFT_OUT]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    return schema


UUID = "0f9a3c1e-7d7f-4b43-9a55-2f0a1d7c9e21"


def sample(schema: dict[str, Any]) -> Any:
    """A value that the schema allows."""
    schema = resolved(schema)
    for options in (schema.get(key) for key in ("allOf", "oneOf", "anyOf")):
        if options:
            return sample(options[0])
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type", "object")
    match kind if isinstance(kind, str) else kind[0]:
        case "object":
            return {name: sample(schema["properties"].get(name, {"type": "string"})) for name in schema.get("required", [])}
        case "array":
            return [sample(schema["items"])] * max(1, schema.get("minItems", 1)) if schema.get("items") else []
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    pattern = schema.get("pattern", "")
    samples = ("abc", "EUR", "DE", "1", "2026-01", "customer-42", "order:7781", UUID, "https://shop.example", "")
    return next(each for each in samples if not pattern or re.search(pattern, each))


def test_the_generated_files_are_of_this_document() -> None:
    for name, text in generate.generated(document()).items():
        assert (generate.TARGET / name).read_text() == text, f"{name} is of another document: make client-types"


def test_what_is_left_out_is_in_the_document() -> None:
    assert generate.LEFT_OUT.keys() <= operations().keys()
    assert generate.NAMES.keys() <= operations().keys()
    assert {operation for operation, _, _ in generate.LEFT_OUT_FIELDS} <= operations().keys()


def test_there_is_one_method_for_each_call() -> None:
    names = [generate.name_of(each) for each in wanted()]
    assert len(set(names)) == len(names)
    functions = {name for name, each in vars(calls).items() if inspect.isfunction(each) and each.__module__ == calls.__name__}
    assert functions == set(names)
    for client in (Client, AsyncClient):
        assert all(hasattr(client, name) for name in names)


def test_each_call_has_every_field_of_the_document() -> None:
    for operation_id in wanted():
        check_fields(operation_id)


def arguments(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as arguments: one that is a word of Python ends with _."""
    return {f"{name}_" if keyword.iskeyword(name) else name: each for name, each in fields.items()}


def check_fields(operation_id: str) -> None:
    path, method, operation = operations()[operation_id]
    by_place: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for each in operation.get("parameters", ()):
        if (operation_id, each["in"], each["name"]) not in generate.LEFT_OUT_FIELDS:
            by_place[each["in"]][each["name"]] = each["schema"]
    schema = resolved(operation["requestBody"]["content"]["application/json"]["schema"]) if "requestBody" in operation else None
    body = {
        name: sample(each)
        for name, each in (schema["properties"] if schema else {}).items()
        if (operation_id, "body", name) not in generate.LEFT_OUT_FIELDS
    }
    in_path = {name: sample(each) for name, each in by_place["path"].items()}
    in_query = {name: sample(each) for name, each in by_place["query"].items()}
    in_headers = {HEADERS[name]: {"If-Match": 7}.get(name, "key-1") for name in by_place["header"]}

    function = getattr(calls, generate.name_of(operation_id))
    call = function(*in_path.values(), **arguments({**body, **in_query, **in_headers}))

    assert call.method == method.upper()
    assert call.path == path.format(**in_path)
    assert call.query_parameters() == {name: "true" if value is True else str(value) for name, value in in_query.items()}
    sent = json.loads(call.content() or b"null")
    assert sent == (body if schema is not None else None)
    if schema is not None:
        validator = {"components": document()["components"], **schema}
        jsonschema.Draft202012Validator(validator).validate(sent)
    headers = call.headers()
    assert headers.get("Idempotency-Key") == ("key-1" if "idempotency_key" in in_headers else None)
    assert headers.get("If-Match") == ('"7"' if "if_match" in in_headers else None)
    # A dry run is no write, and so is what needs no key.
    assert not call.is_write
    needs_key = "Idempotency-Key" in by_place["header"]
    without_dry_run = {name: each for name, each in in_query.items() if name != "dry_run"}
    again = function(*in_path.values(), **arguments({**body, **without_dry_run}))
    assert again.is_write == needs_key

    content = operation["responses"]["200"]["content"]
    assert call.is_json == ("application/json" in content)
    answer = resolved(content["application/json"]["schema"]) if call.is_json else {}
    assert isinstance(call, ListCall) == (answer.get("properties", {}).keys() == {"results", "next", "previous"})


def test_required_fields_have_no_default_and_all_others_have_one() -> None:
    for operation_id in wanted():
        _, _, operation = operations()[operation_id]
        required = {each["name"] for each in operation.get("parameters", ()) if each.get("required")}
        if "requestBody" in operation:
            required |= set(resolved(operation["requestBody"]["content"]["application/json"]["schema"]).get("required", ()))
        signature = inspect.signature(getattr(calls, generate.name_of(operation_id)))
        assert {name for name, each in signature.parameters.items() if each.default is inspect.Parameter.empty} == required


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_hold_takes_what_the_call_takes_but_no_dry_run(client: type) -> None:
    """A dry run's sequence may become another entry, which the end of the block would capture."""
    hold = dict(inspect.signature(client.hold).parameters)
    del hold["self"]
    place_hold = dict(inspect.signature(calls.place_hold).parameters)
    assert place_hold.pop("dry_run")
    assert {name: each.annotation for name, each in hold.items()} == {name: each.annotation for name, each in place_hold.items()}


def test_every_problem_has_a_class_with_the_facts_of_its_declaration() -> None:
    declared = {
        slug: {fact for error_class in classes for fact in annotations_of(error_class)}
        for slug, classes in problems_by_slug().items()
    }
    assert len(declared) > 40
    facts = {slug: set(facts_of(each)) - {EXACT_INTEGERS} for slug, each in problems.BY_SLUG.items()}
    assert facts == declared


def example_of(example: dict[str, Any]) -> dict[str, Any]:
    value = document()["components"]["examples"][example["$ref"].rsplit("/", 1)[-1]] if "$ref" in example else example
    return value["value"]


def test_every_example_of_a_problem_becomes_its_class() -> None:
    seen = set()
    for _, _, operation in operations().values():
        for status, response in operation["responses"].items():
            for slug, example in response.get("content", {}).get("application/problem+json", {}).get("examples", {}).items():
                body = example_of(example)
                problem = problems.problem_of(int(status), body)
                assert problem.slug in problems.BY_SLUG, slug
                assert type(problem) is problems.BY_SLUG[problem.slug]
                names = facts_of(type(problem))
                typed = {fact for of, fact in generate.TYPED_FACTS if of == type(problem).__name__ and fact == "problem"}
                assert all(getattr(problem, name) == body.get(name) for name in names if name not in typed)
                assert all(getattr(problem, name).facts.items() <= body[name].items() for name in typed)
                seen.add(problem.slug)
    assert len(seen) > 40
