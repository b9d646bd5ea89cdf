"""Reads that clients send often: prepared, by an index, in as few statements as can be; nothing is decoded that is not shown."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from ledger import reads, services
from ledger.database.locks import holder_lock
from ledger.database.statements import Statement, parameter
from ledger.reads import account_state, explanations, history, holder_list
from tests.ledger.staff.admin_site import load_history

HOUR = timedelta(hours=1)
NewHolder = Callable[[], str]

PLANS_OF_ONE_SERVER = pytest.mark.one_node("reads the plans of one server; a cluster plans each query for its shards")


def statements_sent_by(read: Callable[[], object]) -> list[str]:
    """The statements that a read sends; each must be a prepared one, which has no cursor."""
    sent = []

    def record(execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        assert context["cursor"] is None, f"through Django's cursor: {sql}"
        sent.append(sql)
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(record):
        read()
    return sent


def plan_counts(statement: Statement) -> tuple[int, int]:
    """How often the server planned the statement for given values, and how often it used the one plan for all values."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE statement = %s", [statement.sql])
        [(custom, generic)] = cursor.fetchall()
    return custom, generic


def test_each_read_is_one_prepared_statement_or_names_what_else_it_needs(db: None) -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=10, idempotency_key="h")
    services.grant(holder_id="ada", amount=5, credit_type="sms", idempotency_key="s")
    first = reads.entries("ada")[0]

    assert len(statements_sent_by(lambda: reads.balance("ada"))) == 1
    assert len(statements_sent_by(lambda: reads.balance("ada", at=first.position[0]))) == 1
    assert len(statements_sent_by(lambda: reads.entries("ada", limit=51))) == 1
    assert len(statements_sent_by(lambda: reads.entries("ada", since=first.position[0], until=first.position[0]))) == 1
    assert len(statements_sent_by(lambda: reads.entries("ada", before=first.position))) == 1
    assert len(statements_sent_by(lambda: reads.refusals("ada"))) == 1
    assert len(statements_sent_by(lambda: reads.shown_entry("ada", "credits", 1))) == 1
    # When the holder was seen, and the accounts.
    assert len(statements_sent_by(lambda: [reads.seen("ada"), reads.accounts("ada")])) == 2
    # The entry with the one before it, their lots' effective times, what was booked beside it; and what it refers to.
    assert len(statements_sent_by(lambda: reads.explanation("ada", "credits", 2))) == 3


@PLANS_OF_ONE_SERVER
def test_a_read_is_planned_five_times_for_its_values_and_then_never_again(db: None) -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    often: dict[Callable[[], object], Statement] = {
        lambda: reads.balance("ada"): account_state.LAST_ENTRIES.present,
        lambda: reads.entries("ada"): history.page_statement("entries", None, "first"),
        lambda: reads.entries("ada", kind="spend"): history.page_statement("entries", "spend", "first"),
        lambda: reads.shown_entry("ada", "credits", 1): history.SHOWN_ENTRY,
        lambda: reads.seen("ada"): holder_list.SEEN,
        lambda: reads.accounts("ada"): holder_list.ACCOUNTS_AFTER.present,
        lambda: reads.explanation("ada", "credits", 2): explanations.WITH_THE_ONE_BEFORE,
    }
    for read in often:
        for _ in range(8):
            read()

    for statement in often.values():
        custom, generic = plan_counts(statement)
        assert custom <= 5, statement.sql
        assert generic >= 3, statement.sql


def plan_for_all_values(statement: Statement, **values: Any) -> str:
    """The plan that a prepared statement has for all values, as carried out for these."""
    names = re.findall(r"\$(\d+)", statement.sql)
    places = max(int(number) for number in names)
    sent = [parameter(values.get(name)) for name in statement.parameters]
    assert len(sent) == places
    literals = ", ".join("NULL" if each is None else f"'{each.decode()}'" for each in sent)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE looked_at AS {statement.sql}")
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS OFF, TIMING OFF, SUMMARY OFF) EXECUTE looked_at ({literals})")
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("DEALLOCATE looked_at")
    return plan


