"""The billed periods of a subscription, and its unbilled one-off charges. Read under the lock, without row locks."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import connection

from billing.documents.credit_notes import noted_minor
from billing.documents.invoice_locks import invoice_key
from billing.generator.state.open_claims import (
    OneOffCharge,
    OpenClaim,
    anchor_of,
    read_bound_terms,
    read_coverage,
    read_net_of_groups,
    read_origin,
    read_taxed,
)
from billing.generator.state.spans import BoundClaim
from billing.generator.state.subscription_state import SubscriptionState, schedule_of
from billing.metering import usage
from billing.models import Claim
from billing.orders import plans
from billing.rating.aggregation import KEPT, stored_usage
from ledger.database.locks import Lock
from ledger.database.statements import Statement, array, decimal, instant, integer, parameter

CLAIMS_SQL = """
    SELECT id, item_id, kind, starts_at, ends_at, price_id, quantity::text, amount_minor, invoice_id, line_position,
        snapshot::text
    FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind IN (1, 2, 4) AND ends_at > %s
    ORDER BY item_id, starts_at
"""

CHARGES = """
    SELECT o.id, o.currency, o.amount_minor, o.description, o.tax_category, o.tax_rate, o.tax_class, o.recorded_at
    FROM billing_charge AS o
    WHERE o.subscription_id = %s AND NOT EXISTS (
        SELECT FROM billing_claim AS c WHERE c.item_id = o.id AND c.kind = 3 AND c.released_at IS NULL
            AND c.subscription_id = o.subscription_id)
    ORDER BY o.sequence
"""

# Usage claims with events recorded after the claim, whatever the age of the events; claims that count again since a void; and
# claims whose late usage an earlier run left out. A level counts until the next one is reported, so also in later periods. If the
# events of a month were dropped, its usage cannot be measured again. MATERIALIZED and OFFSET 0 keep PostgreSQL to the index on
# the recording time: its plan for all values may otherwise read all events of the meter for each claim.
LATE_SQL = """
    WITH late AS MATERIALIZED (
        SELECT e.meter, e.occurred_at, e.recorded_at
        FROM (
            SELECT meter, occurred_at, recorded_at FROM billing_usageevent
            WHERE subscription_id = %(subscription)s AND recorded_at > %(seen_until)s
            OFFSET 0
        ) AS e
        WHERE e.occurred_at < (
            SELECT max(c.ends_at) FROM billing_claim AS c
            WHERE c.subscription_id = %(subscription)s AND c.released_at IS NULL AND c.kind = 2)
    ), found AS (
        SELECT c.id FROM billing_claim AS c
        WHERE c.subscription_id = %(subscription)s AND c.released_at IS NULL AND c.measure_again <> ''
        UNION
        SELECT c.id
        FROM late AS e
        JOIN billing_claim AS c ON c.subscription_id = %(subscription)s AND c.released_at IS NULL AND c.kind = 2
            AND c.ends_at > e.occurred_at AND c.created_at < e.recorded_at + make_interval(secs => %(in_flight_s)s)
        JOIN billing_price AS p ON p.id = c.price_id AND p.meter = e.meter
        WHERE c.starts_at <= e.occurred_at OR p.definition ->> 'aggregation' = ANY(%(kept)s)
    )
    SELECT c.id, c.starts_at, c.measure_again
    FROM found JOIN billing_claim AS c USING (id)
    WHERE NOT EXISTS (
        SELECT FROM billing_droppedmonth AS d
        WHERE d.month::timestamp AT TIME ZONE 'UTC' < c.ends_at
            AND (d.month + interval '1 month') AT TIME ZONE 'UTC' > c.starts_at)
"""

MARK_CLAIMS = Statement(
    "mark_claims",
    """
    UPDATE billing_claim AS claim SET measure_again = marked.measure_again
    FROM jsonb_to_recordset(%s::jsonb) AS marked(id bigint, measure_again text)
    WHERE claim.id = marked.id AND claim.measure_again <> marked.measure_again
""",
)

USAGE_STARTS = """
    SELECT item_id, starts_at, price_id, (snapshot ->> 'anchor_at')::timestamptz FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 2
    ORDER BY starts_at DESC
"""

PERIODS_LOOKED_AT = 3
"""Every run reads this number of an item's newest claims: a change may reach back into them."""

LONG_AGO = "0001-01-01T00:00:00+00:00"


class _ClaimRow(NamedTuple):
    """A row of CLAIMS."""

    id: int
    item_id: int
    kind: int
    starts_at: datetime
    ends_at: datetime
    price_id: int
    quantity: Decimal
    amount_minor: int
    invoice_id: int | None
    line_position: int | None
    snapshot: Any


CLAIMS = Statement(
    "claims_to_bill", CLAIMS_SQL,
    [integer, integer, integer, instant, instant, integer, decimal, integer, integer, integer, json.loads], row=_ClaimRow._make,
)  # fmt: skip


def read_claims(
    lock: Lock, subscription: SubscriptionState, since: datetime | None
) -> tuple[dict[Claim.Kind, dict[int, list[OpenClaim]]], list[BoundClaim]]:
    """Return the open claims that end after `since`, by kind and item, and those on minimums and maximums; None: all of them."""
    lock.ensure_held(invoice_key(subscription.ref))
    open_claims: dict[Claim.Kind, dict[int, list[OpenClaim]]] = {Claim.Kind.RECURRING: {}, Claim.Kind.USAGE: {}}
    bounds: list[BoundClaim] = []
    rows: list[_ClaimRow] = CLAIMS.rows([parameter(subscription.id), parameter(since or LONG_AGO)])
    for row in rows:
        if row.kind == Claim.Kind.BOUND:
            terms = read_bound_terms(row.snapshot)
            taxed = read_taxed(row.snapshot)
            bounds.append(BoundClaim(row.id, row.item_id, row.starts_at, row.ends_at, row.amount_minor, terms, taxed))
        else:
            open_claims[Claim.Kind(row.kind)].setdefault(row.item_id, []).append(_open_claim(subscription, row))
    if subscription.has_notes:
        _subtract_noted(subscription, open_claims[Claim.Kind.RECURRING])
    return open_claims, bounds


