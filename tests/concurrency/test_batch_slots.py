"""Large batches take slots first, so that their locks never fill the server's lock table."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger import reads, services
from ledger.database import batch_slots
from ledger.database.locks import WAIT_MANY
from ledger.errors import HolderBusy
from ledger.models import Batch
from ledger.reads.lock_report import current_locks, known_names
from ledger.rules.requests import GrantRequest
from ledger_project.serving.postgres.server import Server

NewHolder = Callable[[], str]
Connect = Callable[..., psycopg.Connection[Any]]

SHARED_MEMORY_IS_FULL = "53200"
LOCKS = 300
"""Of one batch on the small server: two slots."""


def grant_requests(prefix: str, count: int) -> list[GrantRequest]:
    """Grants of 1 to that many holders."""
    return [GrantRequest(holder_id=f"{prefix}.{number}", idempotency_key="g", amount=1) for number in range(count)]


def take_slots(connection: psycopg.Connection[Any], wanted: int) -> bool:
    """Take slots in the connection's transaction as a batch does; whether there were enough."""
    cursor = psycopg.RawCursor(connection).execute(batch_slots.TAKE.sql, [wanted, batch_slots.slot_numbers().decode()])
    (has_enough,) = cursor.fetchone() or (False,)
    return bool(has_enough)


def test_without_a_free_slot_a_large_batch_is_busy_and_a_small_batch_runs(
    committed_db: None, raw_connection: Connect, new_holder: NewHolder
) -> None:
    other, holder = raw_connection(), new_holder()
    assert take_slots(other, batch_slots.MOST_SLOTS), "all that there are"

    with pytest.raises(HolderBusy) as busy:
        services.batch(grant_requests(holder, 100), mode="each", idempotency_key=holder)

    assert busy.value.facts == {"key": "ledger_batch_slot/any"}
    assert not Batch.objects.filter(idempotency_key=holder).exists()
    assert list(reads.holders(prefix=holder)) == []
    small = services.batch(grant_requests(holder, 99), mode="each", idempotency_key=f"{holder}/small")
    assert [outcome.entry.balance for outcome in small.outcomes if outcome.entry] == [1] * 99

    other.rollback()
    again = services.batch(grant_requests(f"{holder}.more", 100), mode="each", idempotency_key=holder)
    assert sum(outcome.entry is not None for outcome in again.outcomes) == 100


# On a server with a small table ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_server() -> Iterator[str]:
    """The address of a server whose lock table holds the locks of fewer than twenty batches."""
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))
    folder.chmod(0o755)
    server = Server(folder, max_connections="30", max_locks_per_transaction="20", autovacuum="off")
    try:
        server.start()
        yield server.superuser_url
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.mark.parametrize("takes_slots", [True, False], ids=["with slots", "control: without"])
def test_slots_keep_the_lock_table_from_filling(small_server: str, takes_slots: bool) -> None:
    """Each batch keeps its locks while the next ones start."""
    admitted, states = 0, []
    with ExitStack() as stack:
        for batch in range(26):
            connection = stack.enter_context(psycopg.connect(small_server))
            if takes_slots and not take_slots(connection, 2):
                connection.rollback()
                continue
            admitted += 1
            try:
                connection.execute(WAIT_MANY, [[batch * 10_000 + number for number in range(LOCKS)]])
            except psycopg.Error as error:
                states.append(error.sqlstate)
    if takes_slots:
        assert (admitted, states) == (1, [])
    else:
        assert set(states) == {SHARED_MEMORY_IS_FULL}


def test_the_report_names_the_slots(committed_db: None, raw_connection: Connect) -> None:
    take_slots(raw_connection(), 1)
    report = current_locks(names=known_names(limit=1))
    assert "ledger_batch_slot/1" in {lock.name for lock in report}
