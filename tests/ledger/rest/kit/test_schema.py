"""The OpenAPI document: valid, complete, with examples that fit what they are examples of; and a server that does as it says."""

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular import validation
from drf_spectacular.drainage import GENERATOR_STATS
from jsonschema_rs import Draft202012Validator, Registry

from billing.api.schemas import request_schemas
from ledger.records import Record, declared_fields
from ledger.rest.kit import problems
from ledger.rest.kit.parsing import MERGE_PATCH
from ledger.rest.kit.schema import page_example
from ledger_project.api import documents
from ledger_project.api.documents import openapi_document
from tests.asgi_client import AsgiClient
from tests.deployment.serving.test_serve import wait_until

LEDGER_CALLS = {
    ("/v1/holders/{holder}/grants", "post"),
    ("/v1/holders/{holder}/spends", "post"),
    ("/v1/holders/{holder}/refunds", "post"),
    ("/v1/holders/{holder}/revocations", "post"),
    ("/v1/holders/{holder}/holds", "post"),
    ("/v1/holders/{holder}/holds", "get"),
    ("/v1/holders/{holder}/holds/{sequence}/captures", "post"),
    ("/v1/holders/{holder}/holds/{sequence}/release", "post"),
    ("/v1/holders/{holder}/holds/{sequence}/extend", "post"),
    ("/v1/holders/{holder}/transfers", "post"),
    ("/v1/holders/{holder}/overdraft", "put"),
    ("/v1/batches", "post"),
    ("/v1/rates", "post"),
    ("/v1/rates", "get"),
    ("/v1/rates/{code}", "get"),
    ("/v1/quotes", "post"),
    ("/v1/holders/{holder}/entries/{sequence}/explanation", "get"),
    ("/v1/holders/{holder}/balance", "get"),
    ("/v1/holders/{holder}/entries", "get"),
    ("/v1/holders/{holder}/entries/{sequence}", "get"),
    ("/v1/holders/{holder}/refusals", "get"),
    ("/v1/holders", "get"),
    ("/healthz", "get"),
    ("/readyz", "get"),
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document as it is served."""
    loaded: dict[str, Any] = json.loads(openapi_document())
    return loaded


def documented_operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and description of each call in the document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


@pytest.fixture(scope="module")
def validator(document: dict[str, Any]) -> Callable[[dict[str, Any]], Draft202012Validator]:
    """`validator(schema)` checks values against a schema of the document, whose `$ref`s it follows."""

    def pointing_into_the_document(schema: dict[str, Any]) -> Any:
        return json.loads(json.dumps(schema).replace('"#/', '"urn:document#/'))

    registry = Registry([("urn:document", pointing_into_the_document(document))])
    return lambda schema: Draft202012Validator(pointing_into_the_document(schema), registry=registry, validate_formats=True)


def test_the_document_is_served_without_a_key() -> None:
    answer = AsgiClient().get("/v1/schema")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert answer.content == openapi_document()


def builds_at_once(monkeypatch: pytest.MonkeyPatch, build: Callable[[], bytes]) -> int:
    """How many of two first requests were inside drf-spectacular's generator at the same time."""
    documents._build_document.cache_clear()
    inside: list[int] = []
    most = 0
    threads = [threading.Thread(target=build) for _ in range(2)]

    def second_waits_outside() -> bool:
        frames = [sys._current_frames().get(thread.ident or 0) for thread in threads]
        return "openapi_document" in [frame.f_code.co_name for frame in frames if frame]

    def get_schema(*arguments: object, **options: object) -> dict[str, Any]:
        nonlocal most
        inside.append(threading.get_ident())
        wait_until(lambda: len(inside) == 2 or second_waits_outside(), "the second one came")
        most = max(most, len(inside))
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(documents.SchemaGenerator, "get_schema", get_schema)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    documents._build_document.cache_clear()
    return most


def test_two_first_requests_build_the_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert builds_at_once(monkeypatch, documents.openapi_document) == 1


def test_without_the_lock_two_first_requests_build_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: drf-spectacular then takes the path of one operation for the other's, and the first requests end in 500."""
    assert builds_at_once(monkeypatch, documents._build_document) == 2


@pytest.mark.slow
@pytest.mark.check
def test_the_document_is_valid_openapi_3_1_and_made_without_a_warning() -> None:
    documents._build_document.cache_clear()
    document = json.loads(openapi_document())
    assert not GENERATOR_STATS, GENERATOR_STATS.emit_summary()
    assert document["openapi"] == "3.1.0"
    # By the rules that drf-spectacular has, but compiled: its own function takes 16 seconds.
    jsonschema_rs.validate(json.loads((Path(validation.__file__).parent / "openapi_3_1_schema.json").read_text()), document)
    for name, schema in document["components"]["schemas"].items():
        jsonschema_rs.meta.validate(schema)
        assert re.fullmatch(r"[A-Za-z0-9]+", name)


def test_the_document_has_every_call_of_the_contract(document: dict[str, Any]) -> None:
    assert {(path, method) for path, method, _ in documented_operations(document)} >= LEDGER_CALLS


def routes(patterns: list[URLPattern | URLResolver], prefix: str = "/") -> Iterator[tuple[str, Any]]:
    """The path of each URL pattern, with parameters as the document writes them, and its view."""
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, path)
        else:
            yield re.sub(r"<(?:[a-z_]+:)?([a-z_]+)>", r"{\1}", path), getattr(pattern.callback, "cls", None)


