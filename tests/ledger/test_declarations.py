"""Every declared field of every body and query refuses what it must, by its pointer and the rule's code, and nothing else.

The cases are made from the declarations and compared with the published document, so a new field is tested by being declared.
"""

import base64
import copy
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from billing.api.schemas import payments as payment_schemas
from billing.api.schemas import plan_moves as plan_move_schemas
from billing.api.schemas import request_schemas as billing_schemas
from billing.books import calls as book_api
from billing.books import month_calls as month_api
from billing.documents import credit_notes, credit_refunds, invoices, one_off_invoices, sellers
from billing.documents.brand import Logo
from billing.dunning import outcomes as mail_outcomes
from billing.dunning import schemas as mail_schemas
from billing.generator.run import price_trials
from billing.metering import meters, usage
from billing.orders import coupons, customers, plans, subscriptions, tax_declarations
from billing.orders.overrides import Amounts
from billing.payments import packs
from billing.payments.api import intent_schemas, purchase_schemas
from billing.rating.names import Names
from billing.rating.prices.overage import OveragePrice
from billing.rating.prices.price import Price
from billing.rating.prices.reading import PriceList, PriceValue
from billing.rating.values import Currency
from ledger.errors import Invalid
from ledger.keys import api_keys
from ledger.keys.api import schemas as key_schemas
from ledger.portal import api as portal_api
from ledger.records import Field, Nested, OneOf, Record, Shape, declared_fields, shape_of
from ledger.rest.calls import health
from ledger.rest.kit.queries import QueryBoolean, QueryInteger
from ledger.rest.schemas import request_schemas
from ledger.rest.schemas.request_schemas import MOST_ACCOUNTS, AccountRefs, FeedPlace, GroupBy, MetadataPair, Start
from ledger.rules import requests as rule_requests
from ledger.rules.requests import PricedRequest, QuoteRequest, RateRequest, Request
from ledger.shadow import schemas as shadow_schemas
from ledger.signals import schemas as signal_schemas
from ledger.signals.types import TypeName
from ledger.statements import api as statements
from ledger.values import (
    AppliesTo,
    Boolean,
    ByComponent,
    Choice,
    Constant,
    Day,
    EntryNumber,
    FieldError,
    Integer,
    ListOf,
    MapOf,
    Metadata,
    Number,
    Text,
    Time,
    Value,
    Zone,
    pointer_part,
)
from ledger_project.api.documents import openapi_document

PRICE = {"key": "seats", "kind": "recurring", "model": "flat", "unit_amount": "10"}
Case = tuple[Any, str, str]
"""A value, and where below its field and by which code it is refused; an empty code for a value that is taken."""


