"""Each model of prices is one class, and everything that the product has of a model comes from it."""

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django import forms
from jsonschema import Draft202012Validator

import billing.admin.order_forms.fields  # noqa: F401 - registers the fields of values that prices have
from billing.admin.order_forms import prices as price_form
from billing.admin.prose import price_sentence
from billing.models import Price as PriceRow
from billing.rating.limits import MAX_MONEY, MAX_QUANTITY, SMALLEST_PACKAGE
from billing.rating.prices import reading
from billing.rating.prices.price import MODELS, Price
from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import SHAPES, PriceInvalid, parse_price, price_dict
from billing.rating.prices.values import EventCount, PriceNumber
from ledger.records import shape_of
from ledger_project.api.documents import openapi_document

USAGE: dict[str, Any] = {"kind": "usage", "meter": "calls", "aggregation": "sum", "tax_rate": "19"}
EXAMPLES: dict[str, dict[str, Any]] = {
    "flat": {"unit_amount": "4.91"},
    "unit": {
        "unit_amount": "4.91", "free_units": "37", "credits": {"per_unit": "1.73"},
        "conversion": {"divide_by": "1.9", "rounding": "half_up", "decimals": 3},
    },
    "graduated": {
        "tiers": [{"up_to": "53", "unit_amount": "0"}, {"unit_amount": "4.91", "flat_amount": "6.7"}],
        "credits": {"per_unit": "1.73"}, "flat_fee_at_zero": True, "conversion": {"multiply_by": "1.9"},
    },
    "volume": {
        "tiers": [{"up_to": "53", "unit_amount": "4.91"}, {"unit_amount": "3.89", "flat_amount": "6.7", "package_size": "12"}],
        "conversion": {"divide_by": "1.9", "rounding": "up"},
    },
    "package": {
        "unit_amount": "4.91", "package_size": "11", "free_units": "37", "credits": {"per_unit": "1.73"},
        "conversion": {"divide_by": "1.9", "rounding": "down"},
    },
    "percentage": {
        "rate": "2.9", "fixed_amount": "0.31", "free_events": 41, "free_amount": "61.7", "event_minimum": "0.42",
        "event_maximum": "9.8",
    },
    "graduated_percentage": {
        "tiers": [{"up_to": "53", "rate": "2.9"}, {"rate": "1.7", "flat_amount": "6.7"}], "flat_fee_at_zero": True,
    },
}  # fmt: skip
"""A price of each model, with all that only it takes."""

FILTERED = [{"key": "eu", "filters": {"region": ["eu", "uk"]}}, {"key": "card", "filters": {"card": ["visa"], "region": ["us"]}}]
BUCKETED: dict[str, dict[str, Any]] = {
    "unit": {"unit_amount": "4.91", "buckets": [{**one, "unit_amount": "3.17"} for one in FILTERED]},
    "package": {"unit_amount": "4.91", "package_size": "11", "buckets": [{**one, "unit_amount": "3.17"} for one in FILTERED]},
    "percentage": {"rate": "2.9", "event_maximum": "9.8", "buckets": [{**one, "rate": "1.3"} for one in FILTERED]},
}
"""Prices with buckets, which other fields exclude."""

GROUPED: dict[str, dict[str, Any]] = {
    "unit": BUCKETED["unit"] | {"group_by": ["region", "a, b", '"', "where"]},
    "volume": EXAMPLES["volume"] | {"group_by": ["model"]},
    "graduated_percentage": {"tiers": EXAMPLES["graduated_percentage"]["tiers"], "group_by": ["model", "region"]},
}
"""Prices that group their usage."""

MODEL_NAMES = sorted(MODELS)
each_model = pytest.mark.parametrize("model", MODEL_NAMES)
each_example = pytest.mark.parametrize(
    ("model", "given"),
    [*EXAMPLES.items(), *BUCKETED.items(), *GROUPED.items()],
    ids=[*EXAMPLES, *(f"{model}-buckets" for model in BUCKETED), *(f"{model}-groups" for model in GROUPED)],
)


def priced(model: str, given: dict[str, Any]) -> dict[str, Any]:
    """A usage price as the REST contract has it."""
    return {"key": "api", **USAGE, "model": model, **given}


def example(model: str) -> dict[str, Any]:
    """The example of a model as the REST contract has it."""
    return priced(model, EXAMPLES[model])


