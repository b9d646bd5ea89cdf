"""Amounts due are rounded to the seller's step of cash payments; lines, tax and total are not, and credit notes take it back."""

import random
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from billing.auditing import consistency
from billing.books.tax_summary import tax_summary
from billing.documents import credit_notes
from billing.documents.credit_note_rules import CashRounding
from billing.documents.credit_notes import CreditLine
from billing.documents.credit_refunds import deposit_in
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.printing import credit_note_pdf, invoice_pdf
from billing.documents.sellers import record_seller
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.models import CreditNote, CreditNoteTax, Customer, Invoice, Seller
from billing.orders.customers import NewCredits
from billing.rating.money import round_to_step
from ledger import reads, services
from ledger.errors import Invalid
from tests.billing.admin.test_lists import csv_rows
from tests.billing.documents.issued import BUYER_ADDRESS, SELLER
from tests.billing.documents.test_printed import amounts, text_of, xml_of
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, transition, unique
from tests.billing.findings import findings_of
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator
from tests.tampering.owner import as_owner

needs_database = pytest.mark.django_db


def add_seller(steps: dict[str, int], **more: Any) -> Seller:
    """Record who invoices, with a step by currency."""
    return record_seller({**SELLER, "cash_rounding_minor": steps, **more}, actor="test")


def issued(customer: Customer, *amounts: str, **more: Any) -> Invoice:
    """An invoice with a line of each amount, without tax, in francs."""
    lines = [OneOffLine(description="Work", unit_amount=Decimal(amount), tax_category="Z") for amount in amounts]
    return issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=lines, **more))


def swiss(**more: Any) -> Customer:
    """A customer who pays in francs."""
    return CustomerFactory(currency="CHF", **more)


def note_of(invoice: Invoice, *amounts_minor: int) -> CreditNote:
    """A credit note about amounts of the first lines, or about all that is left."""
    lines = [CreditLine(position=position, amount_minor=minor) for position, minor in enumerate(amounts_minor, 1)]
    return credit_notes.issue_in(invoice_id=invoice.pk, lines=lines or None, reason="agreed", actor="key:shop")


def figures(invoice: Invoice) -> tuple[int, int, int, str]:
    """Total, rounding and amount due of an invoice now, and its state."""
    row = Invoice.objects.get(pk=invoice.pk)
    return row.total_minor, row.rounding_minor, row.amount_due_minor, row.state


def in_money(customer: Customer, amount_minor: int) -> Customer:
    """The customer, with credit in money."""
    deposit_in(customer_id=customer.pk, currency="CHF", amount_minor=amount_minor, reference="r", reason="r", actor="test")
    return customer


# The rule --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "step", "rounded"),
    [
        (1002, 5, 1000), (1003, 5, 1005), (1005, 10, 1010), (1004, 10, 1000), (2, 5, 0), (3, 5, 5), (0, 5, 0), (7, 1, 7),
        (250, 500, 500), (249, 500, 0), (10**26 + 2, 5, 10**26), (-3, 5, -5), (-2, 5, 0),
    ],
)  # fmt: skip
def test_to_the_nearest_multiple_and_a_half_up(amount, step, rounded):
    assert round_to_step(amount, step) == rounded


@pytest.mark.parametrize(
    ("rounding", "credited", "with_tax", "expected"),
    [
        ((-2, 1002), 0, 501, -1), ((-2, 1002), 501, 501, -1), ((-2, 1002), 0, 2, -2), ((-2, 1002), 2, 1000, 0),
        ((1, 669), 0, 401, -1), ((1, 669), 401, 601, 2), ((0, 0), 0, 7, 0), ((-2, 2), 0, 1, -1), ((-2, 2), 1, 1001, -1),
    ],
)  # fmt: skip
def test_notes_round_what_was_credited_so_far(rounding, credited, with_tax, expected):
    added, money = rounding
    assert CashRounding(5, added, money, credited).of(with_tax) == expected


