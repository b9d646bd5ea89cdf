"""Giving the credits that a plan grants each period: in the transaction of the run, under the holder's lock, once per period.

A claim of the kind ALLOWANCE says that a period was seen to. It belongs to no invoice, so voiding one neither takes the credits
back nor gives them again; the idempotency key in the ledger says the same a second time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from billing.allowances import Allowance, over_cap
from billing.documents import invoice_key
from billing.generator_state import Head
from billing.models import Claim
from ledger import journal
from ledger import services as ledger
from ledger.locks import Lock, holder_lock

GRANTED = """
    SELECT starts_at, ends_at FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5 AND ends_at > %s
"""

# The newest claim names the grants that may still have something unspent, so a long history costs nothing.
NEWEST = """
    SELECT basis FROM billing_claim
    WHERE subscription_id = %s AND released_at IS NULL AND kind = 5
    ORDER BY ends_at DESC
    LIMIT 1
"""
LONG_AGO = "0001-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Granted:
    """Credits that a run has given; `amount` is above 0."""

    credit_type: str
    amount: int


def read_granted(lock: Lock, head: Head, since: datetime | None) -> list[tuple[datetime, datetime]]:
    """The stretches whose allowance has been seen to and that end after `since`."""
    lock.ensure_held(invoice_key(head.ref))
    with connection.cursor() as cursor:
        cursor.execute(GRANTED, [head.subscription_id, since or LONG_AGO])
        return list(cursor.fetchall())


def grant_allowances(lock: Lock, head: Head, allowances: Sequence[Allowance]) -> list[Granted]:
    """Give the holder what is due, oldest first, and claim each period; or raise and leave nothing behind.

    Lock order: the subscription's is held, then the holder's; the number series has not been locked yet.

    Raises:
        Refused: the ledger will not take the grant: LotLimit, BalanceLimit.
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(head.ref))
    if not allowances:
        return []
    given: list[Granted] = []
    standing = _standing(head)
    with holder_lock(head.holder_id) as holder:
        for allowance in allowances:
            span = allowance.span
            lapsed = 0 if span.rollover_cap is None else _lapse(holder, head, allowance, standing)
            grant = None if allowance.is_lost(timezone.now()) or not allowance.amount else _grant(holder, head, allowance)
            if grant is not None:
                given.append(Granted(span.credit_type, allowance.amount))
                if span.rollover_cap is not None:
                    standing.setdefault(span.credit_type, []).append(grant)
            _claim(head, allowance, grant, standing, lapsed)
    return given


def _standing(head: Head) -> dict[str, list[int]]:
    """The holder's grants of earlier periods that roll over, by credit type."""
    with connection.cursor() as cursor:
        cursor.execute(NEWEST, [head.subscription_id])
        row = cursor.fetchone()
    if row is None:
        return {}
    basis: Mapping[str, Any] = json.loads(row[0]) if isinstance(row[0], str) else row[0]
    return dict(basis["standing"]) if basis["holder_id"] == head.holder_id else {}


def _lapse(holder: Lock, head: Head, allowance: Allowance, standing: dict[str, list[int]]) -> int:
    """Take back what is unspent beyond the cap; `standing` keeps the grants that have something left."""
    span = allowance.span
    assert span.rollover_cap is not None
    state = journal.read(holder, head.holder_id, span.credit_type).state
    left = {lot.grant: lot.remaining for lot in state.lots}
    unspent = [(grant, left[grant]) for grant in standing.get(span.credit_type, []) if left.get(grant)]
    lapsing = over_cap(unspent, span.rollover_cap)
    for grant, amount in lapsing:
        ledger.revoke_under(
            holder,
            holder_id=head.holder_id,
            grant=grant,
            amount=amount,
            credit_type=span.credit_type,
            idempotency_key=f"{_key(head, allowance)}/cap/{grant}",
            reason="Allowance beyond what rolls over",
            reference=f"subscription {head.ref}",
            actor="billing",
        )
    taken = dict(lapsing)
    standing[span.credit_type] = [grant for grant, amount in unspent if amount > taken.get(grant, 0)]
    return sum(taken.values())


def _grant(holder: Lock, head: Head, allowance: Allowance) -> int:
    """Returns the sequence of the grant."""
    entry = ledger.grant_under(
        holder,
        holder_id=head.holder_id,
        amount=allowance.amount,
        credit_type=allowance.span.credit_type,
        idempotency_key=_key(head, allowance),
        source="promotional",
        effective_at=allowance.part.start,
        expires_at=allowance.part.end if allowance.span.rollover_cap is None else None,
        reason="Plan allowance",
        reference=f"subscription {head.ref}",
        actor="billing",
    )
    return entry.sequence


def _key(head: Head, allowance: Allowance) -> str:
    return f"allowance/{head.ref}/{allowance.part.start.isoformat()}"


def _claim(head: Head, allowance: Allowance, grant: int | None, standing: Mapping[str, list[int]], lapsed: int) -> None:
    Claim.objects.create(
        subscription_id=head.subscription_id,
        item_id=allowance.span.item_id,
        kind=Claim.Kind.ALLOWANCE,
        starts_at=allowance.part.start,
        ends_at=allowance.part.end,
        quantity=allowance.amount if grant is not None else 0,
        amount_minor=0,
        basis={
            "credit_type": allowance.span.credit_type,
            "holder_id": head.holder_id,
            "grant": grant,
            "standing": standing,
            "lapsed": lapsed,
        },
    )
