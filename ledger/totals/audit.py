"""The totals of days and months, counted again from the sums of the audited entries.

Up to the last day that has entries counted late, only the sum over the days is compared: a clock that was set back over the end
of a closed month put them there (docs/explanation/books.md).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from ledger.audit.recounts import moved_by
from ledger.audit.reports import Finding
from ledger.audit.sessions import Session
from ledger.rules.kinds import KINDS, LINES, left_of

STATE: Final = "SELECT counted_until, entries::text, clock_timestamp() FROM ledger_total_state"
COLUMNS: Final = (*LINES, "held_change", "refusals", "entries")
DAYS: Final = f"SELECT day, credit_type, late_entries, {', '.join(COLUMNS)} FROM ledger_daily_total"
CLOSED: Final = "SELECT month, credit_type, entries, balance, held FROM ledger_month_close"
NOTHING_COUNTED: Final = datetime(2000, 1, 1, tzinfo=UTC)

Amounts = Counter[str]
"""By the names of COLUMNS."""


@dataclass(slots=True)
class Counted:
    """The totals, read at the audit's start, and the sums of the audited entries."""

    until: datetime = NOTHING_COUNTED
    now: datetime = NOTHING_COUNTED
    kinds: dict[str, int] = field(default_factory=dict)
    days: dict[tuple[str, date], Amounts] = field(default_factory=dict)
    late: dict[str, date] = field(default_factory=dict)
    """The last day of a credit type with entries that were counted late."""
    closed: list[tuple[date, str, int, int, int]] = field(default_factory=list)
    found: dict[tuple[str, date], Amounts] = field(default_factory=lambda: defaultdict(Counter))
    found_kinds: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of sums.sql."""
        if row["day"] is None:
            return
        self.found_kinds[row["kind"]] += row["entries"]
        self.found[row["credit_type"], row["day"]].update(amounts_of(row))

    def differences(self) -> Iterator[Finding]:
        """Yield the differences between the totals and the entries."""
        if self.until > self.now:
            yield Finding("totals", None, None, None, f"counted until {self.until}", "an instant that has passed")
        recounted, stored = _merge_days(self.found, self.late), _merge_days(self.days, self.late)
        for credit_type, day in sorted(recounted.keys() | stored.keys()):
            yield from _differing(f"{day}", credit_type, stored[credit_type, day], recounted[credit_type, day], COLUMNS)
        # Somebody may have stored something else than an object.
        stored_kinds = Counter(self.kinds) if isinstance(self.kinds, dict) else Counter()
        kinds = sorted(stored_kinds.keys() | self.found_kinds)
        yield from _differing("by kind", None, stored_kinds, self.found_kinds, kinds)
        yield from _wrong_months(self, recounted)


def amounts_of(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the part of a row of sums.sql in the totals of its day."""
    amounts = {"entries": row["entries"]}
    kind = KINDS.get(row["kind"])
    if kind is None:
        return amounts
    moved = moved_by(row)
    amounts |= {
        name: line.sign * moved for name, line in LINES.items() if (line.total, line.source) == (kind.total, row["source"])
    }
    amounts |= {"held_change": moved - int(row["amount"])}
    return amounts | ({"refusals": row["entries"]} if kind.name == "refusal" else {})


def read_totals(session: Session) -> Counted:
    """Read the totals."""
    [(until, kinds, now)] = session.execute(STATE).fetchall() or [(NOTHING_COUNTED, "{}", NOTHING_COUNTED)]
    counted = Counted(until, now, json.loads(kinds))
    for day, credit_type, late_entries, *amounts in session.execute(DAYS).fetchall():
        counted.days[credit_type, day] = Counter(dict(zip(COLUMNS, map(int, amounts), strict=True)))
        if late_entries:
            counted.late[credit_type] = max(day, counted.late.get(credit_type, day))
    counted.closed = session.execute(CLOSED).fetchall()
    return counted


def _merge_days(days: Mapping[tuple[str, date], Amounts], late: Mapping[str, date]) -> defaultdict[tuple[str, date], Amounts]:
    """Return the days, with all days of a credit type up to its last one with late entries counted as that day."""
    merged: defaultdict[tuple[str, date], Amounts] = defaultdict(Counter)
    for (credit_type, day), amounts in days.items():
        merged[credit_type, max(day, late.get(credit_type, day))].update(amounts)
    return merged


def _differing(
    when: str, credit_type: str | None, stored: Mapping[str, int], recounted: Mapping[str, int], names: Iterable[str]
) -> Iterator[Finding]:
    wrong = [name for name in names if stored.get(name, 0) != recounted.get(name, 0)]
    if wrong:
        actual, expected = (", ".join(f"{name} {amounts.get(name, 0)}" for name in wrong) for amounts in (stored, recounted))
        yield Finding("totals", None, credit_type, None, f"{when}: {actual}", expected)


def _wrong_months(counted: Counted, recounted: Mapping[tuple[str, date], Amounts]) -> Iterator[Finding]:
    """Yield closed months whose entries, balance or held credits at their end differ from the sums of all entries up to then."""
    for month, credit_type, *stored in sorted(counted.closed):
        if month <= counted.late.get(credit_type, NOTHING_COUNTED.date()):
            continue
        end = date(month.year + month.month // 12, month.month % 12 + 1, 1)
        total: Amounts = Counter()
        for (of_type, day), amounts in recounted.items():
            if of_type == credit_type and day < end:
                total.update(amounts)
        actual = [total["entries"], left_of(total) - total["held_change"], total["held_change"]]
        if actual != [int(value) for value in stored]:
            names = ("entries", "balance", "held")
            yield from _differing(
                f"close of {month:%Y-%m}", credit_type, dict(zip(names, map(int, stored), strict=True)),
                dict(zip(names, actual, strict=True)), names,
            )  # fmt: skip