def test_the_document_has_every_route_under_v1_but_its_own(document: dict[str, Any]) -> None:
    under_v1 = {path for path, _ in routes(get_resolver().url_patterns) if path.startswith("/v1")}
    assert {path for path in document["paths"] if path.startswith("/v1")} == under_v1 - {"/v1/schema", "/v1/"}


def example_of(document: dict[str, Any], example: dict[str, Any]) -> Any:
    """The value of an example, which may be another's."""
    name = example.get("$ref", "").removeprefix("#/components/examples/")
    return (document["components"]["examples"][name] if name else example)["value"]


@pytest.mark.slow
@pytest.mark.check
def test_every_call_has_an_example_for_each_body_that_fits_its_schema(
    document: dict[str, Any], validator: Callable[[dict[str, Any]], Draft202012Validator]
) -> None:
    seen = 0
    for path, method, operation in documented_operations(document):
        bodies = [("request", operation["requestBody"])] if "requestBody" in operation else []
        bodies += [(status, response) for status, response in operation["responses"].items() if "content" in response]
        for name, body in bodies:
            for media_type, content in body["content"].items():
                if media_type in ("application/pdf", "application/xml"):
                    continue
                examples = content.get("examples")
                assert examples, f"{method} {path} has no example for {name} as {media_type}"
                checked = validator(content["schema"])
                for example in examples.values():
                    errors = list(checked.iter_errors(example_of(document, example)))
                    assert not errors, f"{method} {path} {name}: {errors}"
                    seen += 1
    assert seen > 100


def test_calls_are_shown_in_the_order_in_which_people_learn_them(document: dict[str, Any]) -> None:
    names = [tag["name"] for tag in document["tags"]]
    used = {tag for _, _, operation in documented_operations(document) for tag in operation["tags"]}
    assert set(names) == used
    assert [names.index(name) for name in ("Credits", "Holds", "Subscriptions", "Invoices", "Operation")] == [0, 3, 8, 10, 13]
    calls = documented_operations(document)
    paths = [path for path, method, operation in calls if (operation["tags"], method) == (["Credits"], "post")]
    assert [path.rsplit("/", 1)[1] for path in paths[:3]] == ["grants", "spends", "refunds"]


def test_links_of_the_first_page_lead_somewhere(db: None, document: dict[str, Any]) -> None:
    links = re.findall(r"\]\((/[^)]*)\)", document["info"]["description"])
    assert links == ["/v1/", "/v1/schema"]
    assert [AsgiClient().get(link).status_code for link in links] == [200, 200]


def test_every_parameter_in_a_path_or_header_has_an_example_that_fits(
    document: dict[str, Any], validator: Callable[[dict[str, Any]], Draft202012Validator]
) -> None:
    for path, method, operation in documented_operations(document):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "query":
                continue
            assert parameter["examples"], f"{method} {path} {parameter['name']}"
            for example in parameter["examples"].values():
                validator(parameter["schema"]).validate(example["value"])


def test_problems_are_documented_under_the_status_that_they_have(document: dict[str, Any]) -> None:
    for path, method, operation in documented_operations(document):
        for status, response in operation["responses"].items():
            for slug, example in response.get("content", {}).get(problems.MEDIA_TYPE, {}).get("examples", {}).items():
                value = example_of(document, example)
                assert (str(value["status"]), value["type"]) == (status, problems.TYPE_BASE + slug), (method, path)


def test_writes_document_their_key_and_their_refusals(document: dict[str, Any]) -> None:
    spend = document["paths"]["/v1/holders/{holder}/spends"]["post"]
    key = next(parameter for parameter in spend["parameters"] if parameter["name"] == "Idempotency-Key")
    # The one thing that the document cannot say: it is required unless dry_run is true.
    assert (key["in"], "required" in key, key["description"][:31]) == ("header", False, "Required, except with `dry_run`")
    refused = {"400", "401", "402", "403", "404", "406", "408", "409", "412", "413", "415", "422", "429", "500", "503"}
    assert set(spend["responses"]) == {"200", "201"} | refused
    assert set(spend["responses"]["503"]["content"][problems.MEDIA_TYPE]["examples"]) == {
        "database-busy",
        "database-unavailable",
        "disk-full",
        "holder-busy",
        "outcome-unknown",
        "sequence-taken",
        "server-busy",
        "server-unavailable",
        "unsafe-database",
    }
    assert "Idempotency-Replayed" in spend["responses"]["201"]["headers"]
    assert spend["security"] == [{"apiKey": []}]
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"


