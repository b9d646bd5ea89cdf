"""What one run bills of a subscription, key by key, and the documents that it makes of that."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from itertools import groupby
from typing import Any

from tests.billing.random_subscriptions.calculator.documents import (
    Document,
    Line,
    bound_by_prices,
    document_of,
    find_taxes,
    redeem_coupons,
)
from tests.billing.random_subscriptions.calculator.exact import (
    DECIMALS,
    Time,
    cut_at,
    number,
    to_minor,
    without,
)
from tests.billing.random_subscriptions.calculator.orders import Stretch
from tests.billing.random_subscriptions.calculator.prices import (
    Price,
    Used,
    cost_of,
    is_due_at_start,
    limits,
    minor_of_groups,
    minor_of_usage,
    used,
    within,
)
from tests.billing.random_subscriptions.calculator.subscriptions import Billed, Subscription, price_of

KINDS = ("credit", "recurring", "usage", "late_usage", "charge")
"""In which order lines come that are due at one instant; late usage with the usage."""


class Run:
    """A run as of an instant.

    Attributes:
        freed: what is billed no more, with the line because of which.
        made: what is billed from then on.
        running: usage of periods that are not over, with what is billed of each.
        unchanged: usage that is billed, in which late usage is looked for.
        freed_discounts: what discounts made credits smaller by: currency, when, start of the period, amount.
    """

    def __init__(self, of: Subscription, as_of: datetime) -> None:
        self.of, self.as_of = of, as_of
        self.lines: list[Line] = []
        self.freed: list[tuple[Billed, Line | None]] = []
        self.made: list[Billed] = []
        self.unchanged: list[tuple[Stretch, Billed]] = []
        self.running: list[tuple[str, Stretch, list[Billed]]] = []
        self.freed_discounts: list[tuple[str, datetime, datetime, int]] = []

    def documents(self, only: str | None, running: bool = False) -> list[Document]:
        """The documents of the run, by currency; what they bill is recorded."""
        if only != "usage":
            for key in self.of.keys:
                self._recurring(key)
        if only != "recurring":
            for key in self.of.keys:
                self._usage(key)
            self._look_back()
            self._so_far(running)
        if only != "usage":
            self._one_offs()
        bounded = {span.plan.currency for span in self.of.spans("") if span.plan.minimum or span.plan.maximum}
        # A bound may be billed of a period that no longer counts, so that nothing else of its currency is.
        bounded |= {billed.currency for billed in self.of.live("bound", "")}
        made = [self._document(currency) for currency in sorted(bounded | {line.currency for line in self.lines})]
        for document in made:
            if document is not None:
                document.only = only or ""
        for billed, line in self.freed:
            billed.free(line.document if line else None)
        self.of.history += self.made
        return [document for document in made if document is not None]

    # Recurring ---------------------------------------------------------------------------------------

    def _recurring(self, key: str) -> None:
        billed = self.of.live("recurring", key)
        until = max([self.as_of, *(known.end for known in billed)])
        wanted = [s for s in self.of.stretches(key, until) if price_of(s, key)["kind"] == "recurring"]
        unused = {id(known): self._unused(known) for known in billed}
        for known in billed:
            self._give_back_unused(known, [time for time in unused[id(known)] if self._has_come(key, time, unused)], wanted)
        for stretch in wanted:
            if self.as_of >= (stretch.start if is_due_at_start(price_of(stretch, key)) else stretch.end):
                self._charge(key, stretch, [known for known in billed if known.stretch.has_terms_of(stretch)])

    def _changes(self, key: str) -> list[datetime]:
        return [instant for span in self.of.spans(key) for instant in (span.start, span.end)]

    def _unused(self, billed: Billed) -> list[Time]:
        """What of it did not count as it was billed, in pieces from change to change."""
        same = [(span.start, span.end) for span in self.of.spans(billed.key) if billed.stretch.has_terms_of(span)]
        return cut_at(without(billed.stretch.time, same), self._changes(billed.key))

    def _has_come(self, key: str, time: Time, unused: dict[int, list[Time]]) -> bool:
        """Whether the change has come that made it unused; what was billed in two pieces that touch changes as one."""
        start = time[0]
        touching = {end: before for times in unused.values() for before, end in times}
        while start in touching and start not in self._changes(key):
            start = touching[start]
        return start <= self.as_of

    def _give_back_unused(self, billed: Billed, unused: list[Time], wanted: list[Stretch]) -> None:
        """Give back what is not used, each stretch once it is not used, one after the other."""
        given: list[tuple[Time, int]] = []
        left = [billed]
        for start, end in unused:
            of = next(rest for rest in left if rest.start <= start and end <= rest.end)
            back, rests = self._without_stretch(of, (start, end), wanted)
            given.append(((start, end), back))
            self._free(billed, start, _freed(of, of.units - sum(rest.units for rest in rests), back))
            left = [rest for rest in left if rest is not of] + rests
        if given:
            self._give_back(billed, given, sorted(left, key=lambda rest: rest.start))

    def _without_stretch(self, billed: Billed, unused: Time, wanted: list[Stretch]) -> tuple[int, list[Billed]]:
        """What a stretch of what was billed is worth, and what is left without it."""
        stops = [s.end for s in wanted if s.is_last and s.has_terms_of(billed.stretch)]
        kept = [
            # Without proration, the whole stays charged as long as any of it is used.
            replace(billed.stretch, start=start, end=end, is_last=end in stops, is_first=billed.stretch.is_first and not position)
            for position, (start, end) in enumerate(without(billed.stretch.time, [unused]))
        ]
        units = [self.of.share(billed.price, stretch)[0] for stretch in kept]
        back = _worth(billed, billed.units - sum(units))
        left = billed.left - back
        parts = [left * each // max(sum(units), 1) for each in units]
        parts = [*parts[:-1], left - sum(parts[:-1])] if parts else []
        credited = billed.credited + back
        return back, [
            replace(billed, stretch=stretch, units=each, before=part, made_by=None, credited=credited)
            for stretch, each, part in zip(kept, units, parts, strict=True)
        ]

    def _give_back(self, billed: Billed, given: list[tuple[Time, int]], rests: list[Billed]) -> None:
        lines = [
            _line(
                billed.price,
                replace(billed.stretch, start=start, end=end),
                "credit",
                -amount,
                start,
                quantity=billed.quantity,
                coupons=False,
                follows=billed.line,
                refunds=self.of.refunds(start),
            )
            for (start, end), amount in given
            if amount
        ]
        self.lines += lines
        line = lines[0] if lines else None
        self.freed.append((billed, line))
        for rest in rests:
            rest.made_by = line
        self.made += rests

    def _free(self, billed: Billed, instant: datetime, amount: int) -> None:
        if amount > 0:
            self.freed_discounts.append((billed.currency, instant, billed.stretch.whole[0], amount))

    def _charge(self, key: str, stretch: Stretch, billed: list[Billed]) -> None:
        """Charge what of a stretch is not billed; each piece continues where the one before it stopped."""
        price, currency = price_of(stretch, key), stretch.plan.currency
        before = sum(known.units for known in billed if known.stretch.full == stretch.full)
        exact = cost_of(price, stretch.quantity)
        for start, end in without(stretch.time, [known.stretch.time for known in billed]):
            is_first, is_last = stretch.is_first and start == stretch.start, stretch.is_last and end == stretch.end
            piece = replace(stretch, start=start, end=end, is_first=is_first, is_last=is_last)
            units, of = self.of.share(price, piece)
            amount = to_minor(exact * Fraction(before + units, of), currency) - to_minor(exact * Fraction(before, of), currency)
            before += units
            line = None
            if units:
                due = piece.start if is_due_at_start(price) else piece.end
                least, most = limits(price, Fraction(units, of), currency)
                line = _line(price, piece, "recurring", amount, due, units=units, of=of, least=least, most=most)
                self.lines.append(line)
            self.made.append(Billed("recurring", key, piece, line=line, made_by=line, units=units))

    # Usage -------------------------------------------------------------------------------------------

    def _usage(self, key: str) -> None:
        billed = self.of.live("usage", key)
        until = max([self.as_of, *(known.end for known in billed)])
        kept: list[Billed] = []
        for stretch in self.of.stretches(key, until):
            if price_of(stretch, key)["kind"] != "usage":
                continue
            inside = [b for b in billed if b.stretch.has_price_of(stretch) and stretch.start <= b.start and b.end <= stretch.end]
            kept += inside
            if [known.stretch.time for known in inside if known.running is None] == [stretch.time]:
                self.unchanged.append((stretch, inside[0]))
            elif self.as_of >= stretch.end:
                self._use(key, stretch, self._used(key, stretch), inside)
            elif stretch.start < self.as_of and all(known.end <= self.as_of for known in inside):
                self.running.append((key, stretch, inside))
        for known in billed:
            if known not in kept and self._is_of_another_price(known):
                self._give_back(known, [(known.stretch.time, max(known.left, 0))], [])
                self._free(known, known.start, known.gross - max(known.left, 0))

    def _used(self, key: str, stretch: Stretch) -> Used:
        return used(price_of(stretch, key), self.of.events, stretch.time, stretch.full, self.of.zone)

    def _is_of_another_price(self, billed: Billed) -> bool:
        """True once usage that was billed belongs to another price, or to no price."""
        same = [(span.start, span.end) for span in self.of.spans(billed.key) if billed.stretch.has_price_of(span)]
        other = without(billed.stretch.time, same)
        return not other or other[0][0] <= self.as_of

    def _so_far(self, is_asked_for: bool) -> None:
        """Usage of running periods, where it is asked for or enough of it is not billed yet."""
        owed: list[tuple[int, str, Stretch, list[Billed]]] = []
        for key, stretch, earlier in self.running:
            price = price_of(stretch, key)
            found = self._used(key, replace(stretch, end=self.as_of))
            more = minor_of_usage(price, found, stretch.plan.currency) - sum(known.gross for known in earlier)
            after = sum(known.after_coupons for known in earlier) + more
            _, most = limits(price, Fraction(*self.of.share(price, stretch)), stretch.plan.currency)
            minor = within(after, None, most) - sum(known.left for known in earlier)
            owed += [(minor, key, stretch, earlier)] if minor else []
        if not owed:
            return
        plan = owed[0][2].plan
        at_once = [one for one in owed if is_due_at_start(price_of(one[2], one[1]))]
        waiting = sum(one[0] for one in owed if one not in at_once)
        enough = plan.threshold is not None and waiting >= to_minor(number(plan.threshold), plan.currency)
        for _, key, stretch, earlier in owed if is_asked_for or enough else at_once:
            so_far = replace(stretch, end=self.as_of, is_last=False)
            self._use(key, so_far, self._used(key, so_far), earlier, whole=stretch)

    def _look_back(self) -> None:
        """Late usage in everything that is billed, whatever its age."""
        for key in self.of.keys:
            unchanged = [(stretch, billed) for stretch, billed in self.unchanged if billed.key == key]
            for stretch, billed in sorted(unchanged, key=lambda known: known[0].start):
                found = self._used(key, stretch)
                if found != billed.used:
                    self._use(key, stretch, found, [billed])

    def _use(self, key: str, stretch: Stretch, found: Used, earlier: list[Billed], *, whole: Stretch | None = None) -> None:
        """Bill the usage of a stretch, less what was billed of it.

        Args:
            whole: of a running period, up to its end: the maximum is for that, and the minimum is not due yet.
        """
        price, currency = price_of(stretch, key), stretch.plan.currency
        gross = minor_of_usage(price, found, currency)
        more = gross - sum(billed.gross for billed in earlier)
        left, coupons_before = sum(billed.left for billed in earlier), sum(billed.after_coupons for billed in earlier)
        least, most = limits(price, Fraction(*self.of.share(price, whole or stretch)), currency)
        least = None if whole else least
        if earlier:
            is_owed = within(coupons_before + more, least, most) != left
        else:
            is_owed = bool(gross or found.quantity or found.events or least is not None)
        billed = Billed("usage", key, stretch, left, used=found, gross=gross, coupons_before=coupons_before, running=whole)
        is_late = bool(earlier) and all(known.running is None for known in earlier)
        kind, due = ("late_usage", self.as_of) if is_late else ("usage", stretch.end)
        groups = self._lines_of_groups(price, stretch, found, earlier, kind, due)
        if groups and earlier and (least, most) != (None, None) and not is_owed:
            groups = []
        # Where each group is billed already, what is owed can still be the minimum of the whole period.
        if groups or (earlier and is_owed and price.get("group_by")):
            self.lines += groups
            billed.group_lines = groups
            if (least, most) != (None, None):
                bounds = _line(price, stretch, "bounds", 0, due, quantity=Fraction(1), least=least, most=most, earlier=earlier)
                bounds.beside = groups
                self.lines.append(bounds)
                billed.group_lines = [*groups, bounds]
            billed.line = billed.made_by = billed.group_lines[0]
        elif is_owed:
            line = _line(price, stretch, kind, more, due, quantity=found.quantity, least=least, most=most, earlier=earlier)
            self.lines.append(line)
            billed.line = billed.made_by = line
        else:
            billed.line = earlier[-1].line if earlier else None
            billed.coupons_before += more
        self.freed += [(known, billed.made_by) for known in earlier]
        self.made.append(billed)

    def _lines_of_groups(
        self, price: Price, stretch: Stretch, found: Used, earlier: list[Billed], kind: str, due: datetime
    ) -> list[Line]:
        """A line for each group of a price that groups, less what was billed of the group; a group may be new, or gone."""
        if not price.get("group_by"):
            return []
        amounts = minor_of_groups(price, found, stretch.plan.currency)
        for known in earlier:
            for group, minor in minor_of_groups(price, known.used, stretch.plan.currency).items():
                amounts[group] = amounts.get(group, 0) - minor
        used_of = dict(found.by_group)
        return [
            _line(
                price, stretch, kind, amounts[group], due, earlier=earlier, of_group=True,
                quantity=used_of[group].quantity if group in used_of else Fraction(0),
            )
            for group in sorted(amounts, key=lambda group: [text or "" for text in group])
            if amounts[group] or not earlier
        ]  # fmt: skip

    def _one_offs(self) -> None:
        currency = self.of.customer.currency
        for one_off in self.of.one_offs:
            if one_off.line is None:
                one_off.line = Line(currency, "charge", "", one_off.amount, Fraction(1), "S", one_off.rate, one_off.recorded_at)
                one_off.line.instant = min(one_off.recorded_at, self.as_of)
                one_off.line.period = self._period_at(one_off.line.instant)
                self.lines.append(one_off.line)

    def _period_at(self, instant: datetime) -> Time | None:
        """The full period of the plan that counts at an instant."""
        # Where an end leaves charged what was paid in advance, that period goes on.
        for span in [span for key in ["", *self.of.keys] for span in self.of.spans(key)]:
            if span.start <= instant < span.end:
                return next(self.of.periods(span.plan, span.anchor, instant))
        return None

    # Documents ---------------------------------------------------------------------------------------

    def _document(self, currency: str) -> Document | None:
        """Coupons and limits of what became due together, instant by instant; then the bounds of periods, and what is carried."""
        lines = sorted((line for line in self.lines if line.currency == currency), key=_place)
        lifting, uses = [], []
        whose = id(self.of)
        coupons = [coupon for coupon in self.of.customer.coupons if coupon.only in (None, self.of)]
        counted = {c.code: c.counted(whose) or c.count(lines, self.of.begins, self._end_of) for c in coupons}
        freed = [one for one in self.freed_discounts if one[0] == currency]
        for instant, due in groupby(lines, key=lambda line: line.due):
            together = list(due)
            free = [(start, amount) for _, at, start, amount in freed if at <= instant]
            freed = [one for one in freed if one[1] > instant]
            uses += redeem_coupons(coupons, together, whose, counted, free)
            lifting += bound_by_prices(together)
        lines = [line for line in lines if line.kind != "bounds"] + lifting
        lines += self._bounds(currency)
        if not lines:
            return None
        find_taxes(lines, self.of.customer.taxes, self.of.customer.zone)
        return document_of(currency, lines, coupon_uses=uses, of=[self.of], as_of=self.as_of)

    def _end_of(self, line: Line, count: int) -> datetime:
        """The end of the last of as many periods, from that of a line on."""
        assert line.period is not None
        assert line.start is not None
        span = next(one for one in self.of.spans(line.key) if one.plan.code == line.plan and one.start <= line.start < one.end)
        periods = self.of.periods(span.plan, span.anchor, line.period[0])
        return [full for full, _ in zip(periods, range(count), strict=False)][-1][1]

    def _bounds(self, currency: str) -> list[Line]:
        """What lifts or lowers each period that is over to the minimum or maximum of its plan."""
        made: list[Line] = []
        over = [s for s in self.of.stretches("", self.as_of) if s.end <= self.as_of and s.plan.currency == currency]
        over = [s for s in over if s.plan.minimum is not None or s.plan.maximum is not None]
        bounded = {(b.start, b.end, b.stretch.plan): b for b in self.of.live("bound", "") if b.currency == currency}
        for shape, billed in bounded.items():
            # A period that has another shape now is bounded again.
            if shape not in [(s.start, s.end, s.plan) for s in over]:
                made += self._bound(billed.stretch, billed, 0)
        for stretch in over:
            starts = [(billed.start, billed.left) for billed in self._billed_after(currency)]
            net = sum(left for start, left in starts if stretch.start <= start < stretch.end)
            terms = {"minimum": stretch.plan.minimum, "maximum": stretch.plan.maximum}
            least, most = limits(terms, Fraction(*self.of.share({}, replace(stretch, is_last=False))), currency)
            known = bounded.get((stretch.start, stretch.end, stretch.plan))
            made += self._bound(stretch, known, within(net, least, most) - net)
        return made

    def _billed_after(self, currency: str) -> Iterable[Billed]:
        """All that is billed in a currency when this run is over, without the bounds of periods."""
        freed = [billed for billed, _ in self.freed]
        live = [billed for billed in self.of.history if billed.is_live and billed not in freed]
        return [billed for billed in [*live, *self.made] if billed.currency == currency and billed.kind != "bound"]

    def _bound(self, stretch: Stretch, before: Billed | None, wanted: int) -> list[Line]:
        """Bill the difference between what the bounds of a period come to and what they came to before."""
        was = before.left if before else 0
        if before is not None and wanted == was != 0:
            return []
        lowest, highest = max(wanted, 0) - max(was, 0), min(wanted, 0) - min(was, 0)
        lines = [
            _line(stretch.plan.prices[0], stretch, kind, amount, stretch.end, key="", coupons=False)
            for kind, amount in (("minimum", lowest), ("maximum", highest))
            if amount
        ]
        line = lines[0] if lines else None
        if before is not None:
            self.freed.append((before, line))
        if wanted:
            self.made.append(Billed("bound", "", stretch, before=wanted, made_by=line))
        return lines


def _place(line: Line) -> tuple[datetime, int]:
    """Where a line stands on a document: by the instant at which it is due, then by kind."""
    return line.due, KINDS.index("usage" if line.kind in ("late_usage", "bounds") else line.kind)


def _line(price: Price, stretch: Stretch, kind: str, amount: int, due: datetime, **more: Any) -> Line:
    """A line of a price for a stretch of time."""
    facts = {
        "currency": stretch.plan.currency,
        "plan": stretch.plan.code,
        "key": price["key"],
        "quantity": stretch.quantity,
        "category": price.get("tax_category", "S"),
        "rate": number(price.get("tax_rate")),
        "tax_class": price.get("tax_class", "standard"),
        "period": stretch.whole,
        "includes_tax": stretch.plan.includes_tax,
    }
    return Line(kind=kind, amount=amount, due=due, start=stretch.start, end=stretch.end, **(facts | more))


def _worth(billed: Billed, unused: int) -> int:
    """What the unused units of a line are worth: their price less their discount, and never more than is left."""
    left = max(billed.left, 0)
    if unused <= 0 or billed.line is None:
        return 0
    if unused >= billed.units:
        return left
    line, currency = billed.line, billed.currency
    discount = Fraction(line.discount, 10 ** DECIMALS[currency]) * Fraction(unused, line.units)
    worth = to_minor(cost_of(billed.price, billed.stretch.quantity) * Fraction(unused, line.of) - discount, currency)
    return min(max(worth, 0), max(line.net - billed.credited, 0), left)


def _freed(billed: Billed, unused: int, back: int) -> int:
    """By how much the discount of a line made smaller what was given back for unused units."""
    if unused <= 0 or billed.line is None:
        return 0
    price = to_minor(cost_of(billed.price, billed.stretch.quantity) * Fraction(unused, billed.line.of), billed.currency)
    return min(max(price - back, 0), billed.line.discount)
