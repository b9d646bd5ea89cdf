"""The target less what is billed. Pure.

The active spans of an item are cut into periods; the claims say which periods are billed, at which price and quantity. Spans
whose claims match the target stay. Any other claimed stretch gives back what its line charged for it. A due stretch without a
claim is charged. A late amendment, several amendments and a year without any all take this one way.

A recurring claim can be kept in part, because time is divisible. A usage claim is kept or given back as a whole, because usage is
not. If the period of a usage claim has grown, the claim is continued: amount(total) − amount(first).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from billing.generator.state.open_claims import (
    Credit,
    OpenClaim,
    UnusedPart,
    credit_for,
    has_same_price,
    has_same_terms,
    not_as_claimed_from,
    unused_since,
    unused_stretches,
)
from billing.generator.state.spans import ItemSpan, parts_until
from billing.rating.periods import Period, Timing, due
from billing.rating.prices.pricing import Rating, rate
from billing.rating.proration import NOTHING, Share, prorated_minor, share


@dataclass(frozen=True, slots=True)
class RecurringCharge:
    """A due stretch of a recurring price that is not billed."""

    span: ItemSpan
    part: Period
    share: Share
    rating: Rating
    """The rating of the full period at this quantity."""
    amount_minor: int


@dataclass(frozen=True, slots=True)
class UsageDue:
    """A period of a usage price to measure and rate, less what earlier claims have billed of it.

    Args:
        whole: of a running period, the whole of it, which has not ended; None: `part` has ended.
    """

    span: ItemSpan
    part: Period
    continued: tuple[OpenClaim, ...] = ()
    terminated: bool = False
    whole: Period | None = None

    @property
    def is_late(self) -> bool:
        """Whether it changes what was billed as the whole of a period; not the first or a further part of a running one."""
        return bool(self.continued) and not any(claim.is_running for claim in self.continued)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a run for a subscription, or for one item of it, at an instant.

    Args:
        running: usage periods that have not ended, up to the instant; the run may bill them.
        unchanged: usage periods that stay as billed, the oldest first: the run may look for late usage in them.
        left_out: the ids of the claims on usage periods in which the run must not look for late usage.
        credits_due_at: the due instant of later credits.
    """

    credits: tuple[Credit, ...] = ()
    charges: tuple[RecurringCharge, ...] = ()
    usages: tuple[UsageDue, ...] = ()
    running: tuple[UsageDue, ...] = ()
    unchanged: tuple[UsageDue, ...] = ()
    left_out: tuple[int, ...] = ()
    credits_due_at: tuple[datetime, ...] = ()


def joined(targets: Sequence[Target]) -> Target:
    """Return the targets of several items as one, in their order."""
    return Target(
        credits=tuple(one for target in targets for one in target.credits),
        charges=tuple(one for target in targets for one in target.charges),
        usages=tuple(one for target in targets for one in target.usages),
        running=tuple(one for target in targets for one in target.running),
        unchanged=tuple(one for target in targets for one in target.unchanged),
        left_out=tuple(one for target in targets for one in target.left_out),
        credits_due_at=tuple(at for target in targets for at in target.credits_due_at),
    )


def recurring_target(spans: Sequence[ItemSpan], claims: Sequence[OpenClaim], as_of: datetime) -> Target:
    """Return the difference between the recurring spans of an item and its claims."""
    given_back: list[Credit] = []
    later: dict[tuple[datetime, datetime], datetime] = {}
    unused = {claim.id: unused_stretches(claim, spans) for claim in claims}
    starts = {end: start for gaps in unused.values() for start, end in gaps}
    for claim in claims:
        since = {gap: gap[0] if gap[0] <= as_of else unused_since(gap[0], starts, spans) for gap in unused[claim.id]}
        later |= {gap: at for gap, at in since.items() if at > as_of}
        if now := [gap for gap in since if gap not in later]:
            given_back.append(credit_for(claim, now, spans))
    charges = [
        charge
        for span, part in _parts_of(spans, claims, as_of)
        if due(span.price.timing, part, as_of)
        for charge in _charges(span, part, [c for c in claims if has_same_terms(span, c)], list(later))
    ]
    return Target(credits=tuple(given_back), charges=tuple(charges), credits_due_at=tuple(later.values()))


