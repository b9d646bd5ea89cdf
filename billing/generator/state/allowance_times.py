"""The allowances of a subscription: for which span of time each is, what a change gives back, and what is due. Pure.

What is charged for a day is granted for that day. The target has a part for each stretch of a period on the same terms, with its
share of the credits; the claims say for which spans credits were granted. What a claim has beyond its part goes back, and what a
part lacks is granted, so runs in time, late or in steps come to the same.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import takewhile
from math import floor
from typing import Any, Final

from billing.orders.item_versions import AllowanceChange
from billing.rating.periods import Period, Schedule, TimeSpan, periods
from billing.rating.prices.price import Proration
from billing.rating.proration import MICROSECOND, share

PURPOSE_AT: Final = 8
"""Where `AllowancePart.terms` have what the credits can pay for; they are shorter for credits that can pay for everything."""


@dataclass(frozen=True, slots=True)
class AllowanceSpan:
    """The subscription was on a plan that grants credits in `[start, end)`; an end of None is open.

    Args:
        amount: credits of a full period, above 0.
        rollover_cap: how many unspent credits roll over into the next period; None: they expire with their period.
        usage_schedule: the periods of the usage of the same plan for which these credits pay, the longest of several; None: they
            pay for none. A run rates the last usage after the end of its period, so the credits expire a period of it later.
        change: what the change at its start does with the allowance before it.
        proration, bill_last_day: how the plan's fees charge a part of a period.
        terminates: it ends because the subscription does.
        applies_to: what the credits can pay for, as canonical JSON; empty: everything.
    """

    item_id: int
    credit_type: str
    amount: Fraction | int
    rollover_cap: int | None
    schedule: Schedule
    start: datetime
    end: datetime | None
    usage_schedule: Schedule | None = None
    change: AllowanceChange = AllowanceChange.PRORATE
    proration: Proration = Proration.DAY
    bill_last_day: bool = False
    terminates: bool = False
    applies_to: str = ""

    @property
    def pays_for(self) -> dict[str, Any] | None:
        """What the credits can pay for; None: everything."""
        return json.loads(self.applies_to) if self.applies_to else None


@dataclass(frozen=True, slots=True)
class AllowancePart:
    """A stretch of a period on the same terms."""

    span: AllowanceSpan
    part: Period

    @property
    def is_full(self) -> bool:
        """Whether a change within the period grants all credits of it."""
        return self.span.change == AllowanceChange.FULL and self.part.full_start < self.part.start == self.span.start

    @property
    def expires_at(self) -> datetime | None:
        """When unspent credits expire: with the full period, also if a change has cut it; None if they roll over."""
        if self.span.rollover_cap is not None:
            return None
        usage = self.span.usage_schedule
        return self.part.full_end if usage is None else usage.period_at(self.part.full_end).end

    @property
    def terms(self) -> list[str]:
        """What the credits were given for; a claim of the same terms is not granted again."""
        return [
            self.span.credit_type,
            str(Fraction(self.span.amount)),
            str(self.span.rollover_cap),
            _text(self.part.full_start),
            _text(self.part.full_end),
            _text(self.expires_at),
            str(self.span.usage_schedule is not None),
            _text(self.part.start) if self.is_full else "",
            *_purpose(self.span.applies_to),
        ]

    @staticmethod
    def terms_of_full(
        credit_type: str, amount: str, rollover_cap: int | None, start: datetime, end: datetime, applies_to: str
    ) -> list[str]:
        """Return the terms of a full period whose credits expire with it or roll over, and pay for no usage of events."""
        expires_at = _text(end if rollover_cap is None else None)
        return [
            credit_type, amount, str(rollover_cap), _text(start), _text(end), expires_at, "False", "", *_purpose(applies_to)
        ]  # fmt: skip

    def until(self, instant: datetime) -> int:
        """Return the whole credits for the time from the start of the part up to an instant of it."""
        if instant <= self.part.start:
            return 0
        whole = self._fraction(self.part.full_end) if self.is_full else Fraction(1)
        return floor(self.span.amount * self._fraction(instant) / (whole or 1))

    def _fraction(self, end: datetime) -> Fraction:
        return share(
            self.span.schedule,
            replace(self.part, end=end),
            self.span.proration,
            terminated=self.span.terminates and end == self.span.end,
            bill_last_day=self.span.bill_last_day,
        ).fraction


@dataclass(frozen=True, slots=True)
class HeldAllowance:
    """A claim: for `[start, end)` a run granted `amount` credits, 0 or more, or passed them over."""

    id: int
    start: datetime
    end: datetime
    amount: int
    terms: list[str]


@dataclass(frozen=True, slots=True)
class Allowance:
    """The allowance of a part of a period; `amount` is 0 or more.

    Args:
        begins: it is the first of its period, so what rolled over is cut to its cap.
    """

    of: AllowancePart
    part: TimeSpan
    amount: int
    begins: bool = True

    @property
    def span(self) -> AllowanceSpan:
        return self.of.span

    @property
    def expires_at(self) -> datetime | None:
        return self.of.expires_at

    def spendable_from(self, now: datetime) -> datetime:
        """Return from when the credits can be spent: all of a period from its start, also those for its later parts."""
        return min(self.part.start, max(now, self.of.part.start))

    def is_lost(self, now: datetime) -> bool:
        """Return whether the credits would be expired already."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class CutAllowance:
    """A claim that a change has cut: it keeps `amount` credits for the time up to `end`, or nothing if its end is its start."""

    claim: HeldAllowance
    end: datetime
    amount: int


