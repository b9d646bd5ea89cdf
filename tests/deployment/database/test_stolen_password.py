"""What the thief of the application's database password is refused, as docs/explanation/threats.md says, and what he is not."""

from collections.abc import Callable
from typing import Any, Final

import psycopg
import pytest
from psycopg.types.json import Jsonb

from ledger import reads, services

RawConnection = Callable[..., psycopg.Connection[Any]]

INSERTED = """
    INSERT INTO ledger_entry SELECT (jsonb_populate_record(e, %(changes)s::jsonb)).* FROM ledger_entry e
    WHERE e.holder_id = %(holder)s AND e.kind = 'spend'
"""
"""Inserts the holder's spend once more, with some of its values changed."""

FORBIDDEN: Final = "42501"
NO_CREDITS: Final = "23514"
NOT_NEXT: Final = "LG002"
THERE_ALREADY: Final = "23505"


def _forged(sequence: int, amount: int, balance: int) -> dict[str, Any]:
    return {"sequence": sequence, "amount": amount, "balance": balance, "idempotency_key": "theft"}


ACTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "change an entry": ("UPDATE ledger_entry SET amount = -1 WHERE holder_id = %(holder)s", {}, FORBIDDEN),
    "remove an entry": ("DELETE FROM ledger_entry WHERE holder_id = %(holder)s", {}, FORBIDDEN),
    "empty the ledger": ("TRUNCATE ledger_entry", {}, FORBIDDEN),
    "switch triggers off": ("ALTER TABLE ledger_entry DISABLE TRIGGER ALL", {}, FORBIDDEN),
    "switch triggers off for a session": ("SET session_replication_role = replica", {}, FORBIDDEN),
    "replace a function": ("ALTER FUNCTION ledger_entry_digest OWNER TO CURRENT_USER", {}, FORBIDDEN),
    "change the register": ("UPDATE ledger_register SET digest = digest", {}, FORBIDDEN),
    "change the staff log": ("UPDATE ledger_staff_event SET actor = 'admin:bob'", {}, FORBIDDEN),
    "write a spend of more than there is": (INSERTED, _forged(3, -500, -440), NO_CREDITS),
    "write a balance that does not follow": (INSERTED, _forged(3, -10, 90), NOT_NEXT),
    "leave a number out": (INSERTED, _forged(9, -10, 50), NOT_NEXT),
    "write an entry twice": (INSERTED, {}, THERE_ALREADY),
}
"""What the thief tries: the statement, the values that it changes, and the SQLSTATE that refuses it."""


@pytest.mark.parametrize("act", ACTS)
def test_it_is_refused_and_the_account_is_as_before(
    committed_db: None, raw_connection: RawConnection, new_holder: Callable[[], str], act: str
) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="order")
    services.spend(holder_id=holder, amount=40, idempotency_key="job")
    statement, changes, sqlstate = ACTS[act]
    thief = raw_connection("application", autocommit=True)
    with pytest.raises(psycopg.Error) as refused:
        thief.execute(statement, {"holder": holder, "changes": Jsonb(changes)} if "%(" in statement else None)
    assert refused.value.sqlstate == sqlstate
    assert reads.balance(holder).balance == 60
    assert [entry.sequence for entry in reads.entries(holder)] in ([1, 2], [2, 1])
