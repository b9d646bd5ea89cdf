"""An end that refunds pays out unused time as far as money paid for it, once; the rest stays credit."""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.documents.unused_time import PaidInvoice, money_shares
from billing.errors import InvoiceCreditRefunded
from billing.models import CreditNote, CreditNoteUse, CreditRefund, Subscription
from billing.orders.customers import NewCredits
from billing.orders.item_versions import UnusedTime
from billing.reads import invoice_document
from ledger import services
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    amend,
    at,
    metered,
    recurring,
    transition,
    use,
)
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db


def in_april(*more: dict[str, Any], price: str = "30.00", **of_customer: Any) -> tuple[Subscription, dict[str, Any]]:
    """A subscription in advance from April on, and its first invoice."""
    plan = PlanFactory(prices=[recurring(unit_amount=price, model="unit"), *more])
    subscription = SubscriptionFactory(plan=plan.code, customer=CustomerFactory(**of_customer).ref, started_at=at(4))
    [first] = bill(subscription, at(4, 1))
    return subscription, first


def ends(subscription: Subscription, instant: datetime | None = None) -> None:
    instant = instant or at(4, 16)
    amend(subscription, instant, sets_end=True, ends_at=instant, unused_time=UnusedTime.REFUND)


def lefts(subscription: Subscription) -> list[int]:
    return list(CreditNote.objects.filter(subscription_id=subscription.pk).order_by("pk").values_list("left_minor", flat=True))


def test_unused_time_that_was_paid_in_money_is_paid_out_once():
    subscription, first = in_april()
    transition(first["id"], "pay")
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    assert (last["total_minor"], last["state"], last["refunded_minor"]) == (0, "paid", 1500)
    [refund] = CreditRefund.objects.filter(invoice_id=last["id"])
    assert (refund.amount_minor, refund.actor, refund.reason) == (1500, "billing", f"Unused time of {subscription.ref}")
    assert lefts(subscription) == [0]
    assert bill(subscription, at(5, 1)) == []
    assert CreditRefund.objects.filter(customer_id=subscription.customer_id).count() == 1
    assert consistency.check() == []


def test_the_rest_that_prepaid_credits_paid_stays_credit():
    services.grant(holder_id="two-thirds", amount=1000, idempotency_key="g")
    pays = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    subscription, first = in_april(holder_id="two-thirds", credits=pays)
    assert (first["credits_applied_minor"], first["amount_due_minor"]) == (1000, 2000)
    transition(first["id"], "pay")
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    assert (last["refunded_minor"], lefts(subscription)) == (1000, [500])
    assert consistency.check() == []


@pytest.mark.parametrize("move", [None, "mark_uncollectible"])
def test_what_nobody_has_paid_is_not_paid_out(move):
    subscription, first = in_april()
    if move:
        transition(first["id"], move)
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    assert (last["refunded_minor"], lefts(subscription)) == (0, [1500])
    assert not CreditRefund.objects.filter(customer_id=subscription.customer_id).exists()


def test_the_charges_of_the_last_invoice_come_first():
    subscription, first = in_april(metered(unit_amount="0.04"))
    transition(first["id"], "pay")
    use(subscription, "100", at(4, 10))
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    assert (last["total_minor"], last["refunded_minor"], lefts(subscription)) == (0, 1100, [0])


def test_credits_on_an_invoice_pay_for_its_charges_with_the_money_behind_them():
    subscription, first = in_april()
    transition(first["id"], "pay")
    amend(subscription, at(4, 11), quantities={"base": Decimal(2)})
    [changed] = bill(subscription, at(4, 11))
    assert changed["amount_due_minor"] == 2000
    transition(changed["id"], "pay")
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    assert last["refunded_minor"] == 3000
    assert consistency.check() == []


def test_only_the_credit_of_the_end_is_paid_out_not_that_of_an_earlier_change():
    subscription, first = in_april(price="60.00")
    transition(first["id"], "pay")
    amend(subscription, at(4, 11), quantities={"base": Decimal("0.5")})
    ends(subscription, at(4, 21))
    [last] = bill(subscription, at(4, 21))
    # From the change to the end 20.00 is back and 10.00 charged; the 20.00 after the end are paid out.
    assert sorted(line["amount_minor"] for line in last["lines"]) == [-2000, -2000, 1000, 3000]
    assert [line["rating"].get("unused_time") for line in last["lines"] if line["kind"] == "credit"] == [None, "refund"]
    assert (last["refunded_minor"], lefts(subscription)) == (2000, [1000])


def test_a_credit_note_by_request_gave_the_money_back_first():
    services.grant(holder_id="noted", amount=1000, idempotency_key="g")
    pays = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    subscription, first = in_april(holder_id="noted", credits=pays)
    transition(first["id"], "pay")
    line = credit_notes.CreditLine(position=1, amount_minor=1500)
    credit_notes.issue_in(invoice_id=first["id"], lines=[line], reason="outage", actor="test")
    ends(subscription, at(4, 1))
    [last] = bill(subscription, at(4, 16))
    # 5.00 of the 20.00 in money are left, of 15.00 in all.
    assert (last["refunded_minor"], lefts(subscription)) == (500, [1500, 1000])