@dataclass(frozen=True, slots=True)
class AllowanceDifference:
    """What a run has to do so that the claims are those of the target: give back first, then grant, the oldest first."""

    cut: list[CutAllowance]
    due: list[Allowance]


def reconcile_allowances(
    spans: Iterable[AllowanceSpan], held: Iterable[HeldAllowance], as_of: datetime, since: datetime | None = None
) -> AllowanceDifference:
    """Return what of the claims goes back, and which allowances of begun time are due.

    Nothing that takes effect after `as_of` changes anything.

    Args:
        held: all claims that end after `since`.
        since: what ends before it is settled; a part of the target that contains it is there in whole.
    """
    parts = list(takewhile(lambda one: one.part.start <= as_of, _parts(spans, since)))
    later: list[datetime] = []
    cut: list[CutAllowance] = []
    kept: list[tuple[AllowancePart, TimeSpan]] = []
    for claim in sorted(held, key=lambda one: one.start):
        if claim.start > as_of and not _continues_cut(claim, cut, parts):
            later.append(claim.start)
            continue
        of = next((one for one in parts if one.part.start <= claim.start < one.part.end and one.terms == claim.terms), None)
        if of is None:
            cut.append(CutAllowance(claim, claim.start, 0))
            continue
        if of.part.end < claim.end and of.part.end <= as_of:
            amount = min(claim.amount, of.until(of.part.end) - of.until(claim.start))
            cut.append(CutAllowance(claim, of.part.end, amount))
        kept.append((of, TimeSpan(claim.start, min(claim.end, of.part.end))))
    due: list[Allowance] = []
    for one in parts:
        for start, gap_end in _gaps(one.part, [span for of, span in kept if of == one]):
            # All of a begun part, as its fee is charged: also what an end cut off that has been withdrawn before it came.
            end = min([gap_end, *(at for at in later if at >= start)])
            if start < end:
                due.append(Allowance(one, TimeSpan(start, end), one.until(end) - one.until(start), _begins(one, start, parts)))
    return AllowanceDifference(cut, sorted(due, key=lambda one: one.part.start))


def _continues_cut(claim: HeldAllowance, cut: Sequence[CutAllowance], parts: Iterable[AllowancePart]) -> bool:
    """Return whether the claim goes on where one ended that a change has cut, without a change between them.

    What an end cut off that was withdrawn before it came is a second claim; the two count as one.
    """
    return any(one.claim.end == claim.start for one in cut) and any(of.part.start < claim.start < of.part.end for of in parts)


def _begins(of: AllowancePart, start: datetime, parts: Iterable[AllowancePart]) -> bool:
    """Return whether no earlier allowance of the credit type reaches into the same full period."""
    return start == of.part.start and not any(
        one.part.start < start and one.part.end > of.part.full_start and one.span.credit_type == of.span.credit_type
        for one in parts
    )


def _gaps(part: Period, kept: Sequence[TimeSpan]) -> Iterator[tuple[datetime, datetime]]:
    start = part.start
    for span in sorted(kept):
        if span.start > start:
            yield start, span.start
        start = max(start, span.end)
    if start < part.end:
        yield start, part.end


