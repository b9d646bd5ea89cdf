"""The credits of a month as figures: each credit type a column, from opening to closing, and what is left by its expiry.

The rows of a figure are what the totals and the close of the month have of it: days, earlier months, months of expiry. What is
left by expiry has holders as rows, which are read from the accounts; a last row takes off what was recorded after the close.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

from ledger.months import month_after, month_before, starts
from ledger.rules.credit_units import CreditUnit, currency_unit, plain_unit
from ledger.rules.instants import from_us, to_us
from ledger.rules.kinds import KINDS, LINES, left_of
from ledger.totals.closing import credits_by_holder, owed_by_holder, paid_by_day
from ledger.totals.counting import COLUMNS
from ledger.totals.figures import (
    Figure,
    FigureAmount,
    FigureColumn,
    FigureLink,
    FigureQuantity,
    FigureRow,
    FigureSection,
    Reference,
    Rows,
    SectionSource,
    count,
    credits_in,
    money,
    month_link,
    rows_link,
)
from ledger.totals.models import DailyTotal, ExpiringTotal
from ledger.totals.permissions import VIEW_DAILYTOTAL
from ledger.totals.report import TypeReport, month_report
from ledger.totals.ties import source_of
from ledger.units import units_of

CREDITS, EXPIRY = "credits", "credits_by_expiry"
COUNTS: Final = {
    "entries": "Entries",
    "refusals": "of which refusals",
    "late_entries": "of which late, with a time in a closed month",
}
OF_A_TIE: Final = ("documents", "entries")
OWED: Final = "owed on overdrafts"


def sections(month: date) -> list[FigureSection]:
    """Return the section of the credits, and in a closed month that of their expiry."""
    types = month_report(month).types
    if not types:
        return []
    units = units_of(one.credit_type for one in types)
    columns = [FigureColumn(one.credit_type, _unit_name(units[one.credit_type])) for one in types]
    found = [FigureSection(CREDITS, "Credits", columns, _credits(month, types, units))]
    if any(one.outstanding for one in types):
        found.append(FigureSection(EXPIRY, "Credits at the end, by expiry", columns, _expiry(types, units), first="Expires"))
    return found


def _unit_name(unit: CreditUnit) -> str:
    return unit.credit_type if unit == plain_unit(unit.credit_type) else f"{unit.name} ({unit.credit_type}), in {unit.unit}"


def _credits(month: date, types: Sequence[TypeReport], units: dict[str, CreditUnit]) -> list[Figure]:
    def figure(key: str, title: str, values: Sequence[int | None], **more: Any) -> Figure:
        pairs = zip(types, values, strict=True)
        amounts = [None if value is None else credits_in(units[one.credit_type], value) for one, value in pairs]
        return Figure(key, title, amounts, **more)

    found = [figure("opening", "At the start", [one.opening for one in types], is_sum=True)]
    for name, line in LINES.items():
        found.append(figure(name, line.words, [line.sign * one.movements[name] for one in types]))
    found.append(figure("closing", "At the end", [one.closing for one in types], is_sum=True))
    found.append(figure("held", "of which held", [one.held for one in types]))
    if any(one.expired_unbooked for one in types):
        expired = [one.expired_unbooked for one in types]
        outstanding = [one.closing - (one.expired_unbooked or 0) for one in types]
        found.append(figure("expired_unbooked", "of which expired, but not yet booked", expired))
        found.append(figure("outstanding", "Outstanding", outstanding, is_sum=True))
    for currency in sorted({currency for one in types for currency in one.paid or {}}):
        paid = [money(one.paid[currency], currency) if one.paid and currency in one.paid else None for one in types]
        found.append(Figure(f"paid_{currency}", f"Paid for them, in {currency}", paid))
    names = dict.fromkeys(tie["name"] for one in types for tie in one.ties or [])
    found += [
        figure(_tie_key(name, of), f"{name.capitalize()}, by the {of}", [_tie_amount(one, name, of) for one in types])
        for name in names
        for of in OF_A_TIE
    ]
    for key, title in COUNTS.items():
        found.append(Figure(key, title, [count(getattr(one, key), "entries") for one in types]))
    return found


def _tie_key(name: str, of: str) -> str:
    return f"{name} by {of}"


def _tie_amount(one: TypeReport, name: str, of: str) -> int | None:
    return next((tie[of] for tie in one.ties or [] if tie["name"] == name), None)


def _buckets(one: TypeReport) -> dict[str, tuple[tuple[str, str, bool], int]]:
    """Return what is left by expiry, source and whether it is held, by the key of its figure; the last is owed on overdrafts."""
    buckets = [((each["expires"] or "never", each["source"], each["is_held"]), each["amount"]) for each in one.outstanding or []]
    if one.owed:
        buckets.append((("", OWED, False), -one.owed))
    return {_bucket_key(*key): (key, amount) for key, amount in buckets}


def _bucket_key(expires: str, source: str, is_held: bool) -> str:
    return f"{expires} {source}{', held' if is_held else ''}".strip()


def _expiry(types: Sequence[TypeReport], units: dict[str, CreditUnit]) -> list[Figure]:
    by_type = [_buckets(one) for one in types]
    places = {key: place for buckets_of_type in by_type for key, (place, _) in buckets_of_type.items()}
    figures = []
    for key in sorted(places, key=lambda key: (places[key][0] == "", places[key][0] == "never", places[key])):
        amounts: list[FigureAmount | None] = [
            credits_in(units[one.credit_type], buckets_of_type[key][1]) if key in buckets_of_type else None
            for one, buckets_of_type in zip(types, by_type, strict=True)
        ]
        figures.append(Figure(key, key, amounts))
    closing = [credits_in(units[one.credit_type], one.closing) for one in types]
    return [*figures, Figure("closing", "At the end", closing, is_sum=True)]


# Rows ------------------------------------------------------------------------------------------------


def entries_on(day: date, credit_type: str, kinds: Sequence[str] = ()) -> Reference:
    """Return a reference to the entries of a day, of one kind if only one is given."""
    return _listed_on(day, credit_type, "ledger_entrylisting_changelist", {"kind": kinds[0]} if len(kinds) == 1 else {})


def _listed_on(day: date, credit_type: str, page: str, filters: Mapping[str, str] = {}) -> Reference:
    following = day + timedelta(days=1)
    bounds = {"since": f"{day}T00:00:00+00:00", "until": f"{following}T00:00:00+00:00"}
    return Reference(f"{day}", FigureLink(page, {"credit_type": credit_type, **filters, **bounds}))


def day_rows(days: Mapping[date, int], day: Callable[[date], Reference]) -> list[FigureRow]:
    """Return a row for each day with an amount."""
    return [FigureRow((f"{each}",), [day(each)], amount) for each, amount in days.items() if amount]


def holder_rows(amounts: Mapping[str, int]) -> list[FigureRow]:
    """Return a row for each holder, the largest amount first."""
    return [
        FigureRow((-abs(amount), holder), [Reference(holder, FigureLink("ledger_holder", key=holder))], amount)
        for holder, amount in amounts.items()
    ]


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the rows of a figure of a credit type."""
    one = next(iter(month_report(month, credit_type=column).types), None) if section in (CREDITS, EXPIRY) else None
    if one is None:
        return None
    return _of_bucket(month, one, figure) if section == EXPIRY else _of_credits(month, one, figure)


