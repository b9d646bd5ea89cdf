"""What documents call things: plans, prices and coupons by their names, in the customer's language, for ever."""

from decimal import Decimal
from typing import Any

import pytest
from facturx import get_facturx_xml_from_pdf
from hypothesis import given
from hypothesis import strategies as st

from billing import reads
from billing.documents import invoices
from billing.documents.printed_pages import credit_note_page, invoice_page
from billing.documents.printing import credit_note_source, invoice_pdf, invoice_source
from billing.models import Coupon, Invoice, Plan, Price, Subscription
from billing.orders import coupons, plans, subscriptions
from billing.rating.names import name_in
from tests.billing.documents.issued import BUYER_ADDRESS, add_seller
from tests.billing.documents.test_credit_notes import issue_note
from tests.billing.documents.test_printed import text_of
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db

SEATS = recurring("seats_v2", "31.00", model="unit", tax_rate="19") | {"name": "Seats", "names": {"de": "Plätze"}}
CALLS = metered("api_calls", tax_rate="19", minimum="5.00")
TEAM: dict[str, Any] = {"name": "Team plan", "names": {"de": "Teamtarif"}}


def subscribed(*prices: dict[str, Any], language: str = "en", **plan: Any) -> Subscription:
    """A subscription to the plan "Team plan" in January, of a customer who reads that language."""
    made = PlanFactory(prices=list(prices or (SEATS, CALLS)), **(TEAM | plan))
    customer = CustomerFactory(language=language, name="Umbrella Analytics SA", address=BUYER_ADDRESS, vat_id="BE0123456749")
    return SubscriptionFactory(plan=made.code, customer=customer.ref)


