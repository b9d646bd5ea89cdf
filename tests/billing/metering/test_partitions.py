"""The usage table by months: made ahead, used, protected like the rest, and dropped only when all in them is billed."""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime
from io import StringIO
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from billing.auditing import consistency
from billing.metering import partitions, usage
from billing.metering.meters import create_meter
from billing.models import DroppedMonth, UsageEvent, UsageKey
from ledger.database.statements import fetch_rows, fetch_value
from ledger_project.management.commands import usage_partitions
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill, line_amounts

pytestmark = pytest.mark.django_db

JANUARY, FEBRUARY = date(2026, 1, 1), date(2026, 2, 1)


def rows_in(table: str) -> int:
    """How many rows the table has."""
    return fetch_value(int, f"SELECT count(*) FROM {table}")


def test_events_go_to_their_month_and_the_others_to_the_default():
    made = [partitions.make_month(connection, month) for month in (JANUARY, FEBRUARY, JANUARY)]
    assert made == ["billing_usageevent_2026_01", "billing_usageevent_2026_02", None]
    subscription = SubscriptionFactory()
    for instant in (at(1, 1), at(1, 31, 23), at(2, 1), at(3, 1)):
        use(subscription, "1", instant)
    counts = [rows_in(f"billing_usageevent_{part}") for part in ("2026_01", "2026_02", "default")]
    assert counts == [2, 1, 1]


def test_a_partition_refuses_changes_as_the_table_does():
    partitions.make_month(connection, JANUARY)
    use(SubscriptionFactory(), "1", at(1, 5))
    for change in ("UPDATE {} SET value = 2", "DELETE FROM {}", "TRUNCATE {}"):
        with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(change.format("billing_usageevent_2026_01"))
        assert refused.value.__cause__.sqlstate == "LG001"
    assert rows_in("billing_usageevent_2026_01") == 1


def test_a_month_whose_events_came_first_stays_in_the_default():
    use(SubscriptionFactory(), "1", at(1, 5))
    with pytest.raises(partitions.MonthInDefault, match="2026-01"):
        partitions.make_month(connection, JANUARY)
    assert [one.name for one in partitions.partitions(connection)] == ["billing_usageevent_default"]


def test_a_month_is_dropped_once_all_of_it_is_billed_and_its_keys_stay():
    for month in (JANUARY, FEBRUARY):
        partitions.make_month(connection, month)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    use(subscription, "100", at(1, 5))
    with pytest.raises(partitions.MonthNotBilled, match="2026-01: 1 subscription-days"):
        partitions.drop_month(connection, JANUARY)
    assert rows_in("billing_usageevent_2026_01") == 1

    assert line_amounts(bill(subscription, at(2, 1))[0]) == [("usage", "calls", 200)]
    key = UsageEvent.objects.get(subscription=subscription.pk).idempotency_key
    partitions.drop_month(connection, JANUARY)
    assert "billing_usageevent_2026_01" not in {one.name for one in partitions.partitions(connection)}
    assert UsageKey.objects.filter(idempotency_key=key).exists()
    again = usage.NewEvent(key, subscription.ref, "calls", value=100, occurred_at=at(1, 5), properties={})
    assert usage.take_in([again])[0].result == usage.EventStatus.DUPLICATE
    assert not UsageEvent.objects.filter(subscription=subscription.pk).exists()


def test_the_digest_of_a_dropped_month_has_no_keys_of_the_next_one_when_that_is_dropped_too():
    for month in (JANUARY, FEBRUARY):
        partitions.make_month(connection, month)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    for month in (1, 2):
        use(subscription, "100", at(month, 5))
        bill(subscription, at(month + 1, 1))
    for month in (JANUARY, FEBRUARY):
        partitions.drop_month(connection, month)
    same = "SELECT keys_digest = billing_dropped_keys_digest(month) FROM billing_droppedmonth ORDER BY month"
    assert fetch_rows(bool, same) == [True, True]


