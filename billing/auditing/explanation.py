"""Explains why a subscription is due. Reads only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db.models import F, Q

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.unbilled_usage import find_unbilled_usage
from billing.models import Activation, Claim, Cursor, Item, ItemVersion, Line, Subscription, SuspendedBilling
from billing.models.columns import first_of
from billing.orders import plans
from billing.rating.periods import Schedule
from ledger.database.locks import lock_number
from ledger.database.statements import fetch_rows

VERSION_SHOWN = ("item_id", "plan_id", "price_id", "quantity", "starts_at", "ends_at")
VERSION_NAMES = {"price_key": F("item__price_key"), "plan_code": F("plan__code"), "plan_version": F("plan__version")}
"""Describe an item version in short; the subscription as a whole is an item without a price key."""
ACTIVATION_SHOWN = ("state", "invoice_id", "expires_at", "settled_at")
CLAIM_SHOWN = ("item_id", "kind", "starts_at", "ends_at", "amount_minor", "invoice_id")

WHO_HOLDS = """
    SELECT a.pid, a.application_name, a.client_addr::text, a.xact_start
    FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND (l.classid::bigint << 32) | l.objid::bigint = %s
"""


class _LockHolder(NamedTuple):
    """A row of WHO_HOLDS."""

    pid: int
    application_name: str
    client_addr: str | None
    since: datetime


def explain(ref: str, as_of: datetime, lookback: int | None = None) -> dict[str, Any]:
    """Return the data that the generator would read: cursor, boundaries, versions, newest claims, the first payment for which it
    waits, suspension, and the lock's holder.

    Raises:
        NotFound: the subscription does not exist.
    """
    subscription = first_of(Subscription.objects.filter(ref=ref), "subscription", ref)
    cursor_row: Mapping[str, Any] | None = Cursor.objects.filter(pk=subscription.pk).values().first()
    versions = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None).order_by("item_id", "starts_at")
    claims = Claim.objects.filter(subscription_id=subscription.pk, released_at=None).order_by("-ends_at", "item_id")[:10]
    price_keys = dict(Item.objects.filter(subscription_id=subscription.pk).values_list("pk", "price_key"))
    lines = Line.objects.filter(invoice_id__in={claim.invoice_id for claim in claims}, rating__has_key="tax_answer")
    answers = {(line.invoice_id, line.position): line.rating["tax_answer"] for line in lines}
    return {
        "subscription": ref,
        "as_of": as_of,
        "due": _why_due(subscription, cursor_row, as_of),
        "cursor": cursor_row,
        "periods": _periods(subscription, as_of),
        "versions": list(versions.values(*VERSION_SHOWN, **VERSION_NAMES)),
        "newest_claims": [_claim(row, price_keys, answers) for row in claims.values(*CLAIM_SHOWN, "line_position", "snapshot")],
        "usage_never_billed": [
            one.as_dict() for one in find_unbilled_usage(lookback=lookback, subscription_ids=[subscription.pk])
        ],
        "activation": Activation.objects.filter(subscription_id=subscription.pk).values(*ACTIVATION_SHOWN).first(),
        "suspended": SuspendedBilling.objects.filter(subscription_id=subscription.pk, resumed_at=None)
        .values("reason", "facts")
        .first(),
        "lock": {"name": invoice_key(ref), "number": lock_number(invoice_key(ref)), "held_by": _holders(ref)},
    }


def _claim(
    row: dict[str, Any], price_keys: Mapping[int, str], answers: Mapping[tuple[int, int], dict[str, Any]]
) -> dict[str, Any]:
    """Describe a claim in short, by the names of its kind and price, with the units that credits pay for.

    Args:
        answers: what the provider of taxes said of its line, by invoice and position.
    """
    snapshot, kind = row.pop("snapshot"), Claim.Kind(row["kind"])
    of_line = row["invoice_id"], row.pop("line_position")
    # The item number of a one-off charge is the charge's.
    price_key = "" if kind == Claim.Kind.CHARGE else price_keys.get(row["item_id"], "")
    return (
        {"kind": kind.name.lower(), "price_key": price_key}
        | {name: row[name] for name in row if name != "kind"}
        | ({"covered": snapshot["covered"]} if "covered" in snapshot else {})
        | ({"groups": snapshot["groups"]} if "groups" in snapshot else {})
        | ({"tax_answer": answers[of_line]} if of_line in answers else {})
    )


def _periods(subscription: Subscription, as_of: datetime) -> list[dict[str, Any]]:
    """Return the boundaries of the period around an instant, the previous one and the next one, on the plan at that time."""
    whole = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None, price__isnull=True)
    version = whole.filter(Q(ends_at=None) | Q(ends_at__gt=as_of), starts_at__lte=as_of).first()
    if version is None:
        return []
    interval = plans.terms_of(version.plan_id).interval
    schedule = Schedule.anchored_at(version.anchor_at or subscription.anchor_at, ZoneInfo(subscription.time_zone), interval)
    index = schedule.index_at(as_of)
    around = [schedule.period(n) for n in range(index - 1, index + 2)]
    return [{"number": period.index, "start": period.start, "end": period.end} for period in around]


def _why_due(subscription: Subscription, cursor_row: Mapping[str, Any] | None, as_of: datetime) -> str:
    activation = Activation.objects.filter(subscription_id=subscription.pk).first()
    if activation is not None and activation.state != Activation.State.STARTED and activation.invoice_id is not None:
        return f"not due: it starts when invoice {activation.invoice_id} is paid, and is {activation.state}"
    if cursor_row is None:
        return "no run has seen it"
    for name in ("recurring_due_at", "usage_due_at"):
        if cursor_row[name] is not None and cursor_row[name] <= as_of:
            return f"{name} {cursor_row[name].isoformat()} has passed"
    return "not due, unless there are amendments or charges that no run has seen"


def _holders(ref: str) -> list[dict[str, Any]]:
    return [holder._asdict() for holder in fetch_rows(_LockHolder, WHO_HOLDS, [lock_number(invoice_key(ref))])]
