"""The credits of a month as figures: each credit type a column, from opening to closing, and what is left by its expiry."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Final

from ledger.models import DailyTotal
from ledger.operators.permissions import VIEW_DAILYTOTAL
from ledger.rules.kinds import KINDS, LINES
from ledger.rules.texts.credit_units import CreditUnit, plain_unit
from ledger.totals.figures import (
    Amount,
    Column,
    Figure,
    Link,
    Reference,
    Rows,
    Section,
    SectionSource,
    count,
    credits_in,
    money,
    month_link,
    rows_link,
)
from ledger.totals.months import month_after, month_before
from ledger.totals.report import TypeReport, month_report
from ledger.units import units_of

CREDITS, EXPIRY = "credits", "credits_by_expiry"
COUNTS: Final = {
    "entries": "Entries",
    "refusals": "of which refusals",
    "late_entries": "of which late, with a time in a closed month",
}
OF_A_TIE: Final = ("documents", "entries")


def sections(month: date) -> list[Section]:
    """Return the section of the credits, and in a closed month that of their expiry."""
    types = month_report(month).types
    if not types:
        return []
    units = units_of(one.credit_type for one in types)
    columns = [Column(one.credit_type, _title(units[one.credit_type])) for one in types]
    found = [Section(CREDITS, "Credits", columns, _credits(month, types, units))]
    if any(one.outstanding for one in types):
        found.append(Section(EXPIRY, "Credits at the end, by expiry", columns, _expiry(month, types, units), first="Expires"))
    return found


def _title(unit: CreditUnit) -> str:
    return unit.credit_type if unit == plain_unit(unit.credit_type) else f"{unit.name} ({unit.credit_type}), in {unit.unit}"


def _credits(month: date, types: Sequence[TypeReport], units: dict[str, CreditUnit]) -> list[Figure]:
    def figure(key: str, title: str, values: Sequence[int | None], *, link: Any = None, **more: Any) -> Figure:
        return Figure(
            key, title,
            [
                None if value is None else credits_in(units[one.credit_type], value, link(one.credit_type) if link else None)
                for one, value in zip(types, values, strict=True)
            ],
            **more,
        )  # fmt: skip

    def rows(key: str) -> Any:
        return lambda credit_type: rows_link(month, CREDITS, key, credit_type)

    found = [
        figure(
            "opening", "At the start", [one.opening for one in types], is_sum=True, link=lambda _: month_link(month_before(month))
        )
    ]
    for name, line in LINES.items():
        found.append(figure(name, line.words, [line.sign * one.movements[name] for one in types], link=rows(name)))
    closing = [one.closing for one in types]
    # By expiry once the month is closed; until then, the accounts.
    left = rows("closing") if any(one.outstanding for one in types) else _accounts_link
    found.append(figure("closing", "At the end", closing, is_sum=True, link=left))
    found.append(figure("held", "of which held", [one.held for one in types]))
    if any(one.expired_unbooked for one in types):
        expired = [one.expired_unbooked for one in types]
        outstanding = [one.closing - (one.expired_unbooked or 0) for one in types]
        found.append(figure("expired_unbooked", "of which expired, but not yet booked", expired))
        found.append(figure("outstanding", "Outstanding", outstanding, is_sum=True))
    for currency in sorted({currency for one in types for currency in one.paid or {}}):
        paid = [
            money(one.paid[currency], currency, _entries_link(month, one.credit_type, "entries", kind="grant"))
            if one.paid and currency in one.paid
            else None
            for one in types
        ]
        found.append(Figure(f"paid_{currency}", f"Paid for them, in {currency}", paid))
    for name in dict.fromkeys(tie["name"] for one in types for tie in one.ties or []):
        for of in OF_A_TIE:
            tied = [next((tie[of] for tie in one.ties or [] if tie["name"] == name), None) for one in types]
            found.append(figure(f"{name} by {of}", f"{name.capitalize()}, by the {of}", tied))
    for key, title in COUNTS.items():
        amounts = [count(getattr(one, key), "entries", _entries_link(month, one.credit_type, key)) for one in types]
        found.append(Figure(key, title, amounts))
    return found


def _accounts_link(credit_type: str) -> Link:
    return Link("ledger_account_changelist", {"credit_type": credit_type})


def _entries_link(month: date, credit_type: str, key: str, **filters: str) -> Link | None:
    """Return the list of the entries or refusals that are counted; late ones are not listed apart."""
    query = {"credit_type": credit_type, **filters, **_from(month, month_after(month))}
    pages = {"entries": "ledger_entrylisting_changelist", "refusals": "ledger_refusallisting_changelist"}
    return Link(pages[key], query) if key in pages else None


def _from(since: date, until: date) -> dict[str, str]:
    return {"since": f"{since}T00:00:00+00:00", "until": f"{until}T00:00:00+00:00"}


def entries_on(day: date, credit_type: str, kinds: Sequence[str] = ()) -> Reference:
    """Return a reference to the entries of a day, of one kind if only one is given."""
    query = {"credit_type": credit_type, **({"kind": kinds[0]} if len(kinds) == 1 else {})}
    return Reference(f"{day}", Link("ledger_entrylisting_changelist", {**query, **_from(day, day + timedelta(days=1))}))


def _buckets(one: TypeReport) -> list[tuple[tuple[str, str, bool], int]]:
    """Return what is left by expiry, source and whether it is held; the last is owed on overdrafts."""
    found = [((each["expires"] or "never", each["source"], each["is_held"]), each["amount"]) for each in one.outstanding or []]
    return [*found, *([(("", "owed on overdrafts", False), -one.owed)] if one.owed else [])]


def _expiry(month: date, types: Sequence[TypeReport], units: dict[str, CreditUnit]) -> list[Figure]:
    by_type = [dict(_buckets(one)) for one in types]
    keys = sorted({key for found in by_type for key in found}, key=lambda key: (key[0] == "", key[0] == "never", key))
    figures = []
    for expires, source, is_held in keys:
        amounts: list[Amount | None] = [
            credits_in(
                units[one.credit_type], found[expires, source, is_held], rows_link(month, CREDITS, "closing", one.credit_type)
            )
            if (expires, source, is_held) in found
            else None
            for one, found in zip(types, by_type, strict=True)
        ]
        held = ", held" if is_held else ""
        figures.append(Figure(f"{expires} {source}{held}".strip(), f"{expires} {source}{held}".strip(), amounts))
    closing = [credits_in(units[one.credit_type], one.closing) for one in types]
    return [*figures, Figure("closing", "At the end", closing, is_sum=True)]


def rows(month: date, section: str, figure: str, column: str) -> Rows | None:
    """Return the days of a line, or what is left by expiry."""
    if section != CREDITS or (figure not in LINES and figure != "closing"):
        return None
    unit = units_of([column])[column]
    if figure == "closing":
        types = [one for one in month_report(month).types if one.credit_type == column]
        left = [(key, amount) for one in types for key, amount in _buckets(one)]
        cells = [([expires, source, "held" if is_held else ""], amount) for (expires, source, is_held), amount in left]
        headings = ["Expires", "Source", "State", "Credits"]
        return Rows(f"Credits at the end: {_title(unit)}", headings, cells, unit) if left else None
    line = LINES[figure]
    kinds = [kind.name for kind in KINDS.values() if kind.total == line.total]
    days = DailyTotal.objects.filter(day__gte=month, day__lt=month_after(month), credit_type=column).order_by("day")
    amounts = [(row.day, line.sign * int(getattr(row, figure))) for row in days]
    found = [([entries_on(day, column, kinds)], amount) for day, amount in amounts if amount]
    return Rows(f"{line.words}: {_title(unit)}", ["Day (UTC)", "Credits"], found, unit) if found else None


SOURCE: Final = SectionSource(VIEW_DAILYTOTAL, sections, rows)
