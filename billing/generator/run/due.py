"""Finds subscriptions that may have something to bill. Takes no lock: the generator looks again under its own."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from django.utils import timezone

from ledger import conf
from ledger.database.statements import fetch_rows, fetch_value

CHUNK_ROWS = 100
MISSES_TO_LOOK_AGAIN = 3

# By keyset on the id, a chunk at a time. So memory does not grow with the number of due subscriptions, the next chunk leaves out
# what other processes have billed, and no cursor stays open between two transactions.
_FROM = """
    FROM billing_subscription AS s
    LEFT JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE
"""
_HAS_PLAN = """((%(plans)s::text[] IS NULL AND %(currency)s::text IS NULL) OR EXISTS (
            SELECT FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id
            WHERE v.subscription_id = {subscription_id} AND v.superseded_at IS NULL
                AND (%(plans)s::text[] IS NULL OR p.code = ANY(%(plans)s))
                AND (%(currency)s::text IS NULL OR p.currency = %(currency)s)))"""
_PASSES_FILTER = f"""
        (%(suspended)s OR NOT EXISTS (
            SELECT FROM billing_suspendedbilling AS b WHERE b.subscription_id = s.id AND b.resumed_at IS NULL))
        AND (%(customers)s::text[] IS NULL OR EXISTS (
            SELECT FROM billing_customer AS c WHERE c.id = s.customer_id AND c.ref = ANY(%(customers)s)))
        AND {_HAS_PLAN.format(subscription_id="s.id")}
