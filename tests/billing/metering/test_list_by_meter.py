"""The list of a meter's events costs what it shows, however many events there are."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from billing.reads.usage import BY_METER


@pytest.mark.django_db
def test_a_page_of_a_meter_reads_what_it_shows() -> None:
    """By the index on meter and time, in each month: the first page, and one from the middle."""
    day = datetime(2026, 1, 1, tzinfo=UTC)
    with connection.cursor() as cursor:
        for month in range(1, 4):
            cursor.execute("SELECT billing_make_usage_month(%s)", [date(2026, month, 1)])
        cursor.execute(
            "INSERT INTO billing_usageevent (subscription_id, meter, occurred_at, idempotency_key, value, properties)"
            " SELECT n %% 50, 'meter ' || n %% 3, %s + n * interval '20 minutes', 'scan ' || n, 1, '{}'"
            " FROM generate_series(1, 6000) AS n",
            [day],
        )
        # ANALYZE would leave its statistics behind when the test is rolled back.
        for way in ("seqscan", "bitmapscan", "sort"):
            cursor.execute(f"SET LOCAL enable_{way} = off")
        for at in (None, day + timedelta(days=40)):
            values = {"meter": "meter 1", "since": None, "until": None, "at": at, "at_key": "", "limit": 51}
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {BY_METER[0]}", values)
            [(plan,)] = cursor.fetchall()
            plan = json.loads(plan) if isinstance(plan, str) else plan
            scans = [node for node in nodes_of(plan[0]["Plan"]) if "usageevent" in node.get("Relation Name", "")]
            assert {node["Node Type"] for node in scans} == {"Index Scan"}
            assert sum(node["Actual Rows"] for node in scans) <= 51 + 1 + len(scans)


def nodes_of(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a plan."""
    yield node
    for part in node.get("Plans", []):
        yield from nodes_of(part)
