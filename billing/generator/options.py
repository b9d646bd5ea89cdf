"""The options of a run: the instant up to which it bills, the kinds of prices, and whether it finalises."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from billing.rating.prices.price import PriceKind


class Scope(StrEnum):
    """The kinds of prices that a run bills if it does not bill all."""

    USAGE = "usage"
    RECURRING = "recurring"


KINDS = {
    None: {PriceKind.RECURRING, PriceKind.USAGE},
    Scope.USAGE: {PriceKind.USAGE},
    Scope.RECURRING: {PriceKind.RECURRING},
}


@dataclass(frozen=True, slots=True)
class Options:
    """How to bill.

    Args:
        running_usage: also bill the usage of running periods so far; False: only where it reaches the plan's threshold.
        as_of: the instant up to which it bills; aware.
        only: usage or recurring charges; None: both. One-off charges go with the recurring ones.
        finalize: give numbers; False leaves drafts.
        dry_run: do everything in a preview, which writes nothing and takes no holder's lock.
        max_periods: bill at most this number of due instants, the oldest ones.
        late_lookback: for how many billed periods of a usage price the run bills late usage; None: for all. Older late usage is
            left out, and reported.
    """

    as_of: datetime
    only: Scope | None = None
    finalize: bool = True
    dry_run: bool = False
    max_periods: int | None = None
    late_lookback: int | None = None
    running_usage: bool = False
    include_suspended: bool = False
    run_id: UUID | None = None
    grace_ends_at: datetime | None = None
    """Set by the generator: until then each run rates the new draft again."""
    as_if_paid: bool = False
    """For previews: a subscription that waits for its first payment is billed as if it had started."""
    consolidates_on: date | None = None
    """Set by the generator: the new drafts go onto the customer's consolidated invoice of this day."""
    stays_draft: bool = False
    """Set by the generator, with `consolidates_on`: that invoice stays a draft."""
    note: str = ""
    """A text for the documents of what becomes due; see `Invoice.note`."""
    render: Callable[[int], dict[str, Any]] | None = None
    """Called with each invoice before the transaction ends, also in a dry run."""