def test_a_dropped_event_that_a_meter_computed_is_a_duplicate_after_the_meter_has_changed():
    partitions.make_month(connection, JANUARY)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(meter="tokens")]).code)
    create_meter(code="tokens", expression="properties.a * 2")
    event = usage.NewEvent(unique("e"), subscription.ref, "tokens", occurred_at=at(1, 5), properties={"a": 50})
    usage.take_in([event])
    bill(subscription, at(2, 1))
    partitions.drop_month(connection, JANUARY)
    create_meter(code="tokens", expression="properties.a * 3")
    assert usage.take_in([event])[0].result == usage.EventStatus.DUPLICATE
    assert not UsageEvent.objects.filter(subscription=subscription.pk).exists()
    assert findings_of("usage event") == []


@pytest.mark.slow
@pytest.mark.check
def test_the_check_knows_which_events_were_dropped():
    partitions.make_month(connection, JANUARY)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    for _ in range(2):
        use(subscription, "100", at(1, 5))
    bill(subscription, at(2, 1))
    partitions.drop_month(connection, JANUARY)
    assert [(one.month, one.events) for one in DroppedMonth.objects.all()] == [(JANUARY, 2)]
    assert consistency.check() == []
    partitions.make_month(connection, JANUARY)
    use(subscription, "1", at(1, 6), meter="other")
    partitions.drop_month(connection, JANUARY)
    assert DroppedMonth.objects.get().events == 3
    assert consistency.check() == []
    DroppedMonth.objects.update(events=1)
    findings = consistency.check()
    assert [(one["finding"], one["what"]) for one in findings] == [("usage events are missing", "2 keys have no event")]


def test_events_that_no_price_counts_do_not_keep_a_month():
    partitions.make_month(connection, JANUARY)
    use(SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code), "1", at(1, 5), meter="other")
    partitions.drop_month(connection, JANUARY)
    assert [one.name for one in partitions.partitions(connection)] == ["billing_usageevent_default"]


# The command -----------------------------------------------------------------------------------------


@pytest.fixture
def _command_in_this_transaction() -> Iterator[None]:
    """The command works in the test's own transaction, which is the owner's."""
    with mock.patch.object(usage_partitions, "connected_as_owner", return_value=nullcontext(connection)):
        yield


def run_usage_partitions(*options: str) -> str:
    """What `manage.py usage_partitions` prints."""
    out = StringIO()
    call_command("usage_partitions", *options, stdout=out)
    return out.getvalue()


def months_from_now(*steps: int) -> list[str]:
    """The names of the partitions that many months from this one."""
    this_month = datetime.now(UTC).date().replace(day=1)
    return [partitions.name_of(partitions.month_after(this_month, step)) for step in steps]


def test_the_command_makes_this_month_and_the_next_once():
    expected = months_from_now(0, 1, 2, 3)
    for _ in range(2):
        out = run_usage_partitions("--ahead", "2")
        assert [line.split()[0] for line in out.splitlines()] == sorted([*expected, "billing_usageevent_default"])


def test_months_whose_events_came_first_are_reported_and_the_others_made():
    use(SubscriptionFactory(), "1", datetime.now(UTC))
    out, err = StringIO(), StringIO()
    call_command("usage_partitions", "--ahead", "0", stdout=out, stderr=err)
    assert [line.split()[0] for line in out.getvalue().splitlines()] == [*months_from_now(1), "billing_usageevent_default"]
    assert "the default partition already contains events of this month" in err.getvalue()


@pytest.mark.usefixtures("_command_in_this_transaction")
def test_the_command_drops_only_what_is_old_there_and_billed():
    partitions.make_month(connection, JANUARY)
    use(SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code), "1", at(1, 5))
    with pytest.raises(CommandError, match="can still get late usage"):
        run_usage_partitions("--drop", f"{datetime.now(UTC):%Y-%m}")
    with pytest.raises(CommandError, match="partition billing_usageevent_2020_01 does not exist"):
        run_usage_partitions("--drop", "2020-01")
    with pytest.raises(CommandError, match="the month has unbilled usage: 2026-01"):
        run_usage_partitions("--drop", "2026-01")
    with pytest.raises(CommandError, match="is not a month"):
        run_usage_partitions("--drop", "January")
    assert "billing_usageevent_2026_01  FOR VALUES FROM ('2026-01-01" in run_usage_partitions("--list")
    assert rows_in("billing_usageevent_2026_01") == 1