"""
# It waits for its first payment, or waited in vain; one without its first invoice is due.
_NOT_STARTED = """EXISTS (
            SELECT FROM billing_activation AS activation
            WHERE activation.subscription_id = s.id AND activation.state <> 'started'
                AND NOT (activation.state = 'waiting' AND (activation.invoice_id IS NULL OR %(as_if_paid)s)))"""
_HELD = """make_interval(hours => 24 * coalesce(
            s.hold_days, (SELECT held.hold_days FROM billing_customer AS held WHERE held.id = s.customer_id)))"""
_SHARES_INVOICES = """coalesce(s.consolidated_invoicing, (
            SELECT sharing.consolidated_invoicing FROM billing_customer AS sharing WHERE sharing.id = s.customer_id))"""
# The first condition is computed once: most deployments bill no usage of running periods.
_BILLS_RUNNING = """(SELECT EXISTS (SELECT FROM billing_plan WHERE usage_threshold IS NOT NULL)
                        OR EXISTS (SELECT FROM billing_price WHERE kind = 'usage' AND timing = 'advance')) AND EXISTS (
                    SELECT FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id
                    LEFT JOIN billing_price AS price ON price.id = v.price_id
                    WHERE v.subscription_id = s.id AND v.superseded_at IS NULL
                        AND (p.usage_threshold IS NOT NULL OR price.kind = 'usage' AND price.timing = 'advance')
                        AND v.starts_at < %(as_of)s AND coalesce(v.ends_at, 'infinity') > %(as_of)s)"""
# Something was recorded about what entries bill: of a running period, any entry; after the last period, a refund or a capture.
_HAS_NEW_ENTRIES = """EXISTS (
                    SELECT
                    FROM billing_itemversion AS v
                    JOIN billing_price AS price ON price.id = v.price_id
                        AND (price.definition ->> 'billed_by' = 'entries' OR starts_with(price.meter, 'overage:'))
                    JOIN billing_customer AS owner ON owner.id = s.customer_id AND owner.holder_id <> ''
                    CROSS JOIN LATERAL (SELECT
                        coalesce(price.definition -> 'entries' ->> 'credit_type', substr(price.meter, 9)) AS credit_type,
                        coalesce(cursor.usage_seen_until, '-infinity') AS seen_until) AS account
                    WHERE v.subscription_id = s.id AND CASE
                        WHEN cursor.usage_due_at IS NULL
                        THEN ledger_use_changed_since(owner.holder_id, account.credit_type, account.seen_until)
                        ELSE ledger_sequence_at(owner.holder_id, account.credit_type, 'infinity')
                            > ledger_sequence_at(owner.holder_id, account.credit_type, account.seen_until)
                        END)"""
_IS_DUE = f"""
        {_PASSES_FILTER} AND NOT {_NOT_STARTED} AND
        (
            cursor.subscription_id IS NULL
            OR (%(recurring)s AND (
                cursor.recurring_due_at <= %(as_of)s AND cursor.recurring_due_at + {_HELD} <= %(as_of)s
                OR cursor.recurring_amendments_seen <> coalesce(
                    (SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id), 0)
                OR cursor.charges_seen <> coalesce(
                    (SELECT max(o.sequence) FROM billing_charge AS o WHERE o.subscription_id = s.id), 0)))
            OR (%(usage)s AND (
                cursor.usage_due_at <= %(as_of)s AND cursor.usage_due_at + {_HELD} <= %(as_of)s
                OR cursor.usage_amendments_seen <> coalesce(
                    (SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id), 0)
                OR ((cursor.usage_due_at IS NULL OR {_BILLS_RUNNING}) AND (
                    EXISTS (SELECT FROM billing_usageevent AS e
                        WHERE e.subscription_id = s.id AND e.recorded_at > coalesce(cursor.usage_seen_until, '-infinity'))
                    OR {_HAS_NEW_ENTRIES}))))
            -- The cursor is a hint. Even if it says that nothing is due for long, an active item of which nothing is billed
            -- since its last period is due.
            OR (
                coalesce(least(cursor.recurring_due_at, cursor.usage_due_at), 'infinity')
                    > %(as_of)s::timestamptz + interval '32 days'
                AND EXISTS (
                    SELECT
                    FROM billing_itemversion AS v
                    JOIN billing_price AS price ON price.id = v.price_id
                    JOIN billing_plan AS plan ON plan.id = v.plan_id
                    CROSS JOIN LATERAL (
                        SELECT %(as_of)s::timestamptz - interval '1 day'
                            - CASE WHEN price.kind = 'usage' OR price.timing = 'arrears' THEN billing_interval(plan, price)
                                ELSE interval '0' END AS since
                    ) AS settled
                    WHERE v.subscription_id = s.id AND v.superseded_at IS NULL
                        AND CASE price.kind WHEN 'recurring' THEN %(recurring)s ELSE %(usage)s END
                        AND greatest(v.starts_at, s.trial_end) < settled.since AND coalesce(v.ends_at, 'infinity') > settled.since
                        AND NOT EXISTS (
                            SELECT FROM billing_claim AS c
                            WHERE c.subscription_id = s.id AND c.item_id = v.item_id AND c.released_at IS NULL
                                AND c.kind = CASE price.kind WHEN 'recurring' THEN 1 ELSE 2 END AND c.ends_at > settled.since)))
            OR EXISTS (SELECT FROM billing_invoice AS i
                WHERE i.subscription_id = s.id AND i.state = 'draft' AND i.grace_ends_at <= %(as_of)s)
        )
"""
_CLOCK = "(SELECT ledger_clock(clocked.holder_id) FROM billing_customer AS clocked WHERE clocked.id = s.customer_id)"
BY_CLOCK = f"coalesce({_CLOCK}, %(as_of)s)"
BY_CLOCK_OR_LATER = f"greatest({_CLOCK}, %(as_of)s)"
DUE = f"""
    SELECT s.id, s.ref, s.customer_id
    {_FROM}
        s.id > %(after)s AND NOT s.id = ANY(%(tried)s) AND
        -- One worker has all subscriptions that share invoices.
        (%(shards)s = 1 OR CASE WHEN {_SHARES_INVOICES} THEN s.customer_id ELSE s.id END %% %(shards)s = %(shard)s) AND
    {_IS_DUE}
    ORDER BY s.id
    LIMIT %(rows)s
