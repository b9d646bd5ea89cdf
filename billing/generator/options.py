"""The options of a run: up to when it bills, which kinds of prices, and whether it finalises."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from billing.rating.prices import PriceKind


class Scope(StrEnum):
    """What a run bills, where it does not bill everything."""

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
        as_of: up to when; aware.
        only: usage or recurring charges; None for both. One-off charges go with the recurring ones.
        finalize: give numbers; False leaves drafts.
        dry_run: do everything in a preview: nothing is written, and no holder's lock is taken.
        max_periods: bill the oldest due instants, at most this number.
        late_lookback: the number of billed periods of a usage price in which the run bills late usage; None: all. What is older
            is left out, and reported.
    """

    as_of: datetime
    only: Scope | None = None
    finalize: bool = True
    dry_run: bool = False
    max_periods: int | None = None
    late_lookback: int | None = None
    include_suspended: bool = False
    run_id: UUID | None = None
    grace_ends_at: datetime | None = None
    """Set by the generator: until then each run rates the new draft again."""
    render: Callable[[int], dict[str, Any]] | None = None
    """Shows an invoice before the transaction ends, also in a dry run."""
