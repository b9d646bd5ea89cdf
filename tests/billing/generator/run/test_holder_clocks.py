"""A customer whose holder has a test clock is billed by it: due dates, allowances, trials, graces, issue dates."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing import reads as billing_reads
from billing.documents import credit_notes
from billing.generator.options import Options
from billing.generator.run.due import DueFilter, DueWalk, due_together, how_many
from billing.generator.run.generate import generate_in
from billing.models import CreditNote, Invoice, Subscription
from billing.orders.subscriptions import Wish, amend_subscription
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring, unique, use
from tests.billing.findings import findings_of

pytestmark = pytest.mark.django_db

START = datetime(2040, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture
def holder() -> str:
    """A holder for whom it is the start of 2040."""
    name = unique("holder")
    move(name, START - 9 * 365 * DAY)
    move(name, START)
    return name


def move(holder: str, now: datetime) -> None:
    """Move the holder's clock there."""
    services.set_clock(holder_id=holder, now=now, idempotency_key=f"clock-{now}")


def subscribed(holder: str, *, allowance: int = 0, grace_days: int = 0, **fields: Any) -> Subscription:
    """A subscription from the start of 2040 at 10.00 a month, with 0.02 for each call."""
    customer = CustomerFactory(holder_id=holder, grace_days=grace_days)
    terms = {"amount": allowance, "rollover_cap": None} if allowance else None
    plan = PlanFactory(prices=[recurring(), metered()], allowance=terms)
    return SubscriptionFactory(customer=customer.ref, plan=plan.code, **{"started_at": START} | fields)


def run() -> None:
    """What the worker does."""
    call_command("generate_invoices", "--no-progress")


def issued(subscription: Subscription) -> list[tuple[str, str, int]]:
    """State, issue date and total of each invoice, the oldest first."""
    rows = Invoice.objects.filter(subscription=subscription.pk).order_by("id").values_list("state", "issue_date", "total_minor")
    return [(state, str(issue_date), total) for state, issue_date, total in rows]


def assert_clean(holder: str) -> None:
    """Assert that neither the ledger nor billing breaks a law."""
    assert audit([connection.connection], holder_id=holder).findings == []
    assert findings_of("cursor", "draft", "gap", "credits") == []


def test_a_run_bills_the_periods_that_have_begun_by_the_clock_and_dates_the_invoices_by_it(holder):
    subscription = subscribed(holder)
    run()
    assert issued(subscription) == [("open", "2040-01-01", 1000)]
    run()
    assert len(issued(subscription)) == 1
    use(subscription, "50", START + 10 * DAY)
    move(holder, START + 31 * DAY)
    run()
    assert issued(subscription)[1:] == [("open", "2040-02-01", 1100)]
    assert Invoice.objects.filter(subscription=subscription.pk, finalized_at__gt=datetime.now(UTC)).count() == 0
    assert_clean(holder)


def test_what_is_due_is_found_by_the_clock_of_each_customer(holder):
    ahead, present = subscribed(holder), subscribed(unique("holder"))
    due = DueFilter(as_of=datetime.now(UTC))
    run()
    assert (issued(ahead), issued(present)) == ([("open", "2040-01-01", 1000)], [])
    assert how_many(due) == 0
    move(holder, START + 31 * DAY)
    assert list(DueWalk(due)) == [ahead.ref]
    assert list(due_together(due)) == [(ahead.ref,)]
    assert how_many(due) == 1
    assert how_many(DueFilter(as_of=START)) == 2


def test_without_the_setting_the_same_subscription_is_not_due(holder, settings):
    subscription = subscribed(holder)
    run()
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": False}
    assert list(DueWalk(DueFilter(as_of=datetime.now(UTC)))) == []
    run()
    assert len(issued(subscription)) == 1


def test_an_allowance_comes_with_its_period_and_expires_by_the_clock(holder):
    subscription = subscribed(holder, allowance=500)
    run()
    [lot] = reads.balance(holder).lots
    assert (lot.remaining, lot.effective_at, lot.expires_at) == (500, START, START + 31 * DAY)
    services.spend(holder_id=holder, amount=100, idempotency_key="s")
    move(holder, START + 31 * DAY)
    assert reads.balance(holder).available == 500
    run()
    assert reads.balance(holder).available == 500
    assert [entry.amount for entry in reads.entries(holder, kind="grant")] == [500, 500]
    move(holder, START + 95 * DAY)
    run()
    assert (reads.balance(holder).available, [total for _, _, total in issued(subscription)]) == (500, [1000, 1000, 2000])
    assert_clean(holder)


