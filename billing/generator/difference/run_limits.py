"""The limits of one subscription in one run: beyond them its billing is suspended with the reason, instead of billing nonsense.

Dates and periods are checked before anything is measured or rated, so a wrong century costs a few microseconds. Quantities and
amounts are checked before they are written, so the database never has to refuse them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import connection

from billing.generator.difference.draft import Bill
from billing.generator.difference.draft_lines import DraftLine, RatedUsage
from billing.generator.difference.reconcile import UsageDue
from billing.generator.state.allowance_times import AllowanceSpan
from billing.generator.state.spans import BoundedSpan, ItemSpan
from billing.generator.state.subscription_state import BillableItems, SubscriptionState
from billing.metering.allowances import spent_allowances
from billing.rating.aggregation import MICROSECOND, RatingInput
from billing.rating.limits import MAX_COUNTED, MAX_MINOR, is_in_range
from billing.rating.money import decimal_text
from billing.rating.prices.price import PriceKind


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one subscription in one run, from settings.BILLING_LIMITS. None: no limit.

    Args:
        periods: the due instants of an item on which a run catches up.
        usage_periods: the periods that a run measures, of all usage prices together, with or without usage.
        lines: the lines of one run.
        lines_per_day: the lines of one run whose time begins on the same day, in UTC; those of groups do not count.
        groups: the groups of usage of one price in one period.
        times_usual: how many times the largest of the last invoices a new invoice may be, per period.
    """

    periods: int | None = 1000
    usage_periods: int | None = 10_000
    lines: int | None = 10_000
    lines_per_day: int | None = 1_000
    groups: int | None = 1_000
    times_usual: int | None = None


class OutOfBounds(Exception):
    """The bill would exceed a limit. This rolls the transaction back; then the billing of the subscription is suspended."""

    def __init__(self, reason: str, **facts: Any) -> None:
        super().__init__(reason)
        self.reason, self.facts = reason, facts


USUAL = """
    WITH issued AS (
        SELECT i.id, i.total_minor FROM billing_invoice AS i
        WHERE i.subscription_id = %(subscription)s AND i.currency = %(currency)s
            AND i.state IN ('open', 'paid', 'uncollectible') AND i.id < %(before)s
        UNION ALL
        SELECT i.id, share.minor
        FROM billing_invoicedsubscription AS billed JOIN billing_invoice AS i ON i.id = billed.invoice_id
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(round((l.amount_minor - l.discount_minor) * (1 + l.tax_rate / 100))), 0)::bigint AS minor
            FROM billing_line AS l WHERE l.invoice_id = i.id AND l.subscription_id = billed.subscription_id
        ) AS share
        WHERE billed.subscription_id = %(subscription)s AND i.currency = %(currency)s
            AND i.state IN ('open', 'paid', 'uncollectible') AND i.id < %(before)s
    )
    SELECT max(total_minor) FROM (SELECT total_minor FROM issued ORDER BY id DESC LIMIT 6) AS last_ones
"""


def check_limits() -> list[CheckMessage]:
    """Report each unknown name and wrong value in settings.BILLING_LIMITS (billing.E001)."""
    known = {field.name for field in fields(Limits)}
    check_messages: list[CheckMessage] = []
    for name, value in getattr(settings, "BILLING_LIMITS", {}).items():
        if name not in known:
            what = f"settings.BILLING_LIMITS has no {name!r}; known are: {', '.join(sorted(known))}."
            check_messages.append(Error(what, id="billing.E001"))
        elif value is not None and (type(value) is not int or value < 0):
            what = f"settings.BILLING_LIMITS[{name!r}] must be None or a whole number from 0 on, not {value!r}."
            check_messages.append(Error(what, id="billing.E001"))
    return check_messages


def limits() -> Limits:
    """Return the limits of this deployment."""
    return Limits(**getattr(settings, "BILLING_LIMITS", {}))


# Before anything is rated ----------------------------------------------------------------------------


def ensure_dates(subscription: SubscriptionState, items: BillableItems) -> None:
    """Return if all dates of the subscription lie in the years 2000 to 2200.

    Raises:
        OutOfBounds: `date-out-of-range`, with the first date outside of them.
    """
    spans: list[ItemSpan | BoundedSpan | AllowanceSpan] = [*items.all_of({*PriceKind}), *items.bounded, *items.allowances]
    ends = (instant for span in spans for instant in (span.start, span.end))
    for instant in chain((subscription.anchor_at, subscription.active_from), ends):
        if instant is not None and not is_in_range(instant):
            raise OutOfBounds("date-out-of-range", date=instant.isoformat())


def ensure_periods(unbilled: Iterable[Sequence[ItemSpan]], as_of: datetime) -> None:
    """Return if the periods to catch up on, of each item and of all items, are within the limits. Computes them without a loop.

    Args:
        unbilled: the spans of each item after its last claim.

    Raises:
        OutOfBounds: `too-many-periods` of one item; `too-many-usage-periods`, because each is measured, with or without usage; or
            `too-many-lines`, because each period of a recurring price is a line.
    """
    most = limits()
    counts = [(spans[0].price.kind, sum(_periods_due(span, as_of) for span in spans)) for spans in unbilled if spans]
    periods = max((count for _, count in counts), default=0)
    if most.periods is not None and periods > most.periods:
        raise OutOfBounds("too-many-periods", periods=periods, limit=most.periods)
    of_usage = sum(count for kind, count in counts if kind == PriceKind.USAGE)
    if most.usage_periods is not None and of_usage > most.usage_periods:
        raise OutOfBounds("too-many-usage-periods", periods=of_usage, limit=most.usage_periods)
    lines = sum(count for kind, count in counts if kind == PriceKind.RECURRING)
    if most.lines is not None and lines > most.lines:
        raise OutOfBounds("too-many-lines", lines=lines, limit=most.lines)