def test_any_notes_give_back_what_was_due_and_paid_and_leave_a_multiple_of_the_step():
    pick = random.Random(4)
    for _ in range(2_000):
        step, total = pick.choice((1, 2, 5, 10, 50, 100, 500)), pick.randrange(1, 3_000)
        money = pick.choice((total, total, pick.randrange(total + 1)))
        coins = Decimal(money) / step
        due = int(coins.quantize(Decimal(1), ROUND_HALF_UP)) * step
        credited = worth = 0
        while credited < total:
            part = pick.randrange(1, total - credited + 1)
            added = CashRounding(step, due - money, money, credited).of(part)
            assert part + added >= 0
            credited, worth = credited + part, worth + part + added
            assert max(due - worth, 0) % step == 0
        assert worth == due + total - money


# The step of a seller --------------------------------------------------------------------------------


@needs_database
@pytest.mark.parametrize(
    ("steps", "pointer", "rule"),
    [
        ({"XXX": 5}, "/cash_rounding_minor/XXX", "unknown-currency"),
        ({"chf": 5}, "/cash_rounding_minor/chf", "pattern"),
        ({"CHF": 1}, "/cash_rounding_minor/CHF", "too-small"),
        ({"CHF": 0}, "/cash_rounding_minor/CHF", "too-small"),
        ({"CHF": -5}, "/cash_rounding_minor/CHF", "too-small"),
        ({"CHF": 10**26}, "/cash_rounding_minor/CHF", "too-large"),
        ({"CHF": "5"}, "/cash_rounding_minor/CHF", "not-an-integer"),
        ({"CHF": True}, "/cash_rounding_minor/CHF", "not-an-integer"),
        ([5], "/cash_rounding_minor", "not-an-object"),
    ],
)
def test_a_wrong_step_is_refused_and_nothing_recorded(steps, pointer, rule):
    with pytest.raises(Invalid) as refused:
        add_seller(steps)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    assert not Seller.objects.exists()


@needs_database
def test_it_is_recorded_over_rest(api: ApiClient) -> None:
    assert api.put("/v1/sellers/default", {**SELLER, "cash_rounding_minor": {"SEK": 100, "CHF": 5}}).status_code == 200
    assert api.get("/v1/sellers/default").json()["cash_rounding_minor"] == {"CHF": 5, "SEK": 100}


# Invoices --------------------------------------------------------------------------------------------


@needs_database
@pytest.mark.parametrize(
    ("step", "total", "credit", "rounding", "due", "state"),
    [
        (5, "10.02", 0, -2, 1000, "open"), (5, "10.03", 0, 2, 1005, "open"), (10, "10.05", 0, 5, 1010, "open"),
        (5, "10.02", 333, 1, 670, "open"), (5, "10.02", 1000, -2, 0, "paid"), (5, "10.00", 0, 0, 1000, "open"),
        (5, "0.01", 0, -1, 0, "paid"), (5, "10.02", 1002, 0, 0, "paid"),
    ],
)  # fmt: skip
def test_what_is_left_to_pay_is_rounded_after_credit(step, total, credit, rounding, due, state):
    add_seller({"CHF": step})
    customer = in_money(swiss(), credit) if credit else swiss()
    invoice = issued(customer, total)
    assert figures(invoice) == (int(Decimal(total) * 100), rounding, due, state)
    assert consistency.check() == []


@needs_database
def test_prepaid_credits_pay_exactly_and_other_currencies_and_sellers_are_not_rounded():
    add_seller({"CHF": 5})
    holder = unique("holder")
    services.grant(holder_id=holder, amount=333, idempotency_key="k")
    customer = swiss(holder_id=holder, credits=NewCredits(credit_type="credits", unit_value=Decimal("0.01")))
    assert figures(issued(customer, "10.02")) == (1002, 1, 670, "open")
    assert reads.balance(holder).available == 0
    assert figures(issued(swiss(), "10.02", currency="EUR")) == (1002, 0, 1002, "open")
    add_seller({}, ref="other", invoice_prefix="X", credit_note_prefix="XN")
    assert figures(issued(swiss(seller="other"), "10.02")) == (1002, 0, 1002, "open")


