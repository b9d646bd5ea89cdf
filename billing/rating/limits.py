"""The limits of billing: years, money, quantities. Checked where values enter, and again before they are billed. Pure.

The fields of the API have the same bounds, so it refuses a body with a value outside of them by field and rule. If a value from
elsewhere, or a product or sum, lies outside of them, the generator suspends the billing of its subscription with the reason.
"""

from datetime import UTC, datetime
from decimal import Decimal

from ledger.errors import Invalid

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2201, 1, 1, tzinfo=UTC)
"""Times lie in `[EARLIEST, LATEST)`: the years 2000 to 2200, in UTC."""

MAX_MONEY = Decimal(10**12)
"""The most of a price, minimum or coupon: money in major units, or percent. One unit at this price stays below `MAX_MINOR`."""

SMALLEST_MONEY = Decimal(1).scaleb(-12)
"""The smallest amount above zero that a column of money can hold."""

MAX_QUANTITY = Decimal(10**18)
"""The most units of an order, a usage event (also below zero) or a tier. As a JSON integer it has 64 bits."""

SMALLEST_PACKAGE = Decimal("0.001")
"""The fewest units of a package. With smaller packages, one unit would be billions of packages."""

MAX_MINOR = 2**53 - 1
"""The most of a line or total, in minor units: the largest integer that every JSON reader keeps exact. Source: RFC 7493, 2.2."""

MAX_TERMS_DAYS = 3650
"""The most days from issue to due date."""

MAX_GRACE_DAYS = 90
"""The most days for which an invoice stays a draft and accepts late usage."""

MAX_HOLD_DAYS = 366
"""The most days by which invoices come later than due."""

MAX_COUPON_PERIODS = 1000
"""The most periods of a recurring coupon."""

MAX_COUNTED = Decimal(10**26)
"""The usage of a period stays below this: a line has this number of digits before the point."""


def is_in_range(instant: datetime) -> bool:
    """Return whether an instant lies in the years that billing supports."""
    return EARLIEST <= instant < LATEST


def check_instant(pointer: str, instant: datetime | None) -> None:
    """Return if there is no instant, or if it lies in the years 2000 to 2200.

    Raises:
        Invalid: it lies outside of them.
    """
    if instant is not None and not is_in_range(instant):
        last = LATEST.year - 1
        raise Invalid(pointer=pointer, rule="out-of-range", detail=f"must be in the years {EARLIEST.year} to {last}, in UTC")


def check_past(pointer: str, instant: datetime | None) -> None:
    """Return if there is no instant, or if it lies in the years 2000 to 2200 and not in the future.

    Raises:
        Invalid: it does not.
    """
    check_instant(pointer, instant)
    if instant is not None and instant > datetime.now(UTC):
        raise Invalid(pointer=pointer, rule="in-the-future", detail="must not be in the future")


def check_quantity(pointer: str, quantity: Decimal) -> None:
    """Return if a quantity is 0 to `MAX_QUANTITY`.

    Raises:
        Invalid: it is not.
    """
    if not 0 <= quantity <= MAX_QUANTITY:
        raise Invalid(pointer=pointer, rule="out-of-range", detail=f"must be 0 to {MAX_QUANTITY}")