def in_modules() -> dict[str, Shape[Any]]:
    """Every shape that a call takes, by name."""
    modules = (
        key_schemas,
        portal_api,
        shadow_schemas,
        signal_schemas,
        request_schemas,
        billing_schemas,
        book_api,
        month_api,
        statements,
        health,
        customers,
        plans,
        coupons,
        subscriptions,
        usage,
        meters,
        credit_notes,
        invoices,
        packs,
        payment_schemas,
        purchase_schemas,
        intent_schemas,
        plan_move_schemas,
        price_trials,
        mail_outcomes,
        credit_refunds,
        one_off_invoices,
    )
    records = {
        each for module in modules for each in vars(module).values() if isinstance(each, type) and issubclass(each, Record)
    }
    # Prices are read by the shape of their model.
    records -= {
        customers.CustomerChange,
        subscriptions.Wish,
        subscriptions.NewCharge,
        sellers.NewSeller,
        tax_declarations.NewTax,
        Price,
    }
    # A month has the pattern of its text.
    records -= {book_api.TaxSummaryQuery}
    records -= {billing_schemas.CanceledOrder, purchase_schemas.NewPurchase, purchase_schemas.NewReturn}
    records -= {intent_schemas.NewPaymentIntent, intent_schemas.NewCancellation, intent_schemas.NewProviderRefund}
    records -= {intent_schemas.NewTopUp, intent_schemas.NewTopUpChange, intent_schemas.NewTransfer}
    records -= {
        payment_schemas.NewPayment, payment_schemas.NewCreditPayment, payment_schemas.NewPaymentReturn,
        plan_move_schemas.NewPlanMove, plan_move_schemas.PlanSale,
    }  # fmt: skip
    records -= {api_keys.ApiKeyRequest, api_keys.RotationRequest, portal_api.LinkRequest, signal_schemas.AlertRequest}
    records -= {shadow_schemas.ObservationRequest}
    # A request of the ledger is read without what its path and headers give.
    records -= {each for each in records if issubclass(each, Request | RateRequest | QuoteRequest)}
    requests = {each for each in vars(rule_requests).values() if isinstance(each, type) and issubclass(each, Record)}
    bodies = [request_schemas.body_of(each) for each in requests if each not in (Request, PricedRequest)]
    bodies += [
        key_schemas.NEW_KEY,
        key_schemas.ROTATION,
        portal_api.PAGE_LINK,
        signal_schemas.WEBHOOK,
        signal_schemas.WEBHOOK_CHANGE,
        signal_schemas.WEBHOOK_ROTATION,
        signal_schemas.ALERT,
        shadow_schemas.OBSERVATION,
        subscriptions.AMENDMENT,
        billing_schemas.CHARGE,
        billing_schemas.CUSTOMER_CHANGE,
        billing_schemas.CANCELED_ORDER,
        billing_schemas.SELLER,
        billing_schemas.TAX,
        purchase_schemas.PURCHASE_BODY,
        purchase_schemas.RETURN_BODY,
        intent_schemas.INTENT_BODY,
        intent_schemas.PROVIDER_REFUND_BODY,
        intent_schemas.TRANSFER_BODY,
        intent_schemas.TOP_UP_BODY,
        payment_schemas.PAYMENT_BODY,
        payment_schemas.CREDIT_PAYMENT_BODY,
        payment_schemas.PAYMENT_RETURN_BODY,
        plan_move_schemas.PLAN_MOVE_BODY,
        plan_move_schemas.PLAN_SALE_BODY,
        mail_schemas.HOLD_BODY,
        mail_schemas.REMINDER_BODY,
        mail_schemas.RELEASE_BODY,
    ]
    shapes = [*bodies, *request_schemas.OPERATIONS.values(), *(shape_of(each) for each in records if each is not Record)]
    # Those that end something have one name, and no body: the query has their fields.
    return {shape.name: shape for shape in sorted(shapes, key=lambda shape: (shape.name, shape.declared.__name__))}


SHAPES = in_modules()
FIELDS = [(shape, field) for shape in SHAPES.values() for field in shape.fields]