@needs_database
@pytest.mark.parametrize(("currency", "step", "amount", "due"), [("JPY", 10, "1005", 1010), ("KWD", 5, "1.002", 1000)])
def test_steps_are_in_the_smallest_unit_of_the_currency(currency, step, amount, due):
    add_seller({currency: step})
    assert issued(CustomerFactory(currency=currency), amount).amount_due_minor == due


@needs_database
def test_a_draft_has_none_and_the_seller_at_its_finalisation_decides():
    add_seller({"CHF": 5})
    draft = issued(swiss(), "10.02", finalize=False)
    assert figures(draft) == (1002, 0, 1002, "draft")
    add_seller({"CHF": 100})
    transition(draft.pk, "finalize")
    assert figures(draft) == (1002, -2, 1000, "open")
    assert consistency.check() == []


@needs_database
def test_a_run_and_its_dry_run_round_alike_and_tax_stays(api: ApiClient) -> None:
    add_seller({"EUR": 5})
    plan = PlanFactory(prices=[recurring(unit_amount="8.41", tax_rate="19")])
    subscription = SubscriptionFactory(plan=plan.code, customer=CustomerFactory(address=BUYER_ADDRESS).ref)
    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    [shown] = api.post(f"{path}?dry_run=true", {"as_of": "2026-01-01T00:00:00Z"}).json()["invoices"]
    result = generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    [made] = result.invoices
    invoice = Invoice.objects.get(pk=made.invoice_id)
    # 19 % of 8.41 is 1.60: 10.01 in all.
    assert figures(invoice) == (1001, -1, 1000, "open")
    assert (shown["total_minor"], shown["rounding_minor"], shown["amount_due_minor"]) == (1001, -1, 1000)
    assert made.amount_due_minor == 1000
    assert [(row.base_minor, row.tax_minor) for row in tax_summary(invoice.issue_date)] == [(841, 160)]
    told = api.get(f"/v1/invoices/{invoice.pk}").json()
    assert (told["tax_minor"], told["rounding_minor"], told["amount_due_minor"]) == (160, -1, 1000)


# Credit notes ----------------------------------------------------------------------------------------


@needs_database
@pytest.mark.parametrize(
    ("credit", "notes", "roundings", "worths", "dues"),
    [
        (0, (501, 501), (-1, -1), (500, 500), (500, 0)),
        (0, (2, 1000), (-2, 0), (0, 1000), (1000, 0)),
        (333, (401, 601), (-1, 2), (400, 603), (270, 0)),
    ],
)
def test_credit_notes_take_the_rounding_back(credit, notes, roundings, worths, dues):
    add_seller({"CHF": 5})
    holder = unique("holder")
    services.grant(holder_id=holder, amount=credit or 1, idempotency_key="k")
    terms = {"holder_id": holder, "credits": NewCredits(credit_type="credits", unit_value=Decimal("0.01"))} if credit else {}
    invoice = issued(swiss(**terms), "10.02")
    found = []
    for minor in notes:
        note = note_of(invoice, minor)
        found.append((note.rounding_minor, note.amount_minor, figures(invoice)[2]))
    assert found == list(zip(roundings, worths, dues, strict=True))
    assert figures(invoice)[3] == "paid"
    assert reads.balance(holder).available == (credit or 1)
    assert sum(note.left_minor for note in CreditNote.objects.all()) == 0
    assert consistency.check() == []


@needs_database
def test_the_step_of_a_note_is_the_one_of_its_invoice_and_a_paid_invoice_gives_back_what_was_paid():
    add_seller({"CHF": 5})
    invoice = issued(swiss(), "10.02")
    transition(invoice.pk, "pay")
    add_seller({"CHF": 100})
    first, rest = note_of(invoice, 333), note_of(invoice)
    notes = [(note.rounding_minor, note.amount_minor, note.left_minor) for note in (first, rest)]
    assert notes == [(2, 335, 335), (-4, 665, 665)]
    assert consistency.check() == []


