"""The database refuses a row that breaks a rule of its table, whichever program writes it."""

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from ledger.database.locks import sqlstate
from ledger.database.statements import fetch_rows, fetch_value

pytestmark = pytest.mark.django_db

CHECKED, MISSING = "23514", "23502"
DIGEST = bytes(32)

# A row of each table that it takes, without what the table fills in.
ROWS: dict[str, dict[str, Any]] = {
    "billing_usageevent": {
        "subscription_id": 1, "meter": "tokens", "occurred_at": "2026-01-31 12:00:00+00", "idempotency_key": "k", "value": 5,
        "properties": "{}", "corrects": None, "counts": True, "meter_version": None,
    },
    "ledger_alert": {
        "name": "low", "holder_id": "ada", "credit_type": "credits", "is_ended": False, "below": 10, "days_left": None,
        "rate_days": None, "idempotency_key": "k", "request_digest": DIGEST, "reason": "", "actor": "admin:mara",
        "request_id": "r",
    },
    "ledger_api_key": {
        "name": "red.ada", "prefix": "x", "key_digest": DIGEST, "scopes": '["ledger:spend"]', "created_by": "",
        "labels": '{"team": "red"}', "created_at": "2026-01-31 12:00:00+00",
    },
    "ledger_approval_decision": {"approval_id": 1, "decision": "approved", "decided_by": "admin:mara", "reason": "as agreed"},
    "ledger_key_request": {
        "idempotency_key": "k", "confined_to": "", "request_digest": DIGEST, "key_id": 1, "answer": "{}", "actor": "key:shop",
        "request_id": "r",
    },
    "ledger_rate": {
        "credit_type": "credits", "code": "tokens", "version": 1, "price": 1, "per": 1,
        "published_at": "2026-01-31 12:00:00+00", "published_by": "admin:mara", "published_because": "",
    },
    "ledger_webhook_change": {
        "webhook_id": 1, "action": "create", "idempotency_key": "k", "request_digest": DIGEST, "actor": "key:shop",
        "request_id": "r",
    },
}  # fmt: skip


def insert_row(table: str, row: dict[str, Any]) -> None:
    """Store a row without the product."""
    places = ", ".join(["%s"] * len(row))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", list(row.values()))


@pytest.mark.parametrize("table", ROWS)
def test_a_row_that_keeps_the_rules_is_stored(table: str) -> None:
    insert_row(table, ROWS[table])

    assert fetch_value(int, f"SELECT count(*) FROM {table}") == 1


@pytest.mark.parametrize(
    ("table", "change", "state", "what"),
    [
        ("billing_usageevent", {"counts": None}, MISSING, '"counts"'),
        ("ledger_api_key", {"labels": "[]"}, CHECKED, "labels_are_an_object"),
        ("ledger_api_key", {"scopes": '["ledger:admin"]'}, CHECKED, "scopes_carry_labels"),
        ("billing_usageevent", {"counts": False}, CHECKED, "billing_usageevent_cancels"),
        ("billing_usageevent", {"meter_version": 0}, CHECKED, "billing_usageevent_computed"),
        (
            "billing_usageevent", {"meter_version": 1, "counts": False, "corrects": "other"}, CHECKED,
            "billing_usageevent_computed",
        ),
        ("billing_usageevent", {"occurred_at": "1999-12-31 23:59:59+00"}, CHECKED, "billing_usageevent_years"),
        ("billing_usageevent", {"occurred_at": "2201-01-01 00:00:00+00"}, CHECKED, "billing_usageevent_years"),
        ("ledger_alert", {"name": "n" * 41}, CHECKED, "ledger_alert_texts_in_limits"),
        ("ledger_alert", {"holder_id": "h" * 65}, CHECKED, "ledger_alert_texts_in_limits"),
        ("ledger_alert", {"credit_type": "c" * 33}, CHECKED, "ledger_alert_texts_in_limits"),
        ("ledger_alert", {"days_left": 7, "below": None}, CHECKED, "ledger_alert_rate_is_of_days_left"),
        ("ledger_alert", {"request_digest": None}, CHECKED, "ledger_alert_key_has_its_request"),
        ("ledger_approval_decision", {"decision": "postponed"}, CHECKED, "ledger_approval_decision_known"),
        ("ledger_key_request", {"request_digest": bytes(31)}, CHECKED, "ledger_key_request_digest_is_sha256"),
        ("ledger_key_request", {"request_id": None}, MISSING, '"request_id"'),
        ("ledger_key_request", {"request_id": "r" * 65}, CHECKED, "ledger_key_request_texts_in_limits"),
        ("ledger_rate", {"published_at": None}, MISSING, '"published_at"'),
        ("ledger_rate", {"price": -1}, CHECKED, "ledger_rate_positive"),
        ("ledger_webhook_change", {"request_digest": None}, CHECKED, "ledger_webhook_change_key_has_its_request"),
    ],
)  # fmt: skip
def test_a_row_that_breaks_a_rule_is_refused_and_not_stored(table: str, change: dict[str, Any], state: str, what: str) -> None:
    with pytest.raises(IntegrityError) as error:
        insert_row(table, ROWS[table] | change)

    assert (sqlstate(error.value), what in str(error.value)) == (state, True)
    assert fetch_value(int, f"SELECT count(*) FROM {table}") == 0


@pytest.mark.parametrize("table", ["ledger_alert", "ledger_webhook_change"])
def test_a_key_is_used_once(table: str) -> None:
    insert_row(table, ROWS[table])

    with pytest.raises(IntegrityError) as error:
        insert_row(table, ROWS[table])

    assert (sqlstate(error.value), f"{table}_key" in str(error.value)) == ("23505", True)


def test_an_event_counts_unless_its_row_says_otherwise() -> None:
    insert_row("billing_usageevent", {name: value for name, value in ROWS["billing_usageevent"].items() if name != "counts"})

    assert fetch_rows(bool, "SELECT counts FROM billing_usageevent") == [True]
