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
from billing.models import Subscription
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
        ("in-trial", "calls", 1, "2"),
        ("not-counted-then", "calls", 1, "4"),
        ("unknown-meter", "mails", 2, "192"),
    ]
    bill_and_count_late_usage(subscription, at(9, 1))
    assert [reason for reason, *_ in explained_usage(subscription)] == [
        "after-end", "before-start", "filtered-out", "in-trial", "not-counted-then", "unknown-meter",
    ]  # fmt: skip


def test_the_summary_reports_usage_that_is_never_billed_once_since_the_previous_run() -> None:
    first, second = subscribed(), subscribed()
    use(first, "3", datetime(2025, 12, 31, tzinfo=UTC))
    use(first, "5", at(1, 15), meter="mails")
    use(second, "7.5", at(1, 15), meter="mails")
    use(second, "11", at(1, 15))
    arguments = ("--as-of", "2026-02-01", "--subscription", first.ref, "--subscription", second.ref)
    expected = [
        {"reason": "before-start", "meter": "calls", "subscriptions": 1, "events": 1, "value": "3"},
        {"reason": "unknown-meter", "meter": "mails", "subscriptions": 2, "events": 2, "value": "12.5"},
    ]
    assert generate_as_json(*arguments, "--dry-run")["usage_never_billed"] == expected
    summary = generate_as_json(*arguments)
    assert summary["usage_never_billed"] == expected
    assert generate_as_json(*arguments)["usage_never_billed"] == []
    use(second, "1", at(1, 20), meter="mails")
    assert generate_as_json(*arguments)["usage_never_billed"] == [expected[1] | {"subscriptions": 1, "events": 1, "value": "1"}]


def test_what_came_since_the_run_before_is_found_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT count(*) FROM billing_usageevent WHERE recorded_at > now()")
        assert "Bitmap Index Scan" in "\n".join(row[0] for row in cursor.fetchall())
