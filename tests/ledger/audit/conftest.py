"""An empty ledger without triggers, and a history of every kind of entry to tamper with."""

from collections.abc import Callable, Iterator

import pytest
from psycopg import Connection

from ledger.rules.instants import from_us
from ledger.rules.requests import (
    CaptureRequest,
    GrantRequest,
    HoldRequest,
    OverdraftRequest,
    RefundRequest,
    ReleaseRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from tests.ledger.audit.tampering import execute
from tests.ledger.random_histories import HOUR_US, START_US, RulesLedger
from tests.ledger.rules.credit_model import DAY_US

COUNTED_AS_STORED = """
    CREATE FUNCTION pg_temp.count_entry() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM ledger_budget_counter;
            DELETE FROM ledger_usage;
            RETURN NULL;
        END IF;
        INSERT INTO ledger_budget_counter AS known (holder_id, credit_type, setting, subject, start_us, used, sequence)
        SELECT NEW.holder_id, NEW.credit_type, (c ->> 0)::bigint, c ->> 1, (c ->> 2)::bigint, (c ->> 3)::bigint, NEW.sequence
        FROM json_array_elements(NEW.counts) AS c
        ON CONFLICT (holder_id, credit_type, setting, start_us, subject)
        DO UPDATE SET used = known.used + excluded.used, sequence = excluded.sequence;
        RETURN NULL;
    END $$;
    CREATE TRIGGER counted_as_stored AFTER INSERT ON ledger_entry FOR EACH ROW EXECUTE FUNCTION pg_temp.count_entry();
    CREATE TRIGGER forgotten AFTER DELETE ON ledger_entry FOR EACH STATEMENT EXECUTE FUNCTION pg_temp.count_entry();
"""
"""Sets the counters to what the entries count, where a test stores entries without the triggers of the ledger."""


@pytest.fixture
def empty_ledger(raw_connection: Callable[..., Connection]) -> Iterator[Connection]:
    """A superuser's session on an empty ledger with its triggers disabled, as a tamperer would do; rolled back at the end."""
    session = raw_connection("superuser")
    session.execute("ALTER TABLE ledger_entry DISABLE TRIGGER ALL")
    session.execute("TRUNCATE ledger_entry, ledger_budget_counter, ledger_usage")
    session.execute("ALTER TABLE ledger_budget_counter DROP CONSTRAINT ledger_budget_counter_not_below_0")
    session.execute(COUNTED_AS_STORED)
    session.execute("ALTER TABLE ledger_entry ENABLE TRIGGER summed")
    yield session
    session.rollback()


@pytest.fixture(scope="module")
def history() -> RulesLedger:
    """Seventeen entries of ada, and one of bob.

    1  grant of 100, purchased                      10  revocation of 10 of grant 1
    2  grant of 50, promotional, priority 50        11  expiry of lot 9
    3  spend of 60: 50 of lot 2, 10 of lot 1        12  spend of 5
    4  refund of 15 of spend 3, to lot 2            13  transfer of 10 to bob (his entry 1)
    5  hold of 20                                   14  adjustment: an overdraft of 40
    6  hold of 5                                    15  spend of 80, partly on the overdraft
    7  capture of 8 of hold 5, not final            16  grant of 50
    8  release of hold 6                            17  adjustment: grant 16 repays the overdraft
    9  grant of 7, expires after 2 days
    """
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=100)
    expires_at = from_us(START_US + 10 * DAY_US)
    execute(ledger, GrantRequest, "2", amount=50, source="promotional", expires_at=expires_at, priority=50)
    ledger.now_us += HOUR_US
    execute(ledger, SpendRequest, "3", amount=60)
    execute(ledger, RefundRequest, "4", spend=3, amount=15)
    execute(ledger, HoldRequest, "5", amount=20, expires_at=from_us(START_US + 20 * DAY_US))
    execute(ledger, HoldRequest, "6", amount=5, expires_at=from_us(START_US + 20 * DAY_US))
    execute(ledger, CaptureRequest, "7", hold=5, amount=8, final=False)
    execute(ledger, ReleaseRequest, "8", hold=6)
    execute(ledger, GrantRequest, "9", amount=7, expires_at=from_us(START_US + 2 * DAY_US))
    execute(ledger, RevokeRequest, "10", grant=1, amount=10)
    ledger.now_us += 3 * DAY_US
    execute(ledger, SpendRequest, "12", amount=5)
    execute(ledger, TransferRequest, "13", to="bob", amount=10)
    execute(ledger, OverdraftRequest, "14", limit=40)
    execute(ledger, SpendRequest, "15", amount=80)
    execute(ledger, GrantRequest, "16", amount=50)
    return ledger
