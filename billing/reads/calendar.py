"""The calendar of a subscription: which terms count from when until when, as far as they are ordered."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Final, NamedTuple

from billing.models import Activation, Amendment, Customer, Plan, Subscription
from billing.models.columns import first_of
from billing.rating.periods import Interval, IntervalUnit, months_of
from billing.rating.prices.price import PriceKind
from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import parse_price
from ledger.database.statements import fetch_rows
from ledger.services import time_of

MOST_STRETCHES: Final = 200

VERSIONS: Final = """
    SELECT i.price_key, v.plan_id, p.definition::text, p.list_price_id IS NOT NULL, v.quantity, v.starts_at, v.ends_at
    FROM billing_itemversion AS v JOIN billing_item AS i ON i.id = v.item_id LEFT JOIN billing_price AS p ON p.id = v.price_id
    WHERE v.subscription_id = %s AND v.superseded_at IS NULL AND (v.ends_at IS NULL OR v.ends_at > %s)
    ORDER BY i.id, v.starts_at
"""


class _Version(NamedTuple):
    """A row of VERSIONS. The empty key stands for the subscription as a whole."""

    key: str
    plan_id: int
    definition: str | None
    is_negotiated: bool
    quantity: Decimal
    starts_at: datetime
    ends_at: datetime | None

    def counts_at(self, instant: datetime) -> bool:
        return self.starts_at <= instant and (self.ends_at is None or instant < self.ends_at)


@dataclass(frozen=True, slots=True)
class CalendarStretch:
    """A stretch of time at the same terms; the last one may have no end.

    Args:
        phase: the number of the phase that it belongs to; None: the subscription has none.
        is_trial: it is free.
        quantities: of the recurring prices.
        is_negotiated: some of its prices are negotiated.
        per_period_minor: what its recurring prices cost in a full period of the plan, before discounts and tax.
    """

    starts_at: datetime
    ends_at: datetime | None
    phase: int | None
    is_trial: bool
    plan: Plan
    quantities: Mapping[str, Decimal]
    is_negotiated: bool
    per_period_minor: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """The stretches of a subscription from an instant on, in the order of time. What lies between them is not billed.

    Args:
        is_incomplete: it waits for its first payment, and nothing is billed before it.
    """

    as_of: datetime
    is_incomplete: bool
    stretches: tuple[CalendarStretch, ...]


def calendar(ref: str) -> Calendar:
    """Return the calendar of a subscription from the present on; by the time of its holder's test clock, if there is one.

    Raises:
        NotFound: the subscription does not exist.
    """
    subscription = first_of(Subscription.objects.filter(ref=ref), "subscription", ref)
    now = time_of(Customer.objects.values_list("holder_id", flat=True).get(pk=subscription.customer_id))
    versions = fetch_rows(_Version, VERSIONS, [subscription.pk, now])
    phases, trial_end = _phases(subscription.pk), subscription.trial_end
    plans = Plan.objects.in_bulk({version.plan_id for version in versions})
    stretches: list[CalendarStretch] = []
    for start, end in pairwise([*_edges(versions, phases, trial_end), None]):
        assert start is not None
        counting = [version for version in versions if version.counts_at(start)]
        whole = next((version for version in counting if not version.key), None)
        if whole is None or (end is not None and end <= now):
            continue
        is_trial = trial_end is not None and start < trial_end
        phase = next((number for at, number in reversed(phases) if at <= start), None)
        stretches.append(_stretch((start, end), phase, plans[whole.plan_id], counting, is_trial=is_trial))
    waiting = Activation.objects.filter(subscription_id=subscription.pk, state=Activation.State.WAITING)
    return Calendar(now, waiting.exists(), tuple(stretches[:MOST_STRETCHES]))


def _edges(versions: Sequence[_Version], phases: Sequence[tuple[datetime, int]], trial_end: datetime | None) -> list[datetime]:
    """Return the instants at which the terms may change, in the order of time."""
    edges = {at for version in versions for at in (version.starts_at, version.ends_at) if at is not None}
    begins = min(edges, default=None)
    also = [*(at for at, _ in phases), *([trial_end] if trial_end is not None else [])]
    return sorted(edges | {at for at in also if begins is not None and at > begins})


def _phases(subscription_id: int) -> list[tuple[datetime, int]]:
    """Return when each phase that is not withdrawn begins, and its number, in the order of time."""
    rows = list(Amendment.objects.filter(subscription_id=subscription_id).order_by("sequence"))
    withdrawn = {sequence for row in rows for sequence in row.change.get("withdraws", ())}
    return sorted(
        (row.effective_at, row.change["phase"]) for row in rows if "phase" in row.change and row.sequence not in withdrawn
    )


def _stretch(
    time: tuple[datetime, datetime | None], phase: int | None, plan: Plan, counting: Sequence[_Version], *, is_trial: bool
) -> CalendarStretch:
    interval = Interval(IntervalUnit(plan.interval_unit), plan.interval_count)
    charged, quantities = 0, dict[str, Decimal]()
    for version in counting:
        price = None if version.definition is None else parse_price(json.loads(version.definition))
        if price is not None and price.kind == PriceKind.RECURRING:
            # A price that is billed more often than its plan costs this in each of its periods.
            times = int(months_of(interval) / months_of(price.interval or interval))
            charged += rate(price, version.quantity, plan.currency).amount_minor * times
            quantities[version.key] = version.quantity
    return CalendarStretch(
        starts_at=time[0],
        ends_at=time[1],
        phase=phase,
        is_trial=is_trial,
        plan=plan,
        quantities=quantities,
        is_negotiated=any(version.is_negotiated for version in counting),
        per_period_minor=0 if is_trial else charged,
    )
