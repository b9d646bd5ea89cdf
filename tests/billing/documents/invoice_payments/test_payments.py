"""An invoice is paid when its payments cover it; too much becomes credit; what goes back is due again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from billing import reads
from billing.auditing import consistency
from billing.documents import credit_notes, invoice_payments
from billing.documents.credit_refunds import NewCreditRefund, refund_in
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.documents.sellers import record_seller
from billing.errors import AlreadyExists, InvalidTransition, InvoicePartlyPaid, NotFound, PaymentNotMatched, ReturnExceedsPayment
from billing.models import CreditNote, Customer, Invoice, InvoicePayment, PaymentReturn
from ledger.errors import Invalid
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, transition, unique
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


def issued(price: str = "100.00", customer: Any = None, currency: str = "EUR", **options: Any) -> Invoice:
    """An open invoice, without tax."""
    customer = customer or CustomerFactory(currency=currency)
    plan = PlanFactory(currency=currency, prices=[recurring(unit_amount=price)])
    [made] = bill(SubscriptionFactory(plan=plan.code, customer=customer.ref), at(1, 1), **options)
    return Invoice.objects.get(pk=made["id"])


def pay(invoice: Invoice, amount_minor: int, /, **more: Any) -> InvoicePayment:
    return record_payment(
        **{"invoice": invoice.pk, "payment": unique("pay"), "amount_minor": amount_minor, "actor": "key:bank", **more}
    )


def send_back(paid: InvoicePayment, kind: str = "refund", /, **more: Any) -> PaymentReturn:
    return record_payment_return(**{"invoice_payment": paid.pk, "kind": kind, "payment": unique("re"), **more})


def now_of(invoice: Invoice) -> tuple[str, int, int, int]:
    """State, amount due, amount paid and what remains."""
    invoice.refresh_from_db()
    return (invoice.state, invoice.amount_due_minor, invoice.amount_paid_minor, invoice.amount_remaining_minor)


def customer_of(invoice: Invoice) -> Customer:
    return Customer.objects.get(pk=invoice.customer_id)


def deposits(invoice: Invoice) -> list[tuple[int, int]]:
    """Amount and rest of the deposits of the customer."""
    rows = CreditNote.objects.filter(customer_id=invoice.customer_id, kind="deposit").order_by("pk")
    return list(rows.values_list("amount_minor", "left_minor"))


def rows() -> list[Any]:
    """What a refused request must leave as it was."""
    return [list(model.objects.order_by("pk").values()) for model in (Invoice, InvoicePayment, PaymentReturn, CreditNote)]


@pytest.fixture(autouse=True)
def _sound() -> Any:
    """After each test, billing's checks find nothing."""
    yield
    assert consistency.check() == []


# Payments --------------------------------------------------------------------------------------------


def test_an_invoice_is_paid_when_its_payments_cover_it() -> None:
    invoice = issued()
    first = pay(invoice, 4000)
    assert (first.applied_minor, first.deposit_id) == (4000, None)
    assert now_of(invoice) == ("open", 10000, 4000, 6000)
    assert invoice.paid_at is None
    pay(invoice, 5999)
    assert now_of(invoice) == ("open", 10000, 9999, 1)
    pay(invoice, 1)
    assert now_of(invoice) == ("paid", 10000, 10000, 0)
    assert invoice.paid_at is not None
    shown = reads.invoice_document(invoice.pk)
    assert [shown[f"amount_{name}_minor"] for name in ("due", "paid", "remaining")] == [10000, 10000, 0]


def test_what_is_too_much_becomes_a_deposit_and_pays_the_next_invoice() -> None:
    invoice = issued()
    paid = pay(invoice, 12500)
    assert (paid.applied_minor, now_of(invoice)) == (10000, ("paid", 10000, 10000, 0))
    assert deposits(invoice) == [(2500, 2500)]
    again = pay(invoice, 300)
    assert (again.applied_minor, deposits(invoice)) == (0, [(2500, 2500), (300, 300)])
    following = issued(customer=customer_of(invoice))
    assert now_of(following) == ("open", 7200, 0, 7200)


