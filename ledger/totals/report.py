"""The report of a month (UTC): the credits at its start, those that came and went, and the rest with its expiry."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, Final

from django.db import connection

from ledger.errors import Invalid
from ledger.json_values import with_exact_integers
from ledger.months import BEGINNING, month_after
from ledger.rules.kinds import LINES, left_of
from ledger.totals.counting import COLUMNS, counted_until
from ledger.totals.expiring import expired_credits

PAID_UNIT: Final = "minor units"
ENTRIES_UNIT: Final = "entries"

SUMS: Final = f"""
    SELECT credit_type, {
    ", ".join(
        f"COALESCE(sum({name}) FILTER (WHERE day < %(start)s), 0), COALESCE(sum({name}) FILTER (WHERE day >= %(start)s), 0)"
        for name in (*COLUMNS, "late_entries")
    )
}
    FROM ledger_daily_total WHERE day < %(end)s
    GROUP BY credit_type ORDER BY credit_type
"""
CLOSES: Final = """
    SELECT credit_type, balance, outstanding::text, paid::text, ties::text FROM ledger_month_close WHERE month = %s
"""


@dataclass(frozen=True, slots=True)
class TypeReport:
    """One credit type in a month; all amounts in its smallest unit.

    Args:
        opening, closing: credits at the start and the end, held ones included; closing = opening + movements.
        held: the part of the closing that open holds set aside.
        expired_unbooked: the part of the closing that had expired and was not booked: at the end of a closed month; for the
            current month, at the instant up to which its entries are counted. None for a month that has ended and is not closed.
        entries, refusals: recorded in the month. `late_entries` of them have a time in an earlier month that was closed by then.
        outstanding: the closing by month of expiry, source and whether it is held; debts on overdrafts are not deducted. None
            while the month is open.
        owed: the debts on overdrafts at the end; None while the month is open.
        ties: the sums of documents such as invoices over the month's entries, and of those entries. None while the month is open.
        paid: the amounts paid for the month's purchased credits, by currency in minor units, if grants have them.
    """

    @property
    def unit(self) -> str:
        """The unit of its amounts; it does not depend on the display of the type, which may change."""
        return f"smallest unit of {self.credit_type}"

    credit_type: str
    opening: int
    movements: dict[str, int]
    closing: int
    held: int
    expired_unbooked: int | None
    entries: int
    refusals: int
    late_entries: int
    outstanding: list[dict[str, Any]] | None
    owed: int | None
    paid: dict[str, int] | None
    ties: list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class MonthReport:
    """All credit types in a month.

    Args:
        as_of: the instant up to which entries are counted; None for a closed month, whose report never changes.
    """

    month: date
    is_closed: bool
    as_of: datetime | None
    types: tuple[TypeReport, ...]

    def as_json(self) -> str:
        """Return the report as JSON, with amounts in the unit that each type names; the same bytes once the month is closed.

        Integers that not every reader takes exactly are strings too, as in responses.
        """
        facts = asdict(self) | {
            "types": [_with_units(of_type) for of_type in self.types],
            "month": f"{self.month:%Y-%m}",
            "as_of": None if self.as_of is None else self.as_of.isoformat(),
        }
        return json.dumps(with_exact_integers(facts), indent=2) + "\n"

    def as_csv(self) -> str:
        """Return the report as a table of credit type, line, amount and unit; the same bytes once the month is closed."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        writer.writerow(["month", "state", "credit_type", "line", "expires", "source", "amount", "unit"])
        state = "closed" if self.is_closed else "open"
        for of_type in self.types:
            for line, expires, source, amount, unit in _rows(of_type):
                writer.writerow([f"{self.month:%Y-%m}", state, of_type.credit_type, line, expires, source, amount, unit])
        return out.getvalue()


def month_report(month: date, *, credit_type: str | None = None) -> MonthReport:
    """Return the report of a month.

    Args:
        month: its first day.
        credit_type: only this type.

    Raises:
        Invalid: the month has not begun at the instant up to which entries are counted, or lies before 2000.
    """
    as_of = counted_until()
    if month < BEGINNING.date():
        raise Invalid(pointer="/month", rule="too-early", detail="the first month is 2000-01")
    if month > as_of.date():
        raise Invalid(pointer="/month", rule="in-the-future", detail=_how_far(as_of))
    closes = _closes(month)
    is_closed = bool(closes)
    with connection.cursor() as cursor:
        cursor.execute(SUMS, {"start": month, "end": month_after(month)})
        rows = cursor.fetchall()
    expired = expired_credits(as_of) if not is_closed and as_of.date() < month_after(month) else None
    types = tuple(
        _of_type(name, sums, closes.get(name), _expired_unbooked(name, month, closes.get(name), expired))
        for name, *sums in rows
        if credit_type in (None, name) and _has_moved(sums)
    )
    return MonthReport(month, is_closed, None if is_closed else as_of, types)


