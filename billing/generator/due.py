"""Which subscriptions have something to bill: hints for the generator, which looks again under the lock. Locks nothing."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from django.db import connection

CHUNK_ROWS = 100
MISSES_TO_LOOK_AGAIN = 3
TOGETHER = 1_000
"""Subscriptions of one customer in one transaction at most: each has a lock, and the server has room for so many."""

# By keyset on the id and a chunk at a time: memory stays flat however many are due, what others have billed meanwhile drops
# out of the next chunk, and nothing is held open through a pooler between two transactions.
_FROM = """
    FROM billing_subscription AS s
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE
"""
_IS_DUE = """
        (
            cursor.subscription_id IS NULL
            OR (%(recurring)s AND (
                cursor.recurring_due_at <= %(as_of)s
                OR EXISTS (SELECT FROM billing_amendment AS a
                    WHERE a.subscription_id = s.id AND a.sequence > cursor.recurring_amendments_seen)
                OR EXISTS (SELECT FROM billing_charge AS o
                    WHERE o.subscription_id = s.id AND o.sequence > cursor.charges_seen)))
            OR (%(usage)s AND (
                cursor.usage_due_at <= %(as_of)s
                OR EXISTS (SELECT FROM billing_amendment AS a
                    WHERE a.subscription_id = s.id AND a.sequence > cursor.usage_amendments_seen)))
            OR EXISTS (SELECT FROM billing_invoice AS i
                WHERE i.subscription_id = s.id AND i.state = 'draft' AND i.grace_ends_at <= %(as_of)s)
        )
        AND (%(parked)s OR NOT EXISTS (
            SELECT FROM billing_parking AS p WHERE p.subscription_id = s.id AND p.unparked_at IS NULL))
        AND (%(customers)s::text[] IS NULL OR EXISTS (
            SELECT FROM billing_customer AS c WHERE c.id = s.customer_id AND c.ref = ANY(%(customers)s)))
        AND ((%(plans)s::text[] IS NULL AND %(currency)s::text IS NULL) OR EXISTS (
            SELECT FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id
            WHERE v.subscription_id = s.id AND v.superseded_at IS NULL
                AND (%(plans)s::text[] IS NULL OR p.code = ANY(%(plans)s))
                AND (%(currency)s::text IS NULL OR p.currency = %(currency)s)))
"""
DUE = f"""
    SELECT s.id, s.ref, s.customer_id
    {_FROM}
        s.id > %(after)s AND s.id %% %(shards)s = %(shard)s AND NOT s.id = ANY(%(tried)s) AND
    {_IS_DUE}
    ORDER BY s.id
    LIMIT %(rows)s
"""
# Whose subscriptions share credits or coupons.
CUSTOMERS = """
    SELECT c.id, c.holder_id <> '' OR EXISTS (SELECT FROM billing_customercoupon AS cc WHERE cc.customer_id = c.id)
    FROM billing_customer AS c
    WHERE c.id > %(after)s AND c.id %% %(shards)s = %(shard)s
    ORDER BY c.id
    LIMIT %(rows)s
"""
DUE_OF_CUSTOMERS = f"""
    SELECT s.customer_id, s.ref
    {_FROM}
        s.customer_id = ANY(%(of_customers)s) AND
    {_IS_DUE}
    ORDER BY s.customer_id, s.id
"""
CUSTOMERS_OF = """
    SELECT s.ref, s.customer_id FROM billing_subscription AS s WHERE s.ref = ANY(%s) ORDER BY s.id
"""
HOW_MANY = f"SELECT count(*) {_FROM} {_IS_DUE}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which subscriptions a run looks at; None is all.

    Args:
        recurring, usage: what is billed.
        parked: those that are parked as well.
    """

    as_of: datetime
    recurring: bool = True
    usage: bool = True
    parked: bool = False
    customers: tuple[str, ...] | None = None
    plans: tuple[str, ...] | None = None
    currency: str | None = None