def test_the_same_payment_again_returns_the_first_and_another_content_is_refused() -> None:
    invoice = issued()
    paid = pay(invoice, 4000, payment="p-1", provider="bank", reference="thanks")
    same = {"payment": "p-1", "provider": "bank", "reference": "thanks"}
    assert pay(invoice, 4000, **same).pk == paid.pk
    assert pay(invoice, 4000, invoice=None, **same).pk == paid.pk
    other = issued()
    before = rows()
    for change in ({"amount_minor": 4001}, {"reference": "x"}, {"invoice": other.pk}, {"currency": "USD"},
                   {"paid_at": datetime(2026, 1, 2, tzinfo=UTC)}):  # fmt: skip
        with pytest.raises(AlreadyExists) as refused:
            pay(invoice, 4000, **{**same, **change})
        assert refused.value.facts["ref"] == str(paid.pk)
    assert rows() == before
    assert now_of(other)[2] == 0
    pay(invoice, 1, payment="p-1", provider="paypal")
    assert now_of(invoice)[2] == 4001


def test_a_draft_another_currency_and_no_invoice_are_refused_and_nothing_is_written() -> None:
    draft, invoice = issued(finalize=False), issued()
    before = rows()
    with pytest.raises(InvalidTransition):
        pay(draft, 100)
    with pytest.raises(Invalid) as wrong:
        pay(invoice, 100, currency="USD")
    assert wrong.value.facts["pointer"] == "/currency"
    with pytest.raises(NotFound):
        pay(invoice, 100, invoice=10**15)
    with pytest.raises(Invalid) as late:
        pay(invoice, 100, paid_at=timezone.now() + timedelta(days=1))
    assert late.value.facts["pointer"] == "/paid_at"
    for amount in (0, -1, 2**53):
        with pytest.raises(Invalid):
            pay(invoice, amount)
    assert rows() == before


def test_an_uncollectible_invoice_can_be_paid_in_parts() -> None:
    invoice = issued()
    transition(invoice.pk, "mark_uncollectible")
    paid = pay(invoice, 4000)
    assert now_of(invoice) == ("uncollectible", 10000, 4000, 6000)
    pay(invoice, 6000)
    assert now_of(invoice) == ("paid", 10000, 10000, 0)
    send_back(paid)
    assert now_of(invoice) == ("uncollectible", 10000, 6000, 4000)


def test_money_for_a_void_invoice_is_credit() -> None:
    invoice = issued()
    transition(invoice.pk, "void")
    paid = pay(invoice, 10000)
    assert (paid.applied_minor, now_of(invoice)) == (0, ("void", 10000, 0, 0))
    assert deposits(invoice) == [(10000, 10000)]
    send_back(paid, amount_minor=4000)
    assert deposits(invoice) == [(10000, 6000)]


def test_a_partly_paid_invoice_is_not_voided() -> None:
    invoice = issued()
    paid = pay(invoice, 4000)
    before = rows()
    with pytest.raises(InvoicePartlyPaid) as refused:
        transition(invoice.pk, "void")
    assert refused.value.facts["paid_minor"] == 4000
    assert rows() == before
    send_back(paid)
    transition(invoice.pk, "void")
    assert now_of(invoice)[0] == "void"


def test_marked_as_paid_is_a_payment_of_what_is_due() -> None:
    invoice = issued()
    pay(invoice, 4000)
    transition(invoice.pk, "pay")
    [_, marked] = InvoicePayment.objects.filter(invoice_id=invoice.pk).order_by("pk")
    assert (marked.amount_minor, marked.provider, marked.actor) == (6000, "manual", "test")
    assert now_of(invoice) == ("paid", 10000, 10000, 0)
    before = rows()
    with pytest.raises(InvalidTransition):
        transition(invoice.pk, "pay")
    assert rows() == before
    send_back(marked)
    transition(invoice.pk, "pay")
    assert now_of(invoice) == ("paid", 10000, 10000, 0)


@pytest.mark.parametrize(
    ("currency", "price", "minor"), [("JPY", "1", 1), ("KWD", "0.001", 1), ("EUR", "90071992547.40", 9007199254740)]
)
def test_the_smallest_and_large_amounts_are_exact(currency: str, price: str, minor: int) -> None:
    invoice = issued(price, currency=currency)
    pay(invoice, minor)
    assert now_of(invoice) == ("paid", minor, minor, 0)
    pay(invoice, 2**53 - 1)
    assert deposits(invoice) == [(2**53 - 1, 2**53 - 1)]


# By the number ---------------------------------------------------------------------------------------


