"""`generate_invoices --check` where billing and the ledger say something of each other: break it, and see it found."""

from decimal import Decimal

import pytest

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.models import Claim, CreditNote, CreditPayment
from billing.orders.customers import NewCredits
from ledger import services
from tests.billing.documents.test_credit_notes import _as_owner, issue_note
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, transition, unique
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


@pytest.fixture
def paid_with_credits():
    """An invoice of 12.00 of which 500 credits paid 5.00, and the holder, who also gets 100 credits a month."""
    holder = unique("holder")
    services.grant(holder_id=holder, amount=500, idempotency_key="first")
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    allowance = {"credit_type": "credits", "amount": 100, "rollover_cap": 100}
    plan = PlanFactory(prices=[recurring(tax_rate="20")], allowance=allowance)
    subscription = SubscriptionFactory(customer=CustomerFactory(holder_id=holder, credits=terms).ref, plan=plan.code)
    [invoice] = bill(subscription, at(1, 1))
    return holder, invoice["id"]


def findings_of_the_check():
    """The findings but those about digests of documents, which cover the payments too: see test_tampering.py."""
    return [(one["finding"], one["what"]) for one in consistency.check() if one["finding"] != "digest of a document"]


def test_ordinary_life_is_no_finding(paid_with_credits):
    _, invoice_id = paid_with_credits
    credit_notes.issue_in(invoice_id=invoice_id, reason="x", actor="test")
    assert consistency.check() == []


def test_a_payment_that_the_ledger_does_not_have(paid_with_credits):
    holder, invoice_id = paid_with_credits
    CreditPayment.objects.filter(invoice_id=invoice_id).update(spend_sequence=77)
    assert findings_of_the_check() == [
        ("missing in the ledger", f"payment of invoice {invoice_id}: no spend 77 of {holder} in credits")
    ]


def test_a_payment_that_names_an_entry_of_another_kind_is_reported(paid_with_credits):
    holder, invoice_id = paid_with_credits
    CreditPayment.objects.filter(invoice_id=invoice_id).update(spend_sequence=1)
    assert findings_of_the_check() == [
        ("missing in the ledger", f"payment of invoice {invoice_id}: no spend 1 of {holder} in credits")
    ]


def test_a_return_that_the_ledger_does_not_have(paid_with_credits):
    holder, invoice_id = paid_with_credits
    transition(invoice_id, "void")
    assert findings_of_the_check() == []
    CreditPayment.objects.filter(invoice_id=invoice_id).update(refund_sequence=78)
    assert findings_of_the_check() == [
        ("missing in the ledger", f"payment of invoice {invoice_id}, given back: no refund 78 of {holder} in credits")
    ]


def test_a_return_by_a_credit_note_that_the_ledger_does_not_have(paid_with_credits):
    holder, invoice_id = paid_with_credits
    note = issue_note(invoice_id)
    assert note.credits_returned == 500
    _as_owner("billing_creditnote")
    CreditNote.objects.update(refund_sequence=79)
    assert findings_of_the_check() == [("missing in the ledger", f"credit note {note.pk}: no refund 79 of {holder} in credits")]


def test_an_allowance_that_the_ledger_does_not_have(paid_with_credits):
    holder, _ = paid_with_credits
    claim = Claim.objects.get(kind=Claim.Kind.ALLOWANCE)
    Claim.objects.filter(pk=claim.pk).update(snapshot={**claim.snapshot, "grant": 80})
    assert findings_of_the_check() == [
        ("missing in the ledger", f"allowance claim {claim.pk}: no grant 80 of {holder} in credits")
    ]


def test_entries_of_an_invoice_that_does_not_exist(paid_with_credits):
    holder, _ = paid_with_credits
    services.grant(holder_id=holder, amount=5, idempotency_key="a", actor="key:shop", reference="invoice 123456789")
    assert findings_of_the_check() == []
    for key, reference in (("b", "invoice 123456789"), ("c", "invoice of mine")):
        services.grant(holder_id=holder, amount=5, idempotency_key=key, actor="billing", reference=reference)
    assert findings_of_the_check() == [
        ("unknown to billing", f"an entry of {holder} is of {reference}, which does not exist")
        for reference in ("invoice 123456789", "invoice of mine")
    ]
