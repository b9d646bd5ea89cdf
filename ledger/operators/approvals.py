"""Approvals by a second operator: forms above an amount wait until somebody else approves them. docs/adr/0108.

`SECOND_OPERATOR_ABOVE` says from which amounts on; it is empty by default. A form that waits is a row of what was asked, and a
row of what was decided; both are append-only. The form is carried out by the operation that it would have been, with the key that
it had, so approving twice carries it out once.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import conf

APPROVED: Final = "approved"
DECLINED: Final = "declined"

ASK: Final = """
INSERT INTO ledger_approval (idempotency_key, title, path, query, form, counted_in, amount, reason, requested_by)
VALUES (%(key)s, left(%(title)s, 200), %(path)s, %(query)s, %(form)s, %(counted_in)s, %(amount)s, %(reason)s, %(requested_by)s)
ON CONFLICT (idempotency_key) DO NOTHING
"""
ASKED: Final = "SELECT id FROM ledger_approval WHERE idempotency_key = %s"

# One decision each, and never by the operator who asked.
DECIDE: Final = """
INSERT INTO ledger_approval_decision (approval_id, decision, decided_by, reason)
SELECT asked.id, %(decision)s, %(decided_by)s, %(reason)s
FROM ledger_approval AS asked
WHERE asked.id = %(id)s AND asked.requested_by <> %(decided_by)s
ON CONFLICT (approval_id) DO NOTHING
"""

# Those that wait, by the index of what is not decided.
WAITING: Final = """
SELECT count(*) FROM (
    SELECT FROM ledger_approval AS asked
    WHERE NOT EXISTS (SELECT FROM ledger_approval_decision AS decided WHERE decided.approval_id = asked.id)
        AND asked.requested_at > now() - interval '90 days'
    LIMIT 100
) AS waiting
"""


class Stake(NamedTuple):
    """What a form moves: an amount in the smallest unit of a credit type, or in minor units of a currency."""

    counted_in: str
    amount: int


def limits() -> dict[str, int]:
    """Return the amounts above which a second operator is needed, by credit type or currency."""
    return {name: int(amount) for name, _, amount in (each.partition("=") for each in conf.SECOND_OPERATOR_ABOVE.value)}


def needs_second(stake: Stake | None) -> bool:
    """Return whether a form waits for a second operator."""
    return stake is not None and stake.amount > limits().get(stake.counted_in, stake.amount)


def ask(
    *, key: str, title: str, path: str, query: str, form: Mapping[str, Any], stake: Stake, reason: str, requested_by: str
) -> int:
    """Record a form that waits, once for its key, and return the number of the approval."""
    row: dict[str, str | int] = {
        "key": key, "title": title, "path": path, "query": query, "form": json.dumps(form), "counted_in": stake.counted_in,
        "amount": stake.amount, "reason": reason, "requested_by": requested_by,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(ASK, row)
        cursor.execute(ASKED, [key])
        [(number,)] = cursor.fetchall()
    return int(number)


def decide(number: int, *, decision: str, decided_by: str, reason: str = "") -> bool:
    """Record a decision; return False and write nothing if there is one already, or if this operator asked."""
    with connection.cursor() as cursor:
        cursor.execute(DECIDE, {"id": number, "decision": decision, "decided_by": decided_by, "reason": reason})
        return cursor.rowcount == 1


def waiting() -> int:
    """Return how many forms of the last 90 days wait, up to 100."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        [(count,)] = cursor.fetchall()
    return int(count)