def _of_credits(month: date, one: TypeReport, figure: str) -> Rows | None:
    unit, of_type = _unit(one), _totals(one).filter(day__gte=month, day__lt=month_after(month))
    days = partial(Rows, headings=["Day (UTC)", "Credits"], unit=unit)
    linked = partial(entries_on, credit_type=one.credit_type)
    if figure in LINES:
        line = LINES[figure]
        kinds = [kind.name for kind in KINDS.values() if kind.total == line.total]
        amounts = {row.day: line.sign * int(getattr(row, figure)) for row in of_type}
        return days(_title(f"{line.words}", unit), rows=day_rows(amounts, partial(linked, kinds=kinds)))
    if figure in COUNTS:
        is_refusals, counts = figure == "refusals", {row.day: int(getattr(row, figure)) for row in of_type}
        page = "ledger_refusallisting_changelist" if is_refusals else "ledger_entrylisting_changelist"
        by_day = day_rows(counts, lambda day: _listed_on(day, one.credit_type, page))
        title = _title(COUNTS[figure].removeprefix("of which ").capitalize(), unit)
        return Rows(title, ["Day (UTC)", "Entries"], by_day, plain_unit("entries"))
    if figure == "opening":
        months: Counter[date] = Counter()
        for row in _totals(one).filter(day__lt=month):
            months[row.day.replace(day=1)] += _left_amount(row)
        by_day = day_rows(months, lambda each: Reference(f"{each:%Y-%m}", month_link(each)))
        return Rows(_title("At the start, by the changes of months", unit), ["Month", "Credits"], by_day, unit)
    if figure in ("closing", "held"):
        changed = _left_amount if figure == "closing" else _held_amount
        changes = {row.day: changed(row) for row in of_type}
        before = (one.closing if figure == "closing" else one.held) - sum(changes.values())
        first = [FigureRow(("",), [Reference("At the start", month_link(month_before(month)))], before)] if before else []
        title = "At the end, by the changes of days" if figure == "closing" else "Held at the end, by the changes of days"
        return days(_title(title, unit), rows=[*first, *day_rows(changes, linked)])
    if figure.startswith("paid_"):
        return _paid_rows(month, one, figure.removeprefix("paid_"))
    return _unbooked_rows(month, one, figure) or _of_tie(month, one, figure)


def _unit(one: TypeReport) -> CreditUnit:
    return units_of([one.credit_type])[one.credit_type]


def _title(words: str, unit: CreditUnit) -> str:
    return f"{words}: {_unit_name(unit)}"


