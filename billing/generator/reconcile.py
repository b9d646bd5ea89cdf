"""What should be billed, less what is billed: the heart of invoicing. Pure.

For each item the spans in which it counted are cut into periods; the claims say what of that has been billed, at which price
and quantity. A stretch that is billed as it should be is kept. One that is not gives back what its line charged for it, and
what is due and not kept is charged. So an amendment that comes late, or several at once, or none for a year, all go the same way.

A recurring claim can be kept in part: time is divisible. A usage claim is kept whole or given back whole, since usage is not;
but one that has merely grown is continued: amount(total) − amount(first).
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import groupby, islice

from billing.rating.aggregation import Usage
from billing.rating.periods import Period, Schedule, Timing, due, periods
from billing.rating.prepaid_units import NOTHING_COVERED, Coverage, Spent, Stretch
from billing.rating.pricing import Price, Proration, Rating, rate
from billing.rating.proration import NOTHING, BilledLine, Share, prorated_minor, share, unused_credit_minor

LATE_PERIODS_AFTER_END = 2
"""How many periods after the one in which an item stopped counting late usage is still looked for."""


@dataclass(frozen=True, slots=True)
class Counted:
    """That an item counted at a price and quantity in `[start, end)`; an end of None is open.

    Args:
        terminates: it ends because the subscription does, not by a change.
        continues: the item counted earlier in the full period that the span begins in.
    """

    item_id: int
    price_id: int
    price: Price
    plan_code: str
    currency: str
    schedule: Schedule
    quantity: Decimal
    start: datetime
    end: datetime | None
    terminates: bool = False
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """The line that a recurring claim comes from, and the full period it is measured against."""

    full_start: datetime
    full_end: datetime
    share: Share
    amount_minor: int
    discount_minor: int = 0
    credited_minor: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim that is not released.

    Args:
        share_used: of the origin's full period, what this claim still stands for (recurring).
        usage, gross_minor: what was rated so far, and what it came to (usage).
        coverage, spends: what of that is paid in credits, and the ledger's entries on which it stands (usage).
        short_of: what was covered when `gross_minor` was billed, where not all of it could be paid again when what had
            corrected it was voided; it has to be rated anew (usage).
        net_minor: what of the line, less its discount, this claim still stands for.
        noted_minor: what of that credit notes on request have given back already (recurring).
    """

    id: int
    item_id: int
    price_id: int
    price: Price
    currency: str
    schedule: Schedule
    quantity: Decimal
    start: datetime
    end: datetime
    net_minor: int
    invoice_id: int | None
    line_position: int | None
    origin: Origin | None = None
    share_used: int = 0
    noted_minor: int = 0
    usage: Usage | None = None
    gross_minor: int = 0
    coverage: Coverage = NOTHING_COVERED
    spends: tuple[Spent, ...] = ()
    short_of: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """What is left of a recurring claim after a credit: its time, its share and its money."""

    start: datetime
    end: datetime
    share_used: int
    net_minor: int


@dataclass(frozen=True, slots=True)
class Credit:
    """A claim gives back the part of its line that is not used; `amount_minor` is 0 or more."""

    claim: Claimed
    start: datetime
    end: datetime
    amount_minor: int
    kept: tuple[Keep, ...] = ()


@dataclass(frozen=True, slots=True)
class RecurringCharge:
    """A stretch of a recurring price that is due and not billed."""

    counted: Counted
    part: Period
    share: Share
    rating: Rating
    """Of the full period at this quantity."""
    amount_minor: int


@dataclass(frozen=True, slots=True)
class UsageDue:
    """A period of a usage price to be measured and rated, less what earlier claims of it billed."""

    counted: Counted
    part: Period
    continued: tuple[Claimed, ...] = ()
    terminated: bool = False


@dataclass(slots=True)
class Target:
    """All that a run has to do for one subscription at one instant."""

    credits: list[Credit] = field(default_factory=list)
    charges: list[RecurringCharge] = field(default_factory=list)
    usages: list[UsageDue] = field(default_factory=list)


def recurring_target(counted: Sequence[Counted], claims: Sequence[Claimed], as_of: datetime, target: Target) -> None:
    """Add to `target` what the recurring spans of one item should be less what its claims are."""
    horizon = max([as_of, *(claim.end for claim in claims)])
    parts = [(span, part) for span in counted for part in _parts(span, horizon)]
    for claim in claims:
        credit = _credit(claim, parts)
        if credit is not None:
            target.credits.append(credit)
    for span, part in parts:
        if due(span.price.timing, part, as_of):
            target.charges += _charges(span, part, [c for c in claims if _same(span, c)])


