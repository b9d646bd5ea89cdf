"""What the audit finds beside entries: rates, totals of days and months, and rows that are not as they were registered."""

import re
from datetime import date
from decimal import Decimal

import psycopg
import pytest
from django.db import connection, transaction

from ledger import services
from ledger.audit.auditing import audit
from ledger.audit.chains import registered_tables
from ledger.models import CreditType
from ledger.operators import staff_log
from ledger.rules.requests import GrantRequest, RateComponent
from ledger.totals.counting import count_entries

pytestmark = [pytest.mark.django_db, pytest.mark.one_node("a cluster does not run these changes, neither for a tamperer")]

TRIGGERS = """
    SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'registered' AND tgparentid = 0
"""


def findings(**options) -> list[tuple[str | None, ...]]:
    """Law, table or holder, key or credit type, and what was found, of each finding."""
    connection.ensure_connection()
    report = audit([connection.connection], **options)
    return [(one.law, one.holder_id, one.credit_type, one.found) for one in report.findings]


def as_owner(table: str, statement: str) -> None:
    """Change a row with the table's triggers off, as the owner of the table can."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(statement)
        assert cursor.rowcount == 1
        cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


@pytest.fixture
def spend():
    """A spend of 17 credits: 5,500 tokens at 3 credits per 1,000."""
    services.publish_rate(code="tokens", price=3, per=1000)
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    spend = services.spend(holder_id="ada", rate="tokens", quantity=5500, idempotency_key="s")
    assert spend.amount == -17
    assert findings() == []
    return spend


RATES = {
    "another price": ("UPDATE ledger_rate SET price = 4", "-22 at 4 per 1000"),
    "another unit": ("UPDATE ledger_rate SET per = 100", "-165 at 3 per 100"),
    "deleted": ("DELETE FROM ledger_rate", "a version of a rate that exists"),
    "another version": ("UPDATE ledger_rate SET version = 2", "a version of a rate that exists"),
}


@pytest.mark.parametrize("change", RATES)
def test_a_rate_that_does_not_give_what_was_spent_is_found(spend, change):
    statement, expected = RATES[change]
    as_owner("ledger_rate", statement)
    connection.ensure_connection()
    found = [one for one in audit([connection.connection]).findings if one.law == "rates"]
    assert [(one.holder_id, one.sequence, one.expected) for one in found] == [("ada", spend.sequence, expected)]


def test_the_application_registers_its_rows_though_it_may_not_write_the_register(raw_connection):
    session = raw_connection("application")
    with pytest.raises(psycopg.errors.InsufficientPrivilege), session.transaction():
        session.execute("INSERT INTO ledger_register (of_table, row_key, digest) VALUES ('ledger_credit_type', 'x', '\\x00')")
    with session.transaction(force_rollback=True):
        session.execute("INSERT INTO ledger_credit_type (code, name, unit, scale) VALUES ('mails', 'Mails', 'mail', 0)")
        registered = session.execute("SELECT row_key FROM ledger_register WHERE of_table = 'ledger_credit_type'").fetchall()
    assert registered == [("mails",)]


def test_a_hold_is_rated_as_a_spend_is(spend):
    services.hold(holder_id="ada", rate="tokens", quantity=1, idempotency_key="h")
    assert findings() == []


COMPONENTS = {
    "another price of a component": (
        """UPDATE ledger_rate SET components = replace(components::text, '125', '126')::json WHERE code = 'gpt'""",
        "-6 at cached 126 per 1000, input 7 per 3",
    ),
    "a component more": (
        """UPDATE ledger_rate SET components = (components::jsonb || '{"x": {"price": 1, "per": 1}}')::json WHERE code = 'gpt'""",
        "a version of a rate that exists",
    ),
    "a component less": (
        """UPDATE ledger_rate SET components = (components::jsonb - 'cached')::json WHERE code = 'gpt'""",
        "a version of a rate that exists",
    ),
    "one price": (
        "UPDATE ledger_rate SET components = NULL, price = 1, per = 1 WHERE code = 'gpt'",
        "a version of a rate that exists",
    ),
}


@pytest.mark.parametrize("change", COMPONENTS)
def test_components_that_do_not_give_what_was_spent_held_or_captured_are_found(spend, change):
    prices = {"cached": RateComponent(price=125, per=1000), "input": RateComponent(price=7, per=3)}
    services.publish_rate(code="gpt", components=prices)
    # 1 + 3.99…, exactly.
    quantities = {"cached": 8, "input": Decimal("1.714285714285")}
    entries = [services.spend(holder_id="ada", rate="gpt", quantities=quantities, idempotency_key="c1")]
    entries.append(services.hold(holder_id="ada", rate="gpt", quantities=quantities, idempotency_key="c2"))
    entries.append(services.capture(holder_id="ada", hold=entries[1].sequence, quantities=quantities, idempotency_key="c3"))
    assert {sum(amount for _, amount in entry.drawn) for entry in entries} == {5}
    assert findings() == []
    statement, expected = COMPONENTS[change]
    as_owner("ledger_rate", statement)
    found = [one for one in audit([connection.connection]).findings if one.law == "rates"]
    assert [(one.sequence, one.expected) for one in found] == [(entry.sequence, expected) for entry in entries]


TOTALS = {
    "spent": ("UPDATE ledger_daily_total SET spent = spent - 7", "spent 10"),
    "entries of a kind": ("""UPDATE ledger_total_state SET entries = entries || '{"spend": 9}'""", "by kind: spend 9"),
    "an instant that has not come": ("UPDATE ledger_total_state SET counted_until = '2200-01-01'", "counted until 2200-01-01"),
    "a day deleted": ("DELETE FROM ledger_daily_total", "entries 0"),
}


@pytest.mark.parametrize("change", TOTALS)
def test_totals_are_held_to_the_entries(spend, change):
    count_entries(patience_seconds=0)
    assert findings() == []
    statement, expected = TOTALS[change]
    as_owner("ledger_daily_total" if "daily" in statement else "ledger_total_state", statement)
    assert any(law == "totals" and expected in found for law, _, _, found in findings())


def test_a_close_that_is_not_what_the_entries_come_to_is_found(spend):
    with connection.cursor() as cursor:
        cursor.execute("""
            INSERT INTO ledger_month_close (month, credit_type, accounts, entries, balance, held, outstanding, paid, ties, costs)
            VALUES ('2026-01-01', 'credits', 0, 1, 0, 0, '[]', '{}', '[]', '[]')
        """)
    assert findings() == [("totals", None, "credits", "close of 2026-01: entries 1")]


@pytest.fixture
def batch():
    """Two executed batches, two events of the staff log, two credit types."""
    for key in ("first", "second"):
        request = GrantRequest(holder_id="ada", amount=2, idempotency_key=f"of {key}", actor="key:shop")
        services.batch([request], mode="each", idempotency_key=key, actor="key:shop")
        staff_log.record(None, "exported", about=key)
        CreditType.objects.create(code=key, name=key, unit=key)
    assert findings() == []


CHANGED = {
    "a batch's outcomes": ("ledger_batch", "UPDATE ledger_batch SET outcomes = '[{}]' WHERE idempotency_key = 'first'", "/first"),
    "a batch deleted": ("ledger_batch", "DELETE FROM ledger_batch WHERE idempotency_key = 'first'", "/first"),
    "who exported": ("ledger_staff_event", "UPDATE ledger_staff_event SET actor = 'eve' WHERE object = 'first'", None),
    "an export deleted": ("ledger_staff_event", "DELETE FROM ledger_staff_event WHERE object = 'second'", None),
    "an export added": (
        "ledger_staff_event",
        """
            INSERT INTO ledger_staff_event
            SELECT (json_populate_record(e, '{"id": 900000}')).* FROM ledger_staff_event e WHERE object = 'first'
        """,
        "900000",
    ),
    "a name": ("ledger_credit_type", "UPDATE ledger_credit_type SET name = 'x' WHERE code = 'first'", "first"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_row_that_was_changed_with_triggers_off_is_not_that_of_the_register(batch, change):
    table, statement, key = CHANGED[change]
    as_owner(table, statement)
    [(law, of_table, row_key, _)] = findings()
    assert (law, of_table) == ("register", f"@{table}")
    assert key in {None, row_key}


def test_what_the_application_changes_is_registered(batch):
    CreditType.objects.filter(code="first").update(name="First")
    CreditType.objects.get(code="second").delete()
    assert findings() == []


def test_a_row_deleted_with_its_line_of_the_register_is_found_by_the_anchor(batch, tmp_path):
    assert findings(anchor_to_write=tmp_path / "anchor") == []
    staff_log.record(None, "exported", about="third")
    assert findings(anchor_to_check=tmp_path / "anchor") == []
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_register WHERE of_table = 'ledger_batch' AND row_key = '/first'")
    as_owner("ledger_batch", "DELETE FROM ledger_batch WHERE idempotency_key = 'first'")
    assert findings() == []
    [(law, chain, series, found)] = findings(anchor_to_check=tmp_path / "anchor")
    assert (law, chain, found) == ("anchor", "@register", "ends at 1")
    assert series.startswith("ledger_batch ")
    assert date.fromisoformat(series.removeprefix("ledger_batch "))


def test_a_line_of_the_register_for_another_table_is_found(batch):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_register SET of_table = 'ledger_batchx' WHERE row_key = '/first'")
    assert {(law, table) for law, table, _, _ in findings()} == {("register", "@ledger_batch"), ("register", "@ledger_batchx")}


def test_the_application_cannot_write_the_register(raw_connection, batch):
    application = raw_connection("application")
    for statement in ("DELETE FROM ledger_register", "UPDATE ledger_register SET digest = digest"):
        with pytest.raises(Exception, match="permission denied"), application.transaction():
            application.execute(statement)


def test_each_trigger_of_the_register_is_as_the_audit_takes_it():
    """Said twice, in schema.sql and in Python: table, key and condition."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(TRIGGERS)
        there = dict(cursor.fetchall())
        assert there.keys() == {table.name for table in registered_tables()}
        for table in registered_tables():
            arguments = re.search(r"ledger_register_row\((.*)\)", there[table.name])
            assert arguments is not None
            assert tuple(re.findall("'([a-z_]+)'", arguments[1])) == table.key
            # The server's own words for the condition of the audit.
            cursor.execute(
                f"CREATE TRIGGER said AFTER INSERT ON {table.name} FOR EACH ROW WHEN ({new(table.condition)}) "
                "EXECUTE FUNCTION refuse_change()"
            )
            cursor.execute("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'said'")
            [(said,)] = cursor.fetchall()
            assert condition_of(said) == condition_of(there[table.name])
            cursor.execute(f"DROP TRIGGER said ON {table.name}")


def new(condition: str) -> str:
    """The condition over a row `r`, for a trigger."""
    return re.sub(r"\br\.", "NEW.", condition)


def condition_of(trigger: str) -> str:
    found = re.search(r"WHEN \((.*)\) EXECUTE", trigger)
    assert found is not None
    return found[1]
