"""Declared taxes on documents: invoices, credits, credit notes, the taxes of a month, e-invoice and `--check`."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from billing import reads
from billing.auditing import consistency
from billing.books.tax_summary import tax_summary
from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine
from billing.documents.e_invoice import e_invoice
from billing.documents.printed_pages import invoice_page
from billing.documents.printing import invoice_source
from billing.documents.sellers import record_seller
from billing.errors import BillingSuspended
from billing.models import Invoice, InvoiceTax, Line, Tax
from billing.orders import customers
from billing.orders.subscriptions import charge_once
from billing.orders.tax_declarations import NewTax, declare
from tests.billing.documents.issued import SELLER, invoice_up_to
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, unique, use
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db
QUEBEC = {"line1": "1 rue X", "city": "Montréal", "postal_code": "H2X 1Y4", "subdivision": "QC", "country": "CA"}


@pytest.fixture(autouse=True)
def seller():
    """A seller who taxes by the buyer's region, GST and QST, and VAT of Germany and France."""
    record_seller({**SELLER, "tax_rules": "region"}, actor="test")
    tax("ca-gst", "5", name="GST", names={"de": "Bundessteuer"}, category="O", country="CA", classes=["standard", "books"])
    tax("ca-qst", "9.975", name="QST", category="O", country="CA", subdivision="QC")
    tax("de-vat", "19", name="VAT", country="DE")
    tax("fr-vat", "20", name="TVA", country="FR")


def tax(code: str, rate: str, **more) -> Tax:
    """Declare a tax, valid for long."""
    terms = {"name": code, "valid_from": date(2020, 1, 1)} | more
    return declare(NewTax(code=code, rate=Decimal(rate), **terms), actor="test")


def subscribed(*prices, address=QUEBEC, plan=None, **customer):
    """A subscription of a customer at an address."""
    made = PlanFactory(prices=list(prices or [recurring(unit_amount="100.00")]), **(plan or {}))
    return SubscriptionFactory(plan=made.code, customer=CustomerFactory(address=address, **customer).ref)


def rows_of(document):
    """The taxes of a document: code, rate, base, amount."""
    return [(row.get("code"), row["rate"], row["base_minor"], row["amount_minor"]) for row in document["taxes"]]


def move(subscription, **changes):
    """Change the customer."""
    ref = subscription.customer.ref
    customers.change_customer(ref=ref, **changes)


@pytest.mark.slow
@pytest.mark.check
def test_an_invoice_bears_two_taxes_and_its_notes_give_both_back_to_the_cent():
    subscription = subscribed(recurring(unit_amount="33.33"), recurring("books", "10.00", tax_class="books"))
    [made] = bill(subscription, at(1, 1))
    # 5 % of 43.33 is 2.1665; 9.975 % of 33.33 is 3.3247.
    assert rows_of(made) == [("ca-gst", "5", 4333, 217), ("ca-qst", "9.975", 3333, 332)]
    assert (made["subtotal_minor"], made["tax_minor"], made["total_minor"]) == (4333, 549, 4882)
    assert [(line["tax_category"], line["tax_rate"]) for line in made["lines"]] == [("O", "14.975"), ("O", "5")]
    assert [tax["code"] for tax in made["lines"][0]["taxes"]] == ["ca-gst", "ca-qst"]
    assert [row["name"] for row in made["taxes"]] == ["GST", "QST"]
    assert "note" not in made["taxes"][0]
    notes = [
        credit_notes.issue_in(
            invoice_id=made["id"], lines=[CreditLine(position=position, amount_minor=minor)], reason="Too much", actor="test"
        )
        for position, minor in ((1, 1111), (2, 1), (1, 1111))
    ]
    notes.append(credit_notes.issue_in(invoice_id=made["id"], reason="All", actor="test"))
    documents = [reads.credit_note_document(note.pk) for note in notes]
    assert [rows_of(one) for one in documents] == [
        [("ca-gst", "5", 1111, 56), ("ca-qst", "9.975", 1111, 111)],
        [("ca-gst", "5", 1, 0)],
        [("ca-gst", "5", 1111, 55), ("ca-qst", "9.975", 1111, 110)],
        [("ca-gst", "5", 2110, 106), ("ca-qst", "9.975", 1111, 111)],
    ]
    assert sum(note.tax_minor for note in notes) == 549
    assert sum(note.amount_minor for note in notes) == 4882
    assert consistency.check() == []


def test_a_tax_on_tax_is_credited_by_its_share():
    tax("ca-qst", "9.5", name="QST", category="O", country="CA", subdivision="QC", is_compound=True)
    [made] = bill(subscribed(), at(1, 1))
    assert rows_of(made) == [("ca-gst", "5", 10_000, 500), ("ca-qst", "9.5", 10_500, 998)]
    first = credit_notes.issue_in(
        invoice_id=made["id"], lines=[CreditLine(position=1, amount_minor=3_333)], reason="Part", actor="test"
    )
    rest = credit_notes.issue_in(invoice_id=made["id"], reason="Rest", actor="test")
    assert [rows_of(reads.credit_note_document(note.pk)) for note in (first, rest)] == [
        [("ca-gst", "5", 3_333, 167), ("ca-qst", "9.5", 3_500, 333)],
        [("ca-gst", "5", 6_667, 333), ("ca-qst", "9.5", 7_000, 665)],
    ]
    assert consistency.check() == []


