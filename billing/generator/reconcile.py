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
from itertools import groupby, islice, pairwise

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
        usage, gross_minor: what was rated so far, and what it came to before coupons and bounds (usage).
        after_coupons_minor: what of that coupons left; the price's minimum and maximum are held against it (usage).
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
    after_coupons_minor: int = 0
    coverage: Coverage = NOTHING_COVERED
    spends: tuple[Spent, ...] = ()
    short_of: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """What is left of a recurring claim after a credit: its time, its share, its money, and its line with what that gave back."""

    start: datetime
    end: datetime
    share_used: int
    net_minor: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class UnusedPart:
    """A stretch of a claim that is not used, and what its line gives back for it; `amount_minor` is 0 or more."""

    start: datetime
    end: datetime
    amount_minor: int


@dataclass(frozen=True, slots=True)
class Credit:
    """A claim gives back what of its line is not used, each part from the instant on at which it is not."""

    claim: Claimed
    parts: tuple[UnusedPart, ...]
    kept: tuple[Keep, ...] = ()

    @property
    def amount_minor(self) -> int:
        """What is given back in all: 0 or more."""
        return sum(part.amount_minor for part in self.parts)


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
    """All that a run has to do for one subscription at one instant.

    Args:
        credits_due_at: when credits that are not due yet will be.
    """

    credits: list[Credit] = field(default_factory=list)
    charges: list[RecurringCharge] = field(default_factory=list)
    usages: list[UsageDue] = field(default_factory=list)
    credits_due_at: list[datetime] = field(default_factory=list)


def recurring_target(counted: Sequence[Counted], claims: Sequence[Claimed], as_of: datetime, target: Target) -> None:
    """Add to `target` what the recurring spans of one item should be less what its claims are."""
    horizon = max([as_of, *(claim.end for claim in claims)])
    parts = [(span, part) for span in counted for part in _parts(span, horizon)]
    for claim in claims:
        unused = _unused(claim, counted)
        target.credits_due_at += [start for start, _ in unused if start > as_of]
        if any(start <= as_of for start, _ in unused):
            target.credits.append(_credit(claim, [gap for gap in unused if gap[0] <= as_of], counted))
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
            _give_usage_back(claim, counted, as_of, target)
    return standing


def _give_usage_back(claim: Claimed, counted: Sequence[Counted], as_of: datetime, target: Target) -> None:
    """Credit all of a usage claim that is not as it should be, once what makes it so has taken effect."""
    unused = _without_spans(claim, [span for span in counted if _same_price(span, claim)])
    due_at = min((start for start, _ in unused), default=claim.start)
    if due_at > as_of:
        target.credits_due_at.append(due_at)
    else:
        target.credits.append(Credit(claim, (UnusedPart(claim.start, claim.end, max(claim.net_minor, 0)),)))


def late_usage_until(span: Counted, counted: Sequence[Counted], lookback: int = LATE_PERIODS_AFTER_END) -> datetime | None:
    """Until when late usage of a span is looked for: as long as the item counts without a gap, and two periods more.

    So what has ended is settled for good some day, and a run that remembers nothing looks at no more than one that does.

    Args:
        counted: the item's spans in order of time.
        lookback: in how many billed periods the run looks; so many periods more, where that is above two.

    Returns:
        None while the item goes on.
    """
    last = span
    for following in counted:
        if last.end is not None and following.start == last.end:
            last = following
    if last.end is None:
        return None
    return next(islice(periods(last.schedule, last.end), max(lookback, LATE_PERIODS_AFTER_END), None)).end


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


def _unused(claim: Claimed, counted: Sequence[Counted]) -> list[tuple[datetime, datetime]]:
    """The stretches of a recurring claim in which the item did not count as claimed, in order of time.

    They are cut where the item began or ceased to count in another way: each is given back when that takes effect, as each
    charge is made when it is due.
    """
    gaps = _without_spans(claim, [span for span in counted if _same(span, claim)])
    changes = sorted({at for span in counted for at in (span.start, span.end) if at is not None})
    return [piece for gap in gaps for piece in _cut(gap, changes)]


