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

    for number, interval in enumerate(("day", "month")):
        services.set_recurring_grant(
            holder_id="ada", recurring_grant=interval, interval=interval, amount=5, idempotency_key=f"k{number}"
        )
    services.grant_all_due()
    assert broken_laws() == set()
    with connection.cursor() as cursor:
        cursor.execute(f"{tampering} {'WHERE' if 'WHERE' not in tampering else 'AND'} name = 'day'")
    assert broken_laws() == {"recurring"}
