"""The audit finds a recurring grant whose row does not say what its entries say."""

from datetime import UTC, datetime

import pytest

from ledger import services
from ledger.audit.auditing import audit
from ledger.models import Entry
from ledger.rules.instants import to_us
from ledger.rules.recurring_terms import GrantPart
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


# Parts -----------------------------------------------------------------------------------------------


def set_parts() -> None:
    """A lot of 50, of which 10 are spent; a part takes back 30 and grants 5; the next one takes back the 10 left of 20."""
    with FixedClock(SEPTEMBER) as clock:
        services.grant(holder_id="ada", amount=50, idempotency_key="g")
        parts = tuple(
            GrantPart(
                to_us(SEPTEMBER.replace(day=on)), to_us(SEPTEMBER.replace(day=on + 9)), amount, None, taken_back=((1, back),)
            )
            for on, amount, back in ((5, 5, 30), (15, 0, 20))
        )
        services.set_recurring_grant(
            holder_id="ada", recurring_grant="plan", interval="month", amount=100, parts=parts,
            first_at=SEPTEMBER.replace(month=10), starts_at=SEPTEMBER, idempotency_key="set",
        )  # fmt: skip
        services.spend(holder_id="ada", amount=10, idempotency_key="s")
        clock.move_to(SEPTEMBER.replace(month=10))
        services.spend(holder_id="ada", amount=100, idempotency_key="t")
    assert broken_laws() == set()


def test_parts_are_made_by_the_first_write_after_them_and_only_give_back_what_is_unspent(db):
    set_parts()
    rows = Entry.objects.filter(holder_id="ada").order_by("sequence")
    assert [(row.kind, row.amount, row.refers_to) for row in rows] == [
        ("grant", 50, None), ("adjust", 0, None), ("spend", -10, None), ("revoke", -30, 1), ("grant", 5, None),
        ("revoke", -10, 1), ("adjust", 0, None), ("grant", 100, None), ("spend", -100, None),
    ]  # fmt: skip
    assert rows[8].next_grant_at == SEPTEMBER.replace(month=11)


@pytest.mark.products(by=lambda tampering: tampering)
@pytest.mark.parametrize("sequence", [4, 5, 6, 7])
@pytest.mark.parametrize(
    "tampering",
    [
        "jsonb_set(counterpart::jsonb, '{parts,%s,until}', '\"2022-09-20T00:00:00Z\"')::json",
        "jsonb_set(counterpart::jsonb, '{parts,%s,from}', '\"2022-09-02T00:00:00Z\"')::json",
        "jsonb_set(counterpart::jsonb, '{parts,%s,amount}', '6')::json",
        "jsonb_set(counterpart::jsonb, '{parts,%s,taken_back}', '[[1, 9]]')::json",
        "(counterpart::jsonb - 'parts')::json",
    ],
)
def test_a_part_that_the_terms_do_not_name_is_found(db, sequence, tampering):
    from django.db import connection

    set_parts()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")
        cursor.execute(
            f"UPDATE ledger_entry SET counterpart = {tampering.replace('%s', str((sequence - 4) // 2))} WHERE sequence = 2"
        )
        cursor.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only")
    assert "recurring" in broken_laws()


def roll_over() -> None:
    """Of 100 a month 60 roll over; a part in the second month keeps 10 and grants 5. Of another's, 20 are held when it begins."""
    with FixedClock(SEPTEMBER) as clock:
        october, november = (SEPTEMBER.replace(month=month) for month in (10, 11))
        part = GrantPart(to_us(october), to_us(november), 5, None, rollover_cap=10)
        services.set_recurring_grant(
            holder_id="ada", recurring_grant="plan", interval="month", amount=100, expiry="rollover", rollover_cap=60,
            parts=(part,), first_at=november, starts_at=SEPTEMBER, idempotency_key="set",
        )  # fmt: skip
        services.set_recurring_grant(
            holder_id="ben", recurring_grant="r", interval="month", amount=100, expiry="rollover", rollover_cap=60,
            idempotency_key="set",
        )  # fmt: skip
        services.hold(holder_id="ben", amount=20, expires_at=SEPTEMBER.replace(month=10, day=2), idempotency_key="h")
        clock.move_to(november)
        services.spend(holder_id="ada", amount=1, idempotency_key="s")
        services.spend(holder_id="ben", amount=1, idempotency_key="s")
        clock.move_to(SEPTEMBER.replace(month=12))
        services.spend(holder_id="ada", amount=1, idempotency_key="t")
    assert broken_laws() == set()


