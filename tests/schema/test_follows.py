"""The trigger `follows` refuses an entry whose number, balance, state or digest does not follow from the entry before it."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from django.db import Error, connection, transaction

from ledger import services
from ledger.database.locks import sqlstate
from ledger.database.transactions import DOES_NOT_FOLLOW
from ledger.entry_rows import COLUMNS
from ledger.models import Entry as StoredEntry
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.holds import Hold
from ledger.rules.instants import to_us
from ledger.rules.lots import Lot
from ledger.rules.requests import GrantRequest, SpendRequest
from tests import nodes
from tests.benchmarks import histories
from tests.benchmarks.histories import row

pytestmark = pytest.mark.django_db

INTERNAL_ERROR = "XX000"


def insert_entries(*entries: Entry) -> None:
    """Store the entries by one INSERT, without the journal."""
    places = ", ".join("(" + ", ".join(["%s"] * (COLUMNS.count(",") + 1)) + ")" for _ in entries)
    values = [value for entry in entries for value in row(entry)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO ledger_entry ({COLUMNS}) VALUES {places}", values)


def copy_entries(*entries: Entry) -> None:
    """Store the entries by one COPY, without the journal."""
    statement = f"COPY ledger_entry ({COLUMNS}) FROM STDIN"
    with transaction.atomic(), connection.cursor() as cursor, connection.wrap_database_errors, cursor.copy(statement) as stream:
        for entry in entries:
            stream.write_row(row(entry))


@pytest.fixture
def history() -> Sequence[Entry]:
    """A grant of 100 and two spends of 10 of the holder ada, made by the rules and not stored."""
    account = AccountState("ada", "credits", to_us(services.grant(holder_id="bob", amount=1, idempotency_key="g").recorded_at))
    common: dict[str, Any] = {"holder_id": "ada", "actor": "key:test"}
    entries = credit_rules.grant(account, GrantRequest(**common, idempotency_key="1", amount=100))
    for key in ("2", "3"):
        account = account.after_all(entries)
        entries += credit_rules.spend(account, SpendRequest(**common, idempotency_key=key, amount=10))
    return entries


WRONG_ENTRIES = {
    "the first entry has a digest over an entry before it": lambda first, second, third: [first.sealed(b"\x01" * 32)],
    "the digest is of other contents": lambda first, second, third: [first._replace(reason="a gift")],
    "the second has a digest over no entry": lambda first, second, third: [first, second.sealed(GENESIS)],
    "the third has a digest over the first": lambda first, second, third: [first, second, third.sealed(first.digest)],
    "the second is missing": lambda first, second, third: [first, third],
    "the balance is not the sum": lambda first, second, third: [
        first,
        second._replace(amount=-11).sealed(first.digest),
    ],
    # Each of the following has the right digest and breaks one other rule.
    "the lots add up to more than the balance": lambda first, second, third: [
        first,
        second._replace(lots=(first.lots[0],)).sealed(first.digest),
    ],
    "the lots add up to less than the balance": lambda first, second, third: [
        first,
        second._replace(lots=(first.lots[0]._replace(remaining=89),)).sealed(first.digest),
    ],
    "with an overdraft, the lots add up to less than the balance": lambda first, second, third: [
        first._replace(overdraft=50, lots=(first.lots[0]._replace(remaining=99),)).sealed(GENESIS),
    ],
    "a spend changes the held credits": lambda first, second, third: [
        first,
        second._replace(held=5, holds=(Hold(1, second.recorded_us, (Lot(1, 5, 0),)),)).sealed(first.digest),
    ],
    "the second was recorded before the first": lambda first, second, third: [
        first,
        second._replace(recorded_us=first.recorded_us - 1, effective_us=first.recorded_us - 1).sealed(first.digest),
    ],
    "a spend sets an overdraft": lambda first, second, third: [
        first,
        second._replace(overdraft=50).sealed(first.digest),
    ],
    "a spend says when a recurring grant is due": lambda first, second, third: [
        first,
        second._replace(next_grant_us=second.recorded_us).sealed(first.digest),
    ],
    "a spend ends an overdraft": lambda first, second, third: [
        first._replace(overdraft=50).sealed(GENESIS),
        second.sealed(first._replace(overdraft=50).sealed(GENESIS).digest),
    ],
}


def assert_does_not_follow(error: BaseException) -> None:
    """The trigger refused it. A COPY to a cluster passes on the text of a shard's error, but not its code."""
    assert "does not follow from the one before it" in str(error)
    assert sqlstate(error) in ({DOES_NOT_FOLLOW, INTERNAL_ERROR} if nodes.cluster else {DOES_NOT_FOLLOW})


@pytest.mark.parametrize("store", [insert_entries, copy_entries])
@pytest.mark.parametrize("name", WRONG_ENTRIES)
def test_an_entry_that_does_not_follow_is_refused_and_nothing_is_stored(history, store, name):
    with pytest.raises(Error) as refused:
        store(*WRONG_ENTRIES[name](*history))
    assert_does_not_follow(refused.value)
    assert not StoredEntry.objects.filter(holder_id="ada").exists()


@pytest.mark.parametrize("store", [insert_entries, copy_entries])
def test_entries_that_follow_are_stored(history, store):
    store(*history)
    assert StoredEntry.objects.filter(holder_id="ada").count() == 3


def test_an_entry_recorded_in_the_same_microsecond_as_the_one_before_is_stored(history):
    first, second, _ = history
    assert first.recorded_us == second.recorded_us
    insert_entries(first, second)
    assert StoredEntry.objects.filter(holder_id="ada").count() == 2


@pytest.mark.parametrize("name", WRONG_ENTRIES)
def test_the_trigger_fires_in_a_replica_session_too_which_disables_ordinary_triggers(history, raw_connection, name):
    session = raw_connection("superuser")
    session.execute("SET session_replication_role = replica")
    with pytest.raises(psycopg.Error) as refused:
        histories.store(session, WRONG_ENTRIES[name](*history))
    assert_does_not_follow(refused.value)
    session.rollback()


def test_effective_at_is_stored_only_if_it_differs_from_recorded_at():
    earlier = services.grant(holder_id="ada", amount=5, idempotency_key="1").recorded_at.replace(year=2020)
    services.grant(holder_id="ada", amount=5, effective_at=earlier, idempotency_key="2")
    assert list(StoredEntry.objects.filter(holder_id="ada").order_by("sequence").values_list("effective_at", flat=True)) == [
        None, earlier,
    ]  # fmt: skip
