"""Late usage as far back as one asks for; and usage that no run will ever bill is named with its number and amount."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from billing.documents import invoices
from billing.generator.options import Options
from billing.generator.run.due import DueFilter, DueWalk
from billing.generator.run.generate import generate_in
from billing.management.commands import generate_invoices
from billing.metering import measuring, partitions, usage
from billing.metering.corrections import EventCancellation, take_in_all
from billing.models import Customer, Invoice, Line, Subscription
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from billing.rating.aggregation import RatingInput
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, unique, use

pytestmark = pytest.mark.django_db


def generate_as_json(*arguments: str) -> dict[str, Any]:
    """What `generate_invoices` prints as JSON."""
    out = StringIO()
    call_command("generate_invoices", *arguments, "--format", "json", "--no-progress", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def bill_and_count_late_usage(subscription: Subscription, as_of: datetime, lookback: int | None = None) -> int:
    """Bill up to a time; return the minor units of usage that came late."""
    return generate_in(ref=subscription.ref, options=Options(as_of=as_of, late_lookback=lookback)).late_usage_minor


def subscribed(**order: Any) -> Subscription:
    """0.02 a call, in arrears, by the month."""
    return SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code, **order)


def explained_usage(subscription: Subscription, *options: str) -> list[tuple[str, str, int, str]]:
    """What `--explain` says of the subscription; asserts that `--check` says the same."""
    explained = generate_as_json("--explain", subscription.ref, *options)["usage_never_billed"]
    checked = generate_as_json("--check", *options)["usage_never_billed"]
    assert [one for one in checked if one["subscription"] == subscription.ref] == explained
    return [(one["reason"], one["meter"], one["events"], one["value"]) for one in explained]


# How far back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lookback", "late_minor"), [(0, 0), (2, 0), (3, 0), (4, 0), (5, 200), (9, 200), (None, 200)])
def test_late_usage_is_billed_of_all_periods_or_of_as_many_as_one_asks_for(lookback: int | None, late_minor: int) -> None:
    subscription = subscribed()
    for month in range(2, 7):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "100", at(1, 15))
    # Of January to May, which are billed, January is the fifth before July.
    assert bill_and_count_late_usage(subscription, at(7, 1), lookback) == late_minor
    assert bill_and_count_late_usage(subscription, at(7, 1), lookback) == 0


@pytest.mark.parametrize("ending", [{"ends_at": at(2, 1)}, {}])
def test_late_usage_of_what_stopped_counting_is_billed_however_late_it_comes(ending: dict[str, datetime]) -> None:
    subscription = subscribed(**ending)
    bill_and_count_late_usage(subscription, at(2, 1))
    if not ending:
        subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(2, 1), wish=Wish(paused=True))
    assert bill_and_count_late_usage(subscription, at(9, 1)) == 0
    use(subscription, "100", at(1, 15))
    # Nothing is due any more, so it is the event that a run finds the subscription by.
    assert subscription.ref in list(DueWalk(DueFilter(as_of=at(9, 2))))
    assert bill_and_count_late_usage(subscription, at(9, 2)) == 200
    assert bill_and_count_late_usage(subscription, at(9, 3)) == 0


def test_a_subscription_that_has_ended_is_not_due_without_late_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LONGEST_TRANSACTION", timedelta(0))
    subscription = subscribed(ends_at=at(2, 1))
    use(subscription, "100", at(1, 15))
    bill_and_count_late_usage(subscription, at(2, 1))
    assert subscription.ref not in list(DueWalk(DueFilter(as_of=at(9, 2))))


def test_an_event_that_a_run_could_not_see_yet_is_billed_by_the_next() -> None:
    """It was recorded before the run read, and committed after."""
    subscription = subscribed()
    bill_and_count_late_usage(subscription, at(2, 1))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_usageevent "
            "(subscription_id, meter, occurred_at, idempotency_key, value, properties, recorded_at) "
            "VALUES (%s, 'calls', %s, 'in-flight', 100, '{}', clock_timestamp() - interval '50 minutes')",
            [subscription.pk, at(1, 15)],
        )
    assert bill_and_count_late_usage(subscription, at(2, 2)) == 200


def test_late_usage_is_found_by_what_was_recorded_not_by_reading_what_was_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LONGEST_TRANSACTION", timedelta(0))
    measured: list[int] = []
    measure = measuring.measure

    def counting(subscription_id: int, measures: list[measuring.Measure], **limits: int | None) -> list[RatingInput]:
        measured.append(len(measures))
        return measure(subscription_id, measures, **limits)

    monkeypatch.setattr(measuring, "measure", counting)
    subscription = subscribed(started_at=at(1, 1, year=2022))
    use(subscription, "1", at(1, 15, year=2022))
    bill_and_count_late_usage(subscription, at(1, 1))
    bill_and_count_late_usage(subscription, at(2, 1))
    use(subscription, "100", at(3, 15, year=2023))
    assert bill_and_count_late_usage(subscription, at(3, 1)) == 200
    [last] = Invoice.objects.filter(subscription=subscription.pk).order_by("-id")[:1]
    invoices.void(last.pk)
    assert bill_and_count_late_usage(subscription, at(3, 1)) == 200
    # 48 periods at first, then one a month: with the late usage of another, and that again once it is voided.
    assert [count for count in measured if count] == [48, 1, 2, 1]


def test_voiding_and_billing_again_finds_late_usage_of_any_age() -> None:
    # 25 calls for January, +7 and then -4 of them late, billed with February and with May.
    plan = PlanFactory(prices=[metered(unit_amount="1.00")])
    subscription = SubscriptionFactory(plan=plan.code)
    use(subscription, "25", at(1, 15))
    assert bill_and_count_late_usage(subscription, at(2, 1)) == 0
    use(subscription, "7", at(1, 16))
    assert bill_and_count_late_usage(subscription, at(3, 1)) == 700
    for month in (4, 5):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "-4", at(1, 17))
    assert bill_and_count_late_usage(subscription, at(6, 1)) == -400
    newest_first = Invoice.objects.filter(subscription=subscription.pk).order_by("-id").values_list("pk", flat=True)
    later, march, _ = newest_first
    for voided in ([later], [later, march]):
        for pk in voided:
            invoices.void(pk)
        bill_and_count_late_usage(subscription, at(7, 1))
        lines = Line.objects.filter(invoice__subscription_id=subscription.pk, price_key="calls").exclude(invoice__state="void")
        assert sum(lines.values_list("amount_minor", flat=True)) == 2_800
        later = Invoice.objects.filter(subscription=subscription.pk).exclude(state="void").latest("id").pk


# Never -----------------------------------------------------------------------------------------------


def test_what_is_not_billed_yet_is_not_among_it() -> None:
    subscription = subscribed()
    use(subscription, "5", at(1, 15))
    assert explained_usage(subscription) == []
    bill_and_count_late_usage(subscription, at(2, 1))
    use(subscription, "7", at(1, 16))
    assert explained_usage(subscription) == []
    assert bill_and_count_late_usage(subscription, at(3, 1)) == 14
    assert explained_usage(subscription) == []


def test_what_a_run_leaves_out_is_named_until_a_run_looks_so_far_back() -> None:
    subscription = subscribed()
    for month in range(2, 6):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "100.5", at(1, 15))
    use(subscription, "20", at(2, 15))
    use(subscription, "1", at(3, 15))
    left_out = [("too-late", "calls", 2, "120.5")]
    # No run has left anything out yet, but one that looks back two periods would.
    assert explained_usage(subscription) == []
    assert explained_usage(subscription, "--late-lookback", "2") == left_out
    assert bill_and_count_late_usage(subscription, at(5, 2), 2) == 2
    assert explained_usage(subscription) == left_out
    # 100.5 + 20 at 0.02 = 2.01 + 0.40
    assert bill_and_count_late_usage(subscription, at(6, 1)) == 241
    assert explained_usage(subscription) == []


def test_a_cancellation_that_a_run_leaves_out_is_named() -> None:
    subscription = subscribed()
    key = use(subscription, "100", at(1, 15)).idempotency_key
    for month in range(2, 6):
        bill_and_count_late_usage(subscription, at(month, 1))
    take_in_all([EventCancellation(idempotency_key=unique("fix"), subscription=subscription.ref, cancels=str(key))])
    assert explained_usage(subscription) == []
    assert bill_and_count_late_usage(subscription, at(5, 2), 2) == 0
    assert explained_usage(subscription) == [("too-late", "calls", 1, "0")]
    assert bill_and_count_late_usage(subscription, at(6, 1)) == -200
    assert explained_usage(subscription) == []


def test_the_summary_of_a_run_names_what_it_leaves_out() -> None:
    subscription = subscribed()
    for month in range(2, 6):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "100.5", at(1, 15))
    arguments = ("--as-of", "2026-05-02", "--subscription", subscription.ref)
    left_out = {"reason": "too-late", "meter": "calls", "subscriptions": 1, "events": 1, "value": "100.5"}
    assert generate_as_json(*arguments, "--late-lookback", "2")["usage_never_billed"] == [left_out]


def test_late_usage_of_a_month_whose_events_were_dropped_is_named_and_never_credited() -> None:
    january = at(1, 1).date()
    partitions.make_month(connection, january)
    subscription = subscribed()
    for month in (2, 3):
        bill_and_count_late_usage(subscription, at(month, 1))
    partitions.drop_month(connection, january)
    partitions.make_month(connection, january)
    use(subscription, "100", at(1, 15))
    assert bill_and_count_late_usage(subscription, at(4, 1)) == 0
    assert explained_usage(subscription) == [("too-late", "calls", 1, "100")]


def test_each_other_reason_is_named() -> None:
    price = metered(filters={"region": ["eu"]})
    subscription = SubscriptionFactory(
        plan=PlanFactory(prices=[price]).code, trial_end=at(2, 1), started_at=at(1, 10), ends_at=at(7, 1)
    )
    for month, paused in ((4, True), (5, False)):
        subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(month, 1), wish=Wish(paused=paused))
    for value, instant in (("1", at(1, 1)), ("2", at(1, 15)), ("4", at(4, 15)), ("8", at(7, 1)), ("16", at(6, 30, 23))):
        use(subscription, value, instant, region="eu")
    use(subscription, "32", at(3, 1), region="us")
    use(subscription, "64", at(3, 1), meter="mails", region="eu")
    use(subscription, "128", at(3, 2), meter="mails")
    assert explained_usage(subscription) == [
        ("after-end", "calls", 1, "8"),
        ("before-start", "calls", 1, "1"),
        ("filtered-out", "calls", 1, "32"),
        ("in-pause", "calls", 1, "4"),
        ("in-trial", "calls", 1, "2"),
        ("unknown-meter", "mails", 2, "192"),
    ]
    bill_and_count_late_usage(subscription, at(9, 1))
    assert [reason for reason, *_ in explained_usage(subscription)] == [
        "after-end", "before-start", "filtered-out", "in-pause", "in-trial", "unknown-meter",
    ]  # fmt: skip


def test_a_plan_without_the_meter_and_a_pause_that_goes_on_have_reasons_of_their_own() -> None:
    subscription = subscribed()
    other = PlanFactory(prices=[metered("mails")]).code
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(2, 1), wish=Wish(plan=other))
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(3, 1), wish=Wish(paused=True))
    use(subscription, "1", at(2, 15))
    use(subscription, "2", at(3, 15))
    assert explained_usage(subscription) == [("in-pause", "calls", 1, "2"), ("not-counted-then", "calls", 1, "1")]
    # An end within the pause: from there on it is the end that counts.
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(4, 1), wish=Wish(sets_end=True, ends_at=at(5, 1)))
    use(subscription, "4", at(4, 30))
    use(subscription, "8", at(5, 1))
    assert explained_usage(subscription) == [
        ("after-end", "calls", 1, "8"), ("in-pause", "calls", 2, "6"), ("not-counted-then", "calls", 1, "1"),
    ]  # fmt: skip


def never_billed_in(*arguments: str) -> list[tuple[str, str, int, str]]:
    """What the summary of a run says."""
    found = generate_as_json("--as-of", "2026-02-01", *arguments)["usage_never_billed"]
    return [(one["reason"], one["meter"], one["subscriptions"], one["value"]) for one in found]


def test_each_summary_that_concerns_it_names_usage_that_is_never_billed_until_it_is_settled() -> None:
    first, second = subscribed(), subscribed()
    of_first, of_both = ("--subscription", first.ref), ("--subscription", first.ref, "--subscription", second.ref)
    use(first, "3", datetime(2025, 12, 31, tzinfo=UTC))
    use(first, "5", at(1, 15), meter="mails")
    use(second, "7.5", at(1, 15), meter="mails")
    use(second, "11", at(1, 15))
    expected = [("before-start", "calls", 1, "3"), ("unknown-meter", "mails", 2, "12.5")]
    assert never_billed_in(*of_both, "--dry-run") == expected
    # A run that is about another subscription neither names it nor takes it away from those that are about this one.
    assert never_billed_in("--subscription", second.ref) == [("unknown-meter", "mails", 1, "7.5")]
    customer = Customer.objects.get(pk=first.customer_id).ref
    assert never_billed_in(*of_first) == never_billed_in("--customer", customer) == [
        ("before-start", "calls", 1, "3"), ("unknown-meter", "mails", 1, "5"),
    ]  # fmt: skip
    assert never_billed_in(*of_both) == never_billed_in(*of_both) == expected
    use(second, "1", at(1, 20), meter="mails")
    assert never_billed_in(*of_both) == [expected[0], ("unknown-meter", "mails", 2, "13.5")]
    # A plan that counts the meter settles it: the next run bills it.
    plan = PlanFactory(prices=[metered(), metered("mails")]).code
    subscriptions.amend_subscription(ref=second.ref, effective_at=second.started_at, wish=Wish(plan=plan))
    assert never_billed_in(*of_both) == [expected[0], ("unknown-meter", "mails", 1, "5")]


def test_a_run_that_knows_of_too_many_lets_the_next_look_at_all_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = subscribed(), subscribed()
    for one in (first, second):
        use(one, "5", at(1, 15), meter="mails")
    monkeypatch.setattr(generate_invoices, "MOST_UNSETTLED", 1)
    of_both = ("--as-of", "2026-02-01", "--subscription", first.ref, "--subscription", second.ref)
    for _ in range(2):
        summary = generate_as_json(*of_both)
        assert summary["usage_never_billed"][0]["subscriptions"] == 2
        assert summary["subscriptions_with_usage_never_billed"] is None


def test_what_came_since_the_run_before_is_found_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT count(*) FROM billing_usageevent WHERE recorded_at > now()")
        assert "Bitmap Index Scan" in "\n".join(row[0] for row in cursor.fetchall())