def _totals(one: TypeReport) -> Any:
    return DailyTotal.objects.filter(credit_type=one.credit_type).order_by("day")


def _left_amount(row: DailyTotal) -> int:
    return left_of({name: int(getattr(row, name)) for name in COLUMNS})


def _held_amount(row: DailyTotal) -> int:
    return int(row.held_change)


def _paid_rows(month: date, one: TypeReport, currency: str) -> Rows | None:
    if currency not in (one.paid or {}):
        return None
    by_day = day_rows(
        paid_by_day(month, one.credit_type, currency), partial(entries_on, credit_type=one.credit_type, kinds=["grant"])
    )
    title = _title(f"Paid in {currency}", _unit(one))
    return Rows(title, ["Day (UTC)", currency], by_day, currency_unit(currency), total=(one.paid or {})[currency])


def _unbooked_rows(month: date, one: TypeReport, figure: str) -> Rows | None:
    """Return what expired but was not booked, by its expiry; and what is left without it."""
    unit = _unit(one)
    if figure == "outstanding":
        parts = [
            ("closing", "At the end", one.closing),
            ("expired_unbooked", "Expired, not booked", -(one.expired_unbooked or 0)),
        ]
        unbooked_rows = [
            FigureRow((place,), [Reference(title, rows_link(month, CREDITS, key, one.credit_type))], amount)
            for place, (key, title, amount) in enumerate(parts)
            if amount
        ]
        return Rows(_title("Outstanding", unit), ["Part", "Credits"], unbooked_rows, unit)
    if figure != "expired_unbooked" or one.expired_unbooked is None:
        return None
    if one.outstanding is not None:
        buckets = [
            (key, place, amount)
            for key, (place, amount) in _buckets(one).items()
            if place[0] and place[0] <= f"{month:%Y-%m}" and not place[2]
        ]
        unbooked_rows = [FigureRow((key,), [_bucket_link(month, one, key)], amount) for key, _, amount in buckets]
    else:
        as_of = to_us(month_report(month).as_of or starts(month_after(month)))
        days: Counter[date] = Counter()
        for expires_us, amount in ExpiringTotal.objects.filter(credit_type=one.credit_type, expires_us__lte=as_of).values_list(
            "expires_us", "credits"
        ):
            days[from_us(expires_us).date()] += int(amount)
        unbooked_rows = [FigureRow((f"{day}",), [f"{day}"], amount) for day, amount in days.items() if amount]
    return Rows(_title("Expired, but not yet booked", unit), ["Expires", "Credits"], unbooked_rows, unit)


def _of_tie(month: date, one: TypeReport, figure: str) -> Rows | None:
    """Return the documents of a tie, each with what both sides say of it."""
    ties = [(tie, of) for tie in one.ties or [] for of in OF_A_TIE if _tie_key(tie["name"], of) == figure]
    source = source_of(ties[0][0]["name"]) if ties else None
    if source is None:
        return None
    (tie, of), unit = ties[0], _unit(one)
    parts = source.parts(starts(month), starts(month_after(month)), one.credit_type)
    numbers = source.numbers([int(part.document) for part in parts if part.document.isdecimal()])
    found = []
    for part in parts:
        number = numbers.get(int(part.document)) if part.document.isdecimal() else None
        named = (
            Reference(number, FigureLink(source.page, key=part.document), part.document)
            if number
            else f"no document {part.document}"
        )
        beside = part.entries if of == "documents" else part.documents
        found.append(FigureRow((part.document,), [named, FigureQuantity(beside, unit)], getattr(part, of)))
    other = next(each for each in OF_A_TIE if each != of)
    headings = ["Document", f"By the {other}", f"By the {of}"]
    return Rows(_title(source.name.capitalize(), unit), headings, found, unit, total=tie[of])


def _bucket_link(month: date, one: TypeReport, key: str) -> Reference:
    return Reference(key, rows_link(month, EXPIRY, key, one.credit_type))


def _of_bucket(month: date, one: TypeReport, figure: str) -> Rows | None:
    """Return the holders of what is left by expiry; of all of it, the parts."""
    unit, buckets, end = _unit(one), _buckets(one), starts(month_after(month))
    if figure == "closing":
        found = [FigureRow((key,), [_bucket_link(month, one, key)], amount) for key, (_, amount) in buckets.items()]
        return Rows(_title("At the end, by expiry", unit), ["Expires", "Credits"], found, unit)
    if figure not in buckets:
        return None
    (expires, source, is_held), amount = buckets[figure]
    if source == OWED:
        holders = owed_by_holder(end, one.credit_type)
    else:
        month_of_expiry = "" if expires == "never" else expires
        holders = credits_by_holder(end, one.credit_type, source=source, expires=month_of_expiry, is_held=is_held)
    title = _title(figure.capitalize() if source == OWED else f"Expires {figure}", unit)
    return Rows(title, ["Holder", "Credits"], holder_rows(holders), unit, total=amount)


SOURCE: Final = SectionSource(VIEW_DAILYTOTAL, sections, rows)