@pytest.mark.slow
@pytest.mark.check
def test_a_credit_is_taxed_as_what_it_gives_back_after_a_move_and_a_change_of_rate():
    subscription = subscribed(recurring(unit_amount="31.00"), address={"country": "DE"})
    [first] = bill(subscription, at(1, 1))
    assert rows_of(first) == [("de-vat", "19", 3100, 589)]
    move(subscription, address={"country": "FR"})
    tax("de-vat", "16", name="VAT", country="DE", valid_from=date(2020, 2, 1))
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    [second] = bill(subscription, at(1, 11))
    # 21 of 31 days at 31.00 back at the 19 % of Germany, and 42.00 at the 20 % of France; the credit exceeds its tax's fees.
    assert {(line["kind"], line["tax_rate"], line["amount_minor"]) for line in second["lines"]} == {
        ("credit", "19", -2100), ("recurring", "20", 4200), ("carried", "19", 2100),
    }  # fmt: skip
    assert rows_of(second) == [("de-vat", "19", 0, 0), ("fr-vat", "20", 4200, 840)]
    assert second["credit_notes_minor"] == 2100 + 399
    assert consistency.check() == []


def test_late_usage_is_taxed_as_the_period_that_it_continues():
    usage = {
        "key": "calls", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "1", "meter": "calls",
        "aggregation": "sum",
    }  # fmt: skip
    subscription = subscribed(usage, address={"country": "DE"})
    use(subscription, "10", at(1, 5))
    [first] = bill(subscription, at(2, 1))
    move(subscription, address={"country": "FR"})
    use(subscription, "5", at(1, 6))
    use(subscription, "7", at(2, 6))
    documents = bill(subscription, at(3, 1))
    lines = {(line["kind"], line["tax_rate"], line["amount_minor"]) for one in documents for line in one["lines"]}
    assert (rows_of(first), lines) == (
        [("de-vat", "19", 1000, 190)],
        {("late_usage", "19", 500), ("usage", "20", 700)},
    )


def test_the_rate_of_the_last_day_of_the_period_applies_also_in_advance():
    tax("de-vat", "16", name="VAT", country="DE", valid_from=at(1, 31).date())
    [january] = bill(subscribed(address={"country": "DE"}), at(1, 1))
    assert rows_of(january) == [("de-vat", "16", 10_000, 1600)]


@pytest.mark.parametrize(("price", "net", "due"), [("114.98", 10_000, 11_498), ("9.99", 869, 999), ("0.01", 1, 1)])
def test_prices_that_include_two_taxes_cost_what_they_say(price, net, due):
    [made] = bill(subscribed(recurring(unit_amount=price), plan={"tax_behavior": "inclusive"}), at(1, 1))
    assert (made["subtotal_minor"], made["amount_due_minor"]) == (net, due)
    assert made["lines"][0]["rating"]["included_tax"]["rate"] == "14.975"
    assert consistency.check() == []


def test_yen_and_dinars_round_to_their_units():
    for currency, price, taxes in (("JPY", "333", [17, 33]), ("KWD", "1.001", [50, 100])):
        [made] = bill(subscribed(recurring(unit_amount=price), plan={"currency": currency}, currency=currency), at(1, 1))
        assert [row["amount_minor"] for row in made["taxes"]] == taxes
    assert consistency.check() == []


def test_a_country_without_tax_suspends_the_billing_instead_of_billing_without_tax():
    record_seller({**SELLER, "tax_rules": "eu_oss"}, actor="test")
    subscription = subscribed(address={"country": "IT"})
    with pytest.raises(BillingSuspended) as refused:
        bill(subscription, at(1, 1))
    assert {"reason": "tax-not-declared", "country": "IT", "day": "2026-01-31"}.items() <= refused.value.facts.items()
    assert not Invoice.objects.filter(subscription=subscription).exists()


def test_a_business_of_another_member_state_is_under_reverse_charge_by_its_vat_id():
    record_seller({**SELLER, "tax_rules": "eu_oss"}, actor="test")
    subscription = subscribed(address={"country": "FR"}, vat_id="FR40303265045")
    [made] = bill(subscription, at(1, 1))
    assert [(row["category"], row["note"], row["amount_minor"]) for row in made["taxes"]] == [("AE", "Reverse charge", 0)]