def titles(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Kind and title of each line."""
    return [(line["kind"], line["title"]) for line in document["lines"]]


@pytest.mark.parametrize(
    ("language", "first", "later"),
    [
        (
            "en",
            [("recurring", "Team plan: Seats")],
            [("usage", "Team plan: api calls"), ("minimum", "Minimum: api calls"), ("recurring", "Team plan: Seats")],
        ),
        (
            "de-AT",
            [("recurring", "Teamtarif: Plätze")],
            [("usage", "Teamtarif: api calls"), ("minimum", "Mindestbetrag: api calls"), ("recurring", "Teamtarif: Plätze")],
        ),
        (
            "fr",
            [("recurring", "Team plan: Seats")],
            [("usage", "Team plan: api calls"), ("minimum", "Minimum: api calls"), ("recurring", "Team plan: Seats")],
        ),
    ],
)
def test_lines_have_the_names_of_plan_and_price_in_the_customers_language(language, first, later):
    subscription = subscribed(language=language)
    assert titles(bill(subscription, at(1, 1))[0]) == first
    use(subscription, "10", at(1, 10))
    [invoice] = bill(subscription, at(2, 1))
    assert sorted(titles(invoice)) == sorted(later)
    assert {line["description"] for line in invoice["lines"]} == {"seats_v2", "api_calls", "Minimum: api_calls"}
    assert sorted(titles(reads.invoice_document(invoice["id"]))) == sorted(later)


def test_what_is_given_back_late_or_charged_once_is_named_too():
    subscription = subscribed(metered("calls", tax_rate="19"), SEATS)
    bill(subscription, at(1, 1))
    bill(subscription, at(2, 1))
    use(subscription, "100", at(1, 20), meter="calls")
    subscriptions.charge_once(ref=subscription.ref, amount_minor=500, description="Set-up", tax_rate=Decimal(19))
    amend(subscription, at(2, 15), quantities={"seats_v2": Decimal(2)})
    [invoice] = bill(subscription, at(2, 15))
    assert sorted(titles(invoice)) == [
        ("charge", "Set-up"),
        ("credit", "Unused: Seats"),
        ("late_usage", "Team plan: calls, late usage"),
        ("recurring", "Team plan: Seats"),
    ]


def test_the_bounds_of_a_plan_have_the_name_that_it_had_when_the_invoice_was_made():
    subscription = subscribed(CALLS | {"minimum": None}, minimum=Decimal(10))
    [invoice] = bill(subscription, at(2, 1))
    assert titles(invoice) == [("minimum", "Minimum: Team plan")]
    version = Plan.objects.get(code=invoice["lines"][0]["rating"]["plan"])
    plans.create_plan(
        code=version.code, name="Other", currency="EUR", interval=plans.terms_of(version.pk).interval, prices=[recurring()]
    )
    assert titles(reads.invoice_document(invoice["id"])) == [("minimum", "Minimum: Team plan")]


def test_an_issued_document_keeps_its_names_when_the_plan_gets_another():
    subscription = subscribed()
    [invoice] = bill(subscription, at(1, 1))
    code = Plan.objects.get(pk=Price.objects.get(key="seats_v2").plan_id).code
    interval = plans.terms_of(Plan.objects.get(code=code).pk).interval
    plans.create_plan(code=code, name="Other", currency="EUR", interval=interval, prices=[SEATS | {"name": "Chairs"}])
    assert titles(reads.invoice_document(invoice["id"])) == [("recurring", "Team plan: Seats")]


def test_pdf_e_invoice_and_credit_note_say_the_names_and_no_key():
    add_seller()
    subscription = subscribed(language="de")
    [document] = bill(subscription, at(1, 1))
    pdf = invoice_pdf(document["id"]).content
    assert "Teamtarif: Plätze" in text_of(pdf)
    assert "seats_v2" not in text_of(pdf)
    xml = get_facturx_xml_from_pdf(pdf, check_xsd=True, check_schematron=False)[1].decode()
    assert "<ram:Name>Teamtarif: Plätze</ram:Name>" in xml
    assert "seats_v2" not in xml
    note = issue_note(document["id"], (1, 100))
    german, english = (credit_note_page(credit_note_source(note.pk, language=language)) for language in (None, "en"))
    assert [line["title"] for line in german["lines"]] == ["Teamtarif: Plätze"]
    assert [line["title"] for line in english["lines"]] == ["Team plan: Seats"]


@pytest.mark.parametrize(
    ("named", "language", "name"),
    [
        ({"name": "Launch offer", "names": {"de": "Startrabatt"}}, "de", "Startrabatt"),
        ({"name": "Launch offer", "names": {"de": "Startrabatt"}}, "en", "Launch offer"),
        ({}, "en", "LAUNCH 2026"),
    ],
)
def test_each_coupon_is_named_with_what_it_took_off_also_when_the_invoice_is_void(named, language, name):
    add_seller()
    subscription = subscribed(SEATS, language=language)
    customer = Invoice(customer_id=subscription.customer_id).customer
    for code, fields in (("LAUNCH_2026", named), (unique("coupon"), {"name": "Friends"})):
        coupons.create_coupon(code=code, kind="percentage", value=Decimal(10), duration="forever", **fields)
        coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency=customer.currency, code=code)
    [invoice] = bill(subscription, at(1, 1))
    wanted = [(name, 310), ("Friends", 279)]
    assert [(each["name"], each["amount_minor"]) for each in invoice["discounts"]] == wanted
    assert sum(each["amount_minor"] for each in invoice["discounts"]) == invoice["discount_minor"]
    invoices.void(invoice["id"])
    voided = reads.invoice_document(invoice["id"])
    assert [(each["name"], each["amount_minor"]) for each in voided["discounts"]] == wanted
    sums = [row["label"] for row in invoice_page(invoice_source(invoice["id"]))["sums"]]
    word = {"en": "Discount", "de": "Rabatt"}[language]
    assert sums[1:3] == [f"{word}: {name}", f"{word}: Friends"]


def test_what_a_maximum_takes_off_is_a_sum_of_its_own_with_and_without_a_coupon():
    add_seller()
    subscription = subscribed(SEATS | {"maximum": "20.00"})
    [invoice] = bill(subscription, at(1, 1))
    assert (invoice["discount_minor"], invoice["discounts"]) == (1100, [])
    source = invoice_source(invoice["id"])
    assert [(row["label"], row["value"]) for row in invoice_page(source)["sums"][1:3]] == [
        ("Discounts", "−11.00"),
        ("Total before VAT", "20.00"),
    ]
    xml = get_facturx_xml_from_pdf(invoice_pdf(invoice["id"]).content, check_xsd=True, check_schematron=False)[1].decode()
    assert "<ram:Reason>Discounts</ram:Reason>" in xml
    customer = Invoice(customer_id=subscription.customer_id).customer
    coupons.create_coupon(code="FRIENDS", kind="percentage", value=Decimal(10), duration="forever")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency=customer.currency, code="FRIENDS")
    [later] = bill(subscription, at(2, 1))
    sums = [(row["label"], row["value"]) for row in invoice_page(invoice_source(later["id"]))["sums"]]
    assert sums[1:4] == [("Discount: FRIENDS", "−3.10"), ("Discounts", "−7.90"), ("Total before VAT", "20.00")]


@pytest.mark.parametrize(
    ("changed", "errors"),
    [
        ({"names": {"xx": "a"}}, [("/names/xx", "unknown-language")]),
        ({"names": {"de": ""}}, [("/names/de", "too-short")]),
        ({"names": {"de": 5}}, [("/names/de", "not-a-string")]),
        ({"names": ["de"]}, [("/names", "not-an-object")]),
        ({"name": ""}, [("/name", "too-short")]),
        ({"name": "a" * 201}, [("/name", "too-long")]),
    ],
)
@pytest.mark.parametrize("path", ["plans", "coupons"])
def test_a_wrong_name_is_named_and_nothing_is_written(api, path, changed, errors):
    bodies = {
        "plans": {"ref": "p", "name": "P", "currency": "EUR", "interval": {"unit": "month"}, "prices": [recurring()]},
        "coupons": {"ref": "c", "kind": "percentage", "value": "5", "duration": "once"},
    }
    refused = api.post(f"/v1/{path}", bodies[path] | changed)
    assert refused.status_code == 400, refused.content
    assert [(each["pointer"], each["code"]) for each in refused.json()["errors"]] == errors
    assert not Plan.objects.exists()
    assert not Coupon.objects.exists()
    assert api.post(f"/v1/{path}", bodies[path] | {"name": "Good", "names": {"de": "Gut"}}).status_code == 201
    [made] = api.get(f"/v1/{path}").json()["results"]
    assert (made["name"], made["names"]) == ("Good", {"de": "Gut"})


@pytest.mark.parametrize(
    ("changed", "errors"),
    [
        ({"names": {"xx": "a"}}, [("/prices/0/names/xx", "unknown-language")]),
        ({"name": ""}, [("/prices/0/name", "format")]),
        ({"name": 5}, [("/prices/0/name", "format")]),
        ({"names": "de"}, [("/prices/0/names", "not-an-object")]),
    ],
)
def test_a_wrong_name_of_a_price_is_named_and_nothing_is_written(api, changed, errors):
    body = {"ref": "p", "name": "P", "currency": "EUR", "interval": {"unit": "month"}, "prices": [recurring() | changed]}
    refused = api.post("/v1/plans", body)
    assert refused.status_code == 400, refused.content
    assert [(each["pointer"], each["code"]) for each in refused.json()["errors"]] == errors
    assert not Plan.objects.exists()


@pytest.mark.slow
@pytest.mark.check
@given(key=st.from_regex("[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", fullmatch=True), name=st.text(max_size=9), other=st.text(max_size=9))
def test_there_is_always_a_name(key, name, other):
    assert name_in("de", key=key, name=name, names={"en": other})
    assert name_in("de", key=key, name=name, names={"de": "eigen"}) == "eigen"
    assert name_in("en", key=key, name=name, names={"de": "eigen"}) == (name or name_in("en", key=key, name=None, names={}))
