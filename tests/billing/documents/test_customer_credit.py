"""The credit of a customer: it pays invoices of any subscription, the oldest first, and is paid out by refunds."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.documents.credit_refunds import NewCreditRefund, deposit_in, refund_in
from billing.errors import InvoiceCorrectedLater, InvoiceCreditRefunded, RefundExceedsCredit
from billing.generator.options import Options
from billing.generator.run import runs
from billing.generator.run.outcomes import SubscriptionResult
from billing.models import CreditNote, CreditNoteUse, CreditRefund, Customer, Invoice, RequestKey, Subscription
from ledger.database.locks import sqlstate
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, transition
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db


def subscribed(customer: Customer, price: str, month: int = 4) -> Subscription:
    """A subscription of the customer at a price a month in advance, without tax."""
    plan = PlanFactory(prices=[recurring(unit_amount=price)])
    return SubscriptionFactory(plan=plan.code, customer=customer.ref, started_at=at(month))


def ended_halfway(customer: Customer) -> dict[str, Any]:
    """30.00 of April are paid, the subscription ends on the 16th: an invoice that carries 15.00."""
    subscription = subscribed(customer, "30.00")
    [paid] = bill(subscription, at(4, 1))
    transition(paid["id"], "pay")
    amend(subscription, at(4, 16), sets_end=True, ends_at=at(4, 16))
    [carrying] = bill(subscription, at(4, 16))
    assert (carrying["total_minor"], carrying["state"]) == (0, "paid")
    return carrying


def lefts(customer: Customer) -> list[tuple[str, int]]:
    """Kind and rest of the customer's notes and deposits, the oldest first."""
    return list(CreditNote.objects.filter(customer_id=customer.pk).order_by("pk").values_list("kind", "left_minor"))


def rows() -> list[Any]:
    """What a refused refund must leave as it was."""
    return [list(model.objects.order_by("pk").values()) for model in (CreditNote, CreditNoteUse, CreditRefund, RequestKey)]


def refund(customer: Customer, amount: int, **more: Any) -> CreditRefund:
    return refund_in(
        customer_ref=customer.ref, request=NewCreditRefund(amount_minor=amount, reason="left us", **more), actor="key:shop"
    )


# Paying invoices -------------------------------------------------------------------------------------


def test_credit_of_an_ended_subscription_pays_for_the_next_one():
    customer = CustomerFactory()
    ended_halfway(customer)
    [made] = bill(subscribed(customer, "40.00", 5), at(5, 1))
    assert (made["total_minor"], made["credit_notes_minor"], made["amount_due_minor"]) == (4000, 1500, 2500)
    assert lefts(customer) == [("carried", 0)]
    assert consistency.check() == []


def test_the_oldest_credit_pays_first_and_the_rest_waits():
    customer = CustomerFactory()
    ended_halfway(customer)
    deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=400, reference="payment 1", actor="test")
    [made] = bill(subscribed(customer, "17.00", 5), at(5, 1))
    assert (made["credit_notes_minor"], made["amount_due_minor"], made["state"]) == (1700, 0, "paid")
    assert lefts(customer) == [("carried", 0), ("deposit", 200)]
    assert consistency.check() == []


def test_credit_of_another_currency_or_customer_does_not_pay():
    customer = CustomerFactory()
    ended_halfway(customer)
    deposit_in(customer_id=customer.pk, currency="USD", amount_minor=9000, reference="", actor="test")
    [made] = bill(subscribed(CustomerFactory(), "40.00"), at(4, 1))
    assert made["amount_due_minor"] == 4000
    [made] = bill(subscribed(customer, "40.00", 5), at(5, 1))
    assert made["amount_due_minor"] == 2500
    assert lefts(customer) == [("carried", 0), ("deposit", 9000)]


def test_money_that_a_requested_note_gives_back_pays_for_another_subscription():
    customer = CustomerFactory()
    [paid] = bill(subscribed(customer, "30.00"), at(4, 1))
    transition(paid["id"], "pay")
    line = credit_notes.CreditLine(position=1, amount_minor=1000)
    credit_notes.issue_in(invoice_id=paid["id"], lines=[line], reason="outage", actor="test")
    assert lefts(customer) == [("requested", 1000)]
    [made] = bill(subscribed(customer, "40.00", 5), at(5, 1))
    assert made["amount_due_minor"] == 3000
    assert lefts(customer) == [("requested", 0)]
    assert consistency.check() == []


def test_a_dry_run_sets_the_credit_of_one_subscription_against_the_invoice_of_another_once():
    customer = CustomerFactory()
    ending, *others = [subscribed(customer, price) for price in ("30.00", "8.00", "10.00")]
    [paid] = bill(ending, at(4, 1))
    transition(paid["id"], "pay")
    amend(ending, at(4, 16), sets_end=True, ends_at=at(4, 16))
    dues: list[list[int]] = []
    for dry_run in (True, False):
        done: list[SubscriptionResult] = []
        refs = tuple(one.ref for one in [ending, *others])
        job = runs.job_for(Options(as_of=at(4, 16), dry_run=dry_run), subscriptions=refs)
        runs.run(job, on_done=done.append, on_tick=lambda _: None, stop=lambda: False)
        dues.append([invoice.amount_due_minor for one in done for invoice in one.invoices])
    # 15.00 come back: they pay all of 8.00, and 7.00 of 10.00.
    assert dues == [[0, 0, 300], [0, 0, 300]]
    assert lefts(customer) == [("carried", 0)]