def good(value: Value) -> Any:
    """A value that is taken."""
    match value:
        case QueryInteger():
            return str(value.most)
        case QueryBoolean():
            return "true"
        case Integer():
            return value.most
        case Number():
            return str(value.most) if value.most is not None else "1"
        case Boolean():
            return True
        case Choice() | TypeName():
            return value.choices[-1]
        case Constant():
            return value.only
        case Time():
            return "2026-01-31T09:30:00.123456+02:00"
        case Day():
            return "2026-01-31"
        case Currency():
            return "EUR"
        case Zone():
            return "Europe/Berlin"
        case AccountRefs():
            return ",".join(["ada/sms"] * MOST_ACCOUNTS)
        case MetadataPair():
            return "k" * 64 + ":" + "v" * 500
        case FeedPlace() | Start():
            return "2026-01-31T09:30:00.123456+02:00"
        case GroupBy():
            return "label:" + "k" * 64 + ",rate,day"
        case Amounts():
            return {"unit_amount": "1"}
        case Logo():
            return base64.b64encode(b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 1"/>').decode()
        case sellers.Iban():
            return "DE89370400440532013000"
        case sellers.CashSteps():
            return {"CHF": value.step.most}
        case meters.ExpressionText():
            return "properties.a"
        case Text() if value.pattern and re.fullmatch(value.pattern, "a" * value.most) is None:
            return next(
                each
                for each in (
                    "DE",
                    "DE123456788",
                    "COBADEFFXXX",
                    "INV",
                    "#0b6e4f",
                    "https://shop.example/",
                    "ada@example.com",
                    "EM:a@b.c",
                )
                if re.fullmatch(value.pattern, each)
            )
        case Text():
            return "a" * value.most
        case Metadata():
            return {"a": [1, {"b": None}]}
        case AppliesTo():
            return {"rates": ["chat", "gpt-4o.output"], "labels": {"member": ["ada"]}}
        case MapOf():
            return {"seats": good(value.child)}
        case ListOf():
            return [good(value.child)] * max(value.least, 1)
        case Nested():
            return body(value.shape)
        case shadow_schemas.RawObservation():
            return body(shadow_schemas.OBSERVATION)
        case PriceValue():
            return PRICE
        case OveragePrice():
            return {"model": "unit", "unit_amount": "1"}
        case Amounts():
            return {"unit_amount": "9.00"}
    return {}


def body(shape: Shape[Any]) -> dict[str, Any]:
    """A body with all required fields, and with the first of the groups that there are to choose from."""
    chosen = shape.either[0] if shape.either else ()
    return {field.json_name: good(field.value) for field in shape.fields if field.required or field.json_name in chosen}


def cases(value: Value) -> Iterator[Case]:
    """Values at and beyond each rule of a type."""
    yield good(value), "", ""
    match value:
        case QueryInteger():
            yield from [("1.0", "", "not-an-integer"), ("x", "", "not-an-integer"), (" 1", "", "not-an-integer")]
            yield from [
                (str(value.least), "", ""),
                (str(value.least - 1), "", "too-small"),
                (str(value.most + 1), "", "too-large"),
            ]
        case QueryBoolean():
            yield from [("True", "", "not-a-boolean"), ("1", "", "not-a-boolean"), ("", "", "not-a-boolean")]
        case Integer():
            yield from [(each, "", "not-an-integer") for each in ("1", 1.0, True, [], {})]
            yield from [(value.least, "", ""), (value.least - 1, "", "too-small")]
            # An entry of such a number does not exist: a 404, not a 400.
            yield value.most + 1, "", "" if isinstance(value, EntryNumber) else "too-large"
        case Number():
            yield from [
                (each, "", "not-a-decimal") for each in (1.5, True, [], "", "1e3", " 1", "+1", "01", "1.", ".5", "NaN", "1" * 60)
            ]
            yield from [("0." + "1" * 12, "", ""), ("0." + "1" * 13, "", "not-a-decimal")]
            yield 1, "", "" if value.or_integer else "not-a-decimal"
            if value.least is not None:
                yield from [(plain(value.least), "", ""), (plain(value.least - 1), "", "too-small")]
            if value.most is not None:
                yield plain(value.most + 1), "", "too-large"
        case Boolean():
            yield from [(each, "", "not-a-boolean") for each in (0, 1, "true", [], 1.0)]
        case Choice() | TypeName():
            yield from [(each, "", "") for each in value.choices]
            yield from [(5, "", "not-a-string"), ("", "", "not-a-choice"), (value.choices[0].upper() + "x", "", "not-a-choice")]
        case Constant():
            yield from [(5, "", "not-a-choice"), ("x", "", "not-a-choice")]
        case Time():
            yield from [(5, "", "not-a-string"), ("2026-01-31", "", "not-a-time"), ("2026-02-30T00:00:00Z", "", "not-a-time")]
            yield from [("2026-01-31T09:30:00", "", "no-offset"), ("2026-01-31T09:30:00.1234567Z", "", "too-precise")]
            yield from [("2000-01-01T00:00:00Z", "", ""), ("1999-12-31T23:59:59Z", "", "out-of-range")]
            yield from [("2200-12-31T23:59:59Z", "", ""), ("2201-01-01T00:00:00Z", "", "out-of-range")]
        case Day():
            yield from [(5, "", "not-a-string"), ("2026-1-31", "", "not-a-day"), ("2026-02-30", "", "not-a-day")]
        case AccountRefs():
            yield from [("ada", "", ""), (5, "", "not-a-string"), ("", "", "too-short"), ("a," * 2_500, "", "too-long")]
            yield from [(each, "", "pattern") for each in ("ada,", "ada/", "ada/SMS", ",".join(["a"] * (MOST_ACCOUNTS + 1)))]
        case MetadataPair():
            yield from [("k:", "", ""), (5, "", "not-a-string"), (":", "", "too-short"), ("k:" + "v" * 564, "", "too-long")]
            yield from [(each, "", "pattern") for each in ("kv", ":v", "k" * 65 + ":", "k:" + "v" * 501)]
        case Start():
            yield from [("2026-01-31", "", ""), (5, "", "not-a-string"), ("", "", "too-short"), ("2" * 41, "", "too-long")]
            yield from [("2026-02-30", "", "not-a-day"), ("tomorrow", "", "not-a-time"), ("2026-01-31T09:30:00", "", "no-offset")]
        case GroupBy():
            yield from [("day", "", ""), ("day,rate,label:a", "", ""), (5, "", "not-a-string"), ("", "", "too-short")]
            yield from [(each, "", "not-a-group") for each in ("member", "label:", "day,", "label:" + "k" * 65)]
            yield from [("day,day", "", "too-many-groups"), ("label:a,label:a", "", "too-many-groups")]
            yield ("label:a,label:b", "", "too-many-labels")
            yield ("k" * 81, "", "too-long")
        case FeedPlace():
            yield from [
                ("start", "", ""),
                ("end", "", ""),
                (5, "", "not-a-string"),
                ("", "", "too-short"),
                ("a" * 251, "", "too-long"),
            ]
            yield from [("x", "", "not-a-cursor"), ("2026-01-31", "", "not-a-time"), ("2026-01-31T09:30:00", "", "no-offset")]
        case Text():
            yield from [(each, "", "not-a-string") for each in (5, True, [], {})]
            yield "a" * (value.most + 1), "", "too-long"
            if value.least:
                yield "a" * (value.least - 1), "", "too-short"
            if value.pattern and not isinstance(value, Currency):
                yield "ä", "", "pattern"
            if isinstance(value, meters.ExpressionText):
                yield from [("", "", ""), ("a +", "", "syntax"), ("(" * 21, "", "too-deep")]
            if isinstance(value, Currency):
                yield from [("eur", "", "pattern"), ("XXX", "", "unknown-currency")]
            if isinstance(value, Zone):
                yield from [("Mars/Olympus", "", "unknown-time-zone"), ("localtime", "", "unknown-time-zone")]
                yield "CET", "", "abbreviated-time-zone"
        case Amounts():
            yield from [(5, "", "not-an-object"), ({}, "", "not-an-object"), ({"unit_amount": "1"}, "", "")]
            yield {"key": "seats"}, "/key", "unknown-field"
        case Metadata():
            yield from [(each, "", "not-an-object") for each in (5, "x", [])]
            yield from [({str(n): n for n in range(50)}, "", ""), ({str(n): n for n in range(51)}, "", "too-many-keys")]
            yield from [({"k" * 64: 1}, "", ""), ({"a": [{"k" * 65: 1}]}, "/a/0/" + "k" * 65, "too-long")]
            yield from [({"k": "x" * 8184}, "", ""), ({"k": "x" * 8185}, "", "too-large"), ({"a": [2**53]}, "/a/0", "too-large")]
        case sellers.CashSteps():
            yield from [(5, "", "not-an-object"), ([], "", "not-an-object"), ({}, "", ""), ({"CHF": value.step.least}, "", "")]
            yield from [({"eur": 5}, "/eur", "pattern"), ({"XXX": 5}, "/XXX", "unknown-currency")]
        case Names():
            yield from [(5, "", "not-an-object"), ({}, "", ""), ({"en": "Seats", "de": "Plätze"}, "", "")]
            yield {"x/~": "Seats"}, "/x~1~0", "unknown-language"
            yield from [({"de": each}, f"/de{at}", code) for each, at, code in [*cases(value.child), (None, "", "not-a-string")]]
        case Amounts():
            yield from [(5, "", "not-an-object"), ({}, "", "not-an-object"), ({"tax_rate": "1"}, "/tax_rate", "unknown-field")]
        case AppliesTo():
            yield from [(5, "", "not-an-object"), ([], "", "not-an-object"), ({}, "", "too-few")]
            yield from [
                ({"rates": ["chat"]}, "", ""),
                ({"labels": {"a b": ["ä"] * 10}}, "", ""),
                ({"x": []}, "/x", "unknown-field"),
            ]
            yield from [({"rates": []}, "/rates", "too-few"), ({"rates": ["a"] * 11}, "/rates", "too-many")]
            yield from [({"rates": "a"}, "/rates", "not-a-list"), ({"rates": ["a", 5]}, "/rates/1", "not-a-string")]
            yield from [({"rates": [each]}, "/rates/0", "pattern") for each in ("", "A", "a" * 65)]
            yield from [({"labels": []}, "/labels", "not-an-object"), ({"labels": {}}, "/labels", "too-few")]
            yield {"labels": {"a": ["x"], "b": ["y"]}}, "/labels", "too-many"
            yield from [({"labels": {each: ["x"]}}, "/labels" + pointer_part(each), "pattern") for each in ("", "a" * 65, "a]")]
            yield from [
                ({"labels": {"a": [each]}}, "/labels/a/0", "pattern") for each in ("", "a" * 65, 'a"', "a\\", "{", "\x00")
            ]
        case ByComponent():
            yield from [(5, "", "not-an-object"), ([], "", "not-an-object"), ({}, "", "too-few")]
            yield {f"k{n}": good(value.child) for n in range(value.max_keys + 1)}, "", "too-many-keys"
            yield from [({name: good(value.child)}, pointer_part(name), "pattern") for name in ("", "k" * 41, "A", "a/b~")]
            yield from [({"a": each}, f"/a{at}", code) for each, at, code in cases(value.child) if code]
        case MapOf():
            yield from [(5, "", "not-an-object"), ([], "", "not-an-object")]
            yield {f"k{n}": good(value.child) for n in range(value.max_keys + 1)}, "", "too-many-keys"
            yield from [({"": good(value.child)}, "/", "too-long"), ({"k" * 65: good(value.child)}, "/" + "k" * 65, "too-long")]
            yield from [({"a/b~": each}, f"/a~1b~0{at}", code) for each, at, code in cases(value.child) if code]
        case ListOf():
            yield from [({}, "", "not-a-list"), ("x", "", "not-a-list")]
            if isinstance(value, PriceList):
                yield [{**PRICE, "key": f"seats-{number}"} for number in range(value.most)], "", ""
                yield [PRICE, PRICE], "/1/key", "duplicate"
            else:
                yield [good(value.child)] * value.most, "", ""
            yield [good(value.child)] * (value.most + 1), "", "too-many"
            if value.least:
                yield [], "", "too-few"
            yield from [([good(value.child), each], f"/1{at}", code) for each, at, code in cases(value.child) if code]
        case OveragePrice():
            # What it refuses: tests/billing/rating/prices/test_overage.py.
            yield from [(good(value), "", ""), (5, "", "not-an-object"), ([], "", "not-an-object")]
        case Nested():
            yield from [
                (5, "", "not-an-object"),
                ([], "", "not-an-object"),
                ({**body(value.shape), "no~": 1}, "/no~0", "unknown-field"),
            ]
            for field in value.shape.fields:
                if field.required:
                    part = {name: item for name, item in body(value.shape).items() if name != field.json_name}
                    yield part, f"/{field.json_name}", "required"
                yield from [
                    ({**body(value.shape), field.json_name: each}, f"/{field.json_name}{at}", code)
                    for each, at, code in cases(field.value)
                ]


def plain(number: Decimal | int) -> str:
    return f"{Decimal(number):f}"


def errors_of(shape: Shape[Any], given: dict[str, Any]) -> list[FieldError]:
    field_errors: list[FieldError] = []
    shape.take(given, "", field_errors)
    return field_errors


def without_others(shape: Shape[Any], field: Field) -> dict[str, Any]:
    """A body in which the field may stand: a group that excludes it gives way."""
    group = next((group for group in shape.either if field.json_name in group), None)
    given = body(shape)
    if group is not None:
        given = {name: item for name, item in given.items() if not any(name in other for other in shape.either)}
        given |= {each.json_name: good(each.value) for each in shape.fields if each.json_name in group}
    return given


def test_every_call_is_among_the_shapes() -> None:
    assert len(SHAPES) > 55
    assert len(FIELDS) > 250


def kind_of(field: Field) -> tuple[Any, ...]:
    """The type of the field's value, and the shape that it meets."""
    return type(field.value), type(getattr(field.value, "child", None)), field.required, field.value.null


@pytest.mark.products(by=kind_of)
@pytest.mark.parametrize(("shape", "field"), FIELDS, ids=lambda each: each.name)
def test_a_field_refuses_what_its_type_refuses_by_pointer_and_code(shape: Shape[Any], field: Field) -> None:
    tried = [(item, at, code) for item, at, code in cases(field.value)]
    codes = {code for _, _, code in tried}
    null: Case = (None, "", "" if field.value.null else "null")
    for item, at, code in tried if isinstance(field.value, PriceValue) else [*tried, null]:
        given = {**without_others(shape, field), field.json_name: item}
        before = copy.deepcopy(given)
        found = errors_of(shape, given)
        expected = [(f"/{field.json_name}{at}", code)] if code else []
        assert [(error.pointer, error.code) for error in found] == expected, (item, found)
        assert all(error.detail.endswith(".") for error in found if not isinstance(field.value, PriceList))
        assert given == before
    assert len(codes) > 1 or type(field.value).__name__ in ("PriceValue", "RawEvent", "RawObservation")


@pytest.mark.products(by=lambda shape: (len(shape.either), any(field.required for field in shape.fields)))
@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda each: each.name)
def test_a_shape_refuses_unknown_and_missing_fields_and_names_all_errors_at_once(shape: Shape[Any]) -> None:
    whole = body(shape)
    assert errors_of(shape, whole) == []
    assert [(e.pointer, e.code) for e in errors_of(shape, {**whole, "a/b~": 1, "nope": 2})] == [
        ("/a~1b~0", "unknown-field"),
        ("/nope", "unknown-field"),
    ]
    required = [field.json_name for field in shape.fields if field.required]
    chosen = [shape.either[0][0]] if shape.either else []
    assert [(e.pointer, e.code) for e in errors_of(shape, {})] == [(f"/{name}", "required") for name in required + chosen]
    judged = [field.json_name for field in shape.fields if not is_raw(field.value)]
    if not shape.either:
        wrong = {**whole, **{name: object() for name in judged}}
        assert [error.pointer for error in errors_of(shape, wrong)] == [f"/{name}" for name in judged]
    if shape.either:
        first, second, *_ = shape.either
        both = {**whole, **{each.json_name: good(each.value) for each in shape.fields if each.json_name in second}}
        assert [(e.pointer, e.code) for e in errors_of(shape, both)] == [(f"/{second[0]}", "not-both")]
        for name in second[1:]:
            half = {each: item for each, item in both.items() if each not in (*first, name)}
            assert [(e.pointer, e.code) for e in errors_of(shape, half)] == [(f"/{name}", "required")]