"""
# Customers, and whether their subscriptions share credits, coupons or credit in money.
CUSTOMERS = """
    SELECT c.id, c.holder_id <> '' OR EXISTS (SELECT FROM billing_customercoupon AS cc WHERE cc.customer_id = c.id)
        OR EXISTS (SELECT FROM billing_subscription AS s WHERE s.customer_id = c.id OFFSET 1)
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
DUE_AMONG = f"SELECT s.ref {_FROM} s.ref = ANY(%(among)s) AND {_IS_DUE} ORDER BY s.id"
CUSTOMERS_OF = """
    SELECT s.customer_id, s.ref FROM billing_subscription AS s WHERE s.ref = ANY(%s)
"""
# Customers whose drafts wait for a consolidated invoice; in a run for some plans, one of the drafts is of such a plan.
CONSOLIDATING = f"""
    SELECT DISTINCT c.id, c.ref
    FROM billing_invoice AS part JOIN billing_customer AS c ON c.id = part.customer_id
    WHERE part.state = 'draft' AND part.consolidates_on IS NOT NULL AND c.id > %(after)s AND c.id %% %(shards)s = %(shard)s
        AND (%(customers)s::text[] IS NULL OR c.ref = ANY(%(customers)s))
        AND (%(among)s::text[] IS NULL OR EXISTS (
            SELECT FROM billing_subscription AS s WHERE s.customer_id = c.id AND s.ref = ANY(%(among)s)))
        AND {_HAS_PLAN.format(subscription_id="part.subscription_id")}
    ORDER BY c.id
    LIMIT %(rows)s
"""
_COMES = f"""
    ({_PASSES_FILTER} AND EXISTS (
        SELECT FROM billing_customer AS c CROSS JOIN LATERAL (SELECT least(
            CASE WHEN %(recurring)s THEN cursor.recurring_due_at END, CASE WHEN %(usage)s THEN cursor.usage_due_at END
        ) + {_HELD} AS at) AS next
        WHERE c.id = s.customer_id AND next.at > %(as_of)s
            AND next.at < (%(day)s::date + 1)::timestamp AT TIME ZONE c.time_zone))
"""
# The subscriptions without a draft for the invoice of the day that are due, or will be on that day.
WITHOUT_DRAFT = f"""
    SELECT s.ref, {_COMES} AS comes
    {_FROM}
        s.customer_id = %(customer_id)s AND {_SHARES_INVOICES}
        AND (%(among)s::text[] IS NULL OR s.ref = ANY(%(among)s))
        AND NOT EXISTS (SELECT FROM billing_invoice AS part
            WHERE part.subscription_id = s.id AND part.state = 'draft' AND part.consolidates_on = %(day)s)
        AND ({_IS_DUE} OR {_COMES})
"""
SHARE_INVOICES = f"SELECT EXISTS (SELECT FROM billing_subscription AS s WHERE s.ref = ANY(%s) AND {_SHARES_INVOICES})"
CONCERNED = f"SELECT s.ref FROM billing_subscription AS s WHERE s.ref = ANY(%(refs)s) AND {_PASSES_FILTER}"
HOW_MANY = f"SELECT count(*) {_FROM} {_IS_DUE}"


class _Due(NamedTuple):
    """A row of DUE."""

    id: int
    ref: str
    customer_id: int


class _CustomerRow(NamedTuple):
    """A row of CUSTOMERS."""

    id: int
    shares: bool
    """True if subscriptions of the customer share credits or coupons."""


class _Consolidating(NamedTuple):
    """A row of CONSOLIDATING."""

    id: int
    ref: str


class _WithoutDraft(NamedTuple):
    """A row of WITHOUT_DRAFT."""

    ref: str
    comes: bool
    """True if it will be due later on the day."""


