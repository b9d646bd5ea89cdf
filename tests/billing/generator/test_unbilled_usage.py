"""Late usage as far back as one asks for; and usage that no run will ever bill is named with its number and amount."""

import json
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from billing.generator.generate import generate_in
from billing.generator.options import Options
from billing.management.commands import generate_invoices
from billing.models import Customer, Subscription
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, use

pytestmark = pytest.mark.django_db


def generate_as_json(*arguments: str) -> dict[str, Any]:
    """What `generate_invoices` prints as JSON."""
    out = StringIO()
    call_command("generate_invoices", *arguments, "--format", "json", "--no-progress", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def bill_and_count_late_usage(subscription: Subscription, as_of: datetime, lookback: int = 2) -> int:
    """Bill up to a time; return the minor units of usage that came late."""
    return generate_in(ref=subscription.ref, options=Options(as_of=as_of, late_lookback=lookback)).late_usage_minor


def subscribed(**order: Any) -> Subscription:
    """0.02 a call, in arrears, by the month."""
    return SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code, **order)


def explained_usage(subscription: Subscription, as_of: str = "2026-09-01") -> list[tuple[str, str, int, str]]:
    """What `--explain` says of the subscription; asserts that `--check` says the same."""
    explained = generate_as_json("--explain", subscription.ref, "--as-of", as_of)["usage_never_billed"]
    checked = generate_as_json("--check", "--as-of", as_of)["usage_never_billed"]
    assert [one for one in checked if one["subscription"] == subscription.ref] == explained
    return [(one["reason"], one["meter"], one["events"], one["value"]) for one in explained]


# How far back ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lookback", "late_minor"), [(2, 0), (3, 0), (4, 0), (5, 200), (9, 200)])
def test_late_usage_is_looked_for_in_as_many_periods_as_one_asks_for(lookback: int, late_minor: int) -> None:
    subscription = subscribed()
    for month in range(2, 7):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "100", at(1, 15))
    # Of January to May, which are billed, January is the fifth before July.
    assert bill_and_count_late_usage(subscription, at(7, 1), lookback) == late_minor
    assert bill_and_count_late_usage(subscription, at(7, 1), lookback) == 0


def test_what_stopped_counting_at_a_pause_is_settled_for_good() -> None:
    subscription = subscribed()
    bill_and_count_late_usage(subscription, at(2, 1))
    for month, paused in ((2, True), (6, False)):
        subscriptions.amend_subscription(ref=subscription.ref, effective_at=at(month, 1), wish=Wish(paused=paused))
    for month in (7, 8, 9):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "100", at(1, 15))
    # June, July and August are billed, and before them January.
    assert bill_and_count_late_usage(subscription, at(10, 1), 3) == 0
    control = generate_in(ref=subscription.ref, options=Options(as_of=at(10, 1), late_lookback=5))
    # The pause lies between January and June: what stopped counting then is looked at for five periods, until July.
    assert control.late_usage_minor == 0


def test_what_has_ended_is_looked_at_as_long_as_one_asks_for() -> None:
    subscription = subscribed(ends_at=at(2, 1))
    bill_and_count_late_usage(subscription, at(2, 1))
    use(subscription, "100", at(1, 15))
    assert bill_and_count_late_usage(subscription, at(6, 15)) == 0
    assert bill_and_count_late_usage(subscription, at(6, 15), 5) == 200


# Never -----------------------------------------------------------------------------------------------


def test_what_is_not_billed_yet_is_not_among_it() -> None:
    subscription = subscribed()
    use(subscription, "5", at(1, 15))
    assert explained_usage(subscription) == []
    bill_and_count_late_usage(subscription, at(2, 1))
    use(subscription, "7", at(1, 16))
    assert explained_usage(subscription, "2026-02-15") == []
    assert bill_and_count_late_usage(subscription, at(3, 1)) == 14
    assert explained_usage(subscription, "2026-03-01") == []


def test_what_came_too_late_is_named_until_a_run_is_asked_to_look_so_far_back() -> None:
    subscription = subscribed()
    for month in range(2, 6):
        bill_and_count_late_usage(subscription, at(month, 1))
    use(subscription, "100.5", at(1, 15))
    use(subscription, "20", at(2, 15))
    use(subscription, "1", at(3, 15))
    assert explained_usage(subscription, "2026-05-01") == [("too-late", "calls", 2, "120.5")]
    # 100.5 + 20 + 1 at 0.02 = 2.01 + 0.40 + 0.02
    assert bill_and_count_late_usage(subscription, at(6, 1), 4) == 243
    assert explained_usage(subscription, "2026-06-01") == []


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