@needs_database
def test_the_database_refuses_notes_that_are_worth_more_than_the_invoice():
    add_seller({"CHF": 5})
    invoice = issued(swiss(), "10.06")
    note = note_of(invoice, 503)
    assert (note.rounding_minor, figures(invoice)[:3]) == (2, (1006, -1, 500))
    before = list(CreditNote.objects.values())
    with pytest.raises(DatabaseError, match="more than invoice"), transaction.atomic():
        _as_if_read_before(invoice)
    assert list(CreditNote.objects.values()) == before


def _as_if_read_before(invoice: Invoice) -> None:
    """Issue the note of a process that read the invoice before the first note."""
    note = CreditNote.objects.create(
        kind="requested", customer_id=invoice.customer_id, invoice_id=invoice.pk, currency="CHF", subtotal_minor=503, tax_minor=0,
        rounding_minor=2, amount_minor=505, left_minor=505, reason="agreed", actor="key:shop",
    )  # fmt: skip
    CreditNoteTax.objects.create(credit_note=note, category="Z", rate=0, base_minor=503, amount_minor=0)
    CreditNote.objects.filter(pk=note.pk).update(number="X-1", series="X", series_value=1)


# What documents say ----------------------------------------------------------------------------------


@needs_database
def test_the_pdf_and_the_e_invoice_have_the_rounding(api: ApiClient) -> None:
    add_seller({"EUR": 5})
    customer = CustomerFactory(address=BUYER_ADDRESS, vat_id="BE0123456749")
    invoice = issued(customer, "10.02")
    pdf = invoice_pdf(invoice.pk).content
    assert "Total EUR 10.02 Rounding −0.02 Amount due EUR 10.00" in text_of(pdf)
    assert amounts(xml_of(pdf), "GrandTotalAmount", "RoundingAmount", "DuePayableAmount") == ["10.02", "-0.02", "10.00"]
    note = note_of(invoice, 501)
    pdf = credit_note_pdf(note.pk).content
    assert "Rounding −0.01 Total EUR 5.00" in text_of(pdf)
    assert amounts(xml_of(pdf), "GrandTotalAmount", "RoundingAmount", "DuePayableAmount") == ["5.01", "-0.01", "5.00"]
    told = api.get(f"/v1/credit-notes/{note.pk}").json()
    assert (told["subtotal_minor"], told["rounding_minor"], told["total_minor"]) == (501, -1, 500)


@needs_database
def test_operators_see_it():
    add_seller({"CHF": 5})
    invoice = issued(swiss(), "10.02")
    note_of(invoice, 501)
    site = operator()
    assert "Rounding" in site.get(f"/admin/billing/invoice/{invoice.pk}/change/").content.decode()
    [row] = csv_rows(site, "/admin/billing/invoice/csv/")
    assert (row["Total"], row["Rounding"], row["Amount due"]) == ("10.02", "-0.02", "5.00")
    [row] = csv_rows(site, "/admin/billing/creditnote/csv/")
    assert (row["Rounding"], row["Total"]) == ("-0.01", "5.00")


# Tampering -------------------------------------------------------------------------------------------


@needs_database
def test_another_rounding_is_found():
    add_seller({"CHF": 5})
    invoice = issued(swiss(), "10.02")
    note = note_of(invoice, 501)
    as_owner(
        "UPDATE billing_invoice SET rounding_minor = 3, amount_due_minor = amount_due_minor + 5 WHERE id = %(invoice)s",
        "UPDATE billing_creditnote SET rounding_minor = 4, amount_minor = amount_minor + 5 WHERE id = %(note)s",
        invoice=invoice.pk,
        note=note.pk,
    )
    [of_invoice] = findings_of("rounding does not follow")
    [of_note] = findings_of("rounding of a credit note")
    assert of_invoice == f"invoice {invoice.pk}: 1002 was due in money, which the step of 5 rounds to 1000; the invoice adds 3"
    assert of_note == f"credit note {note.pk}: the notes of invoice {invoice.pk} so far round by 4, it must be -1"
