"""docs/reference/api.md names by hand the bodies that billing's calls take and respond with: all of them."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import FIELDS as PRICE_FIELDS
from ledger_project.api.documents import openapi_document
from tests.billing.rating.builders import usage_price

BILLING_TAGS = {"Catalogue", "Subscriptions", "Usage", "Invoices", "Payments"}
RESPONSES = ("Invoice", "InvoiceLine", "InvoiceTax", "CreditNote", "InvoiceTransition")


@pytest.fixture(scope="module")
def document():
    """The OpenAPI document."""
    return json.loads(openapi_document())


@pytest.fixture(scope="module")
def section():
    """The section "Billing" of docs/reference/api.md."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    return text.split("\n## Billing\n")[1].split("\n## ")[0]


def billing_calls(document):
    """Path, method and description of each call of billing."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if BILLING_TAGS & set(operation.get("tags", [])):
                yield path, method, operation


def names_of(document, schema):
    """The properties of a schema and of the schemas inside it."""
    if "$ref" in schema:
        yield from names_of(document, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    for name, one in schema.get("properties", {}).items():
        yield name
        yield from names_of(document, one)
    for part in ("oneOf", "allOf", "anyOf"):
        for one in schema.get(part, []):
            yield from names_of(document, one)
    if isinstance(schema.get("items"), dict):
        yield from names_of(document, schema["items"])


def test_every_call_is_named(document, section):
    seen = 0
    for path, method, _ in billing_calls(document):
        written = re.sub(r"\{\w+_id\}", "{id}", path)
        last = written.rsplit("/", 1)[1]
        assert written in section or f"`/{last}`" in section, f"{method} {path}"
        seen += 1
    assert seen >= 20


def test_every_field_of_a_body_and_every_filter_is_named(document, section):
    seen = set()
    for path, method, operation in billing_calls(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            for name in names_of(document, content["schema"]):
                assert re.search(rf"[`\"]{name}[`\"]", section), f"{method} {path}: {name}"
                seen.add(name)
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "query" and parameter["name"] not in ("limit", "cursor"):
                assert re.search(rf"[?&`]{parameter['name']}[=`]", section), f"{method} {path}: {parameter['name']}"
    assert {"allowance", "rollover_cap", "grace_days", "vat_status", "reason"} <= seen


def test_every_field_of_a_price_is_named(section):
    for name in PRICE_FIELDS:
        assert f"`{name}`" in section, name


@pytest.mark.parametrize("shape", RESPONSES)
def test_every_field_of_a_document_is_named(document, section, shape):
    properties = document["components"]["schemas"][shape]["properties"]
    assert properties
    for name in properties:
        assert re.search(rf"[`\"]{name}[`\"]", section), name


def test_a_rating_has_the_members_that_its_schema_documents(document):
    schemas = document["components"]["schemas"]
    rating = rate(usage_price("unit", unit_amount="0.02"), Decimal(100), "EUR").as_dict()
    assert [*rating, "covered", "conversion", "groups"] == list(schemas["Rating"]["properties"])
    assert [*rating["steps"][0], "reason", "bucket"] == list(schemas["RatingStep"]["properties"])
