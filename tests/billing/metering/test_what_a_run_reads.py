"""A run reads the usage that it bills, however much there was before, and however much others have."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from psycopg import pq

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Subscription
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered
from tests.billing.metering.test_list_by_meter import nodes_of

A_MONTH, OF_OTHERS = 1_000, 3_000
"""Events: enough that the sizes of tables without statistics decide the plans."""


@pytest.mark.django_db
def test_a_run_reads_the_usage_of_its_period() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    record_before_now(subscription.pk, A_MONTH, at(1))
    for month in range(2, 8):
        record_before_now(subscription.pk, A_MONTH, at(month))
        bill(subscription, at(month))
    record_before_now(subscription.pk + 1_000_000, OF_OTHERS, at(1))
    # Nothing of these months was recorded since the last run, so only the events of July are measured.
    read = usage_rows_read_by(lambda: bill(subscription, at(8)))
    assert read == {"late_usage": 0, "usage_sum": A_MONTH}


def bill(subscription: Subscription, as_of: datetime) -> None:
    """Make the invoice that is due."""
    [invoice] = generate_in(ref=subscription.ref, options=Options(as_of=as_of)).invoices
    assert invoice.total_minor


def record_before_now(subscription_id: int, events: int, first: datetime) -> None:
    """Record calls of a month, as if it were long ago: no transaction that began before can still record others."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_usageevent"
            " (subscription_id, meter, occurred_at, idempotency_key, value, properties, recorded_at)"
            " SELECT %s, 'calls', %s + n * interval '1 minute', %s || n, 1, '{}', %s FROM generate_series(1, %s) AS n",
            [subscription_id, first, f"{first} ", datetime.now(UTC) - timedelta(days=1), events],
        )


def usage_rows_read_by(run: Callable[[], None]) -> dict[str, int]:
    """Return the rows of usage that the plan for all values of each prepared statement reads, by the statement's name."""
    read: dict[str, int] = {}
    with connection.cursor() as cursor:
        # Small tables; ANALYZE would leave its statistics behind when the test is rolled back.
        cursor.execute("SET LOCAL enable_seqscan = off")

    def explain(execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if context["cursor"] is None and "billing_usageevent" in sql:
            name = "late_usage" if sql.lstrip().startswith("WITH late") else "usage_sum"
            explained = context["connection"].connection.pgconn.exec_params(
                b"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + sql.encode(), parameters
            )
            assert explained.status == pq.ExecStatus.TUPLES_OK, explained.error_message
            [plan] = json.loads(explained.get_value(0, 0))
            read[name] = sum(rows_of(node) for node in nodes_of(plan["Plan"]))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explain):
        run()
    return read


def rows_of(node: dict[str, Any]) -> int:
    """The rows of usage that a node of a plan gave, and threw away."""
    if "usageevent" not in node.get("Relation Name", ""):
        return 0
    fields = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return round(sum(node.get(field, 0) for field in fields) * node["Actual Loops"])
