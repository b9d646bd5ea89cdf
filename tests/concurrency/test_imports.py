"""An import that is killed with -9 continues, and two at once import each row once."""

import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction

from ledger.database.locks import holder_lock
from ledger.exchange.import_rows import ImportRow
from ledger.exchange.imports import HOLDERS_OF_ROWS, ROWS_AT_ONCE, Importer, ImportSummary
from ledger.journal import key_hash
from ledger.models import Entry
from ledger.rules.requests import GrantRequest
from tests import nodes
from tests.conftest import database_url, wait_until_waiting

HANGS_S = 120
"""Ends what hangs; no test depends on how long something takes."""


def start(file: Path, *options: str) -> "subprocess.Popen[str]":
    """Start an import in a process."""
    environment = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
        "DATABASE_URL": database_url("application"),
    }  # fmt: skip
    command = [sys.executable, "manage.py", "import_ledger", str(file), "--format", "json", *options]
    return subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def rows_of(process: "subprocess.Popen[str]") -> Counter[str]:
    """What an import did that has ended well."""
    out, _ = process.communicate(timeout=HANGS_S)
    assert process.returncode == 0, out
    return Counter(json.loads(out)["rows"])


def wait_until_a_lock_is_waited_for(observer: "psycopg.Connection[Any]", process: "subprocess.Popen[str]") -> None:
    """Return as soon as a session waits for an advisory lock in the database of the tests that commit."""
    waits = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        if observer.execute(waits).fetchone() != (0,):
            return
        assert process.poll() is None, "the import has ended"
    pytest.fail("the import never waited")


@pytest.fixture
def two_holders(tmp_path: Path, new_holder: Callable[[], str]) -> tuple[str, str, Path]:
    """A file with a transaction's rows of one holder, then as many of another."""
    first, second = new_holder(), new_holder()
    rows = [
        {"row": f"{holder}-{number}", "holder": holder, "operation": "grant" if number == 0 else "spend", "amount": amount}
        for holder in (first, second)
        for number, amount in enumerate([5_000] + [3] * (ROWS_AT_ONCE - 1))
    ]
    file = tmp_path / "rows.ndjson"
    file.write_text("\n".join(map(json.dumps, rows)))
    return first, second, file


@pytest.mark.slow
def test_an_import_that_was_killed_continues_in_two_processes_at_once(
    committed_db: None, raw_connection: Callable[..., "psycopg.Connection[Any]"], two_holders: tuple[str, str, Path]
) -> None:
    first, second, file = two_holders
    observer = raw_connection(autocommit=True)
    with transaction.atomic(), holder_lock(second):
        killed = start(file, "--workers", "1")
        wait_until_a_lock_is_waited_for(observer, killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=HANGS_S)
    assert Entry.objects.filter(holder_id=first).count() == ROWS_AT_ONCE
    assert not Entry.objects.filter(holder_id=second).exists()
    results = [rows_of(process) for process in [start(file), start(file)]]
    assert sum(results, Counter()) == Counter({"imported": ROWS_AT_ONCE, "known": 3 * ROWS_AT_ONCE})
    for holder in (first, second):
        assert Entry.objects.filter(holder_id=holder).count() == ROWS_AT_ONCE
        assert Entry.objects.filter(holder_id=holder).latest("sequence").balance == 5_000 - 3 * (ROWS_AT_ONCE - 1)


@pytest.mark.one_node("on a cluster the index of imported rows is not unique")
def test_a_row_that_two_imports_have_for_different_holders_is_imported_once(
    committed_db: None, raw_connection: Callable[..., "psycopg.Connection[Any]"], new_holder: Callable[[], str]
) -> None:
    wrong, right = new_holder(), new_holder()
    observer = raw_connection(autocommit=True)
    sessions: queue.Queue[int] = queue.Queue()

    def import_for(holder: str) -> list[str]:
        request = GrantRequest(holder_id=holder, amount=5, idempotency_key=f"import/{wrong}", actor="import:test")
        outcomes = Importer(ImportSummary(20)).import_chunk([ImportRow(1, request, None, None)])
        return [outcome.result for outcome in outcomes]

    def second() -> list[str]:
        try:
            sessions.put(nodes.session_id())
            return import_for(right)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert import_for(wrong) == ["imported"]
            late = pool.submit(second)
            wait_until_waiting(observer, sessions.get(timeout=HANGS_S))
            # The control: a look-up alone would find nothing, and the row would be imported twice.
            assert observer.execute(HOLDERS_OF_ROWS, [[key_hash(f"import/{wrong}")]]).fetchall() == []
        assert late.result(timeout=HANGS_S) == ["moved"]
    assert not Entry.objects.filter(holder_id=right).exists()


@pytest.mark.slow
def test_control_without_the_ids_of_rows_two_at_once_import_everything_twice(
    committed_db: None, two_holders: tuple[str, str, Path]
) -> None:
    first, _, file = two_holders
    few = file.read_text().splitlines()[:20]
    file.write_text("\n".join(few))
    other = file.with_name("other.ndjson")
    other.write_text("\n".join(few).replace('"row": "', '"row": "again-'))
    for process in [start(file), start(other)]:
        rows_of(process)
    assert Entry.objects.filter(holder_id=first).count() == 40
