"""Which instants of spans come next."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from billing.generator.state.spans import BoundedSpan, BoundTerms, next_bound
from billing.rating.periods import Schedule
from ledger.periods import Interval, IntervalUnit

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
MIDDLE = JANUARY + timedelta(days=14)
FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("end", "as_of", "expected"),
    [
        (None, JANUARY, FEBRUARY),
        (None, FEBRUARY, MARCH),
        (MIDDLE, JANUARY, MIDDLE),
        # A plan that ends in its period has no bound after that.
        (MIDDLE, MIDDLE, None),
        (MIDDLE, FEBRUARY, None),
    ],
)
def test_the_next_bound_ends_after_the_instant(end: datetime | None, as_of: datetime, expected: datetime | None) -> None:
    schedule = Schedule.anchored_at(JANUARY, ZoneInfo("UTC"), Interval(IntervalUnit.MONTH))
    span = BoundedSpan(1, BoundTerms("pro", "EUR", "S", Decimal(19)), Decimal(10), None, schedule, JANUARY, end)
    assert next_bound([span], as_of) == expected
