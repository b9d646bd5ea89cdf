"""Reads of observations, for showing: accounts with their first difference, and what was observed of an account."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ledger.database.statements import fetch_rows
from ledger.rules.instants import to_text, to_us
from ledger.shadow.observing import sentence

SAME, DIFFERENT, PROMOTED = "same", "different", "promoted"
STATES: Final = (SAME, DIFFERENT, PROMOTED)
"""The states of an observed account: no difference, some, or its credits are in the ledger."""

# Each account has one row with the number 1. With a state that few accounts have, pages go by the index of first differences.
ACCOUNTS: Final = """
    SELECT holder_id, credit_type, state, observations, differences, balance, last_at, first_number
    FROM (
        SELECT
            a.holder_id, a.credit_type, last.number AS observations, last.differences, last.balance,
            last.recorded_at AS last_at, last.first_difference AS first_number,
            CASE WHEN NOT p.is_return THEN 'promoted' WHEN last.differences > 0 THEN 'different' ELSE 'same' END AS state
        FROM {accounts} AS a
        CROSS JOIN LATERAL (
            SELECT o.number, o.differences, o.first_difference, o.balance, o.recorded_at
            FROM ledger_observation AS o
            WHERE o.holder_id = a.holder_id AND o.credit_type = a.credit_type
            ORDER BY o.number DESC
            LIMIT 1
        ) AS last
        LEFT JOIN LATERAL (
            SELECT is_return FROM ledger_promotion AS p WHERE p.holder_id = a.holder_id ORDER BY p.number DESC LIMIT 1
        ) AS p ON true
        WHERE {bounds}
    ) AS account
    WHERE %(state)s::text IS NULL OR state = %(state)s
    ORDER BY holder_id {order}, credit_type {order}
    LIMIT %(limit)s
"""
ALL: Final = "(SELECT holder_id, credit_type FROM ledger_observation WHERE number = 1)"
WITH_FIRST_DIFFERENCE: Final = "(SELECT DISTINCT holder_id, credit_type FROM ledger_observation WHERE first_difference = number)"
OBSERVED_COLUMNS: Final = """
    o.id, o.holder_id, o.credit_type, o.number, o.idempotency_key, o.operation, o.amount, o.is_allowed, o.balance, o.of_key,
    o.reference, o.occurred_at, o.ledger_allows, o.ledger_balance, o.refusal, o.difference, o.actor, o.recorded_at
"""
FIRST: Final = f"""
    SELECT {OBSERVED_COLUMNS}
    FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS wanted (holder_id, credit_type, number)
    JOIN ledger_observation AS o USING (holder_id, credit_type, number)
"""
OBSERVATIONS: Final = f"""
    SELECT {OBSERVED_COLUMNS}
    FROM ledger_observation AS o
    WHERE (%(holder)s::text IS NULL OR o.holder_id = %(holder)s)
        AND (%(credit_type)s::text IS NULL OR o.credit_type = %(credit_type)s)
        AND (%(different)s::boolean IS NULL OR (o.difference IS NOT NULL) = %(different)s)
        AND o.id < COALESCE(%(before)s, 9223372036854775807) AND o.id > COALESCE(%(after)s, 0)
    ORDER BY o.id {{order}}
    LIMIT %(limit)s
"""
COUNTS: Final = """
    SELECT state, count(*), sum(observations)::bigint, sum(differences)::bigint
    FROM (
        SELECT
            last.number AS observations, last.differences,
            CASE WHEN NOT p.is_return THEN 'promoted' WHEN last.differences > 0 THEN 'different' ELSE 'same' END AS state
        FROM ledger_observation AS a
        CROSS JOIN LATERAL (
            SELECT o.number, o.differences
            FROM ledger_observation AS o
            WHERE o.holder_id = a.holder_id AND o.credit_type = a.credit_type
            ORDER BY o.number DESC
            LIMIT 1
        ) AS last
        LEFT JOIN LATERAL (
            SELECT is_return FROM ledger_promotion AS p WHERE p.holder_id = a.holder_id ORDER BY p.number DESC LIMIT 1
        ) AS p ON true
        WHERE a.number = 1
    ) AS account
    GROUP BY state
