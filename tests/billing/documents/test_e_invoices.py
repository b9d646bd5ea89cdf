"""No e-invoice rather than one that breaks a rule of its receiver: the rules here beside the Schematron of the receivers."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.db import connection

from billing.documents import credit_notes, e_invoice
from billing.documents.e_invoice import PROFILES, faults_of
from billing.documents.e_invoices import count_e_invoices
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.printed_pages import DocumentSource
from billing.documents.sellers import record_seller
from billing.models import Customer, Invoice
from billing.orders import customers
from ledger_project.monitoring.findings import CheckState
from ledger_project.monitoring.work_checks import e_invoices
from tests.billing.documents.schematron import broken_rules
from tests.billing.factories import CustomerFactory

SELLER = {
    "name": "Nimbus GmbH", "line1": "Weg 1", "postal_code": "10115", "city": "Berlin", "country": "DE", "vat_id": "DE123456788",
    "tax_number": "12/345/67890", "email": "billing@nimbus.example", "phone": "+49 30 1234567",
    "iban": "DE89370400440532013000", "bic": "COBADEFFXXX", "electronic_address": "0204:991-01234-56",
}  # fmt: skip
BUYER = {
    "name": "Stadt Köln", "language": "de", "vat_id": "", "buyer_reference": "04011000-12345-34",
    "electronic_address": "0204:04011000-12345-34",
    "address": {"line1": "Platz 1", "postal_code": "50667", "city": "Köln", "country": "DE"},
}  # fmt: skip
OCTOBER = {"start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z"}


def line(amount_minor: int, category: str = "S", rate: str = "19", /, **more: Any) -> dict[str, Any]:
    """A line of one unit."""
    return {
        "position": 1, "title": "Team plan", "period": None, "quantity": "1", "unit_amount": str(amount_minor / 100),
        "amount_minor": amount_minor, "discount_minor": 0, "tax_category": category, "tax_rate": rate, "rating": {}, "taxes": [],
        **more,
    }  # fmt: skip


def document(*lines: Mapping[str, Any], taxes: tuple[tuple[str, str, int, int], ...], **more: Any) -> dict[str, Any]:
    """A document as the API has it: the taxes are category, rate, base and amount."""
    net = sum(each["amount_minor"] - each["discount_minor"] for each in lines)
    tax = sum(each[3] for each in taxes)
    names = ("category", "rate", "base_minor", "amount_minor")
    return {
        "number": "INV-000001", "subscription": "SUB-1", "customer": "C-7", "currency": "EUR", "state": "open", "note": None,
        "issue_date": "2026-11-01", "due_date": "2026-11-30", "tax_minor": tax, "credit_notes_minor": 0, "reason": "Late",
        "credits_applied_minor": 0, "rounding_minor": 0, "amount_due_minor": net + tax, "discounts": [],
        "lines": [{**each, "position": number} for number, each in enumerate(lines, 1)],
        "taxes": [dict(zip(names, each, strict=True)) for each in taxes], **more,
    }  # fmt: skip


DOCUMENTS = {
    "S": document(line(3100, period=OCTOBER), taxes=(("S", "19", 3100, 589),)),
    "S and a discount": document(
        line(3100, discount_minor=100, period=OCTOBER),
        line(150, quantity="3", unit_amount="0.5"),
        taxes=(("S", "19", 3150, 599),),
    ),
    "a small price": document(line(41, quantity="333", unit_amount="0.00123456"), taxes=(("S", "19", 41, 8),)),
    "by entries": document(
        line(100, rating={"entries": {"credit_type": "credits", "rate": "answers", "component": "output"}}),
        line(200, rating={"entries": {"credit_type": "credits", "rate": "images", "component": None}}),
        line(300, rating={"by_rate": [{"rate": "answers", "credits": 9}, {"rate": None, "credits": 6}]}),
        taxes=(("S", "19", 600, 114),),
    ),
    "what gives back": document(line(3100), line(-1000), taxes=(("S", "19", 2100, 399),)),
    "two rates": document(line(3100), line(1000, "reduced", "7"), taxes=(("S", "19", 3100, 589), ("reduced", "7", 1000, 70))),
    "S at 0": document(line(3100, "S", "0"), taxes=(("S", "0", 3100, 0),)),
    "a charge beside O": document(line(3100, "O", "0"), line(500, "S", "0"), taxes=(("O", "0", 3100, 0), ("S", "0", 500, 0))),
    "a charge beside E": document(line(3100, "E", "0"), line(500, "S", "0"), taxes=(("E", "0", 3100, 0), ("S", "0", 500, 0))),
    "a charge beside S": document(line(3100), line(500, "S", "0"), taxes=(("S", "19", 3100, 589), ("S", "0", 500, 0))),
    "paid": document(line(3100), taxes=(("S", "19", 3100, 589),), credit_notes_minor=600, credits_applied_minor=3089),
    "rounded": document(line(3102), taxes=(("S", "19", 3102, 589),), rounding_minor=-1),
    **{name: document(line(3100, name, "0"), taxes=((name, "0", 3100, 0),)) for name in ("AE", "Z", "E", "K", "G", "O")},
}


def source_of(name: str, *, is_note: bool = False, seller: Any = SELLER, buyer: Any = BUYER) -> DocumentSource:
    if name in ("AE", "K"):
        buyer = {**buyer, "vat_id": "FR40303265045", "address": {**buyer["address"], "country": "FR"}}
    corrects = ("INV-000000", date(2026, 10, 1)) if is_note else None
    return DocumentSource(DOCUMENTS[name], seller, buyer, ZoneInfo("Europe/Berlin"), corrects=corrects)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_document_keeps_the_rules_of_its_receiver(name: str, profile: str) -> None:
    for is_note in (False, True):
        source = source_of(name, is_note=is_note)
        assert faults_of(source, PROFILES[profile]) == []
        xml = e_invoice.e_invoice(source, PROFILES[profile])
        assert xml is not None
        assert PROFILES[profile].guideline.encode() in xml
        assert broken_rules(xml, profile) == []


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_billed_by_entries_has_its_rate_as_attributes_of_the_item(profile: str) -> None:
    xml = e_invoice.e_invoice(source_of("by entries"), PROFILES[profile])
    assert xml is not None
    values = rb"<(?:ram:Description|cbc:Name)>(Rate|Component|Tarif|Komponente)</[^>]*>\s*<(?:ram|cbc):Value>([a-z]*)<"
    assert [value for _, value in re.findall(values, xml)] == [b"answers", b"output", b"images", b"answers"]


def without(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in names}


SIDES = {
    **{f"a seller without {name}": (without(SELLER, name), BUYER) for name in SELLER if name not in ("name", "country")},
    "a seller without contact": (without(SELLER, "email", "phone"), BUYER),
    "a seller without tax ids": (without(SELLER, "vat_id", "tax_number"), BUYER),
    "a buyer without reference": (SELLER, without(BUYER, "buyer_reference")),
    "a buyer without electronic address": (SELLER, without(BUYER, "electronic_address")),
    **{
        f"a buyer without {name}": (SELLER, {**BUYER, "address": without(BUYER["address"], name)})  # type: ignore[arg-type]
        for name in ("line1", "postal_code", "city", "country")
    },
    **{
        f"a buyer at {address}": (SELLER, {**BUYER, "electronic_address": address})
        for address in (
            "EM:a@b.example", "0088:4012345000009", "0088:4012345000008", "0192:974760673", "0192:974760674", "0208:0202239951",
            "0208:0202239952", "0007:5560360793", "0007:5560360794", "0151:51824753556", "0151:51824753557", "0245:1",
        )
    },
    **{f"a seller in {code}": ({**SELLER, "country": code}, BUYER) for code in ("AT", "FR")},
    **{f"a buyer in {code}": (SELLER, {**BUYER, "address": {**BUYER["address"], "country": code}}) for code in ("AT", "NL")},  # type: ignore[dict-item]
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", SIDES)
def test_what_a_side_lacks_is_found_here_as_by_the_receiver(name: str, profile: str) -> None:
    """The XML is made in spite of the faults; what cannot be made, for want of a country, is refused here alone."""
    seller, buyer = SIDES[name]
    for kind in ("S", "O"):
        source = source_of(kind, seller=seller, buyer=buyer)
        faults = faults_of(source, PROFILES[profile])
        if not list(e_invoice._lacking(source)):
            xml = e_invoice._xml(source, PROFILES[profile])
            assert xml is not None
            assert bool(faults) == bool(broken_rules(xml, profile)), (faults, broken_rules(xml, profile))
        assert all(fault.is_lacking for fault in faults)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("BR-CO-14", {"tax_minor": 590}),
        ("BR-CO-17", {"taxes": [{"category": "S", "rate": "19", "base_minor": 3100, "amount_minor": 700}], "tax_minor": 700}),
        ("BR-CO-18", {"taxes": [{"category": "S", "rate": "7", "base_minor": 3100, "amount_minor": 217}], "tax_minor": 217}),
        ("BR-CO-25", {"due_date": None}),
    ],
)
def test_a_document_that_contradicts_a_rule_has_no_xml(rule: str, change: dict[str, Any]) -> None:
    source = source_of("S")
    broken = replace(source, document={**source.document, **change})
    assert rule in {fault.rule for fault in faults_of(broken) if not fault.is_lacking}
    assert e_invoice.e_invoice(broken) is None


def test_sellers_of_countries_with_rules_of_their_own_have_no_e_invoice_at_peppol() -> None:
    source = source_of("S", seller={**SELLER, "country": "NL"})
    assert [fault.rule for fault in faults_of(source, PROFILES["peppol"])] == ["NL-R"]
    assert faults_of(source, PROFILES["xrechnung"]) == []


# What users see --------------------------------------------------------------------------------------


def issued(**customer: Any) -> Invoice:
    """An invoice at 19 % of a customer with a form of e-invoices."""
    record_seller(SELLER, actor="test")
    payer = CustomerFactory(**{"currency": "EUR", "address": BUYER["address"], **customer})
    work = OneOffLine(description="Work", unit_amount=Decimal(100), tax_rate=Decimal(19))
    return Invoice.objects.get(pk=issue_one_off_in(customer_ref=payer.ref, request=NewOneOffInvoice(lines=[work])).pk)


XRECHNUNG = {
    "e_invoice_format": "xrechnung", "buyer_reference": "04011000-12345-34", "electronic_address": "0204:04011000-12345-34",
}  # fmt: skip


@pytest.mark.django_db
def test_the_call_gives_the_form_that_the_customer_had_at_the_issue(api: Any) -> None:
    invoice = issued(**XRECHNUNG)
    customers.change_customer(ref=invoice.customer_ref, e_invoice_format="peppol")
    answer = api.get(f"/v1/invoices/{invoice.pk}.xml")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/xml")
    assert answer["Content-Disposition"] == f'attachment; filename="{invoice.number}.xml"'
    assert broken_rules(answer.content, "xrechnung") == []
    assert b"<ram:BuyerReference>04011000-12345-34</ram:BuyerReference>" in answer.content
    note = credit_notes.issue_in(invoice_id=invoice.pk, lines=None, reason="Late", actor="test")
    assert broken_rules(api.get(f"/v1/credit-notes/{note.pk}.xml").content, "xrechnung") == []
    assert api.get("/v1/invoices/999999999.xml").status_code == 404


@pytest.mark.django_db
def test_a_document_without_e_invoice_says_what_is_lacking(api: Any, admin_client: Any) -> None:
    invoice = issued(**{**XRECHNUNG, "electronic_address": ""})
    answer = api.get(f"/v1/invoices/{invoice.pk}.xml")
    assert answer.status_code == 409
    assert [fault["rule"] for fault in answer.json()["faults"]] == ["PEPPOL-EN16931-R010"]
    page = admin_client.get(f"/admin/billing/invoice/{invoice.pk}/e-invoice/", follow=True).content.decode()
    assert "PEPPOL-EN16931-R010: the buyer has no electronic address." in page
    found = count_e_invoices()
    assert (found.documents, found.lacking, found.broken, found.numbers) == (1, 0, 1, [invoice.number])
    assert dict(found.rules) == {"PEPPOL-EN16931-R010": 1}
    result = e_invoices(connection)
    assert (result.state, str(invoice.number) in result.text) == (CheckState.WARNING, True)
    out = StringIO()
    call_command("generate_invoices", "--check", stdout=out)
    assert "Without e-invoice: 1 of 1 documents of the last 31 days, by PEPPOL-EN16931-R010 (1)." in out.getvalue()


@pytest.mark.django_db
def test_a_buyer_without_country_is_counted_apart_and_no_warning(admin_client: Any) -> None:
    issued(address={"line1": "Somewhere"})
    good = issued()
    found = count_e_invoices()
    assert (found.documents, found.lacking, found.broken) == (2, 1, 0)
    assert e_invoices(connection).state == CheckState.OK
    shown = admin_client.get(f"/admin/billing/invoice/{good.pk}/e-invoice/")
    assert (shown["Content-Type"], broken_rules(shown.content)) == ("application/xml", [])


@pytest.mark.parametrize("address", ["0204", "0204:", "XX:1", "ada@example.com", "0204:a b"])
@pytest.mark.django_db
def test_an_electronic_address_names_its_scheme(api: Any, address: str) -> None:
    body = {"ref": "c-1", "name": "Ada", "currency": "EUR", "electronic_address": address}
    refused = api.post("/v1/customers", body, key="k")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, "/electronic_address")
    assert not Customer.objects.filter(ref="c-1").exists()


@pytest.mark.parametrize(("name", "categories"), [("O", {"O"}), ("E", {"E"}), ("S", {"S", "Z"})])
def test_a_charge_at_0_follows_the_category_of_its_invoice(name: str, categories: set[str]) -> None:
    source = source_of(f"a charge beside {name}")
    assert {tax["BT-118"] for tax in e_invoice._terms(source, PROFILES["en16931"])["BG-23"]} == categories
