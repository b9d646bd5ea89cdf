"""Exports of OpenMeter: metered entitlements with their grants and their history, as its API returns them.

Source: OpenMeter's object reference, entitlement, grant, history of an entitlement.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ledger.exchange.files import Line
from ledger.exchange.recurrence import next_boundary, recurring_name
from ledger.exchange.sources import (
    LeftOut,
    SourceError,
    SourceRows,
    Terms,
    WholeExport,
    declare_whole_export,
    object_of,
    read_time,
    without_empty,
)

WHOLE: Final = WholeExport(
    objects="entitlements, each with its grants in `grants` and its history call's answer in `history`",
    pages="a page that says that there are more, and grants that are in effect without a history, are refused",
    totals="`balanceAtEnd` of the last window of the history, where it stands there",
    ended="voided, deleted and expired grants are left out, and what was used of others",
    later="a grant whose `effectiveAt` lies after the history is whole, and begins then",
    recurring=(
        "a grant with a `recurrence`, or that each reset of the usage period fills again, becomes a recurring grant from its "
        "next date on, and what is left of it expires then; other rollovers are refused by name unless `--without-recurring` "
        "leaves them out"
    ),
    currencies="none: credits are units of a feature; import a file for each feature, each with its own `--credit-type`",
    minor_units="credits by `--decimals`; a number of JSON has 15 digits",
)


UNITS: Final = {"D": "day", "W": "week", "M": "month", "Y": "year"}
DAILY_TO_YEARLY: Final = {"DAY": "P1D", "WEEK": "P1W", "MONTH": "P1M", "YEAR": "P1Y"}
_ONE_UNIT: Final = re.compile(r"P([1-9]\d{0,2})([DWMY])")
"""A duration of ISO 8601 in days, weeks, months or years."""


@declare_whole_export(WHOLE)
def read_openmeter(lines: Iterable[Line], terms: Terms) -> SourceRows:
    """Return what is left of each grant of metered entitlements, and which of them come again.

    Each line is an entitlement with its grants in `grants`, and in `history` the answer of its history call, whose last window
    says what is left of each grant, and of all together. The holder is the customer's key, or else the subject's.

    Raises:
        SourceError: a grant is in effect and its entitlement has no history, so what is left of it is not in the file.
    """
    rows: list[Line] = []
    left_out: list[LeftOut] = []
    totals: defaultdict[tuple[str, str], int] = defaultdict(int)
    are_stated = False
    now = datetime.now(UTC)
    for line in lines:
        with object_of(line) as entitlement:
            if "featureKey" not in entitlement or "grants" not in entitlement:
                raise SourceError(line.number, "is not an entitlement with its grants")
            holder = str(entitlement.get("customerKey") or entitlement.get("subjectKey"))
            windows = (entitlement.get("history") or {}).get("burndownHistory") or [{}]
            at_end = windows[-1].get("balanceAtEnd")
            live = 0
            for grant in entitlement["grants"]:
                if _is_over(grant, now):
                    continue
                amount = terms.amount(line.number, _left_of(line, grant, windows[-1].get("grantBalancesAtEnd"), now))
                recurrence = _recurrence_of(line, grant, entitlement, now)
                if isinstance(recurrence, LeftOut):
                    left_out.append(recurrence)
                    recurrence = None
                of_grant = {"holder": holder, "credit_type": terms.credit_type, **_terms_of(grant, entitlement)}
                if amount > 0:
                    rows.append(Line(line.number, _left_row(grant, of_grant, amount, recurrence)))
                if recurrence is not None and recurrence.comes_again:
                    again = terms.amount(line.number, grant["amount"])
                    rows.append(Line(line.number, _recurring_row(grant, of_grant, again, recurrence)))
                live += amount if read_time(grant["effectiveAt"]) <= now else 0
            are_stated |= at_end is not None
            totals[holder, terms.credit_type] += live if at_end is None else terms.amount(line.number, at_end)
    return SourceRows(rows, tuple(totals.items()), are_stated=are_stated, left_out=tuple(left_out))


def _is_over(grant: Mapping[str, Any], now: datetime) -> bool:
    expires_at = grant.get("expiresAt")
    return bool(grant.get("voidedAt") or grant.get("deletedAt") or (expires_at and read_time(expires_at) <= now))


def _left_of(line: Line, grant: Mapping[str, Any], left: Mapping[str, Any] | None, now: datetime) -> Any:
    """Return what is left of a grant by the end of the history, which has no grant that begins after it."""
    begins_later = read_time(grant["effectiveAt"]) > now
    if left is None and not begins_later:
        why = f"has no history, so what is left of grant {grant['id']} is not in the file: export the entitlement's history too"
        raise SourceError(line.number, why)
    if left is None or (begins_later and grant["id"] not in left):
        return grant["amount"]
    return left.get(grant["id"], 0)


class _Recurrence(NamedTuple):
    """When what is left of a grant ends. `comes_again`: it is filled again then, and after each following period."""

    unit: str
    interval_count: int
    starts_at: datetime
    next_at: datetime
    comes_again: bool


def _recurrence_of(
    line: Line, grant: Mapping[str, Any], entitlement: Mapping[str, Any], now: datetime
) -> _Recurrence | LeftOut | None:
    """Return when a grant comes again or ends by its recurrence, or else by the resets of its entitlement's usage period.

    A reset leaves of a grant at most `maxRolloverAmount`, and fills it up to `minRolloverAmount`.
    """
    period, comes_again = grant.get("recurrence"), True
    if not period:
        amount, most, least = grant["amount"], grant.get("maxRolloverAmount"), grant.get("minRolloverAmount") or 0
        period = entitlement.get("usagePeriod")
        if not period or most is None or (most >= amount and not least):
            return None
        comes_again = most == least == amount
        if not comes_again and (most or least):
            why = f"grant {grant['id']} keeps {least} to {most} at each reset: declare a recurring grant with `rollover`"
            return LeftOut(line.number, why)
    interval = period.get("intervalISO") or DAILY_TO_YEARLY.get(period["interval"], period["interval"])
    by_unit = _ONE_UNIT.fullmatch(interval)
    if by_unit is None:
        return LeftOut(line.number, f"grant {grant['id']} recurs every {interval}, which no recurring grant does")
    count, unit = int(by_unit[1]), UNITS[by_unit[2]]
    starts_at = read_time(period["anchor"])
    next_at = next_boundary(starts_at, unit, count, max(now, read_time(grant["effectiveAt"])))
    expires_at = grant.get("expiresAt")
    return None if expires_at and read_time(expires_at) <= next_at else _Recurrence(unit, count, starts_at, next_at, comes_again)


def _terms_of(grant: Mapping[str, Any], entitlement: Mapping[str, Any]) -> dict[str, Any]:
    return without_empty(
        source="promotional", priority=grant.get("priority"), reference=f"entitlement {entitlement['id']}",
        metadata=dict(grant.get("metadata") or {}),
    )  # fmt: skip


def _left_row(
    grant: Mapping[str, Any], of_grant: Mapping[str, Any], amount: int, recurrence: _Recurrence | None
) -> dict[str, Any]:
    """Return the grant of what is left, which ends when it comes again."""
    expires_at = grant.get("expiresAt") if recurrence is None else recurrence.next_at.isoformat()
    own = {"row": grant["id"], "operation": "grant", "amount": amount, "effective_at": grant["effectiveAt"]}
    return {**of_grant, **own, **without_empty(expires_at=expires_at)}


def _recurring_row(grant: Mapping[str, Any], of_grant: Mapping[str, Any], amount: int, recurrence: _Recurrence) -> dict[str, Any]:
    """Return the recurring grant from the next date on."""
    own = without_empty(
        row=f"recurrence-{grant['id']}", operation="recurring_grant", recurring_grant=recurring_name(grant["id"]), amount=amount,
        interval=recurrence.unit, interval_count=recurrence.interval_count, starts_at=recurrence.starts_at.isoformat(),
        first_at=recurrence.next_at.isoformat(), ends_at=grant.get("expiresAt"), expiry="period_end",
    )  # fmt: skip
    return {**of_grant, **own}