def test_an_end_at_the_start_refunds_everything_with_its_tax():
    plan = PlanFactory(prices=[recurring(unit_amount="0.03", tax_rate="19")])
    subscription = SubscriptionFactory(plan=plan.code, started_at=at(4))
    [first] = bill(subscription, at(4, 1))
    assert first["total_minor"] == 4
    transition(first["id"], "pay")
    ends(subscription, at(4, 1))
    [last] = bill(subscription, at(4, 2))
    assert last["refunded_minor"] == 4
    assert consistency.check() == []


def test_a_draft_refunds_nothing_until_it_is_final():
    subscription, first = in_april()
    transition(first["id"], "pay")
    ends(subscription)
    [draft] = bill(subscription, at(4, 16), finalize=False)
    assert (draft["refunded_minor"], CreditRefund.objects.filter(customer_id=subscription.customer_id).count()) == (0, 0)
    transition(draft["id"], "finalize")
    assert invoice_document(draft["id"])["refunded_minor"] == 1500


def test_a_reactivation_refunds_nothing_and_the_refund_stays():
    subscription, first = in_april()
    transition(first["id"], "pay")
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    with pytest.raises(InvoiceCreditRefunded):
        transition(last["id"], "void")
    amend(subscription, at(4, 21), sets_end=True)
    [again] = bill(subscription, at(4, 21))
    assert (again["total_minor"], again["amount_due_minor"], again["refunded_minor"]) == (1000, 1000, 0)
    assert list(CreditRefund.objects.filter(customer_id=subscription.customer_id).values_list("amount_minor")) == [(1500,)]


def test_the_database_refuses_a_second_refund_of_an_invoice_and_the_check_finds_one_that_is_too_large():
    subscription, first = in_april()
    transition(first["id"], "pay")
    ends(subscription)
    [last] = bill(subscription, at(4, 16))
    refund = {"customer_id": subscription.customer_id, "currency": "EUR", "amount_minor": 1, "reason": "r", "actor": "a"}
    with pytest.raises(IntegrityError), transaction.atomic():
        CreditRefund.objects.create(**refund, invoice_id=last["id"])
    assert CreditRefund.objects.filter(invoice_id=last["id"]).count() == 1
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE billing_creditrefund DISABLE TRIGGER ALL")
        CreditRefund.objects.create(**refund, invoice_id=first["id"])
        assert findings_of("refund of unused time that its invoice does not give back")
        transaction.set_rollback(True)


def test_a_dry_run_and_the_preview_say_what_the_run_pays_out(api):
    subscription, first = in_april()
    transition(first["id"], "pay")
    ends(subscription)
    before = [list(model.objects.order_by("pk").values()) for model in (CreditNote, CreditNoteUse, CreditRefund)]
    generated = f"/v1/subscriptions/{subscription.ref}/invoices?dry_run=true"
    [shown] = api.post(generated, {"as_of": "2026-04-16T00:00:00Z"}).json()["invoices"]
    customer = f"/v1/customers/{CustomerFactory._meta.model.objects.get(pk=subscription.customer_id).ref}"
    [upcoming, *_] = api.get(f"{customer}/preview?invoices=1").json()["invoices"]
    assert before == [list(model.objects.order_by("pk").values()) for model in (CreditNote, CreditNoteUse, CreditRefund)]
    assert (shown["refunded_minor"], upcoming["invoice"]["refunded_minor"]) == (1500, 1500)
    bill(subscription, at(4, 16))
    [refund] = api.get(f"{customer}/credit-refunds").json()["results"]
    assert (refund["amount_minor"], refund["actor"], refund["invoice"]) == (1500, "billing", refund["invoice"])


# The shares ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paid", "given_back", "share"),
    [
        ([PaidInvoice(1, 3000, 3000)], {}, Fraction(1)),
        ([PaidInvoice(1, 2000, 3000)], {}, Fraction(2, 3)),
        ([PaidInvoice(1, 0, 0)], {}, Fraction(0)),
        ([PaidInvoice(1, -5, 10)], {}, Fraction(0)),
        ([PaidInvoice(1, 10**26, 10**26)], {}, Fraction(1)),
        # 2 gives back 20.00 of an invoice that money paid by a half.
        ([PaidInvoice(1, 1500, 3000), PaidInvoice(2, 2000, 2000)], {2: {1: 2000}}, Fraction(3, 4)),
        # What an unpaid invoice charged pays for nothing.
        ([PaidInvoice(2, 2000, 2000)], {2: {1: 2000}}, Fraction(1, 2)),
    ],
)
def test_the_share_that_money_paid(paid, given_back, share):
    assert money_shares(paid, given_back)[paid[-1].id] == share