def settled_start(spans: Iterable[AllowanceSpan], since: datetime) -> datetime:
    """Return the start of the part that contains an instant, or the instant: what ends before it is settled too."""
    starts = [max(span.start, span.schedule.period_at(since).start) for span in _resolved(spans) if _contains(span, since)]
    return min([since, *starts])


def next_allowance(spans: Iterable[AllowanceSpan], as_of: datetime) -> datetime | None:
    """Return the first instant after `as_of` at which an allowance begins or is cut; None if there is no such instant."""
    instants: list[datetime] = []
    for span in _resolved(spans):
        for part in periods(span.schedule, max(span.start, span.schedule.period_at(as_of).start), span.end):
            if part.start > as_of:
                instants.append(part.start)
                break
        if span.end is not None and span.end > as_of and span.schedule.period_at(span.end).start != span.end:
            instants.append(span.end)
    return min(instants, default=None)


def _parts(spans: Iterable[AllowanceSpan], since: datetime | None) -> Iterator[AllowancePart]:
    """Yield the parts that end after `since`, each in whole, in order of time; of an open span there is no last one."""
    resolved = _resolved(spans)
    for n, span in enumerate(resolved):
        start = span.start
        if since is not None and since > start:
            start = max(start, span.schedule.period_at(since).start)
        for part in periods(span.schedule, start, span.end):
            if since is None or part.end > since:
                before = (one for one in resolved[:n] if one.schedule == span.schedule)
                yield AllowancePart(span, replace(part, continues=any(_reaches(one, part.full_start) for one in before)))


def _reaches(span: AllowanceSpan, instant: datetime) -> bool:
    return span.end is None or span.end > instant


def _contains(span: AllowanceSpan, instant: datetime) -> bool:
    return span.start <= instant and _reaches(span, instant)


def _resolved(spans: Iterable[AllowanceSpan]) -> list[AllowanceSpan]:
    """Return the spans in order, each kept one up to the end of its period, and those of the same terms as one."""
    allowance_spans: list[AllowanceSpan] = []
    for given in sorted(spans, key=lambda one: one.start):
        span, before = given, allowance_spans[-1] if allowance_spans else None
        if before is None or before.end is None or before.end < span.start:
            allowance_spans.append(span)
            continue
        if span.change == AllowanceChange.KEEP and before.end == span.start:
            end = before.schedule.period_at(span.start - MICROSECOND).end
            before = allowance_spans[-1] = replace(before, end=end if span.end is None else min(end, span.end), terminates=False)
        assert before.end is not None
        if span.end is not None and span.end <= before.end:
            continue
        span = replace(span, start=max(span.start, before.end))
        if _same_terms(before, span):
            allowance_spans[-1] = replace(before, end=span.end, terminates=span.terminates)
        else:
            allowance_spans.append(span)
    return allowance_spans


def _same_terms(before: AllowanceSpan, span: AllowanceSpan) -> bool:
    if before.end != span.start or span.change == AllowanceChange.FULL:
        return False
    alike = replace(span, item_id=before.item_id, start=before.start, end=before.end, change=before.change)
    return replace(alike, terminates=before.terminates) == before


def purpose_text(applies_to: Mapping[str, Any] | None) -> str:
    """Return what credits can pay for in the form of `AllowanceSpan.applies_to`."""
    return json.dumps(applies_to, sort_keys=True) if applies_to else ""


def purpose_of_terms(terms: Sequence[str]) -> dict[str, Any] | None:
    """Return what credits that were given for `AllowancePart.terms` can pay for; None: everything."""
    return json.loads(terms[PURPOSE_AT]) if len(terms) > PURPOSE_AT else None


def _purpose(applies_to: str) -> list[str]:
    return [applies_to] if applies_to else []


def _text(instant: datetime | None) -> str:
    return "" if instant is None else instant.astimezone(UTC).isoformat()


def over_cap(unspent: Sequence[tuple[int, int]], cap: int) -> list[tuple[int, int]]:
    """Return the credits to take back so that at most the cap rolls over into the next period: the oldest first.

    Args:
        unspent: each grant with its rest, the oldest first.

    Returns:
        Each grant with an amount above 0.
    """
    excess = sum(left for _, left in unspent) - cap
    taken: list[tuple[int, int]] = []
    for grant, left in unspent:
        amount = min(left, excess)
        if amount > 0:
            taken.append((grant, amount))
            excess -= amount
    return taken