def _how_far(as_of: datetime) -> str:
    if as_of == BEGINNING:
        return "no entries have been counted yet; manage.py update_totals counts them"
    return f"entries are counted up to {as_of:%Y-%m-%d %H:%M:%S} UTC"


def _closes(month: date) -> dict[str, tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(CLOSES, [month])
        return {credit_type: (int(balance), *map(json.loads, texts)) for credit_type, balance, *texts in cursor.fetchall()}


def _has_moved(sums: Sequence[Any]) -> bool:
    """Return whether the credit type had an entry other than refusals up to the month's end; a mistyped one never has."""
    before_and_during = dict(zip(COLUMNS, zip(sums[0::2], sums[1::2], strict=True), strict=False))
    return sum(before_and_during["entries"]) > sum(before_and_during["refusals"])


def _expired_unbooked(credit_type: str, month: date, close: Any, expired: Mapping[str, int] | None) -> int | None:
    """Return the expired part: of a closed month from its lots by month of expiry, of the current month from the clock."""
    if close is None:
        return None if expired is None else expired.get(credit_type, 0)
    last = f"{month:%Y-%m}"
    lots = (lot for lot in close[1] if lot["expires"] and lot["expires"] <= last and not lot["is_held"])
    return sum(lot["amount"] for lot in lots)


def _of_type(credit_type: str, sums: Sequence[Any], close: Any, expired_unbooked: int | None) -> TypeReport:
    names = (*COLUMNS, "late_entries")
    before = dict(zip(names, map(int, sums[0::2]), strict=True))
    during = dict(zip(names, map(int, sums[1::2]), strict=True))
    opening = left_of(before)
    held = before["held_change"] + during["held_change"]
    balance, outstanding, paid, tied = close or (0, None, None, None)
    owed = None
    if outstanding is not None:
        owed = sum(bucket["amount"] for bucket in outstanding if not bucket["is_held"]) - balance
    return TypeReport(
        credit_type=credit_type,
        opening=opening,
        movements={name: during[name] for name in LINES},
        closing=opening + left_of(during),
        held=held,
        expired_unbooked=expired_unbooked,
        entries=during["entries"],
        refusals=during["refusals"],
        late_entries=during["late_entries"],
        outstanding=outstanding,
        owed=owed,
        paid=paid,
        ties=tied,
    )


def _with_units(of_type: TypeReport) -> dict[str, Any]:
    facts = asdict(of_type)
    return {"credit_type": facts.pop("credit_type"), "unit": of_type.unit, "paid_unit": PAID_UNIT, **facts}


def _rows(of_type: TypeReport) -> Iterator[tuple[str, str, str, int, str]]:
    unit = of_type.unit
    yield "opening", "", "", of_type.opening, unit
    for name, line in LINES.items():
        yield name, "", "", line.sign * of_type.movements[name], unit
    yield "closing", "", "", of_type.closing, unit
    yield "held", "", "", of_type.held, unit
    if of_type.expired_unbooked is not None:
        yield "expired_unbooked", "", "", of_type.expired_unbooked, unit
    for bucket in of_type.outstanding or []:
        name = "outstanding_held" if bucket["is_held"] else "outstanding"
        yield name, bucket["expires"] or "never", bucket["source"], bucket["amount"], unit
    if of_type.owed is not None:
        yield "owed", "", "", of_type.owed, unit
    for currency, minor in (of_type.paid or {}).items():
        yield f"paid_{currency}_minor", "", "", minor, f"{currency} {PAID_UNIT}"
    for tie in of_type.ties or []:
        yield f"{tie['name']} by the documents", "", "", tie["documents"], unit
        yield f"{tie['name']} by the entries", "", "", tie["entries"], unit
    yield "entries", "", "", of_type.entries, ENTRIES_UNIT
    yield "refusals", "", "", of_type.refusals, ENTRIES_UNIT
    yield "late_entries", "", "", of_type.late_entries, ENTRIES_UNIT
