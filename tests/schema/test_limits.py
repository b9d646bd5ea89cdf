"""The database enforces the limits of the rules: it refuses longer texts and larger amounts from every writer."""

import re
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from billing.orders import coupons, customers, plans, subscriptions
from ledger import reads, values
from ledger.database.locks import sqlstate
from ledger.database.statements import fetch_value
from ledger.entry_rows import COLUMNS
from ledger.records import declared_fields
from ledger.rules.accounts import AccountState
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.instants import to_us
from ledger.rules.lots import Lot
from ledger.rules.requests import MAX_BALANCE, RateRequest, SpendRequest
from ledger.values import MAX_AMOUNT, Choice, Number, Text, encode_json
from tests.benchmarks.histories import row

pytestmark = pytest.mark.django_db

LENGTHS = {
    field.name: field.value.most
    for field in declared_fields(SpendRequest)
    if isinstance(field.value, Text) and field.name in COLUMNS.split(", ")
}
"""The columns of an entry that a request declares, and the most characters of each."""


def grant_entry(holder: str, amount: int = 5, /, **values: Any) -> Entry:
    """Return a grant as a holder's first entry, not stored, with some columns set to other values."""
    account = AccountState(holder, "credits", to_us(reads.balance("nobody").as_of))
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
    assert_refused(grant_entry("bob", requested=MAX_AMOUNT), "ledger_entry_at_most_as_requested")
    assert str(MAX_BALANCE) in definition("ledger_entry_amounts_in_limits")


def test_the_declared_texts_of_an_entry_are_these():
    assert LENGTHS.keys() == {"holder_id", "credit_type", "idempotency_key", "actor", "reason", "reference"}


def test_the_table_of_rates_has_the_limits_of_its_declaration():
    found = definition("ledger_rate_texts_in_limits", of="ledger_rate")
    columns = {"actor": "published_by", "reason": "published_because"}
    texts = {field.name: field.value.most for field in declared_fields(RateRequest) if isinstance(field.value, Text)}
    for name, most in texts.items():
        assert f"(char_length({columns.get(name, name)}) <= {most})" in found
    assert found.count("char_length") == len(texts)


def test_the_table_of_credit_types_takes_the_codes_that_requests_take():
    assert f"^{values.CREDIT_TYPE.pattern}$" in definition("ledger_credit_type_code_fits", of="ledger_credit_type")


@pytest.mark.parametrize("declared", [SpendRequest, RateRequest], ids=lambda each: each.__name__)
def test_a_pattern_has_the_limit_of_its_text(declared):
    for field in declared_fields(declared):
        if isinstance(field.value, Text) and field.value.pattern:
            assert re.fullmatch(field.value.pattern, "a" * field.value.most)
            assert not re.fullmatch(field.value.pattern, "a" * (field.value.most + 1))


# Billing ---------------------------------------------------------------------------------------------

DECLARED = {
    "billing_customer": customers.NewCustomer,
    "billing_plan": plans.NewPlan,
    "billing_coupon": coupons.NewCoupon,
    "billing_subscription": subscriptions.NewSubscription,
    "billing_charge": subscriptions.NewCharge,
}
SIZES = """
SELECT column_name, coalesce(character_maximum_length, numeric_precision - numeric_scale)
FROM information_schema.columns WHERE table_name = %s AND (character_maximum_length IS NOT NULL OR data_type = 'numeric')
"""
YEARS = "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE conname LIKE 'billing%_years'"


@pytest.mark.parametrize("table", DECLARED)
def test_a_column_of_billing_has_the_size_of_its_declared_field(table):
    with connection.cursor() as cursor:
        cursor.execute(SIZES, [table])
        sizes = dict(cursor.fetchall())
    compared = 0
    for field in declared_fields(DECLARED[table]):
        size = sizes.get(field.name)
        match field.value:
            case Text() if size is not None:
                assert size == field.value.most, field.name
            case Choice() if size is not None:
                assert size >= max(map(len, field.value.choices)), field.name
            case Number() if size is not None:
                assert field.value.most < 10**size, field.name
            case _:
                continue
        compared += 1
    assert compared >= 1


def test_the_times_of_billing_lie_in_the_declared_years():
    with connection.cursor() as cursor:
        cursor.execute(YEARS)
        found = dict(cursor.fetchall())
    assert len(found) >= 5
    for table, text in found.items():
        assert {int(year) for year in re.findall(r"'(\d{4})-01-01", text)} == {
            values.EARLIEST_YEAR,
            values.LATEST_YEAR + 1,
        }, table


def definition(constraint: str, *, of: str = "ledger_entry") -> str:
    """Return the SQL of a constraint of a table, whose shards on a cluster have it too, by the same name."""
    sql = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s AND conrelid = %s::regclass"
    return fetch_value(str, sql, [constraint, of])