def usage_target(counted: Sequence[Counted], claims: Sequence[Claimed], as_of: datetime, target: Target) -> list[UsageDue]:
    """Add to `target` what the usage spans of one item should be less what its claims are.

    Returns:
        The periods that stand as they were billed, oldest first: those to look for late usage in.
    """
    horizon = max([as_of, *(claim.end for claim in claims)])
    parts = [(span, part) for span in counted for part in _parts(span, horizon)]
    settled: set[int] = set()
    standing: list[UsageDue] = []
    for span, part in parts:
        inside = [c for c in claims if _same_price(span, c) and part.start <= c.start and c.end <= part.end]
        exact = len(inside) == 1 and (inside[0].start, inside[0].end) == (part.start, part.end)
        if exact:
            standing.append(UsageDue(span, part, (inside[0],), _terminated(span, part)))
            settled.add(inside[0].id)
            continue
        # What was billed of a part that goes on longer now is continued when that is over.
        settled.update(c.id for c in inside)
        if due(Timing.ARREARS, part, as_of):
            target.usages.append(UsageDue(span, part, tuple(inside), _terminated(span, part)))
    for claim in claims:
        if claim.id not in settled:
            target.credits.append(Credit(claim, claim.start, claim.end, max(claim.net_minor, 0)))
    return standing


def late_usage_until(span: Counted, counted: Sequence[Counted]) -> datetime | None:
    """Until when late usage of a span is looked for: as long as the item counts without a gap, and two periods more.

    So what has ended is settled for good some day, and a run that remembers nothing looks at no more than one that does.

    Args:
        counted: the item's spans in order of time.

    Returns:
        None while the item goes on.
    """
    last = span
    for following in counted:
        if last.end is not None and following.start == last.end:
            last = following
    if last.end is None:
        return None
    return next(islice(periods(last.schedule, last.end), LATE_PERIODS_AFTER_END, None)).end


def next_due(counted: Iterable[Counted], as_of: datetime) -> datetime | None:
    """The first instant after `as_of` at which something of these spans becomes due; None when nothing ever will."""
    instants: list[datetime] = []
    for span in counted:
        for part in periods(span.schedule, max(span.start, _floor(span, as_of)), span.end):
            instant = part.start if span.price.timing == Timing.ADVANCE else part.end
            if instant > as_of:
                instants.append(instant)
                break
    return min(instants, default=None)


def due_instants(counted: Iterable[Counted], as_of: datetime, *, most: int) -> list[datetime]:
    """The first `most` instants up to `as_of` at which something of these spans became due, oldest first."""
    by_time = heapq.merge(*(_due_instants(span, as_of) for span in counted))
    return list(islice((instant for instant, _ in groupby(by_time)), most))


def _due_instants(span: Counted, as_of: datetime) -> Iterator[datetime]:
    for part in _parts(span, as_of):
        instant = part.start if span.price.timing == Timing.ADVANCE else part.end
        if instant <= as_of:
            yield instant


def _floor(span: Counted, instant: datetime) -> datetime:
    """The start of the period that contains an instant."""
    return span.schedule.period_at(instant).start


def _parts(span: Counted, horizon: datetime) -> Iterator[Period]:
    """The periods of a span that begin up to the horizon; one more than is due at most."""
    for part in periods(span.schedule, span.start, span.end, continues=span.continues):
        if part.start > horizon:
            return
        yield part


def _same_price(span: Counted, claim: Claimed) -> bool:
    return span.price_id == claim.price_id


def _same(span: Counted, claim: Claimed) -> bool:
    return span.price_id == claim.price_id and span.quantity == claim.quantity


def _terminated(span: Counted, part: Period) -> bool:
    return span.terminates and part.end == span.end


def _credit(claim: Claimed, parts: Sequence[tuple[Counted, Period]]) -> Credit | None:
    """What a recurring claim gives back, or None when all of it is as it should be."""
    kept: list[tuple[Period, bool]] = []
    for span, part in parts:
        if _same(span, claim):
            piece = part.clip(claim.start, claim.end)
            if piece is not None:
                kept.append((piece, _terminated(span, piece)))
    kept = _joined(kept)
    if len(kept) == 1 and (kept[0][0].start, kept[0][0].end) == (claim.start, claim.end):
        return None
    used = [(piece, _share_of(claim, piece, terminated)) for piece, terminated in kept]
    unused = claim.share_used - sum(one.used for _, one in used)
    amount = _credit_minor(claim, unused)
    gap_start, gap_end = _gap(claim, [piece for piece, _ in used])
    return Credit(claim, gap_start, gap_end, amount, _keeps(claim, used, claim.net_minor - amount))