def is_raw(value: Value) -> bool:
    return type(value).__name__ in ("PriceValue", "RawEvent", "RawObservation", "QueryInteger")


def test_the_published_schemas_take_what_is_read_and_refuse_its_kinds_of_mistakes() -> None:
    schemas = json.loads(openapi_document())["components"]["schemas"]
    compared = 0
    for shape, field in FIELDS:
        # The component of the events is that of responses, and an operation of a batch is read by its own shape, later.
        if (
            shape.name not in schemas
            or shape.name in ("NewEvent", "Usage", "Batch")
            or isinstance(field.value, OneOf | PriceValue)
            or is_raw(field.value)
        ):
            continue
        schema = {"$ref": f"#/components/schemas/{shape.name}", "components": {"schemas": schemas}}
        validator = Draft202012Validator(schema)
        for item, _, code in cases(field.value):
            # What JSON schema cannot say: calendars, sizes in bytes, exact bounds of decimal strings, nested keys.
            is_said = code in (
                "",
                "not-an-integer",
                "not-a-boolean",
                "not-a-string",
                "not-a-choice",
                "too-short",
                "pattern",
                "null",
            )
            if (
                is_said
                and not ("1.0" in repr(item) and code == "not-an-integer")
                and not (isinstance(field.value, EntryNumber) and not code)
            ):
                given = {**without_others(shape, field), field.json_name: item}
                assert validator.is_valid(given) == (not code), (shape.name, field.json_name, item, code)
                compared += 1
    assert compared > 600