def test_without_an_invoice_its_number_is_searched_in_the_text() -> None:
    record_seller(
        SELLER | {"ref": "fern", "invoice_prefix": "FERN", "credit_note_prefix": "FCN", "numbers_per_year": True}, actor="t"
    )
    invoice = issued()
    fern = issued(customer=CustomerFactory(seller="fern"))
    assert fern.number is not None
    assert invoice.number is not None
    assert (
        record_payment(payment="a", amount_minor=1, reference=f"re {invoice.number.replace('-', ' ')}").invoice_id == invoice.pk
    )
    assert record_payment(payment="b", amount_minor=1, reference=fern.number.lower()).invoice_id == fern.pk
    before = rows()
    for text, named in ((f"{invoice.number} {fern.number}", [invoice.pk, fern.pk]), ("no number", []), ("", [])):
        with pytest.raises(PaymentNotMatched) as refused:
            record_payment(payment="c", amount_minor=1, reference=text)
        assert refused.value.facts["invoices"] == named
    assert rows() == before


# Money that went back --------------------------------------------------------------------------------


def test_returned_money_is_due_again() -> None:
    invoice = issued()
    paid = pay(invoice, 10000)
    back = send_back(paid, "dispute", amount_minor=3000)
    assert (back.credit_minor, back.reopened_minor, back.claim_minor) == (0, 3000, 0)
    assert now_of(invoice) == ("open", 10000, 7000, 3000)
    assert invoice.paid_at is None
    before = rows()
    for amount in (7001, 10000):
        with pytest.raises(ReturnExceedsPayment) as refused:
            send_back(paid, amount_minor=amount)
        assert refused.value.facts["returnable_minor"] == 7000
    assert rows() == before
    send_back(paid)
    assert now_of(invoice) == ("open", 10000, 0, 10000)
    with pytest.raises(ReturnExceedsPayment):
        send_back(paid)
    pay(invoice, 10000)
    assert now_of(invoice)[0] == "paid"


def test_the_same_return_again_returns_the_first() -> None:
    invoice = issued()
    paid = pay(invoice, 10000)
    back = send_back(paid, payment="re-1", amount_minor=100)
    assert send_back(paid, payment="re-1", amount_minor=100).pk == back.pk
    assert send_back(paid, payment="re-1").pk == back.pk
    with pytest.raises(AlreadyExists):
        send_back(paid, payment="re-1", amount_minor=101)
    assert send_back(paid, "dispute", payment="re-1", amount_minor=101).pk != back.pk
    assert now_of(invoice) == ("open", 10000, 9799, 201)


def test_a_return_first_takes_the_deposit_that_the_money_had_become() -> None:
    invoice = issued()
    paid = pay(invoice, 12500)
    back = send_back(paid, amount_minor=2000)
    assert (back.credit_minor, back.reopened_minor) == (2000, 0)
    assert (now_of(invoice)[0], deposits(invoice)) == ("paid", [(2500, 500)])
    back = send_back(paid)
    assert (back.amount_minor, back.credit_minor, back.reopened_minor) == (10500, 500, 10000)
    assert now_of(invoice) == ("open", 10000, 0, 10000)


def test_what_became_credit_and_is_gone_is_a_claim() -> None:
    invoice = issued()
    paid = pay(invoice, 12500)
    customer = customer_of(invoice)
    refund_in(customer_ref=customer.ref, request=NewCreditRefund(amount_minor=2500, reason="r"), actor="t")
    back = send_back(paid, "dispute")
    assert (back.credit_minor, back.reopened_minor, back.claim_minor) == (0, 10000, 2500)


def test_a_refund_of_a_credited_invoice_takes_the_credit_and_nothing_is_due_again() -> None:
    invoice = issued()
    paid = pay(invoice, 10000)
    credit_notes.issue_in(
        invoice_id=invoice.pk, reason="r", actor="t", lines=[credit_notes.CreditLine(position=1, amount_minor=3000)]
    )
    back = send_back(paid, amount_minor=3000)
    assert (back.credit_minor, back.reopened_minor) == (3000, 0)
    assert now_of(invoice) == ("paid", 10000, 10000, 0)
    assert not CreditNote.objects.filter(customer_id=invoice.customer_id, left_minor__gt=0).exists()
    send_back(paid)
    assert now_of(invoice) == ("open", 10000, 3000, 7000)
    with pytest.raises(ReturnExceedsPayment):
        send_back(paid)
    credit_notes.issue_in(invoice_id=invoice.pk, reason="r", actor="t")
    assert now_of(invoice) == ("paid", 3000, 3000, 0)