def test_what_rolls_over_is_cut_to_the_cap_of_the_period_that_begins(db):
    roll_over()
    rows = Entry.objects.exclude(kind__in=("spend", "adjust", "hold", "release")).order_by("holder_id", "sequence")
    assert [(row.holder_id, row.kind, row.amount) for row in rows] == [
        ("ada", "grant", 5), ("ada", "grant", 100), ("ada", "revoke", -4), ("ada", "revoke", -40), ("ada", "grant", 100),
        ("ben", "grant", 100), ("ben", "revoke", -40), ("ben", "grant", 100), ("ben", "revoke", -60), ("ben", "revoke", -40),
        ("ben", "grant", 100),
    ]  # fmt: skip


@pytest.mark.parametrize("of", ["ada", "ben"])
@pytest.mark.parametrize(
    "tampering",
    [
        "jsonb_set(counterpart::jsonb, '{terms,rollover_cap}', '59')::json",
        "jsonb_set(counterpart::jsonb, '{terms,rollover_cap}', '70')::json",
    ],
)
def test_a_period_that_keeps_more_or_less_than_its_cap_is_found(db, of, tampering):
    from django.db import connection

    roll_over()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")
        cursor.execute(f"UPDATE ledger_entry SET counterpart = {tampering} WHERE sequence = 1 AND holder_id = %s", [of])
        cursor.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only")
    assert "recurring" in broken_laws()


# Skipped periods -------------------------------------------------------------------------------------

SEPTEMBER = datetime(2022, 9, 1, tzinfo=UTC)
TERMS = {
    "expired": {"amount": 100},
    "expired after days": {"amount": 100, "expiry": "after_days", "expires_after_days": 9, "time_zone": "Europe/Berlin"},
    "full": {"up_to": 100, "expiry": "never"},
    "filled": {"up_to": 100, "expiry": "after_days", "expires_after_days": 50, "time_zone": "Europe/Berlin"},
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
    # What fills up at last is full from then on.
    skipping = [entry for entry in Entry.objects.order_by("sequence").filter(kind="adjust") if "periods" in entry.counterpart]
    assert len(skipping) == (2 if name == "filled" else 1)
    return skipping[0].sequence


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        "counterpart = jsonb_set(counterpart::jsonb, '{still_open,0,1}', '2')::json",
        "counterpart = jsonb_set(counterpart::jsonb, '{still_open,0,0}', '1725148800000000')::json",
        "counterpart = (counterpart::jsonb - 'still_open')::json",
        "lots = replace(lots::text, '99', '98')::json, balance = balance - 1",
    ],
)
def test_what_the_next_period_finds_of_skipped_ones_is_computed_again(db, values):
    from django.db import connection

    skipping = Entry.objects.get(sequence=skip("filled"))
    expires_us = to_us(datetime(2024, 8, 2, tzinfo=UTC))
    assert (skipping.counterpart["because"], skipping.counterpart["still_open"]) == ("filled_expired", [[expires_us, 1]])
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER append_only")
        cursor.execute(f"UPDATE ledger_entry SET {values} WHERE sequence = %s", [skipping.sequence])
        cursor.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only")
    assert "recurring" in broken_laws()


@pytest.mark.slow
def test_pauses_with_spends_between_leave_what_the_audit_computes(db):
    with FixedClock(SEPTEMBER) as clock:
        for number, days in enumerate((7, 30, 45)):
            services.set_recurring_grant(
                holder_id=f"h{number}", recurring_grant="r", interval="day", up_to=100, expiry="after_days",
                expires_after_days=days, time_zone="Europe/Berlin", idempotency_key="r",
            )  # fmt: skip
        for number, days in enumerate((1, 2, 90, 3, 40, 400, 1, 5, 200)):
            clock.advance(days=days, hours=1)
            for holder in range(3):
                services.spend(holder_id=f"h{holder}", amount=number + 10 * holder + 1, idempotency_key=f"s{number}")
        found = [row.counterpart for row in Entry.objects.filter(kind="adjust") if "periods" in (row.counterpart or {})]
        assert sum("still_open" in each for each in found) > 5
    assert broken_laws() == set()
