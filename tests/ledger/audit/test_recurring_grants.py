"""The audit finds a recurring grant whose row does not say what its entries say."""

import pytest

from ledger import services
from ledger.audit.auditing import audit

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