def test_a_draft_takes_no_credit_until_it_is_finalised():
    customer = CustomerFactory()
    ended_halfway(customer)
    [draft] = bill(subscribed(customer, "40.00", 5), at(5, 1), finalize=False)
    assert (draft["amount_due_minor"], lefts(customer)) == (4000, [("carried", 1500)])
    transition(draft["id"], "finalize")
    assert Invoice.objects.get(pk=draft["id"]).amount_due_minor == 2500
    assert lefts(customer) == [("carried", 0)]


def test_voiding_an_invoice_gives_back_the_credit_that_it_took():
    customer = CustomerFactory()
    carrying = ended_halfway(customer)
    [made] = bill(subscribed(customer, "40.00", 5), at(5, 1))
    before = rows()
    with pytest.raises(InvoiceCorrectedLater) as refused:
        transition(carrying["id"], "void")
    assert refused.value.facts["by"] == made["id"]
    assert rows() == before
    transition(made["id"], "void")
    assert lefts(customer) == [("carried", 1500)]
    transition(carrying["id"], "void")
    assert not CreditNote.objects.filter(customer_id=customer.pk, released_at=None).exists()
    assert consistency.check() == []


# Refunds ---------------------------------------------------------------------------------------------


def test_credit_is_paid_out_over_rest_once_and_never_more_than_is_left(api: ApiClient):
    customer = CustomerFactory()
    carrying = ended_halfway(customer)
    [note] = CreditNote.objects.filter(customer_id=customer.pk)
    path = f"/v1/customers/{customer.ref}/credit-refunds"
    balance = api.get(f"/v1/customers/{customer.ref}/credit-balance").json()
    [of_currency] = balance["balances"]
    [shown] = of_currency.pop("credit")
    assert of_currency == {"currency": "EUR", "balance_minor": 1500}
    assert shown.pop("recorded_at")
    assert shown == {
        "credit_note": note.pk, "kind": "carried", "number": None, "invoice": carrying["id"],
        "subscription": carrying["subscription"], "reference": "", "amount_minor": 1500, "left_minor": 1500,
    }  # fmt: skip

    before = [CreditRefund.objects.count(), lefts(customer)]
    refused = api.post(path, {"amount_minor": 2000, "reason": "left us"})
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (409, "refund-exceeds-credit")
    assert (refused.json()["left_minor"], refused.json()["requested_minor"]) == (1500, 2000)
    assert api.post(f"{path}?dry_run=true", {"amount_minor": 600, "reason": "left us"}).status_code == 200
    assert [CreditRefund.objects.count(), lefts(customer)] == before

    body = {"amount_minor": 600, "reason": "left us", "reference": "transfer 4711"}
    first, again = (api.post(path, body, key="one") for _ in range(2))
    made = dict(first.json())
    assert (first.status_code, again.json()) == (201, made)
    assert made.pop("recorded_at")
    assert made == {
        "id": made["id"], "customer": customer.ref, "currency": "EUR", "amount_minor": 600, "reason": "left us",
        "reference": "transfer 4711", "actor": "key:shop", "invoice": None,
        "taken_from": [{"credit_note": note.pk, "kind": "carried", "number": None, "amount_minor": 600}],
    }  # fmt: skip
    assert api.get(path).json()["results"] == [first.json()]
    assert api.get(f"/v1/credit-notes/{note.pk}").json()["left_minor"] == 900
    [invoice] = bill(subscribed(customer, "40.00", 5), at(5, 1))
    assert invoice["amount_due_minor"] == 3100
    assert api.get(f"/v1/customers/{customer.ref}/credit-balance").json()["balances"] == []
    assert consistency.check() == []


def test_a_refund_takes_the_oldest_credit_first_or_that_of_one_note():
    customer = CustomerFactory()
    ended_halfway(customer)
    first, second = (
        deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=400, reference="payment", actor="test") for _ in range(2)
    )
    refund(customer, 1600)
    assert lefts(customer) == [("carried", 0), ("deposit", 300), ("deposit", 400)]
    refund(customer, 350, credit_note=second.pk)
    assert lefts(customer) == [("carried", 0), ("deposit", 300), ("deposit", 50)]
    before = rows()
    for note, too_much in ((first, 301), (second, 51)):
        with pytest.raises(RefundExceedsCredit):
            refund(customer, too_much, credit_note=note.pk)
    assert rows() == before
    assert consistency.check() == []


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"credit_note": 10**9}, "/credit_note"),
        ({"currency": "USD", "credit_note": None}, "/currency"),
        ({"reason": " "}, "/reason"),
    ],
)
def test_a_refund_that_names_what_is_not_there_is_refused(more: dict[str, Any], pointer: str):
    customer = CustomerFactory()
    ended_halfway(customer)
    [note] = CreditNote.objects.filter(customer_id=customer.pk)
    if "currency" in more:
        more = more | {"credit_note": note.pk}
    before = rows()
    with pytest.raises(Invalid) as refused:
        refund_in(
            customer_ref=customer.ref, request=NewCreditRefund(**{"amount_minor": 1, "reason": "r"} | more), actor="key:shop"
        )
    assert refused.value.facts["pointer"] == pointer
    assert rows() == before