class _OfCustomer(NamedTuple):
    """A row of DUE_OF_CUSTOMERS, and of CUSTOMERS_OF."""

    customer_id: int
    ref: str


@dataclass(frozen=True, slots=True)
class DueFilter:
    """The subscriptions that a run looks at. None: not filtered by this.

    Args:
        recurring, usage: the prices that the run bills.
        suspended: also subscriptions whose billing is suspended.
        as_if_paid: also subscriptions that wait for their first payment.
    """

    as_of: datetime
    recurring: bool = True
    usage: bool = True
    suspended: bool = False
    as_if_paid: bool = False
    customers: tuple[str, ...] | None = None
    plans: tuple[str, ...] | None = None
    currency: str | None = None


def how_many(due_filter: DueFilter) -> int:
    """Return how many subscriptions are due now. Looks at all of them; for an estimate of the time left."""
    [count] = fetch_rows(int, _by_clocks(HOW_MANY, due_filter), _parameters(due_filter))
    return count


def due_among(refs: Sequence[str], due_filter: DueFilter) -> list[str]:
    """Return those of these subscriptions that may be due now, in the order in which a run bills them."""
    return fetch_rows(str, _by_clocks(DUE_AMONG, due_filter), _parameters(due_filter) | {"among": list(refs)})


def is_waited_for(
    due_filter: DueFilter, customer_id: int, day: date, *, had_turn: Collection[str], among: Sequence[str] | None = None
) -> bool:
    """Return whether the consolidated invoice of a day waits for a subscription of the customer.

    Args:
        due_filter: only its instant and kinds count.
        had_turn: subscriptions that have had their turn; nothing was due, or a person has to check them.
        among: wait only for these; None: for all.
    """
    everybody = replace(due_filter, customers=None, plans=None, currency=None)
    values = {"customer_id": customer_id, "day": day, "among": None if among is None else list(among)}
    missing = fetch_rows(_WithoutDraft, _by_clocks(WITHOUT_DRAFT, everybody), _parameters(everybody) | values)
    return any(each.comes or each.ref not in had_turn for each in missing)


def share_invoices(refs: Sequence[str]) -> bool:
    """Return whether one of these subscriptions shares invoices with others."""
    return fetch_value(bool, SHARE_INVOICES, [list(refs)])


def concerned(due_filter: DueFilter, refs: Sequence[str]) -> set[str]:
    """Return those of these subscriptions that a run looks at when they are due; suspended ones too."""
    return set(fetch_rows(str, CONCERNED, _parameters(due_filter) | {"suspended": True, "refs": list(refs)}))


def _by_clocks(sql: str, due_filter: DueFilter) -> str:
    """Return the query with the instant up to which `generate` bills where holders may have test clocks."""
    if not conf.TEST_CLOCKS.value:
        return sql
    return sql.replace("%(as_of)s", BY_CLOCK if due_filter.as_of <= timezone.now() else BY_CLOCK_OR_LATER)


def _parameters(due_filter: DueFilter) -> dict[str, Any]:
    return {
        "as_of": due_filter.as_of,
        "recurring": due_filter.recurring,
        "usage": due_filter.usage,
        "suspended": due_filter.suspended,
        "as_if_paid": due_filter.as_if_paid,
        "customers": list(due_filter.customers) if due_filter.customers else None,
        "plans": list(due_filter.plans) if due_filter.plans else None,
        "currency": due_filter.currency,
    }


