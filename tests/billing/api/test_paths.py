"""Each parameter of a path is declared once: what Django matches is what the document says."""

import json
import re
from typing import Any

import pytest
from django.urls import URLPattern
from jsonschema import Draft202012Validator

from billing.api import paths, urls
from billing.api.paths import PathParameter
from billing.books import urls as book_urls
from billing.dunning import paths as dunning_paths
from billing.dunning import urls as dunning_urls
from billing.payments.api import paths as payment_paths
from billing.payments.api import urls as payment_urls
from ledger_project.api.documents import openapi_document

DECLARED = {
    each.name: each
    for module in (paths, dunning_paths, payment_paths)
    for each in vars(module).values()
    if isinstance(each, PathParameter)
}
PATTERNS: list[URLPattern] = [*urls.urlpatterns, *book_urls.urlpatterns, *dunning_urls.urlpatterns, *payment_urls.urlpatterns]
TYPED: dict[str, list[Any]] = {
    "ref": ["SUB-1234", "a", "x" * 64, "x" * 65, "", "a b", "-a"],
    "row_id": [1, 10, 0, -1],
    "provider": ["stripe", "Stripe", "", "x" * 33],
    "payment_method": ["pm_1Qx7", "pm/1", "x" * 201],
    "book_month": ["2026-10", "2026-13", "26-10"],
    "event_key": ["call-8812", "a b", ""],
}


def test_each_parameter_of_a_pattern_is_a_declared_one() -> None:
    found = {name: converter for each in PATTERNS for name, converter in each.pattern.converters.items()}
    assert found.keys() == DECLARED.keys()
    for name, converter in found.items():
        assert str(DECLARED[name]) == f"<{converter.name}:{name}>"


@pytest.mark.parametrize("name", DECLARED)
def test_a_pattern_matches_what_the_document_allows_and_its_example(name: str) -> None:
    parameter = DECLARED[name]
    converter = next(each.pattern.converters[name] for each in PATTERNS if name in each.pattern.converters)
    [example] = parameter.examples
    allowed = Draft202012Validator(parameter.type)
    for value in [*TYPED[converter.name], example.value]:
        assert bool(re.fullmatch(converter.regex, str(value))) == allowed.is_valid(value), value
    assert allowed.is_valid(example.value)
    assert str(parameter.missing.facts["ref"]) == str(example.value)


@pytest.mark.slow
@pytest.mark.check
def test_each_call_documents_the_parameters_of_its_path() -> None:
    for path, calls in json.loads(openapi_document())["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        for call in (each for each in calls.values() if isinstance(each, dict) and "operationId" in each):
            documented = {each["name"]: each for each in call.get("parameters", []) if each.get("in") == "path"}
            assert documented.keys() == named, path
            of_billing = call["tags"][0] in {"Catalogue", "Subscriptions", "Usage", "Invoices", "Payments", "Books"}
            if of_billing:
                assert all(documented[name]["description"] == DECLARED[name].description for name in named), path
