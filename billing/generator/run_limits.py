"""What is too much for one subscription in one run: its billing is suspended with the reason, rather than billed nonsense.

Dates and periods are checked before anything is measured or rated, so that a wrong century costs a few microseconds.
Quantities and amounts are checked before they are written, so that the database never has to refuse them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from django.conf import settings
from django.db import connection

from billing.generator.allowance_periods import AllowanceSpan
from billing.generator.draft import Bill, DraftLine
from billing.generator.load import Head, Intent
from billing.generator.minimums import BoundedSpan
from billing.generator.reconcile import Counted, UsageDue
from billing.rating.aggregation import Usage
from billing.rating.limits import MAX_COUNTED, MAX_MINOR, is_in_range
from billing.rating.money import decimal_text
from billing.rating.periods import Timing
from billing.rating.pricing import PriceKind


@dataclass(frozen=True, slots=True)
class Limits:
    """What is too much for one subscription in one run; None is no limit. From settings.BILLING_LIMITS.

    Args:
        periods: due instants that are caught up at once.
        lines: of one run.
        lines_per_day: lines of one run whose time begins on one day, in UTC.
        times_usual: an invoice compared with the largest of the last ones, per period.
    """

    periods: int | None = 1000
    lines: int | None = 10_000
    lines_per_day: int | None = 1_000
    times_usual: int | None = None


class OutOfBounds(Exception):
    """What would be billed is out of bounds; undoes the transaction, and then the subscription's billing is suspended."""

    def __init__(self, reason: str, **facts: Any) -> None:
        super().__init__(reason)
        self.reason, self.facts = reason, facts


USUAL = """
    SELECT max(total_minor) FROM (
        SELECT total_minor FROM billing_invoice
        WHERE subscription_id = %s AND currency = %s AND state IN ('open', 'paid', 'uncollectible') AND id < %s
        ORDER BY id DESC LIMIT 6
    ) AS last_ones
"""


def limits() -> Limits:
    """The limits of this deployment."""
    return Limits(**getattr(settings, "BILLING_LIMITS", {}))


# Before anything is rated ----------------------------------------------------------------------------


def ensure_dates(head: Head, intent: Intent) -> None:
    """Return when all dates of the subscription lie in the years 2000 to 2200.

    Raises:
        OutOfBounds: `date-out-of-range`, with the first that does not.
    """
    spans: list[Counted | BoundedSpan | AllowanceSpan] = [*intent.all_of({*PriceKind}), *intent.bounded, *intent.allowances]
    ends = (instant for span in spans for instant in (span.start, span.end))
    for instant in chain((head.anchor_at, head.active_from), ends):
        if instant is not None and not is_in_range(instant):
            raise OutOfBounds("date-out-of-range", date=instant.isoformat())


def ensure_periods(unbilled: Iterable[Sequence[Counted]], as_of: datetime) -> None:
    """Return when there are not too many periods to catch up, of an item and of all; counted by arithmetic, not one by one.

    Args:
        unbilled: of each item the spans behind its last claim.

    Raises:
        OutOfBounds: `too-many-periods`; or `too-many-lines`, since each period of a recurring price is a line.
    """
    most = limits()
    counts = [(spans, sum(_periods_due(span, as_of) for span in spans)) for spans in unbilled]
    periods = max((count for _, count in counts), default=0)
    if most.periods is not None and periods > most.periods:
        raise OutOfBounds("too-many-periods", periods=periods, limit=most.periods)
    lines = sum(count for spans, count in counts if spans and spans[0].price.kind == PriceKind.RECURRING)
    if most.lines is not None and lines > most.lines:
        raise OutOfBounds("too-many-lines", lines=lines, limit=most.lines)


def _periods_due(span: Counted, as_of: datetime) -> int:
    """How many periods of a span are due at `as_of`."""
    if span.start > as_of:
        return 0
    first = span.schedule.index_at(span.start)
    if span.end is not None and span.end <= as_of:
        last = span.schedule.index_at(span.end)
        return last - first + (span.schedule.boundary(last) < span.end)
    return span.schedule.index_at(as_of) - first + (span.price.timing == Timing.ADVANCE)


# Before anything is written --------------------------------------------------------------------------


def ensure_countable(measured: Iterable[tuple[UsageDue, Usage]]) -> None:
    """Return when what was used in each period has at most 26 digits before the point.

    Raises:
        OutOfBounds: `quantity-too-large`.
    """
    for due, usage in measured:
        if abs(usage.quantity) >= MAX_COUNTED:
            facts = {"price": due.counted.price.key, "start": due.part.start.isoformat(), "end": due.part.end.isoformat()}
            raise OutOfBounds("quantity-too-large", **facts, quantity=decimal_text(usage.quantity)[:120])


def ensure_billable(currency: str, bill: Bill) -> None:
    """Return when no line and no total passes 2^53 - 1 minor units.

    Raises:
        OutOfBounds: `amount-too-large`, with the largest amount.
    """
    amounts = [amount for line in bill.lines for amount in (line.amount_minor, line.discount_minor)]
    largest = max(map(abs, [*amounts, bill.subtotal_minor, bill.discount_minor, bill.tax_minor, bill.total_minor]))
    if largest > MAX_MINOR:
        raise OutOfBounds("amount-too-large", currency=currency, amount_minor=str(largest), limit=MAX_MINOR)


def ensure_few_lines(lines: Sequence[tuple[str, DraftLine]]) -> None:
    """Return when there are not too many lines in all, and on one day: a loop that sends amendments is told so.

    Raises:
        OutOfBounds: `too-many-lines` or `too-many-lines-per-day`.
    """
    most = limits()
    if most.lines is not None and len(lines) > most.lines:
        raise OutOfBounds("too-many-lines", lines=len(lines), limit=most.lines)
    days = Counter((line.starts_at or line.due_at).astimezone(UTC).date() for _, line in lines)
    day, on_it = days.most_common(1)[0] if days else (None, 0)
    if day is not None and most.lines_per_day is not None and on_it > most.lines_per_day:
        raise OutOfBounds("too-many-lines-per-day", day=day.isoformat(), lines=on_it, limit=most.lines_per_day)


def ensure_usual(head: Head, currency: str, invoice_id: int, bill: Bill) -> None:
    """Return unless the invoice is so many times the largest of the last ones; the first has nothing to be compared with.

    Raises:
        OutOfBounds: `unusual-amount`.
    """
    times_usual = limits().times_usual
    if times_usual is None:
        return
    with connection.cursor() as cursor:
        cursor.execute(USUAL, [head.subscription_id, currency, invoice_id])
        (usual_minor,) = cursor.fetchone()
    per_period_minor = bill.total_minor // max(len({line.due_at for line in bill.lines}), 1)
    if usual_minor and per_period_minor > times_usual * usual_minor:
        raise OutOfBounds("unusual-amount", per_period_minor=per_period_minor, usual_minor=int(usual_minor))