def rows_read(plan: str) -> int:
    """How many rows the scans of the ledger's table gave, and threw away."""
    scans = re.findall(r"Scan[^\n]*(?:on|using) ledger_entry[^\n]*actual rows=([\d.]+) loops=(\d+)", plan)
    thrown_away = re.findall(r"Rows Removed by Filter: (\d+)", plan)
    return round(sum(float(rows) * int(loops) for rows, loops in scans)) + sum(map(int, thrown_away))


@pytest.fixture(scope="module")
def busiest(django_db_setup: None, django_db_blocker: Any) -> Any:
    """A holder with a long history, among others."""
    from django.db import transaction

    holders = [f"cust-{number:06}" for number in range(1, 6)]
    # One transaction writes to all of them, so it locks all of them first.
    with django_db_blocker.unblock(), transaction.atomic(), holder_lock(*holders):
        made = load_history(holders=len(holders), entries=2_000)
        with connection.cursor() as cursor:
            # The planner knows them as it does in production, whatever autovacuum saw last.
            cursor.execute("ANALYZE ledger_entry")
        yield made[-1]
        transaction.set_rollback(True)


@PLANS_OF_ONE_SERVER
@pytest.mark.parametrize(("kind", "most"), [(None, 52), ("spend", 120), ("grant", 120), ("hold", 120)])
@pytest.mark.parametrize("going", ["first", "older", "newer"])
def test_a_page_reads_no_more_of_a_long_history_than_it_shows(busiest: Any, kind: str | None, most: int, going: str) -> None:
    where = {"at": busiest.recorded_at, "type": "credits", "sequence": busiest.sequence // 2} if going != "first" else {}
    statement = history.page_statement("entries", kind, going)

    plan = plan_for_all_values(statement, holder_id=busiest.holder_id, limit=51, **where)

    assert "Seq Scan" not in plan
    # One row is the account's first entry, by which the account is found.
    assert 0 < rows_read(plan) <= (most if kind in (None, "spend") else 2 * 51 + 1), plan


@PLANS_OF_ONE_SERVER
def test_a_balance_by_effective_time_reads_a_few_entries_of_a_long_imported_history(db: None, tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    first = {"row": "g", "holder": "ada", "operation": "grant", "amount": 900, "occurred_at": start.isoformat()}
    rows = [
        first | {"row": f"s-{n}", "operation": "spend", "amount": 1, "occurred_at": (start + n * HOUR).isoformat()}
        for n in range(300)
    ]
    (tmp_path / "history.ndjson").write_text("\n".join(map(json.dumps, [first, *rows])))
    call_command("import_ledger", str(tmp_path / "history.ndjson"), "--workers", "1", stdout=StringIO())
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_entry")
    at = start + 150 * HOUR
    account = {"holder_id": "ada", "credit_type": "credits", "at": at}

    decided = plan_for_all_values(account_state.LAST_DECIDED_AT, **account, recorded_by=at)
    granted = plan_for_all_values(account_state.GRANTED_LATER, **account, sequence=152)

    assert reads.balance_by_effective_time("ada", at=at).balance == 900 - 151
    # The index names the entry; its row and its grant's are read.
    # An index scan reads each row once, a bitmap scan twice: both of a few rows, whatever the history is.
    assert 0 < rows_read(decided) <= 6, decided
    # The one grant, which is before that entry.
    assert rows_read(granted) <= 1, granted


@PLANS_OF_ONE_SERVER
def test_a_page_of_holders_reads_those_with_the_prefix_and_no_others(busiest: Any) -> None:
    # The first of all holders: the others are behind it in the index.
    prefix = reads.holders(limit=1)[0].holder_id
    values = {"holder_id": "", "credit_type": "", "prefix": prefix, "beyond": prefix + holder_list.BEHIND_ALL_CHARACTERS}

    plan = plan_for_all_values(holder_list.ACCOUNTS_AFTER.present, **values, limit=51)

    assert "Seq Scan on ledger_entry" not in plan
    assert "Rows Removed" not in plan


@pytest.mark.parametrize("column", ["lots", "holds"])
def test_a_page_of_entries_does_not_read_the_lots_and_holds_of_entries(column: str) -> None:
    select_list = history.page_statement("entries", None, "first").sql.partition("FROM (")[0]

    assert f"e.{column}::text" not in select_list
    assert f"e.{column}," not in select_list
    assert column not in history.ShownEntry._fields
