"""The database enforces the limits of the rules: it refuses longer texts and larger amounts from every writer."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import reads, values
from ledger.database.locks import sqlstate
from ledger.database.statements import fetch_value
from ledger.entry_rows import COLUMNS
from ledger.rules import MAX_AMOUNT, MAX_BALANCE, Account, Entry, Lot
from ledger.rules.entries import GENESIS
from ledger.rules.instants import to_us
from ledger.values import encode_json
from tests.benchmarks.histories import row

pytestmark = pytest.mark.django_db

LENGTHS = {
    "holder_id": 64,
    "credit_type": 32,
    "idempotency_key": 255,
    "actor": values.MAX_ACTOR_CHARACTERS,
    "reason": values.MAX_REASON_CHARACTERS,
    "reference": values.MAX_REFERENCE_CHARACTERS,
}


def grant_entry(holder: str, amount: int = 5, /, **values: Any) -> Entry:
    """Return a grant as a holder's first entry, not stored, with some columns set to other values."""
    account = Account(holder, "credits", to_us(reads.balance("nobody").as_of))
    entry = account.next_entry("grant", amount, lots=(Lot(1, amount, 0),))
    return entry._replace(idempotency_key="k", request_digest=bytes(8))._replace(**values).sealed(GENESIS)


def insert_entry(entry: Entry) -> None:
    """Store the entry by INSERT, without the journal."""
    places = ", ".join(["%s"] * (COLUMNS.count(",") + 1))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO ledger_entry ({COLUMNS}) VALUES ({places})", row(entry))


def assert_refused(entry: Entry, constraint: str) -> None:
    """Try to insert the entry; assert that this constraint refuses it and that nothing was written."""
    with pytest.raises(IntegrityError) as error:
        insert_entry(entry)
    assert (sqlstate(error.value), constraint in str(error.value)) == ("23514", True)
    assert reads.balance(entry.holder_id, entry.credit_type).sequence == 0


@pytest.mark.parametrize(
    ("column", "character"),
    [*((column, "a") for column in LENGTHS), ("actor", "\u00e9"), ("reason", "\u00e9"), ("reference", "\u00e9")],
)
def test_a_text_has_at_most_the_length_that_the_rules_allow(column, character):
    insert_entry(grant_entry("ada", **{column: character * LENGTHS[column]}))
    assert_refused(grant_entry("bob", **{column: character * (LENGTHS[column] + 1)}), "ledger_entry_texts_in_limits")


def test_a_reason_of_a_megabyte_is_refused():
    assert_refused(grant_entry("ada", reason="x" * 1_000_000), "ledger_entry_texts_in_limits")


def test_metadata_have_a_limit_in_bytes():
    longest = values.MAX_METADATA_BYTES - len(encode_json({"k": ""}))
    insert_entry(grant_entry("ada", metadata={"k": "x" * longest}))
    assert_refused(grant_entry("bob", metadata={"k": "x" * (longest + 1)}), "ledger_entry_texts_in_limits")
    assert_refused(grant_entry("bob", metadata={"k": "\u00e9" * (longest // 2 + 1)}), "ledger_entry_texts_in_limits")


def test_amounts_and_balances_have_limits():
    insert_entry(grant_entry("ada", MAX_AMOUNT))
    assert_refused(grant_entry("bob", MAX_AMOUNT + 1), "ledger_entry_amounts_in_limits")
    assert_refused(grant_entry("bob", overdraft=MAX_AMOUNT + 1), "ledger_entry_amounts_in_limits")
    assert str(MAX_BALANCE) in definition("ledger_entry_amounts_in_limits")


def test_the_table_of_rates_has_the_limits_of_the_rules():
    found = definition("ledger_rate_texts_in_limits", of="ledger_rate")
    for column, most in (
        ("credit_type", LENGTHS["credit_type"]),
        ("code", 64),
        ("idempotency_key", LENGTHS["idempotency_key"]),
        ("published_by", values.MAX_ACTOR_CHARACTERS),
        ("published_because", values.MAX_REASON_CHARACTERS),
    ):
        assert f"(char_length({column}) <= {most})" in found


def test_the_patterns_of_the_rules_have_the_same_limits():
    for pattern, most in (
        (values.HOLDER_ID, LENGTHS["holder_id"]),
        (values.CREDIT_TYPE, LENGTHS["credit_type"]),
        (values.IDEMPOTENCY_KEY, LENGTHS["idempotency_key"]),
        (values.RATE_CODE, 64),
    ):
        assert pattern.fullmatch("a" * most)
        assert not pattern.fullmatch("a" * (most + 1))


def definition(constraint: str, *, of: str = "ledger_entry") -> str:
    """Return the SQL of a constraint of a table, whose shards on a cluster have it too, by the same name."""
    sql = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s AND conrelid = %s::regclass"
    return fetch_value(str, sql, [constraint, of])