"""


class Observed(NamedTuple):
    """An observation, with both sides."""

    id: int
    holder_id: str
    credit_type: str
    number: int
    idempotency_key: str | None
    operation: str
    amount: int | None
    is_allowed: bool
    balance: int
    of_key: str | None
    reference: str
    occurred_at: datetime
    ledger_allows: bool | None
    ledger_balance: int | None
    refusal: dict[str, Any] | None
    difference: str | None
    actor: str
    recorded_at: datetime

    @property
    def text(self) -> str:
        """How both sides differ, in a sentence; empty if they do not."""
        return sentence(
            operation=self.operation, amount=self.amount, is_allowed=self.is_allowed, balance=self.balance,
            difference=self.difference, ledger_allows=self.ledger_allows, ledger_balance=self.ledger_balance,
            refusal=self.refusal,
        )  # fmt: skip

    def shown(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        return {
            "id": self.id,
            "holder_id": self.holder_id,
            "credit_type": self.credit_type,
            "number": self.number,
            "idempotency_key": self.idempotency_key,
            "operation": self.operation,
            "amount": self.amount,
            "allowed": self.is_allowed,
            "balance": self.balance,
            "of": self.of_key,
            "reference": self.reference,
            "occurred_at": to_text(to_us(self.occurred_at)),
            "ledger_allows": self.ledger_allows,
            "ledger_balance": self.ledger_balance,
            "ledger_refusal": None if self.refusal is None else self.refusal["code"],
            "difference": self.difference,
            "detail": self.text,
            "recorded_at": to_text(to_us(self.recorded_at)),
            "recorded_by": self.actor,
        }


class ObservedAccount(NamedTuple):
    """An observed account, with its first difference."""

    holder_id: str
    credit_type: str
    state: str
    observations: int
    differences: int
    balance: int
    last_seen_at: datetime
    first: Observed | None

    @property
    def keyset(self) -> tuple[str, str]:
        return self.holder_id, self.credit_type

    def shown(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        return {
            "holder_id": self.holder_id,
            "credit_type": self.credit_type,
            "state": self.state,
            "observations": self.observations,
            "differences": self.differences,
            "balance": self.balance,
            "last_seen_at": to_text(to_us(self.last_seen_at)),
            "first_difference": None if self.first is None else self.first.shown(),
        }


def accounts(
    *,
    state: str | None = None,
    holder: str | None = None,
    before: tuple[Any, ...] | None = None,
    after: tuple[Any, ...] | None = None,
    limit: int = 50,
) -> list[ObservedAccount]:
    """Return a page of the observed accounts, by holder and credit type.

    Args:
        state, holder: only these.
        before: only those that come before this holder and credit type, the nearest ones; `after`: only those that come after.
    """
    bounds = ["true"]
    bounds += ["a.holder_id = %(holder)s"] if holder is not None else []
    bounds += ["(a.holder_id, a.credit_type) > (%(after)s, %(after_type)s)"] if after is not None else []
    bounds += ["(a.holder_id, a.credit_type) < (%(before)s, %(before_type)s)"] if before is not None else []
    sql = ACCOUNTS.format(
        accounts=WITH_FIRST_DIFFERENCE if state == DIFFERENT else ALL,
        bounds=" AND ".join(bounds),
        order="ASC" if before is None else "DESC",
    )
    after_holder, after_type = after or (None, None)
    before_holder, before_type = before or (None, None)
    given = {
        "state": state, "holder": holder, "after": after_holder, "after_type": after_type, "before": before_holder,
        "before_type": before_type, "limit": limit,
    }  # fmt: skip
    rows = fetch_rows(lambda *row: row, sql, given)
    firsts = _firsts([(row[0], row[1], row[7]) for row in rows if row[7] is not None])
    found = [ObservedAccount._make((*row[:7], firsts.get((row[0], row[1])))) for row in rows]
    return found if before is None else found[::-1]


def _firsts(wanted: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str], Observed]:
    if not wanted:
        return {}
    columns = [list(column) for column in zip(*wanted, strict=True)]
    return {(each.holder_id, each.credit_type): each for each in fetch_rows(Observed, FIRST, columns)}


def observations(
    *,
    holder: str | None = None,
    credit_type: str | None = None,
    different: bool | None = None,
    before: tuple[Any, ...] | None = None,
    after: tuple[Any, ...] | None = None,
    limit: int = 50,
) -> list[Observed]:
    """Return a page of observations, newest first.

    Args:
        holder, credit_type, different: only these.
        before: only those with a smaller id; `after`: only those with a larger one, those next to it.
    """
    given = {
        "holder": holder, "credit_type": credit_type, "different": different, "before": before and before[0],
        "after": after and after[0], "limit": limit,
    }  # fmt: skip
    observed_rows = fetch_rows(Observed, OBSERVATIONS.format(order="DESC" if after is None else "ASC"), given)
    return observed_rows if after is None else observed_rows[::-1]


class StateCount(NamedTuple):
    """How many accounts are in a state, with their observations and differences."""

    state: str
    accounts: int
    observations: int
    differences: int


def counts() -> dict[str, StateCount]:
    """Return how many accounts are in each state."""
    found = {each.state: each for each in fetch_rows(StateCount, COUNTS)}
    return {state: found.get(state, StateCount(state, 0, 0, 0)) for state in STATES}