def _without_spans(claim: Claimed, spans: Sequence[Counted]) -> list[tuple[datetime, datetime]]:
    """What of a claim's time lies in none of the spans, which are in order of time."""
    gaps: list[tuple[datetime, datetime]] = []
    cursor = claim.start
    for span in spans:
        if span.start > cursor:
            gaps.append((cursor, min(span.start, claim.end)))
        cursor = claim.end if span.end is None else max(cursor, span.end)
        if cursor >= claim.end:
            break
    return [gap for gap in [*gaps, (cursor, claim.end)] if gap[0] < gap[1]]


def _cut(gap: tuple[datetime, datetime], instants: Iterable[datetime]) -> list[tuple[datetime, datetime]]:
    start, end = gap
    edges = [start, *(instant for instant in instants if start < instant < end), end]
    return list(pairwise(edges))


def _credit(claim: Claimed, gaps: Sequence[tuple[datetime, datetime]], counted: Sequence[Counted]) -> Credit:
    """What a recurring claim gives back for these stretches of it: one after the other, as runs in time would have."""
    parts: list[UnusedPart] = []
    left = [claim]
    for start, end in gaps:
        cut = next(one for one in left if one.start <= start and end <= one.end)
        pieces = [(a, b) for a, b in ((cut.start, start), (end, cut.end)) if a < b]
        shares = _shares_of(cut, pieces, counted)
        amount = _credit_minor(cut, cut.share_used - sum(shares))
        parts.append(UnusedPart(start, end, amount))
        left.remove(cut)
        left += _rests(cut, pieces, shares, amount)
    return Credit(claim, tuple(parts), tuple(_keep(one) for one in sorted(left, key=lambda one: one.start)))


def _keep(rest: Claimed) -> Keep:
    assert rest.origin is not None
    return Keep(rest.start, rest.end, rest.share_used, rest.net_minor, rest.origin)


def _rests(
    claim: Claimed, pieces: Sequence[tuple[datetime, datetime]], shares: Sequence[int], credited_minor: int
) -> list[Claimed]:
    """What is left of a claim after a credit, in pieces that divide its money by their shares; the last one takes the rest."""
    assert claim.origin is not None
    left, noted = claim.net_minor - credited_minor, claim.noted_minor
    parts = [left * used // max(sum(shares), 1) for used in shares]
    parts = [*parts[:-1], left - sum(parts[:-1])] if parts else []
    origin = replace(claim.origin, credited_minor=claim.origin.credited_minor + credited_minor)
    rests: list[Claimed] = []
    for (start, end), used, net in reversed(list(zip(pieces, shares, parts, strict=True))):
        # What credit notes have given back counts against the latest piece first, as when the claims are read.
        of_this = min(noted, max(net, 0))
        noted -= of_this
        rests.append(replace(claim, start=start, end=end, share_used=used, net_minor=net, noted_minor=of_this, origin=origin))
    return rests


def _ends_with_subscription(claim: Claimed, end: datetime, counted: Sequence[Counted]) -> bool:
    return any(span.terminates and span.end == end and _same(span, claim) for span in counted)


def _shares_of(claim: Claimed, pieces: Sequence[tuple[datetime, datetime]], counted: Sequence[Counted]) -> list[int]:
    """What of the claim's own full period each piece of it is."""
    assert claim.origin is not None
    if claim.price.proration == Proration.NONE:
        # What was charged for a period stays charged as long as any of it is used.
        return [claim.share_used if position == 0 else 0 for position in range(len(pieces))]
    full = claim.schedule.period_at(claim.origin.full_start)
    return [
        share(
            claim.schedule,
            replace(full, start=start, end=end, full_start=claim.origin.full_start, full_end=claim.origin.full_end),
            claim.price.proration,
            terminated=_ends_with_subscription(claim, end, counted),
            bill_last_day=claim.price.bill_last_day,
        ).used
        for start, end in pieces
    ]


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


def _charges(span: Counted, part: Period, claims: Sequence[Claimed]) -> Iterator[RecurringCharge]:
    """The stretches of a part that no kept claim covers, each continuing where what is before it stopped."""
    pieces = list(_uncovered(part, claims))
    if not pieces:
        return
    rating = rate(span.price, span.quantity, span.currency)
    before = _share_before(span, part, claims)
    for piece in pieces:
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