def how_many(wanted: Filter) -> int:
    """How many subscriptions are due at this moment: for an estimate of the time left, since it looks at all of them."""
    with connection.cursor() as cursor:
        cursor.execute(HOW_MANY, _parameters(wanted))
        return int(cursor.fetchone()[0])


def _parameters(wanted: Filter) -> dict[str, Any]:
    return {
        "as_of": wanted.as_of,
        "recurring": wanted.recurring,
        "usage": wanted.usage,
        "parked": wanted.parked,
        "customers": list(wanted.customers) if wanted.customers else None,
        "plans": list(wanted.plans) if wanted.plans else None,
        "currency": wanted.currency,
    }


class DueWalk:
    """The refs of subscriptions that may be due, each once, in chunks by id; within one, the customers in no particular order.

    The subscriptions of a customer come by id, so credits that they share go to the same ones in every run of one worker.
    The workers of a run divide the ids among themselves. Several runs walk the same ids: whoever misses a few times in a row,
    because another run is at this chunk, looks again at what is still due instead of going through what is done.

    Args:
        shard, shards: which ids, by their remainder.
    """

    def __init__(self, wanted: Filter, *, shard: int = 0, shards: int = 1) -> None:
        self._wanted = wanted
        self._shard, self._shards = shard, shards
        self._misses = 0

    def missed(self, missed: bool) -> None:
        """Say whether the ref that was given last was busy or done by others."""
        self._misses = self._misses + 1 if missed else 0

    def __iter__(self) -> Iterator[str]:
        after, tried = 0, list[int]()
        while rows := self._chunk(after, tried):
            last_id = rows[-1][0]
            is_last = len(rows) < CHUNK_ROWS
            place = {customer_id: random.random() for _, _, customer_id in rows}
            for subscription_id, ref, _ in sorted(rows, key=lambda row: (place[row[2]], row[0])):
                tried.append(subscription_id)
                yield ref
                if self._misses >= MISSES_TO_LOOK_AGAIN:
                    break
            else:
                if is_last:
                    return
                after, tried = last_id, []
            self._misses = 0

    def _chunk(self, after: int, tried: list[int]) -> list[tuple[int, str, int]]:
        place = {
            "after": after,
            "shard": self._shard,
            "shards": self._shards,
            "tried": tried,
            "rows": CHUNK_ROWS,
        }
        with connection.cursor() as cursor:
            cursor.execute(DUE, _parameters(self._wanted) | place)
            return cursor.fetchall()


def due_together(wanted: Filter, refs: Sequence[str] = (), *, shard: int = 0, shards: int = 1) -> Iterator[tuple[str, ...]]:
    """The refs of subscriptions that may be due, those of one customer together and by id where they share credits or coupons.

    Args:
        refs: these and no others; empty: those that are due.
        shard, shards: which customers, by the remainder of their ids.
    """
    if refs:
        yield from _by_customer(refs)[shard::shards]
        return
    after = 0
    while customers := _page(CUSTOMERS, {"after": after, "shard": shard, "shards": shards, "rows": CHUNK_ROWS}):
        after = customers[-1][0]
        sharing = {customer_id for customer_id, has_shared in customers if has_shared}
        of_customers = [customer_id for customer_id, _ in customers]
        due = _page(DUE_OF_CUSTOMERS, _parameters(wanted) | {"of_customers": of_customers})
        for customer_id, rows in groupby(due, key=lambda row: row[0]):
            found = tuple(ref for _, ref in rows)
            size = TOGETHER if customer_id in sharing else 1
            yield from (found[first : first + size] for first in range(0, len(found), size))


def _by_customer(refs: Sequence[str]) -> list[tuple[str, ...]]:
    """Those that do not exist are by themselves: billing them says so."""
    known: dict[str, int] = dict(_page(CUSTOMERS_OF, [list(refs)]))
    groups: dict[int, list[str]] = {}
    for ref, customer_id in known.items():
        groups.setdefault(customer_id, []).append(ref)
    return [*map(tuple, groups.values()), *((ref,) for ref in dict.fromkeys(refs) if ref not in known)]


def _page(sql: str, parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall()