def numbers_in(value: Any) -> Iterator[str]:
    """All numbers above zero that a JSON value holds."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]:
        if isinstance(item, dict | list):
            yield from numbers_in(item)
        elif str(item).replace(".", "").isdecimal() and Decimal(item):
            yield f"{Decimal(item):f}".rstrip("0").rstrip(".") if "." in str(item) else str(item)


def test_every_model_has_an_example_with_all_its_fields() -> None:
    assert {model: {*given, *BUCKETED.get(model, ())} for model, given in EXAMPLES.items()} == {
        model: set(shape.names - reading.COMMON) for model, shape in SHAPES.items()
    }


@pytest.mark.django_db
@each_example
def test_the_sentence_of_a_price_has_every_number_of_it(model: str, given: dict[str, Any]) -> None:
    """So that no model reads as "0.00 EUR per unit", and no field is forgotten."""
    sentence = price_sentence(parse_price(priced(model, given)), "EUR", "month")
    missing = [number for number in numbers_in(given) if number not in sentence]
    assert missing == [], sentence
    assert "0.00 EUR" not in sentence.replace("0.00 EUR; beyond", "")


@each_example
def test_a_price_is_stored_as_it_was_given(model: str, given: dict[str, Any]) -> None:
    price = parse_price(priced(model, given))
    assert type(price) is MODELS[model]
    assert json.loads(json.dumps(price_dict(price))) == price_dict(price)
    assert parse_price(price_dict(price)) == price
    assert price_dict(price).items() >= {"model": model, "kind": "usage", "key": "api", "timing": "arrears"}.items()


@each_example
def test_a_price_survives_its_form(model: str, given: dict[str, Any]) -> None:
    price = parse_price(priced(model, given))
    typed = price_form.typed_of(0, price_dict(price))
    fields = price_form.fields_of_price(0)
    clean = {
        name: Decimal(str(value)) if isinstance(fields[name], forms.DecimalField) and value else value
        for name, value in typed.items()
    }
    assert parse_price(price_form.price_typed(0, clean)) == price


def test_the_form_offers_every_model_and_every_field_with_the_declared_limits() -> None:
    fields = price_form.fields_of_price(0)
    assert [name for name, _ in fields["price_0_model"].choices] == list(MODELS)
    assert all(title for _, title in fields["price_0_model"].choices)
    by_object = {
        "credits": {"credits_per_unit", "credits_type", "credits_also_spent"},
        "conversion": {"conversion_way", "conversion_factor", "conversion_rounding", "conversion_decimals"},
        "interval": {"interval_unit", "interval_count"},
        "entries": {"entries_rate", "entries_component", "entries_type"},
    }
    wanted = {name for field in reading.FIELDS for name in by_object.get(field, {field})}
    assert wanted == {name.removeprefix("price_0_") for name in fields if name.startswith("price_0_")}
    for name, declared in reading.FIELDS.items():
        if isinstance(declared.value, PriceNumber) and not isinstance(declared.value, EventCount) and name != "tax_rate":
            shown = fields[f"price_0_{name}"]
            assert (shown.min_value, shown.max_value) == (declared.value.least, declared.value.most), name
    assert fields["price_0_package_size"].min_value == SMALLEST_PACKAGE
    assert fields["price_0_free_units"].max_value == MAX_QUANTITY
    assert fields["price_0_unit_amount"].max_value == MAX_MONEY


def test_the_columns_of_a_price_hold_what_the_declaration_takes() -> None:
    lengths = {field.name: field.max_length for field in PriceRow._meta.get_fields() if getattr(field, "max_length", None)}
    assert max(map(len, MODELS)) <= lengths["model"]
    for name in ("key", "meter"):
        assert reading.FIELDS[name].value.openapi()["maxLength"] == lengths[name]
    for name in ("kind", "timing"):
        assert max(map(len, reading.FIELDS[name].value.openapi()["enum"])) <= lengths[name]


@each_model
def test_no_model_charges_for_the_free_quantity_and_each_charges_beyond_it(model: str) -> None:
    """What credits pay for is counted from there."""
    price = parse_price(example(model))
    if "credits" not in EXAMPLES[model]:
        return
    free = price.free_quantity()
    assert free
    assert rate(price, free, "EUR").exact == 0
    assert rate(price, free + Fraction(1, 1000), "EUR").exact > 0
    units = Fraction(7)
    assert price.units_in(price.quantity_of(units)) == units
    assert (
        rate(price, free + price.quantity_of(units), "EUR").exact < rate(price, free + price.quantity_of(units + 1), "EUR").exact
    )


# The OpenAPI document, and the documentation ---------------------------------------------------------


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """The components of the OpenAPI document."""
    return json.loads(openapi_document())["components"]["schemas"]


def validator(schemas: dict[str, Any]) -> Draft202012Validator:
    """Judges prices by the document."""
    return Draft202012Validator({"$ref": "#/components/schemas/Price", "components": {"schemas": schemas}})


@each_model
def test_the_document_takes_the_example_and_refuses_what_the_model_does_not_use(schemas: dict[str, Any], model: str) -> None:
    judge = validator(schemas)
    mapping = schemas["Price"]["discriminator"]["mapping"]
    assert mapping[model].rsplit("/", 1)[1] == MODELS[model].__name__
    assert judge.is_valid(example(model)), list(judge.iter_errors(example(model)))
    assert judge.is_valid(price_dict(parse_price(example(model))))
    others = [name for name in reading.FIELDS if name not in SHAPES[model].names]
    wrong = [{**example(model), name: "1"} for name in others]
    required = [field.name for field in SHAPES[model].fields if field.required]
    wrong += [{key: item for key, item in example(model).items() if key != name} for name in required]
    wrong += [{**example(model), field: -1} for field in EXAMPLES[model]]
    for body in wrong:
        assert not judge.is_valid(body), body
        with pytest.raises(PriceInvalid):
            parse_price(body)


def test_the_document_takes_buckets_of_the_models_that_have_them(schemas: dict[str, Any]) -> None:
    judge = validator(schemas)
    for model, given in BUCKETED.items():
        assert judge.is_valid(priced(model, given)), list(judge.iter_errors(priced(model, given)))
        wrong = priced(model, given | {"buckets": [{**FILTERED[0], "unit_amount": "1", "rate": "1"}]})
        assert not judge.is_valid(wrong)
        with pytest.raises(PriceInvalid):
            parse_price(wrong)


def test_the_document_types_the_prices_of_plans_and_ratings(schemas: dict[str, Any]) -> None:
    price = {"$ref": "#/components/schemas/Price"}
    assert schemas["NewPlan"]["properties"]["prices"]["items"] == price
    assert schemas["Plan"]["properties"]["prices"]["items"] == price
    assert schemas["NewRating"]["properties"]["price"]["allOf"] == [price]
    assert [part["$ref"].rsplit("/", 1)[1] for part in schemas["Price"]["oneOf"]] == [each.__name__ for each in MODELS.values()]
    assert all(len(schemas[each.__name__]["description"]) > 20 for each in MODELS.values())


def test_every_model_is_documented() -> None:
    docs = Path(__file__).resolve().parents[4] / "docs"
    table = (docs / "reference" / "api.md").read_text().split("| model | takes |")[1].split("\n\n")[0].splitlines()[2:]
    for model, given in EXAMPLES.items():
        row = next(line for line in table if f"`{model}`" in line.split("|")[1])
        assert all(f"`{name}`" in row for name in {*given, *BUCKETED.get(model, ())} if name != "credits"), row


# A model that is added -------------------------------------------------------------------------------


@pytest.fixture
def registry() -> Iterator[None]:
    """Forget the models that the test declares."""
    known = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(known)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("forgotten", ["steps", "cost"])
def test_a_model_that_forgets_how_it_rates_or_what_it_says_makes_no_price(forgotten: str) -> None:
    base = MODELS["unit"]
    members = {name: getattr(base, name) for name in ("steps", "cost") if name != forgotten}
    stairs = type("StairsPrice", (Price,), members, model="stairs", title="in stairs")
    assert MODELS["stairs"] is stairs
    with pytest.raises(TypeError, match=forgotten):
        shape_of(stairs).make({"key": "a"})
    # The control: with both, there is one.
    whole = type("StairsPrice", (Price,), {"steps": base.steps, "cost": base.cost}, model="stairs", title="in stairs")
    assert shape_of(whole).make({"key": "a"}).model == "stairs"
