"""A cursor is a hint: one that is too late is a finding, and the generator does not wait for it."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from billing.auditing import consistency
from billing.documents.transitions import apply_in, delete_draft_in
from billing.generator.run.due import DueFilter, how_many
from billing.models import Cursor, Invoice
from billing.orders import subscriptions
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, use
from tests.billing.generator.run.test_generate import bill

pytestmark = pytest.mark.django_db

LATER = at(1, 1, year=2030)


@pytest.fixture
def subscription():
    """Billed up to 1 February: 10.00 in advance, and the usage of January."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(), metered()]).code)
    use(subscription, "100", at(1, 10))
    bill(subscription, at(2, 1))
    assert consistency.check() == []
    return subscription


def push(subscription, **values) -> None:
    """Change the cursor as the application's role may."""
    assert Cursor.objects.filter(pk=subscription.pk).update(**values) == 1


def findings() -> set[str]:
    return {one["finding"] for one in consistency.check()}


PUSHED = {
    "recurring charges": ({"recurring_due_at": LATER}, "cursor is later than what is due"),
    "recurring charges, never": ({"recurring_due_at": None}, "cursor is later than what is due"),
    "recurring charges, by a day": ({"recurring_due_at": at(3, 2)}, "cursor is later than what is due"),
    "usage": ({"usage_due_at": LATER}, "cursor is later than what is due"),
    "usage, by a day": ({"usage_due_at": at(3, 2)}, "cursor is later than what is due"),
    "what is settled": ({"claims_from": LATER}, "cursor is later than what is due"),
    "amendments (recurring)": ({"recurring_amendments_seen": 9}, "cursor has seen what does not exist"),
    "amendments (usage)": ({"usage_amendments_seen": 9}, "cursor has seen what does not exist"),
    "charges": ({"charges_seen": 9}, "cursor has seen what does not exist"),
    "the time of the run": ({"looked_at": timezone.now() + timedelta(days=9)}, "cursor of a run that has not been"),
}


@pytest.mark.products(most=4)
@pytest.mark.parametrize("name", PUSHED)
def test_a_cursor_that_is_too_late_is_found(subscription, name):
    values, finding = PUSHED[name]
    push(subscription, **values)
    assert findings() == {finding}


def test_a_cursor_that_is_too_early_is_no_finding(subscription):
    push(subscription, recurring_due_at=at(2, 1), usage_due_at=at(1, 1), claims_from=None, recurring_amendments_seen=0)
    assert findings() == set()
    Cursor.objects.all().delete()
    assert findings() == set()


def test_a_charge_that_is_seen_and_not_billed_is_found(subscription):
    subscriptions.charge_once(ref=subscription.ref, amount_minor=700, description="Setup")
    assert findings() == set()
    push(subscription, charges_seen=1)
    assert findings() == {"charge is seen and not billed"}


def test_a_void_and_a_deleted_draft_set_the_cursor_back_before_their_charges(subscription):
    for description in ("Setup", "Training"):
        subscriptions.charge_once(ref=subscription.ref, amount_minor=700, description=description)
        bill(subscription, at(2, 2))
    first, second = Invoice.objects.order_by("pk")[1:]
    apply_in(invoice_id=second.pk, kind="void", actor="test")
    assert (Cursor.objects.get(pk=subscription.pk).charges_seen, findings()) == (1, set())
    apply_in(invoice_id=first.pk, kind="void", actor="test")
    assert (Cursor.objects.get(pk=subscription.pk).charges_seen, findings()) == (0, set())
    bill(subscription, at(2, 2), finalize=False)
    draft = Invoice.objects.get(state="draft")
    assert (draft.total_minor, Cursor.objects.get(pk=subscription.pk).charges_seen, findings()) == (1400, 2, set())
    delete_draft_in(invoice_id=draft.pk, actor="test")
    assert findings() == set()
    bill(subscription, at(2, 2))
    assert (Invoice.objects.order_by("pk").last().total_minor, findings()) == (1400, set())


@pytest.mark.parametrize("pushed", [
    {"recurring_due_at": LATER, "usage_due_at": LATER},
    {"recurring_due_at": None, "usage_due_at": None},
    {"recurring_due_at": LATER, "usage_due_at": LATER, "claims_from": LATER, "looked_at": LATER},
])  # fmt: skip
def test_the_generator_does_not_believe_a_cursor_that_says_nothing_is_due_for_long(subscription, pushed):
    push(subscription, **pushed)
    # Without a next time for usage the generator also looks because events have come in.
    is_looked_at = pushed["usage_due_at"] is None
    assert [how_many(DueFilter(as_of=as_of)) for as_of in (at(2, 20), at(3, 3))] == [is_looked_at, True]
    [invoice] = bill(subscription, at(3, 3))
    assert [line["kind"] for line in invoice["lines"]] == ["recurring"]


@pytest.mark.parametrize("seen", ["recurring_amendments_seen", "usage_amendments_seen", "charges_seen"])
def test_the_generator_looks_where_more_is_seen_than_there_is(subscription, seen):
    assert how_many(DueFilter(as_of=at(2, 20))) == 0
    push(subscription, **{seen: 9})
    assert how_many(DueFilter(as_of=at(2, 20))) == 1


def test_a_law_that_cannot_be_worked_out_is_a_finding(subscription):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_amendment DISABLE TRIGGER USER")
        cursor.execute('UPDATE billing_amendment SET change = \'{"quantities": {"base": "many"}}\'')
        cursor.execute("ALTER TABLE billing_amendment ENABLE TRIGGER USER")
    found = {one["finding"]: one["what"] for one in consistency.check()}
    assert "this cannot be worked out: InvalidOperation" in found["item versions do not follow from the amendments"]