def test_a_trial_ends_by_the_clock(holder):
    subscription = subscribed(holder, trial_end=START + 14 * DAY)
    run()
    assert issued(subscription) == []
    move(holder, START + 13 * DAY)
    amend_subscription(ref=subscription.ref, effective_at=START + 13 * DAY, wish=Wish(trial_end=START + 16 * DAY))
    move(holder, START + 15 * DAY)
    run()
    assert issued(subscription) == []
    move(holder, START + 16 * DAY)
    run()
    assert [issue_date for _, issue_date, _ in issued(subscription)] == ["2040-01-17"]
    before = subscription_changes(subscription)
    with pytest.raises(Invalid, match="not in a trial"):
        amend_subscription(ref=subscription.ref, effective_at=START + 16 * DAY, wish=Wish(trial_end=START + 20 * DAY))
    assert subscription_changes(subscription) == before
    assert_clean(holder)


def subscription_changes(subscription: Subscription) -> int:
    """How many amendments it has."""
    return len(billing_reads.amendments(subscription.ref, limit=50))


def test_a_grace_ends_by_the_clock(holder):
    subscription = subscribed(holder, grace_days=3)
    run()
    assert issued(subscription)[0][0] == "draft"
    move(holder, START + 2 * DAY)
    run()
    assert issued(subscription)[0][0] == "draft"
    move(holder, START + 3 * DAY)
    assert findings_of("draft past its grace") != []
    run()
    assert issued(subscription)[0][:2] == ("open", "2040-01-04")
    assert_clean(holder)


def test_a_credit_note_is_dated_by_the_clock(holder):
    subscription = subscribed(holder)
    run()
    invoice = Invoice.objects.get(subscription=subscription.pk)
    move(holder, START + 5 * DAY)
    note = credit_notes.issue(invoice_id=invoice.pk, reason="too much", actor="test", idempotency_key="n")
    assert str(CreditNote.objects.get(pk=note.id).issue_date) == "2040-01-06"


def test_the_subscription_is_shown_as_it_is_by_the_clock(holder):
    subscription = subscribed(holder)
    present = subscribed(unique("holder"))
    assert billing_reads.subscription(subscription.ref).row.state == "active"
    assert billing_reads.subscription(present.ref).row.state == "scheduled"
    shown = {row.ref: row.state for row in billing_reads.subscriptions(limit=10)}
    assert shown == {subscription.ref: "active", present.ref: "scheduled"}


def test_a_preview_bills_up_to_the_clock_or_up_to_a_later_time(holder):
    subscription = subscribed(holder)
    move(holder, START + 40 * DAY)

    def periods(as_of: datetime) -> int:
        return generate_in(ref=subscription.ref, options=Options(as_of=as_of, dry_run=True)).periods

    assert (periods(datetime.now(UTC)), periods(START), periods(START + 70 * DAY)) == (2, 2, 3)
    assert issued(subscription) == []


def test_what_the_clock_has_reached_is_not_the_future(holder: str, api: Any) -> None:
    subscription = subscribed(holder)
    for as_of in (START + DAY, START):
        response = api.post(f"/v1/subscriptions/{subscription.ref}/invoices", {"as_of": as_of.isoformat()})
        expected = (400, []) if as_of > START else (201, [("open", "2040-01-01", 1000)])
        assert (response.status_code, issued(subscription)) == expected
    move(holder, START + 40 * DAY)
    call_command("generate_invoices", "--no-progress", subscription=[subscription.ref], as_of=START + 31 * DAY)
    assert len(issued(subscription)) == 2
    unclocked = SubscriptionFactory(customer=CustomerFactory().ref, plan=PlanFactory(prices=[recurring()]).code)
    with pytest.raises(CommandError, match="lies in the future"):
        call_command("generate_invoices", "--no-progress", subscription=[subscription.ref, unclocked.ref], as_of=START + 31 * DAY)
    assert not issued(unclocked)
