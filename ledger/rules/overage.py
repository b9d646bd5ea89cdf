"""Overage: how many credits an account may use beyond its lots in a period, as part of its state. See docs/adr/0148.

The periods follow from the terms by the calendar, so that a new one begins at its instant, without a job.
"""

from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import orjson

from ledger.periods import Interval, IntervalUnit, Schedule
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import POSTPAID, Lot
from ledger.values import MAX_AMOUNT

OVERAGE_UNITS: Final = tuple(unit.value for unit in IntervalUnit)
SET, ENDED = "set", "ended"
"""The member of `counterpart` in an `adjust` entry that sets or ends an overage."""


class Overage(NamedTuple):
    """The terms of an overage, and what is used of it in a period.

    Args:
        limit: credits per period; None for no limit.
        used: postpaid credits that were granted in the period, less those given back.
        since: the sequence of the entry with which the period's counting begins; postpaid lots before it do not count.
        until_us: the end of the period that `used` is about; after it nothing is used.
        setting: the sequence of the entry that set the terms.
        interval, interval_count, anchor_us, time_zone: the periods: boundary n is n intervals after the anchor.
        ends_us: from then on nothing more can be used; None for no end.
        reference: what the terms belong to, such as a subscription.
    """

    limit: int | None
    used: int
    since: int
    until_us: int
    setting: int
    interval: str
    interval_count: int
    anchor_us: int
    time_zone: str
    ends_us: int | None
    reference: str

    @property
    def left(self) -> int:
        """How many credits of the period are left: 0 or more."""
        return max(0, (MAX_AMOUNT if self.limit is None else self.limit) - self.used)

    @property
    def left_until_us(self) -> int:
        """The instant until which `left` can be used: the end of the period, or that of the terms."""
        return self.until_us if self.ends_us is None else min(self.until_us, self.ends_us)

    def at(self, now_us: int, *, since: int) -> "Overage | None":
        """Return the overage in the period of `now_us`, or None if it has ended.

        Args:
            since: of the next entry, with which the counting of another period begins.
        """
        if self.ends_us is not None and self.ends_us <= now_us:
            return None
        return self.in_period_of(now_us, since=since)

    def in_period_of(self, now_us: int, *, since: int) -> "Overage":
        """As `at`, also after the end of the terms."""
        if now_us < self.until_us:
            return self
        return self._replace(used=0, since=since, until_us=self.period_end_us(now_us))

    def period_end_us(self, now_us: int) -> int:
        """Return the end of the period that contains `now_us`."""
        interval = Interval(IntervalUnit(self.interval), self.interval_count)
        schedule = Schedule.anchored_at(from_us(self.anchor_us), ZoneInfo(self.time_zone), interval)
        return to_us(schedule.period_at(from_us(now_us)).end)

    def counts(self, lot: Lot, now_us: int) -> bool:
        """Return whether credits of the lot are part of `used`, and so may be used again when they come back."""
        return lot.source == POSTPAID and lot.grant >= self.since and now_us < self.until_us

    def given_back(self, lot: Lot, amount: int, now_us: int) -> "Overage":
        """Return the overage after `amount` of a postpaid lot came back at `now_us`."""
        return self._replace(used=self.used - amount) if self.counts(lot, now_us) else self


def encode_overage(overage: Overage) -> str:
    """Return the stored and digested form: a JSON array of the fields in their order. An entry without overage stores null."""
    return orjson.dumps(tuple(overage)).decode()


def decode_overage(text: str | bytes) -> Overage:
    """Return the overage of a stored form: the inverse of `encode_overage`."""
    return Overage._make(orjson.loads(text))
