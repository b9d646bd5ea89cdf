"""A page of a list that all shards have a part of: what each shard reads for it is bounded by the page, not by the shards."""

import json
from collections.abc import Iterator
from typing import Any

from django.db import connection

from ledger import services
from ledger.services.expiration import BEHIND_ALL, PAGE, PAGE_END

ACCOUNTS = 40
PER_PAGE = 5


def nodes_of(plan: Any) -> Iterator[dict[str, Any]]:
    """Every node of a plan that reads entries, in the plans of all shards."""
    if isinstance(plan, dict):
        if str(plan.get("Relation Name", "")).startswith("ledger_entry"):
            yield plan
        for each in plan.values():
            yield from nodes_of(each)
    elif isinstance(plan, list):
        for each in plan:
            yield from nodes_of(each)


def last_entries_read(asked: dict[str, Any]) -> int:
    """How many accounts' last entries all shards together read for a page."""
    with connection.cursor() as cursor:
        cursor.execute("SET citus.explain_all_tasks = on")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {PAGE}", asked)
        ((plan,),) = cursor.fetchall()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return sum(node["Actual Loops"] for node in nodes_of(plan) if node["Alias"] == "e" or node["Alias"].startswith("e_"))


def test_a_page_of_expirations_reads_no_more_accounts_than_it_has(committed_db, new_holder) -> None:
    for _ in range(ACCOUNTS):
        services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")
    asked: dict[str, Any] = {"holder_id": "", "credit_type": "", "limit": PER_PAGE, "late_us": 0}
    with connection.cursor() as cursor:
        cursor.execute(PAGE_END, asked)
        last = dict(zip(("last_holder_id", "last_credit_type"), cursor.fetchone(), strict=True))
    without_end = dict(zip(last, BEHIND_ALL, strict=True))
    assert last_entries_read(asked | last) == PER_PAGE
    # The control: each shard reads its own page.
    assert last_entries_read(asked | without_end) > 4 * PER_PAGE
