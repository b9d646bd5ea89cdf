"""The instant at which an account is opened: the server's clock after the lock was taken, whatever the last entry says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from ledger import journal
from ledger.database.locks import holder_lock
from ledger.database.statements import fetch_value
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules
from ledger.rules.instants import SECOND_US, to_us
from ledger.rules.requests import GrantRequest
from tests.benchmarks.histories import store

pytestmark = pytest.mark.django_db

REQUEST = GrantRequest(holder_id="ada", idempotency_key="g", amount=10)


def open_waiting() -> AccountState:
    """Open the account, waiting for its lock; return its state."""
    with transaction.atomic(), journal.open([REQUEST]) as accounts:
        return accounts.account("ada", "credits").state


def open_trying() -> AccountState:
    """Open the account if its lock is free; return its state."""
    with transaction.atomic(), journal.open([REQUEST], wait=False) as accounts:
        return accounts.account("ada", "credits").state


def read_under_lock() -> AccountState:
    """Read the account under its lock; return its state."""
    with transaction.atomic(), holder_lock("ada") as lock:
        return journal.read(lock, "ada", "credits").state


ways = pytest.mark.parametrize("opened", [open_waiting, open_trying, read_under_lock])


def store_first_entry(recorded_us: int) -> None:
    """Give the account a first entry of that instant, past the journal and the trigger."""
    entries = credit_rules.grant(AccountState("ada", "credits", recorded_us), REQUEST)
    with trigger_off():
        store(connection.connection, entries)


@contextmanager
def trigger_off() -> Iterator[None]:
    """Within the block, the trigger that checks what follows what is disabled."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        yield
        cursor.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows")


def start_of_transaction_us() -> int:
    """When the transaction began."""
    return fetch_value(to_us, "SELECT now()")


@ways
@pytest.mark.parametrize("has_entries", [True, False])
def test_the_time_of_an_opening_is_the_clock_and_not_the_start_of_the_transaction(
    opened: Callable[[], AccountState], has_entries: bool
) -> None:
    started_us = start_of_transaction_us()
    if has_entries:
        store_first_entry(started_us - SECOND_US)
    first, second = opened().now_us, opened().now_us
    assert started_us < first < second < started_us + 600 * SECOND_US


@ways
def test_after_the_clock_was_set_back_no_entry_is_recorded_before_the_last_one(opened: Callable[[], AccountState]) -> None:
    started_us = start_of_transaction_us()
    ahead_us = started_us + 3_600 * SECOND_US
    store_first_entry(ahead_us)
    account = opened()
    assert started_us < account.now_us < ahead_us == account.recorded_us
    [entry] = credit_rules.grant(account, GrantRequest(holder_id="ada", idempotency_key="g2", amount=10))
    assert entry.recorded_us == ahead_us