class DueWalk:
    """Yields the refs of subscriptions that may be due, each once, in chunks by id; within a chunk the customers' order is
    random.

    The subscriptions of a customer come by id, so credits that they share go to the same ones in every run of one worker. The
    workers of a run divide the ids among themselves. Several runs walk the same ids: after a few misses in a row another run is
    probably at this chunk, so this run reads the chunk again, without the subscriptions that are done.

    Args:
        shard, shards: the ids of this worker, by their remainder.
    """

    def __init__(self, due_filter: DueFilter, *, shard: int = 0, shards: int = 1) -> None:
        self._filter = due_filter
        self._shard, self._shards = shard, shards
        self._misses = 0

    def missed(self, missed: bool) -> None:
        """Record whether the last ref was busy, or billed by another process."""
        self._misses = self._misses + 1 if missed else 0

    def __iter__(self) -> Iterator[str]:
        after, tried = 0, list[int]()
        while rows := self._chunk(after, tried):
            last_id = rows[-1].id
            is_last = len(rows) < CHUNK_ROWS
            place = {row.customer_id: random.random() for row in rows}
            for row in sorted(rows, key=lambda row: (place[row.customer_id], row.id)):
                tried.append(row.id)
                yield row.ref
                if self._misses >= MISSES_TO_LOOK_AGAIN:
                    break
            else:
                if is_last:
                    return
                after, tried = last_id, []
            self._misses = 0

    def _chunk(self, after: int, tried: list[int]) -> list[_Due]:
        place = {
            "after": after,
            "shard": self._shard,
            "shards": self._shards,
            "tried": tried,
            "rows": CHUNK_ROWS,
        }
        return fetch_rows(_Due, _by_clocks(DUE, self._filter), _parameters(self._filter) | place)


def due_together(
    due_filter: DueFilter, refs: Sequence[str] = (), *, shard: int = 0, shards: int = 1
) -> Iterator[tuple[str, ...]]:
    """Yield the refs of subscriptions that may be due; together, by id, those of a customer that share credits or coupons.

    Args:
        refs: only these; empty: all that are due.
        shard, shards: the customers of this worker, by the remainder of their ids.
    """
    if refs:
        yield from _by_customer(refs)[shard::shards]
        return
    after = 0
    page = {"shard": shard, "shards": shards, "rows": CHUNK_ROWS}
    while customers := fetch_rows(_CustomerRow, CUSTOMERS, page | {"after": after}):
        after = customers[-1].id
        sharing = {customer.id for customer in customers if customer.shares}
        of_customers = {"of_customers": [customer.id for customer in customers]}
        due = fetch_rows(_OfCustomer, _by_clocks(DUE_OF_CUSTOMERS, due_filter), _parameters(due_filter) | of_customers)
        for customer_id, rows in groupby(due, key=attrgetter("customer_id")):
            found = tuple(row.ref for row in rows)
            yield from [found] if customer_id in sharing else ((ref,) for ref in found)


def consolidating(due_filter: DueFilter, refs: Sequence[str] = (), *, shard: int = 0, shards: int = 1) -> Iterator[str]:
    """Yield the refs of customers whose drafts wait for a consolidated invoice, by id.

    A run for some plans or a currency makes no invoice of which no draft is of these: see CONSOLIDATING.

    Args:
        refs: only customers of these subscriptions; empty: all.
        shard, shards: the customers of this worker, by the remainder of their ids.
    """
    after = 0
    page = {"shard": shard, "shards": shards, "rows": CHUNK_ROWS, "among": list(refs) or None}
    while rows := fetch_rows(_Consolidating, CONSOLIDATING, _parameters(due_filter) | page | {"after": after}):
        after = rows[-1].id
        yield from (row.ref for row in rows)


def _by_customer(refs: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the refs by customer, each customer's in the order in which a run bills them: as they are named.

    A ref that does not exist is a separate group, and its result reports that.
    """
    place = {ref: index for index, ref in enumerate(refs)}
    known = fetch_rows(_OfCustomer, CUSTOMERS_OF, [list(refs)])
    groups: dict[int, list[str]] = {}
    for row in sorted(known, key=lambda row: place[row.ref]):
        groups.setdefault(row.customer_id, []).append(row.ref)
    unknown = dict.fromkeys(refs).keys() - {row.ref for row in known}
    return [*map(tuple, groups.values()), *((ref,) for ref in dict.fromkeys(refs) if ref in unknown)]
