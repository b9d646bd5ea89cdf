"""The audit finds a recurring grant whose row does not say what its entries say."""

from datetime import UTC, datetime

import pytest

from ledger import services
from ledger.audit.auditing import audit
from ledger.models import Entry
from ledger.testing import FixedClock

pytestmark = pytest.mark.django_db


def broken_laws() -> set[str]:
    """What the audit finds."""
    from django.db import connection

    return set(audit([connection.connection]).totals)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE ledger_recurring_grant SET next_at = next_at + interval '1 day'",
        "UPDATE ledger_recurring_grant SET next_at = NULL",
        "UPDATE ledger_recurring_grant SET last = last + 1",
        "UPDATE ledger_recurring_grant SET setting = setting + 1, last = last + 1",
        "UPDATE ledger_recurring_grant SET name = 'other'",
        "DELETE FROM ledger_recurring_grant",
    ],
)
def test_a_row_that_says_something_else_is_found(db, tampering):
    from django.db import connection

    set_two()
    with connection.cursor() as cursor:
        cursor.execute(f"{tampering} {'WHERE' if 'WHERE' not in tampering else 'AND'} name = 'day'")
    assert broken_laws() == {"recurring"}


def set_two() -> None:
    """One each day and one each month, of which the first periods are granted, and a spend."""
    for number, interval in enumerate(("day", "month")):
        services.set_recurring_grant(
            holder_id="ada", recurring_grant=interval, interval=interval, amount=5, idempotency_key=f"k{number}"
        )
    services.grant_all_due()
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    assert broken_laws() == set()


@pytest.mark.parametrize("sequence", range(1, 6))
@pytest.mark.parametrize("value", ["next_grant_at + interval '1 hour'", "NULL"])
def test_an_entry_that_names_another_instant_of_the_next_grant_is_found(db, sequence, value):
    """Of each entry: a setting, a period, and a spend after them. A later one repeats the instant, so that is found too."""
    from django.db import connection

    set_two()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")
        cursor.execute(f"UPDATE ledger_entry SET next_grant_at = {value} WHERE sequence = %s", [sequence])
        cursor.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only")
    assert broken_laws() == {"recurring", "digest"}


# Skipped periods -------------------------------------------------------------------------------------

SEPTEMBER = datetime(2022, 9, 1, tzinfo=UTC)
TERMS = {
    "expired": {"amount": 100},
    "expired after days": {"amount": 100, "expiry": "after_days", "expires_after_days": 9, "time_zone": "Europe/Berlin"},
    "full": {"up_to": 100, "expiry": "never"},
    "not kept": {"amount": 100, "expiry": "rollover", "rollover_cap": 250},
    "each month": {"amount": 100, "interval": "month", "starts_at": datetime(2022, 8, 31, 1, tzinfo=UTC)},
}


def skip(name: str) -> int:
    """Set a recurring grant, and spend 1 two years later; the number of the entry that skips periods."""
    with FixedClock(SEPTEMBER) as clock:
        services.set_recurring_grant(
            holder_id="ada", recurring_grant="r", idempotency_key="r", **{"interval": "day", **TERMS[name]}
        )
        services.grant_all_due()
        services.spend(holder_id="ada", amount=1, idempotency_key="first")
        if name == "full":
            services.grant(holder_id="ada", amount=1, idempotency_key="g", priority=1)
            services.refund(holder_id="ada", spend=3, amount=1, idempotency_key="back")
        clock.move_to(SEPTEMBER.replace(year=2024))
        services.spend(holder_id="ada", amount=1, idempotency_key="later")
    assert broken_laws() == set()
    [skipping] = [entry for entry in Entry.objects.filter(kind="adjust") if "periods" in entry.counterpart]
    return skipping.sequence


TAMPERINGS = (
    "counterpart = jsonb_set(counterpart::jsonb, '{periods}', '20')::json",
    "counterpart = jsonb_set(counterpart::jsonb, '{period_end}', '\"2024-08-30T00:00:00Z\"')::json",
    "counterpart = jsonb_set(counterpart::jsonb, '{period_start}', '\"2022-08-30T00:00:00Z\"')::json",
    "counterpart = jsonb_set(counterpart::jsonb, '{because}', '\"holiday\"')::json",
    "metadata = jsonb_set(metadata::jsonb, '{setting}', '2')::json",
    "metadata = jsonb_set(metadata::jsonb, '{period}', '5')::json",
    "effective_at = '2022-10-01'",
    "balance = balance + 1",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.check if name == "expired" else ()) for name in TERMS])
def test_periods_are_skipped_by_one_entry_and_what_says_too_much_is_found(db, name):
    from django.db import connection, transaction

    skipping = Entry.objects.get(sequence=skip(name))
    assert (skipping.amount, skipping.counterpart["periods"] > 20) == (0, True)
    for values in TAMPERINGS:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")
            cursor.execute(f"UPDATE ledger_entry SET {values} WHERE sequence = %s", [skipping.sequence])
            assert "recurring" in broken_laws(), values
            transaction.set_rollback(True)