def test_a_credit_note_lowers_what_is_still_due_and_credits_what_was_paid() -> None:
    invoice = issued()
    pay(invoice, 6000)
    note = credit_notes.issue_in(
        invoice_id=invoice.pk, reason="r", actor="t", lines=[credit_notes.CreditLine(position=1, amount_minor=5000)]
    )
    assert now_of(invoice) == ("paid", 6000, 6000, 0)
    assert CreditNote.objects.get(pk=note.pk).left_minor == 1000


# The database ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "state = 'paid', paid_at = now()",
        "amount_paid_minor = 4001",
        "amount_paid_minor = 4001, payment_changes = payment_changes + 1",
        "payment_changes = payment_changes + 1",
        "payment_changes = payment_changes + 1, state = 'paid'",
        "amount_paid_minor = 10000, payment_changes = payment_changes + 1, state = 'paid'",
        "state = 'void', voided_at = now()",
    ],
)
def test_the_database_refuses_a_state_that_does_not_follow_from_the_payments(change: str) -> None:
    invoice = issued()
    pay(invoice, 4000)
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE billing_invoice SET {change} WHERE id = %s", [invoice.pk])
    assert now_of(invoice) == ("open", 10000, 4000, 6000)


def test_the_database_refuses_a_second_payment_with_the_id_and_a_change_of_one() -> None:
    paid = pay(issued(), 4000)
    copy = InvoicePayment.objects.get(pk=paid.pk)
    copy.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save()
    with pytest.raises(DatabaseError), transaction.atomic():
        InvoicePayment.objects.filter(pk=paid.pk).update(amount_minor=1)
    with pytest.raises(DatabaseError), transaction.atomic():
        InvoicePayment.objects.filter(pk=paid.pk).delete()


@pytest.mark.parametrize(
    ("finding", "table", "change"),
    [
        ("amount paid does not follow from the payments", "invoicepayment", "applied_minor = 3000, deposit_id = 1"),
        ("payment is not of its invoice", "invoicepayment", "currency = 'USD'"),
        ("rest of a payment is not its deposit", "invoicepayment", "applied_minor = 3000, deposit_id = 1"),
        ("return of a payment does not add up", "paymentreturn", "credit_minor = 100, reopened_minor = 0, credit_refund_id = 0"),
        ("more of a payment went back than came in", "paymentreturn", "amount_minor = 5000, reopened_minor = 5000"),
        ("state does not follow from the transitions", "invoice", "state = 'uncollectible', uncollectible_at = now()"),
    ],
)  # fmt: skip
def test_the_check_finds_payments_that_were_changed(finding: str, table: str, change: str) -> None:
    send_back(pay(issued(), 4000), amount_minor=100)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE billing_{table} DISABLE TRIGGER USER")
            cursor.execute(f"UPDATE billing_{table} SET {change}")
        found = {one["finding"] for one in consistency.check()}
        transaction.set_rollback(True)
    assert finding in found


def test_invoices_pay_still_marks_as_paid() -> None:
    invoice = issued()
    assert invoice_payments.pay_rest(invoice.pk).state == "paid"


# Due days --------------------------------------------------------------------------------------------


def test_a_new_customer_has_the_days_to_pay_of_its_seller() -> None:
    assert CustomerFactory().terms_days == 30
    record_seller(SELLER | {"terms_days": 14}, actor="t")
    assert (CustomerFactory().terms_days, CustomerFactory(terms_days=0).terms_days) == (14, 0)
    invoice = issued()
    assert invoice.due_date is not None
    assert invoice.issue_date is not None
    assert (invoice.due_date - invoice.issue_date).days == 14


def test_overdue_invoices_are_listed_until_they_are_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    invoice, later = issued(customer=CustomerFactory(terms_days=0)), issued()
    tomorrow = timezone.now() + timedelta(days=1)
    monkeypatch.setattr("billing.reads.documents.timezone.now", lambda: tomorrow)

    def listed(overdue: bool) -> set[int]:
        return {one["id"] for one in reads.invoices(overdue=overdue, limit=50)} & {invoice.pk, later.pk}

    assert (listed(True), listed(False)) == ({invoice.pk}, {later.pk})
    pay(invoice, 4000)
    assert listed(True) == {invoice.pk}
    pay(invoice, 6000)
    assert (listed(True), listed(False)) == (set(), {invoice.pk, later.pk})