def test_the_month_counts_the_net_amount_once_and_each_tax():
    subscription = subscribed()
    [made] = bill(subscription, at(1, 1))
    credit_notes.issue_in(invoice_id=made["id"], lines=[CreditLine(position=1, amount_minor=4_000)], reason="Part", actor="test")
    mine = [row for row in tax_summary(datetime.now(UTC).date()) if row.code in ("ca-gst", "ca-qst")]
    assert [(row.country, row.code, f"{row.rate.normalize():f}", row.base_minor, row.tax_minor) for row in mine] == [
        ("CA", "ca-gst", "5", 6_000, 300), ("CA", "ca-qst", "9.975", 6_000, 599),
    ]  # fmt: skip
    assert sum(row.net_minor for row in mine) == 6_000


def test_the_page_names_each_tax_in_the_buyers_language():
    [made] = bill(subscribed(language="de"), at(1, 1))
    page = invoice_page(invoice_source(made["id"]))
    # Not "GST/HST", which is one of the two.
    assert page["columns"][4] == "Steuer"
    labels = [row["label"] for row in page["sums"]]
    assert labels[1:3] == ["Bundessteuer 5 % auf 100,00", "QST 9,975 % auf 100,00"]


def test_an_e_invoice_has_taxes_that_are_not_vat_as_charges():
    source = invoice_source(invoice_up_to(subscribed(), as_of=at(1, 2)).pk)
    xml = e_invoice(source)
    assert xml is not None
    text = " ".join(xml.decode().split())
    assert text.count("<ram:SpecifiedTradeAllowanceCharge>") == 2
    assert "<ram:ActualAmount>9.98</ram:ActualAmount> <ram:Reason>QST</ram:Reason>" in text
    for name, amount in (("LineTotalAmount", "100.00"), ("ChargeTotalAmount", "14.98"), ("TaxBasisTotalAmount", "114.98")):
        assert f"<ram:{name}>{amount}</ram:{name}>" in text
    assert '<ram:TaxTotalAmount currencyID="EUR">0.00</ram:TaxTotalAmount>' in text
    assert "<ram:GrandTotalAmount>114.98</ram:GrandTotalAmount>" in text


def test_vat_on_another_tax_is_computed_on_its_charge():
    tax("de-levy", "2", name="Levy", category="O", country="DE")
    tax("de-vat", "19", name="VAT", country="DE", is_compound=True)
    made = invoice_up_to(subscribed(address={**QUEBEC, "country": "DE"}), as_of=at(1, 2))
    # 19 % of 102.00 is 19.38.
    assert list(made.taxes.order_by("category").values_list("code", "base_minor", "amount_minor")) == [
        ("de-levy", 10_000, 200), ("de-vat", 10_200, 1_938),
    ]  # fmt: skip
    text = " ".join((e_invoice(invoice_source(made.pk)) or b"").decode().split())
    assert "<ram:BasisAmount>102.00</ram:BasisAmount> <ram:CategoryCode>S</ram:CategoryCode>" in text
    assert '<ram:TaxTotalAmount currencyID="EUR">19.38</ram:TaxTotalAmount>' in text


def test_check_finds_a_draft_whose_line_bears_another_rate_than_declared():
    made = invoice_up_to(subscribed(), as_of=at(1, 2), finalize=False)
    assert consistency.check() == []
    line = Line.objects.get(invoice=made)
    line.taxes[0]["rate"] = "4"
    Line.objects.filter(pk=line.pk).update(taxes=line.taxes)
    laws = {finding["finding"] for finding in consistency.check()}
    assert {"line that does not bear its taxes as declared", "taxes do not follow from the lines"} <= laws


def test_a_one_off_invoice_bears_the_taxes_of_its_day_and_names_what_is_missing(api):
    customer = CustomerFactory(address=QUEBEC, ref=unique("CUST"))
    line = {"description": "Set-up", "unit_amount": "100.00"}
    made = api.post(f"/v1/customers/{customer.ref}/invoices", {"lines": [line, {**line, "tax_class": "books"}]})
    assert made.status_code == 201
    assert rows_of(made.json()) == [("ca-gst", "5", 20_000, 1_000), ("ca-qst", "9.975", 10_000, 998)]
    record_seller({**SELLER, "tax_rules": "eu_oss"}, actor="test")
    before = InvoiceTax.objects.count()
    refused = api.post(f"/v1/customers/{CustomerFactory(address={'country': 'IT'}).ref}/invoices", {"lines": [line, line]})
    assert [(one["pointer"], one["code"]) for one in refused.json()["errors"]] == [("/lines/0/tax_class", "tax-not-declared")]
    assert (refused.status_code, InvoiceTax.objects.count()) == (400, before)


def test_a_charge_once_bears_the_taxes_of_its_class():
    subscription = subscribed()
    charge_once(ref=subscription.ref, amount_minor=1_000, description="Book", tax_class="books")
    [made] = bill(subscription, at(1, 1))
    assert rows_of(made) == [("ca-gst", "5", 11_000, 550), ("ca-qst", "9.975", 10_000, 998)]