def usage_target(spans: Sequence[ItemSpan], claims: Sequence[OpenClaim], as_of: datetime) -> Target:
    """Return the difference between the usage spans of an item and its claims."""
    usages: list[UsageDue] = []
    unchanged: list[UsageDue] = []
    running: list[UsageDue] = []
    continued: set[int] = set()
    for span, part in _parts_of(spans, claims, as_of):
        inside = tuple(c for c in claims if has_same_price(span, c) and part.start <= c.start and c.end <= part.end)
        continued.update(claim.id for claim in inside)
        period = UsageDue(span, part, inside, _is_terminated(span, part))
        is_billed = len(inside) == 1 and (inside[0].start, inside[0].end) == (part.start, part.end)
        if is_billed and not inside[0].is_running:
            unchanged.append(period)
        # A billed part that has become longer, and a running one that was billed so far, are continued after their end.
        elif due(Timing.ARREARS, part, as_of):
            usages.append(period)
        elif span.price.credits is None and part.start < as_of and all(claim.end <= as_of for claim in inside):
            running.append(replace(period, part=replace(part, end=as_of), whole=part))
    gone = [(claim, not_as_claimed_from(claim, spans)) for claim in claims if claim.id not in continued]
    return Target(
        # A claim that no longer fits is given back as a whole, once the change that causes this has taken effect.
        credits=tuple(Credit(claim, (_whole(claim),)) for claim, at in gone if at <= as_of),
        usages=tuple(usages),
        running=tuple(running),
        unchanged=tuple(unchanged),
        credits_due_at=tuple(at for _, at in gone if at > as_of),
    )


def _whole(claim: OpenClaim) -> UnusedPart:
    amount = max(claim.net_minor, 0)
    return UnusedPart(claim.start, claim.end, amount, max(claim.gross_minor - amount, 0))


def _parts_of(spans: Sequence[ItemSpan], claims: Sequence[OpenClaim], as_of: datetime) -> list[tuple[ItemSpan, Period]]:
    """Yield the periods of each span that begin before `as_of` or before the end of a claim."""
    horizon = max([as_of, *(claim.end for claim in claims)])
    return [(span, part) for span in spans for part in parts_until(span, horizon)]


def _is_terminated(span: ItemSpan, part: Period) -> bool:
    return span.terminates and part.end == span.end


def _charges(
    span: ItemSpan, part: Period, claims: Sequence[OpenClaim], later: Sequence[tuple[datetime, datetime]]
) -> Iterator[RecurringCharge]:
    """Yield the stretches of a part that are not billed. Each continues where the previous one stopped.

    Args:
        later: stretches that are billed at other terms until they are given back; their new charge comes together with that.
    """
    pieces = list(_uncovered_periods(part, [*((claim.start, claim.end) for claim in claims), *later]))
    if not pieces:
        return
    rating = rate(span.price, span.quantity, span.currency)
    before = _share_before(span, part, claims)
    for piece in pieces:
        one = share(
            span.schedule,
            piece,
            span.price.proration,
            terminated=_is_terminated(span, piece),
            bill_last_day=span.price.bill_last_day,
        )
        known = before if before.of == one.of else NOTHING
        amount = prorated_minor(rating.exact, one, span.currency, before=known)
        before = Share(min(known.used + one.used, one.of), one.of)
        yield RecurringCharge(span, piece, one, rating, amount)


def _share_before(span: ItemSpan, part: Period, claims: Sequence[OpenClaim]) -> Share:
    """Return the share of the same full period that claims have billed at this price and quantity."""
    used, of = 0, 1
    for claim in claims:
        if claim.origin is not None and claim.origin.full_start == part.full_start and claim.origin.full_end == part.full_end:
            used, of = used + claim.share_used, claim.origin.share.of
    return Share(min(used, of), of)


def _uncovered_periods(part: Period, covered: Sequence[tuple[datetime, datetime]]) -> Iterator[Period]:
    cursor = part.start
    for start, end in sorted(covered):
        if end <= cursor or start >= part.end:
            continue
        if start > cursor:
            yield _piece(part, cursor, start)
        cursor = max(cursor, end)
    if cursor < part.end:
        yield _piece(part, cursor, part.end)


def _piece(part: Period, start: datetime, end: datetime) -> Period:
    piece = part.clip(start, end)
    assert piece is not None
    return piece