RECORDS = (each for each in vars(rule_requests).values() if isinstance(each, type) and issubclass(each, Record))
REQUESTS = sorted((each for each in RECORDS if each is not Request), key=lambda each: each.__name__)


@pytest.mark.parametrize("declared", REQUESTS, ids=lambda each: each.__name__)
def test_what_python_passes_is_judged_too_by_field(declared: type[Record]) -> None:
    chosen = declared.either[0] if declared.either else ()
    values = {field.name: field.value for field in declared_fields(declared)}
    given = {
        field.name: field.value.read(good(field.value))
        for field in declared_fields(declared)
        if field.required or field.name in chosen
    }
    if "never_expires" in values:
        given |= {"priority": 1}  # one of its three, at least
    if "to" in given:
        given |= {"holder_id": "ada", "to": "bob"}
    declared(**given)
    for name, value in values.items():
        if any(name in group for group in declared.either[1:]):
            continue
        for wrong in (object(), -1, "\x00" * 3, "x" * 9000):
            with pytest.raises(Invalid) as refused:
                declared(**{**given, name: wrong})
            assert refused.value.facts["pointer"] == f"/{name}", (wrong, value)
        if isinstance(value, Text):
            with pytest.raises(Invalid) as refused:
                declared(**{**given, name: "a\x00"})
            assert refused.value.facts["rule"] == "forbidden-character"
        if isinstance(value, Text) and value.rule:
            with pytest.raises(Invalid) as refused:
                declared(**{**given, name: "ä"})
            assert refused.value.facts["detail"] == f"This must be {value.rule}."
