"""Approvals by a second operator: forms above an amount wait until somebody else approves them. docs/how-to/admin.md.

`SECOND_OPERATOR_ABOVE` says from which amounts on; it is empty by default. A form that waits is a row of what was asked, and a
row of what was decided; both are append-only. The form is carried out by the operation that it would have been, with the key that
it had, so approving twice carries it out once.

Note [The sum of a day]
    Each form says what it moves: its stakes. Before a form is carried out, its stakes are recorded under the lock of its
    operator, unless they are above a limit together with what that operator moved in the last 24 hours. So several small forms,
    one after the other or at the same moment, need a second operator as one large form does. What is recorded stays recorded if
    the form is refused after that. A key with stakes on record belongs to that form: a second click is let through.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import conf
from ledger.errors import IdempotencyKeyReused

APPROVED: Final = "approved"
DECLINED: Final = "declined"

ASK: Final = """
INSERT INTO ledger_approval (idempotency_key, title, path, query, form, stakes, reason, requested_by)
VALUES (%(key)s, left(%(title)s, 200), %(path)s, %(query)s, %(form)s, %(stakes)s, %(reason)s, %(requested_by)s)
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

ADMITTED: Final = "SELECT form_digest FROM ledger_operator_stake WHERE idempotency_key = %s LIMIT 1"
ADMIT: Final = """
INSERT INTO ledger_operator_stake (idempotency_key, counted_in, operator, amount, form_digest) VALUES (%s, %s, %s, %s, %s)
"""
MOVED: Final = """
SELECT coalesce(sum(amount), 0)
FROM ledger_operator_stake
WHERE operator = %s AND counted_in = %s AND moved_at > clock_timestamp() - interval '24 hours'
"""


class Stake(NamedTuple):
    """What a form moves: an amount in the smallest unit of a credit type, or in minor units of a currency."""

    counted_in: str
    amount: int


class StakeRule(NamedTuple):
    """How the stakes of a form follow from the form and from what it would write."""

    stakes_of: Callable[[Any, Any], Sequence[Stake]]


class NoStake(NamedTuple):
    """A form needs no second operator, and why."""

    why: str


def limits() -> dict[str, int]:
    """Return the amounts above which a second operator is needed, by credit type or currency."""
    return {name: int(amount) for name, _, amount in (each.partition("=") for each in conf.SECOND_OPERATOR_ABOVE.value)}


def totals_of(stakes: Sequence[Stake]) -> dict[str, int]:
    """Return what a form moves, by credit type or currency."""
    totals: dict[str, int] = {}
    for stake in stakes:
        totals[stake.counted_in] = totals.get(stake.counted_in, 0) + stake.amount
    return totals


def needs_second(totals: Mapping[str, int], operator: str) -> bool:
    """Return whether a form that moves this waits: it is above a limit, together with what the operator moved in 24 hours."""
    limit_of = limits()
    return any(
        amount and amount + _moved_by(operator, unit) > limit_of[unit] for unit, amount in totals.items() if unit in limit_of
    )


def _moved_by(operator: str, unit: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(MOVED, [operator, unit])
        [(amount,)] = cursor.fetchall()
    return int(amount)


def digest_of(path: str, query: str, form: Mapping[str, Any]) -> bytes:
    """Return SHA-256 over the address and the values of a form."""
    return hashlib.sha256(json.dumps([path, query, form], sort_keys=True).encode()).digest()


def is_admitted(key: str, form_digest: bytes) -> bool:
    """Return whether the form was let through before, so that its key answers for it.

    Raises:
        IdempotencyKeyReused: another form was let through with the key.
    """
    with connection.cursor() as cursor:
        cursor.execute(ADMITTED, [key])
        row = cursor.fetchone()
    if row is not None and bytes(row[0]) != form_digest:
        raise IdempotencyKeyReused(idempotency_key=key)
    return row is not None


def admit(
    *, key: str, form_digest: bytes, totals: Mapping[str, int], operator: str, approved: Mapping[str, int] | None = None
) -> bool:
    """Record what a form moves and return True; or return False and write nothing, if it needs a second operator.

    The caller holds the lock of the operator's stakes. See Note [The sum of a day].

    Args:
        approved: what a second operator approved: the form may not move more, and nothing else.

    Raises:
        IdempotencyKeyReused: another form was let through with the key.
    """
    if is_admitted(key, form_digest):
        return True
    if exceeds(totals, approved) if approved is not None else needs_second(totals, operator):
        return False
    with connection.cursor() as cursor:
        cursor.executemany(ADMIT, [(key, unit, operator, amount, form_digest) for unit, amount in totals.items()])
    return True


def exceeds(totals: Mapping[str, int], approved: Mapping[str, int]) -> bool:
    """Return whether a form moves more than was approved."""
    return any(amount > approved.get(unit, 0) for unit, amount in totals.items())


def ask(
    *,
    key: str,
    title: str,
    path: str,
    query: str,
    form: Mapping[str, Any],
    totals: Mapping[str, int],
    reason: str,
    requested_by: str,
) -> int:
    """Record a form that waits, once for its key, and return the number of the approval."""
    row: dict[str, str] = {
        "key": key, "title": title, "path": path, "query": query, "form": json.dumps(form), "stakes": json.dumps(totals),
        "reason": reason, "requested_by": requested_by,
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