def test_an_invoice_whose_credit_was_paid_out_cannot_be_voided(api: ApiClient):
    customer = CustomerFactory()
    carrying = ended_halfway(customer)
    refund(customer, 100)
    before = rows()
    with pytest.raises(InvoiceCreditRefunded):
        transition(carrying["id"], "void")
    assert rows() == before
    refused = api.post(f"/v1/invoices/{carrying['id']}/void", {})
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (409, "invalid-transition")
    assert "was paid out" in refused.json()["detail"]


@pytest.mark.slow
@pytest.mark.check
def test_credit_is_paid_out_in_the_admin():
    customer = CustomerFactory()
    ended_halfway(customer)
    client = operator("billing.refund_credit", "billing.view_customer", "billing.view_creditnote")
    page = f"/admin/billing/customer/{customer.pk}/change/"
    assert "15.00 EUR of credit pays next invoices." in client.get(page).content.decode()
    form = f"/admin/billing/customer/{customer.pk}/pay-out/"
    typed = {"amount": "6.00", "reference": "transfer 4711", "reason": "left us"}
    sent = typed | {"idempotency_key": hidden_key(client.get(form).content.decode())}
    too_much = client.post(form, sent | {"amount": "15.01"}).content.decode()
    assert "The refund exceeds the credit" in too_much
    shown = client.post(form, sent).content.decode()
    assert f"6.00 EUR of the credit of {customer.ref} was paid out in money. 9.00 EUR is left." in shown
    assert CreditRefund.objects.count() == 0
    for _ in range(2):
        assert client.post(form, sent | {"confirmed": "1"}).status_code == 302
    [made] = CreditRefund.objects.values_list("amount_minor", "reference", "reason", "actor")
    assert made == (600, "transfer 4711", "left us", "admin:mara")
    assert "9.00 EUR of credit pays next invoices." in client.get(page).content.decode()
    [note] = CreditNote.objects.filter(customer_id=customer.pk)
    assert "transfer 4711" in client.get(f"/admin/billing/creditnote/{note.pk}/change/").content.decode()
    of_note = f"/admin/billing/creditnote/{note.pk}/pay-out/"
    key = hidden_key(client.get(of_note).content.decode())
    rest = {"amount": "9.00", "reason": "the rest", "idempotency_key": key, "confirmed": "1"}
    assert client.post(of_note, rest).status_code == 302
    assert lefts(customer) == [("carried", 0)]


def test_a_currency_in_the_address_that_billing_does_not_know_is_not_found():
    customer = CustomerFactory()
    client = operator("billing.refund_credit", "billing.view_customer")
    for currency in ("XXX", "eur", "", "\x00"):
        assert client.get(f"/admin/billing/customer/{customer.pk}/pay-out/?currency={currency}").status_code == 404, currency
    assert client.get(f"/admin/billing/customer/{customer.pk}/pay-out/?currency=JPY").status_code == 200


# In the database -------------------------------------------------------------------------------------


def test_the_database_keeps_the_rest_of_a_note():
    customer = CustomerFactory()
    ended_halfway(customer)
    [note] = CreditNote.objects.filter(customer_id=customer.pk)
    for code, change in (
        ("23514", lambda: CreditNoteUse.objects.create(credit_note=note, invoice_id=1, amount_minor=1501)),
        ("LG001", lambda: CreditNote.objects.filter(pk=note.pk).update(left_minor=1)),
        ("LG001", lambda: CreditNote.objects.filter(pk=note.pk).update(customer_id=1)),
        ("LG001", lambda: CreditRefund.objects.filter(pk=refund(customer, 1).pk).update(amount_minor=2)),
    ):
        with pytest.raises(DatabaseError) as refused, transaction.atomic():
            change()
        assert sqlstate(refused.value) == code
    assert lefts(customer) == [("carried", 1500)]


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("UPDATE billing_creditnote SET left_minor = 7", "rest of a credit note does not follow from its uses"),
        ("UPDATE billing_creditnote SET customer_id = 0", "credit of another customer or currency"),
        ("UPDATE billing_creditrefund SET currency = 'USD'", "credit of another customer or currency"),
        ("UPDATE billing_creditrefund SET amount_minor = 7", "refund does not follow from what was taken from credit"),
        ("DELETE FROM billing_creditrefund", "refund does not follow from what was taken from credit"),
    ],
)
def test_the_check_finds_what_was_changed(sql: str, finding: str):
    customer = CustomerFactory()
    ended_halfway(customer)
    refund(customer, 100)
    assert consistency.check() == []
    with connection.cursor() as cursor:
        for table in ("billing_creditnote", "billing_creditrefund"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(sql)
    assert findings_of(finding)