def test_every_201_says_where_that_is_which_was_made(document: dict[str, Any]) -> None:
    made = [
        operation["responses"]["201"] for _, _, operation in documented_operations(document) if "201" in operation["responses"]
    ]
    assert len(made) > 15
    assert all("Location" in response["headers"] for response in made)


def test_a_change_is_taken_as_a_merge_patch_too(document: dict[str, Any]) -> None:
    types = {
        method: {*operation["requestBody"]["content"]}
        for _, method, operation in documented_operations(document)
        if "requestBody" in operation
    }
    assert types == {"post": {"application/json"}, "put": {"application/json"}, "patch": {"application/json", MERGE_PATCH}}


def test_bodies_refuse_unknown_fields_in_the_document_too(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name in ("Grant", "Spend", "Refund", "Revocation"):
        assert schemas[name]["additionalProperties"] is False
    assert schemas["Grant"]["required"] == ["amount"]
    assert "required" not in schemas["Spend"]
    assert schemas["Spend"]["description"].endswith("Give amount, or rate and quantity, or rate and quantities.")
    assert schemas["Spend"]["properties"]["amount"]["maximum"] == 9007199254740991


def test_a_field_that_takes_null_takes_it_in_the_document_too(
    document: dict[str, Any], validator: Callable[[dict[str, Any]], Draft202012Validator]
) -> None:
    schemas = document["components"]["schemas"]
    nullable = {
        (body.__name__, field.name): field.value.null
        for body in vars(request_schemas).values()
        if isinstance(body, type) and issubclass(body, Record)
        for field in declared_fields(body)
    }
    taken = {
        (body, name): validator(schemas[body]["properties"][name]).is_valid(None)
        for body, name in nullable
        if name in schemas.get(body, {}).get("properties", {})
    }
    assert {field for field, takes in taken.items() if takes} == {field for field in taken if nullable[field]}
    assert taken["Generation", "only"], "a choice, whose schema stands apart"


def test_an_operation_of_a_batch_is_one_of_the_calls_by_its_name(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    operations_field = schemas["Batch"]["properties"]["operations"]
    assert (operations_field["minItems"], operations_field["maxItems"]) == (1, 1000)
    assert operations_field["items"] == {"$ref": "#/components/schemas/BatchOperation"}
    mapping = schemas["BatchOperation"]["discriminator"]["mapping"]
    assert list(mapping) == [
        "grant",
        "spend",
        "refund",
        "revoke",
        "void",
        "reissue",
        "hold",
        "capture",
        "release",
        "extend",
        "transfer",
    ]
    for name, ref in mapping.items():
        shape = schemas[ref.rsplit("/", 1)[1]]
        assert (shape["properties"]["operation"]["const"], shape["additionalProperties"]) == (name, False)
        assert {"operation", "holder"} <= set(shape["required"])


def test_which_calls_need_a_key_is_documented(document: dict[str, Any]) -> None:
    without = {path for path, _, operation in documented_operations(document) if operation["security"] == []}
    assert without == {"/v1", "/healthz", "/readyz", "/v1/providers/{provider}/events"}
    assert {str(operation["security"]) for path, _, operation in documented_operations(document) if path not in without} == {
        "[{'apiKey': []}]"
    }
    scheme = document["components"]["securitySchemes"]["apiKey"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")


def test_a_response_says_what_it_is_and_its_example_is_not_that_of_a_body(document: dict[str, Any]) -> None:
    for path, method, operation in documented_operations(document):
        for status, response in operation["responses"].items():
            assert response["description"], (path, method, status)
        bodies = operation.get("requestBody", {}).get("content", {}).values()
        names = [name for body in bodies for name in body.get("examples", {})]
        assert [name for name in names if name.lower().startswith("response")] == [], (path, method)
    spends = document["paths"]["/v1/holders/{holder}/spends"]["post"]["responses"]
    assert spends["200"]["description"] == "With `dry_run`: the response that the write would get."


def test_the_example_of_a_page_has_the_fields_of_a_page() -> None:
    assert page_example({"id": 1}, path="/v1/rates") == {
        "results": [{"id": 1}],
        "next": "https://ledger.example/v1/rates?cursor=Zm9sbG93aW5n&limit=1",
        "previous": None,
    }