def _joined(kept: Sequence[tuple[Period, bool]]) -> list[tuple[Period, bool]]:
    """Pieces that touch are one: what is billed across a boundary that has moved stays billed."""
    joined: list[tuple[Period, bool]] = []
    for piece, terminated in sorted(kept, key=lambda one: one[0].start):
        if joined and joined[-1][0].end == piece.start:
            joined[-1] = (replace(joined[-1][0], end=piece.end), terminated)
        else:
            joined.append((piece, terminated))
    return joined


def _share_of(claim: Claimed, piece: Period, terminated: bool) -> Share:
    """What of the claim's own full period a piece of it is."""
    assert claim.origin is not None
    index = claim.schedule.index_at(claim.origin.full_start)
    own = Period(index, piece.start, piece.end, claim.origin.full_start, claim.origin.full_end)
    if claim.price.proration == Proration.NONE:
        # What was charged for a period stays charged as long as any of it is used.
        return Share(claim.share_used, claim.origin.share.of)
    return share(claim.schedule, own, claim.price.proration, terminated=terminated, bill_last_day=claim.price.bill_last_day)


def _credit_minor(claim: Claimed, unused: int) -> int:
    assert claim.origin is not None
    if unused <= 0:
        return 0
    most = max(claim.net_minor - claim.noted_minor, 0)
    if unused >= claim.share_used:
        return most
    line = BilledLine(
        full_amount=rate(claim.price, claim.quantity, claim.currency).exact,
        share=claim.origin.share,
        amount_minor=claim.origin.amount_minor,
        discount_minor=claim.origin.discount_minor,
        credited_minor=claim.origin.credited_minor,
    )
    return min(unused_credit_minor(line, Share(unused, claim.origin.share.of), claim.currency), most)


def _gap(claim: Claimed, kept: Sequence[Period]) -> tuple[datetime, datetime]:
    """From the first to the last instant that is not kept."""
    start = claim.start
    end = claim.end
    if kept and kept[0].start == start:
        start = kept[0].end
    if kept and kept[-1].end == end and kept[-1].start > start:
        end = kept[-1].start
    return start, end


def _keeps(claim: Claimed, used: Sequence[tuple[Period, Share]], left_minor: int) -> tuple[Keep, ...]:
    """Divide what is left among the pieces, the last one taking the rest."""
    keeps: list[Keep] = []
    total = sum(one.used for _, one in used)
    for position, (piece, one) in enumerate(used):
        last = position == len(used) - 1
        part = left_minor - sum(k.net_minor for k in keeps) if last else left_minor * one.used // max(total, 1)
        keeps.append(Keep(piece.start, piece.end, one.used, part))
    return tuple(keeps)


def _charges(span: Counted, part: Period, claims: Sequence[Claimed]) -> Iterator[RecurringCharge]:
    """The stretches of a part that no kept claim covers, each continuing where what is before it stopped."""
    rating = rate(span.price, span.quantity, span.currency)
    before = _share_before(span, part, claims)
    for piece in _uncovered(part, claims):
        one = share(
            span.schedule,
            piece,
            span.price.proration,
            terminated=_terminated(span, piece),
            bill_last_day=span.price.bill_last_day,
        )
        known = before if before.of == one.of else NOTHING
        amount = prorated_minor(rating.exact, one, span.currency, before=known)
        before = Share(min(known.used + one.used, one.of), one.of)
        yield RecurringCharge(span, piece, one, rating, amount)


def _share_before(span: Counted, part: Period, claims: Sequence[Claimed]) -> Share:
    """What of the same full period is billed at this price and quantity already, by the claims inside it."""
    used, of = 0, 1
    for claim in claims:
        if claim.origin is not None and claim.origin.full_start == part.full_start and claim.origin.full_end == part.full_end:
            used, of = used + claim.share_used, claim.origin.share.of
    return Share(min(used, of), of)


def _uncovered(part: Period, claims: Sequence[Claimed]) -> Iterator[Period]:
    cursor = part.start
    for claim in sorted(claims, key=lambda one: one.start):
        if claim.end <= cursor or claim.start >= part.end:
            continue
        if claim.start > cursor:
            yield _piece(part, cursor, claim.start)
        cursor = max(cursor, claim.end)
    if cursor < part.end:
        yield _piece(part, cursor, part.end)


def _piece(part: Period, start: datetime, end: datetime) -> Period:
    piece = part.clip(start, end)
    assert piece is not None
    return piece
