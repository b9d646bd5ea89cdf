"""The limits of billing: years, money, quantities. Checked where values enter, and again before they are billed. Pure.

The API's fields have the same bounds: a body outside of them is refused by field and rule. A value from elsewhere, or a product
or sum beyond them, suspends the billing of its subscription with the reason.
"""

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from zoneinfo import available_timezones

from ledger.errors import Invalid

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2201, 1, 1, tzinfo=UTC)
"""Times are in `[EARLIEST, LATEST)`: in the years 2000 to 2200, in UTC."""

MAX_MONEY = Decimal(10**12)
"""A price, a minimum, a coupon: money in major units, or percent. One unit at the dearest price is below `MAX_MINOR`."""

SMALLEST_MONEY = Decimal(1).scaleb(-12)
"""The smallest amount above zero that a column of money holds."""

MAX_QUANTITY = Decimal(10**18)
"""Units: of an order, of a usage event (also below zero), of a tier. As a JSON integer it has 64 bits."""

SMALLEST_PACKAGE = Decimal("0.001")
"""The fewest units of a package. Smaller ones would make billions of packages of a single unit."""

NO_ZONES = frozenset({"localtime", "posixrules", "Factory"})
"""Files of a zone database that are no zones: the zone of the machine, a template, and the lack of a zone."""

MAX_MINOR = 2**53 - 1
"""A line and a total, in minor units: the largest integer that every JSON reader holds exactly. Source: RFC 7493, 2.2."""

MAX_TERMS_DAYS = 3650
"""From issue to due date."""

MAX_GRACE_DAYS = 90
"""For how long an invoice stays a draft that takes in late usage."""

MAX_COUPON_PERIODS = 1000
"""How many invoices a recurring coupon lasts."""

MAX_COUNTED = Decimal(10**26)
"""The usage of a period stays below it: a line has this number of digits before the point."""


@cache
def zones() -> frozenset[str]:
    """The names of the zones of the IANA database, as this machine has them."""
    return frozenset(available_timezones()) - NO_ZONES


def is_in_range(instant: datetime) -> bool:
    """True when an instant lies in the years that billing knows."""
    return EARLIEST <= instant < LATEST


def check_instant(pointer: str, instant: datetime | None) -> None:
    """Return when there is no instant, or it lies in the years 2000 to 2200.

    Raises:
        Invalid: it lies outside of them.
    """
    if instant is not None and not is_in_range(instant):
        last = LATEST.year - 1
        raise Invalid(pointer=pointer, rule="out-of-range", detail=f"must be in the years {EARLIEST.year} to {last}, in UTC")


def check_quantity(pointer: str, quantity: Decimal) -> None:
    """Return when a quantity is 0 to `MAX_QUANTITY`.

    Raises:
        Invalid: it is not.
    """
    if not 0 <= quantity <= MAX_QUANTITY:
        raise Invalid(pointer=pointer, rule="out-of-range", detail=f"must be 0 to {MAX_QUANTITY}")