def _periods_due(span: ItemSpan, as_of: datetime) -> int:
    """Return the number of periods of a span that are due at `as_of`."""
    if span.start > as_of:
        return 0
    first = span.schedule.index_at(span.start)
    if span.end is not None and span.end <= as_of:
        last = span.schedule.index_at(span.end)
        return last - first + (span.schedule.boundary(last) < span.end)
    return span.schedule.index_at(as_of) - first + span.price.is_due_at_start()


# Before anything is written --------------------------------------------------------------------------


def ensure_countable(measured: Iterable[tuple[UsageDue, RatingInput]]) -> None:
    """Return if the usage of each period has at most 26 digits before the point.

    Raises:
        OutOfBounds: `quantity-too-large`.
    """
    for due, usage in measured:
        for quantity in (usage.quantity, *(of_group.quantity for _, of_group in usage.groups)):
            if abs(quantity) >= MAX_COUNTED:
                raise OutOfBounds("quantity-too-large", **_period_of(due), quantity=decimal_text(quantity)[:120])


def ensure_told_once(subscription: SubscriptionState, usages: Iterable[RatedUsage]) -> None:
    """Return if no events would be paid for, in money or credits, whose allowance callers have spent: these spends tell the use.

    Raises:
        OutOfBounds: `told-twice`.
    """
    for rated in usages:
        due, price = rated.due, rated.due.span.price
        takes_credits = rated.credit_change is not None and rated.credit_change.credits > 0
        if price.credits is None or price.credits.also_spent or price.meter is None or not rated.usage.quantity:
            continue
        if rated.rating.amount_minor <= 0 and not takes_credits:
            continue
        until = due.part.end - MICROSECOND
        if spent_allowances({subscription.id}, {price.meter}, since=due.part.start, until=until):
            raise OutOfBounds("told-twice", **_period_of(due), credit_type=price.credits.credit_type)


def ensure_few_groups(measured: Iterable[tuple[UsageDue, RatingInput]], most: int | None) -> None:
    """Return if the usage of each price and period has few groups. This stops a price that groups by what is unique.

    Raises:
        OutOfBounds: `too-many-groups`.
    """
    for due, usage in measured:
        if most is not None and len(usage.groups) > most:
            raise OutOfBounds("too-many-groups", **_period_of(due), group_by=", ".join(due.span.price.group_by), limit=most)


def _period_of(due: UsageDue) -> dict[str, str]:
    return {"price": due.span.price.key, "start": due.part.start.isoformat(), "end": due.part.end.isoformat()}


def ensure_billable(currency: str, bill: Bill) -> None:
    """Return if no line and no total exceeds 2^53 - 1 minor units.

    Raises:
        OutOfBounds: `amount-too-large`, with the largest amount.
    """
    amounts = [amount for line in bill.lines for amount in (line.amount_minor, line.discount_minor)]
    largest = max(map(abs, [*amounts, bill.subtotal_minor, bill.discount_minor, bill.tax_minor, bill.total_minor]))
    if largest > MAX_MINOR:
        raise OutOfBounds("amount-too-large", currency=currency, amount_minor=str(largest), limit=MAX_MINOR)


def ensure_few_lines(lines: Sequence[tuple[str, DraftLine]]) -> None:
    """Return if the number of lines, in all and on each day, is within the limits. This stops a client that amends in a loop.

    Raises:
        OutOfBounds: `too-many-lines` or `too-many-lines-per-day`.
    """
    most = limits()
    if most.lines is not None and len(lines) > most.lines:
        raise OutOfBounds("too-many-lines", lines=len(lines), limit=most.lines)
    days = Counter((line.starts_at or line.due_at).astimezone(UTC).date() for _, line in lines if line.group is None)
    day, on_it = days.most_common(1)[0] if days else (None, 0)
    if day is not None and most.lines_per_day is not None and on_it > most.lines_per_day:
        raise OutOfBounds("too-many-lines-per-day", day=day.isoformat(), lines=on_it, limit=most.lines_per_day)


def ensure_usual(subscription: SubscriptionState, currency: str, invoice_id: int, bill: Bill) -> None:
    """Return unless the invoice exceeds the largest of the last invoices by the limit. The first invoice always passes.

    Raises:
        OutOfBounds: `unusual-amount`.
    """
    times_usual = limits().times_usual
    if times_usual is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(USUAL, {"subscription": subscription.id, "currency": currency, "before": invoice_id})
        (usual_minor,) = cursor.fetchone()
    per_period_minor = bill.total_minor // max(len({line.due_at for line in bill.lines}), 1)
    if usual_minor and per_period_minor > times_usual * usual_minor:
        raise OutOfBounds("unusual-amount", per_period_minor=per_period_minor, usual_minor=int(usual_minor))