def _subtract_noted(subscription: SubscriptionState, by_item: dict[int, list[OpenClaim]]) -> None:
    """Give each claim the part of its line that credit notes have given back, the latest claim of the line first."""
    invoices = {claim.invoice_id for claims in by_item.values() for claim in claims if claim.invoice_id is not None}
    left = noted_minor(list(invoices))
    if not left:
        return
    for claims in by_item.values():
        for index in sorted(range(len(claims)), key=lambda index: claims[index].end, reverse=True):
            claim = claims[index]
            line = (claim.invoice_id or 0, claim.line_position or 0)
            noted = min(left.get(line, 0), max(claim.net_minor, 0))
            if noted > 0:
                left[line] -= noted
                claims[index] = replace(claim, noted_minor=noted)


class LateClaim(NamedTuple):
    """A row of LATE: a usage claim that may have late usage, and the reason to look at it other than new events."""

    id: int
    starts_at: datetime
    measure_again: str


LATE = Statement("late_usage", LATE_SQL, [integer, instant, bytes.decode], row=LateClaim._make)


def read_late(lock: Lock, subscription: SubscriptionState) -> dict[int, LateClaim]:
    """Return the usage claims that may have late usage, by id. An index on the recording time finds them."""
    lock.ensure_held(invoice_key(subscription.ref))
    values = {
        "subscription": parameter(subscription.id),
        "seen_until": parameter(subscription.usage_seen_until or LONG_AGO),
        "kept": array(sorted(KEPT)),
        "in_flight_s": parameter(int(usage.LONGEST_TRANSACTION.total_seconds())),
    }
    rows: list[LateClaim] = LATE.rows(values)
    return {row.id: row for row in rows}


def late_usage_from(
    lock: Lock, subscription: SubscriptionState, late: Mapping[int, LateClaim], lookback: int | None
) -> datetime | None:
    """Return the instant from which the run needs claims to bill late usage; None: it needs no earlier claims for it."""
    lock.ensure_held(invoice_key(subscription.ref))
    if not late or subscription.claims_from is None:
        return None
    earliest = min(claim.starts_at for claim in late.values())
    if lookback is None or lookback <= PERIODS_LOOKED_AT:
        return earliest
    begun: dict[int, set[datetime]] = {}
    with connection.cursor() as cursor:
        cursor.execute(USAGE_STARTS, [subscription.id])
        for item_id, starts_at, price_id, anchor_at in cursor.fetchall():
            of_item = begun.setdefault(item_id, set())
            if len(of_item) < lookback:
                terms, price = plans.price_of(price_id)
                of_item.add(schedule_of(subscription, terms.interval_of(price), anchor_at).period_at(starts_at).start)
    return min([earliest, *(min(starts) for starts in begun.values())])


def mark_late(late: Mapping[int, LateClaim], *, left_out: Iterable[int], measured: Iterable[int]) -> None:
    """Remember the late usage that the run left out, and forget the reasons to look at usage that is billed as measured."""
    marks = dict.fromkeys(measured, "") | dict.fromkeys(left_out, Claim.MeasureAgain.LEFT_OUT.value)
    changed = [
        {"id": claim_id, "measure_again": mark}
        for claim_id, mark in marks.items()
        if claim_id in late and late[claim_id].measure_again != mark
    ]
    if changed:
        MARK_CLAIMS.rows([parameter(json.dumps(changed))])


def read_charges(lock: Lock, subscription: SubscriptionState) -> list[tuple[str, OneOffCharge]]:
    """Return the one-off charges that are not billed yet, with their currency."""
    lock.ensure_held(invoice_key(subscription.ref))
    if not subscription.charges:
        return []
    with connection.cursor() as cursor:
        cursor.execute(CHARGES, [subscription.id])
        return [(currency, OneOffCharge(charge_id, *facts)) for charge_id, currency, *facts in cursor.fetchall()]


def _open_claim(subscription: SubscriptionState, row: _ClaimRow) -> OpenClaim:
    snapshot = row.snapshot
    terms, price = plans.price_of(row.price_id)
    anchor_at = anchor_of(snapshot)
    return OpenClaim(
        id=row.id,
        item_id=row.item_id,
        price_id=row.price_id,
        price=price,
        currency=terms.currency,
        schedule=schedule_of(subscription, terms.interval_of(price), anchor_at),
        plan_schedule=schedule_of(subscription, terms.interval, anchor_at),
        quantity=row.quantity,
        start=row.starts_at,
        end=row.ends_at,
        net_minor=row.amount_minor,
        invoice_id=row.invoice_id,
        line_position=row.line_position,
        origin=read_origin(snapshot["origin"]) if "origin" in snapshot else None,
        share_used=snapshot.get("share_used", 0),
        usage=stored_usage(snapshot["usage"]) if "usage" in snapshot else None,
        gross_minor=snapshot.get("gross_minor", 0),
        after_coupons_minor=snapshot.get("after_coupons_minor", 0),
        is_running=snapshot.get("running", False),
        net_of_groups=read_net_of_groups(price, snapshot),
        taxed=read_taxed(snapshot),
        **read_coverage(snapshot),
    )
