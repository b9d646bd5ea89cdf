"""The statement of an account for a month, read without a lock and set as PDF, with its words in every language."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger.clocks import clock_of
from ledger.errors import Invalid
from ledger.months import month_after, starts
from ledger.rules.kinds import KINDS
from ledger.totals.counting import counted_until
from ledger.typesetting.languages import Language, language_of
from ledger.typesetting.letterheads import Letterhead, letterhead_of
from ledger.typesetting.typeset import typeset
from ledger.units import CreditUnit, in_language, plain_unit, unit_of

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "title": "Statement of credits, {month}",
        "holder": "Holder",
        "credit_type": "Credit type",
        "period": "Period (UTC)",
        "opening": "Credits at the start",
        "closing": "Credits at the end",
        "held": "of which held",
        "position": "#",
        "time": "Recorded (UTC)",
        "what": "What",
        "amount": "Amount",
        "balance": "Not held",
        "count": "1 entry|{count} entries",
        "nothing": "Nothing was recorded in this month.",
        "by_day": "The month has {count} entries. They are summed up by day and kind.",
        "refusals": "1 request was refused and changed nothing.|{count} requests were refused and changed nothing.",
        "proof": "Entry {sequence} is the last one up to the end of the month. Its digest covers it and all entries before it:",
        "no_proof": "No entry was recorded up to the end of the month.",
        "open_word": "PRELIMINARY",
        "open_sentence": "The month has not ended, or its entries are not all counted yet. This statement can still change.",
        "page": "Page {page} of {pages}",
    },
    "de": {
        "title": "Guthabenauszug {month}",
        "holder": "Inhaber",
        "credit_type": "Guthabenart",
        "period": "Zeitraum (UTC)",
        "opening": "Guthaben am Anfang",
        "closing": "Guthaben am Ende",
        "held": "davon reserviert",
        "position": "Nr.",
        "time": "Gebucht (UTC)",
        "what": "Vorgang",
        "amount": "Betrag",
        "balance": "Nicht reserviert",
        "count": "1 Buchung|{count} Buchungen",
        "nothing": "In diesem Monat wurde nichts gebucht.",
        "by_day": "Der Monat hat {count} Buchungen. Sie sind nach Tag und Art zusammengefasst.",
        "refusals": "1 abgelehnte Anfrage hat nichts geändert.|{count} abgelehnte Anfragen haben nichts geändert.",
        "proof": "Buchung {sequence} ist die letzte bis zum Ende des Monats. Ihre Prüfsumme umfasst auch alle davor:",
        "no_proof": "Bis zum Ende des Monats wurde nichts gebucht.",
        "open_word": "VORLÄUFIG",
        "open_sentence": "Der Monat ist nicht vorbei, oder noch nicht ganz gezählt. Dieser Auszug kann sich noch ändern.",
        "page": "Seite {page} von {pages}",
    },
}


TEMPLATE: Final = Path(__file__).with_name("statement.typ")
COLUMNS: Final = ("position", "time", "what", "amount", "balance")
IN_CREDITS: Final = ("amount", "balance")
MOST_ENTRIES: Final = 500
"""Up to this number, entries are listed one by one; more are summed up by day and kind."""
FIRST_YEAR, LAST_YEAR = 2000, 2200

# The last entries before the month and in it; the entries between them are the month's.
_EDGES: Final = """
    SELECT COALESCE(e.sequence, 0), COALESCE(e.balance, 0), COALESCE(e.held, 0), encode(e.digest, 'hex')
    FROM unnest(ARRAY[%(start)s, %(end)s]::timestamptz[]) WITH ORDINALITY AS edge (at, position)
    LEFT JOIN ledger_entry AS e ON e.holder_id = %(holder_id)s AND e.credit_type = %(credit_type)s
        AND e.sequence = ledger_sequence_at(%(holder_id)s, %(credit_type)s, {before})
    ORDER BY edge.position
"""
EDGES: Final = _EDGES.format(before="edge.at - interval '1 microsecond'")
# With a test clock the month is the clock's, and so are the times of its entries.
EDGES_OF_CLOCK: Final = _EDGES.format(before="ledger_recorded_by(%(holder_id)s, edge.at - interval '1 microsecond')")
OF_CLOCK: Final = "COALESCE(effective_at, recorded_at)"
COUNTS: Final = """
    SELECT count(*) FILTER (WHERE kind <> 'refusal'), count(*) FILTER (WHERE kind = 'refusal')
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND sequence > %(after)s AND sequence <= %(upto)s
"""
ENTRIES: Final = """
    SELECT sequence, {at}, kind, amount, balance, reason, reference, 1
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND sequence > %(after)s AND sequence <= %(upto)s
        AND kind <> 'refusal'
    ORDER BY sequence
"""
BY_DAY: Final = """
    SELECT max(sequence), ({at} AT TIME ZONE 'UTC')::date, kind, sum(amount), NULL::bigint, '', '', count(*)
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND sequence > %(after)s AND sequence <= %(upto)s
        AND kind <> 'refusal'
    GROUP BY 2, kind
    ORDER BY 2, kind
"""


class StatementRow(NamedTuple):
    """An entry, or the entries of one kind on one day."""

    sequence: int
    at: datetime | date
    kind: str
    amount: int
    balance: int | None
    reason: str
    reference: str
    entries: int


@dataclass(frozen=True, slots=True)
class Edge:
    """An account after its last entry up to an instant; all zeros before its first."""

    sequence: int
    balance: int
    held: int
    digest: str | None

    @property
    def total(self) -> int:
        """All credits, including held ones."""
        return self.balance + self.held


@dataclass(frozen=True, slots=True)
class AccountStatement:
    """A month of an account.

    Args:
        is_final: no entry of the month can appear any more: the month has ended and is counted.
        unit: how the credit type is shown.
    """

    holder_id: str
    credit_type: str
    month: date
    opening: Edge
    closing: Edge
    rows: Sequence[StatementRow]
    entries: int
    refusals: int
    is_final: bool
    unit: CreditUnit

    @property
    def is_named(self) -> bool:
        """Whether the credit type has a name and a unit."""
        return self.unit != plain_unit(self.credit_type)


def statement_pdf(holder_id: str, month: date, *, credit_type: str = "credits", language: str | None = None) -> bytes:
    """Return the statement of an account for a month as a PDF.

    Once the month has ended and is counted, its bytes change only with the letterhead.

    Args:
        month: its first day, in UTC.
        language: BCP 47, English if there are no texts in it; None: the holder's, from the letterhead.

    Raises:
        Invalid: the month has not begun, or lies outside the years 2000 to 2200.
    """
    statement = read_statement(holder_id, month, credit_type)
    letterhead = letterhead_of(holder_id, language)
    page = statement_page(statement, language_of(letterhead.language), letterhead=letterhead)
    return typeset(TEMPLATE, page, at=starts(month)).content


def statement_file_name(holder_id: str, month: date, credit_type: str) -> str:
    """Return the file name of a statement. File systems refuse a colon, which an id may have."""
    return f"statement-{holder_id.replace(':', '-')}-{credit_type}-{month:%Y-%m}.pdf"


def read_statement(holder_id: str, month: date, credit_type: str) -> AccountStatement:
    """Read a month of an account; a never used account has zeros. Raises: as `statement_pdf`."""
    if not FIRST_YEAR <= month.year < LAST_YEAR:
        raise Invalid(pointer="/month", rule="out-of-range", detail=f"must lie in the years {FIRST_YEAR} to {LAST_YEAR - 1}")
    start, end = starts(month), starts(month_after(month))
    clock = clock_of(holder_id)
    if start > (clock or datetime.now(UTC)):
        raise Invalid(pointer="/month", rule="in-the-future", detail="has not begun")
    account: dict[str, Any] = {"holder_id": holder_id, "credit_type": credit_type}
    # What is recorded while a clock stands in a month belongs to it; a clock beyond the month never returns to it.
    is_final = counted_until() >= end if clock is None else clock >= end
    edges, at = (EDGES, "recorded_at") if clock is None else (EDGES_OF_CLOCK, OF_CLOCK)
    with connection.cursor() as cursor:
        cursor.execute(edges, {**account, "start": start, "end": end})
        opening, closing = (Edge(*row) for row in cursor.fetchall())
        bounds = {**account, "after": opening.sequence, "upto": closing.sequence}
        cursor.execute(COUNTS, bounds)
        entries, refusals = cursor.fetchone()
        cursor.execute((ENTRIES if entries <= MOST_ENTRIES else BY_DAY).format(at=at), bounds)
        # The sums of a day may exceed a bigint.
        rows = [row._replace(amount=int(row.amount)) for row in map(StatementRow._make, cursor.fetchall())]
    unit = unit_of(credit_type)
    return AccountStatement(
        holder_id, credit_type, month, opening, closing, rows, entries, refusals, is_final=is_final, unit=unit
    )


# On paper --------------------------------------------------------------------------------------------


def statement_page(found: AccountStatement, language: Language, *, letterhead: Letterhead) -> dict[str, Any]:
    """Return the data of statement.typ. Pure."""
    texts = TEXTS[language.code]
    title = texts["title"].format(month=language.month(found.month))
    last = month_after(found.month) - timedelta(days=1)
    is_listed = found.entries <= MOST_ENTRIES
    in_unit = f" ({found.unit.unit})" if found.is_named else ""
    columns = [texts[name] + (in_unit if name in IN_CREDITS else "") for name in COLUMNS]
    return {
        "language": language.code,
        "title": title,
        "stamp": None if found.is_final else {"word": texts["open_word"], "sentence": texts["open_sentence"]},
        "running": f"{title} · {found.holder_id}",
        "page": texts["page"],
        "sender": {"name": letterhead.name, "line": letterhead.line, **letterhead.brand},
        "recipient": [],
        "facts": [
            [texts["holder"], found.holder_id],
            [texts["credit_type"], _type_name(found, language)],
            [texts["period"], f"{language.day(found.month)} – {language.day(last)}"],
        ],
        "footer": letterhead.footer,
        "rows": len(found.rows),
        "sums": list(_sums(found, language)),
        "columns": columns if found.rows else [],
        "lines": [_line(found, row, language, is_listed=is_listed) for row in found.rows],
        "notes": list(_notes(found, language)),
        "proof": _proof(found, texts),
    }


def _type_name(found: AccountStatement, language: Language) -> str:
    """Return the name of the credit type with the type, or the type alone if it has no name, not even one of the language."""
    if found.is_named:
        return f"{found.unit.name} ({found.credit_type})"
    unit = in_language(found.unit, language)
    return found.credit_type if unit == found.unit else unit.name


def _amount(found: AccountStatement, language: Language, amount: int) -> str:
    return language.number(found.unit.decimal(amount), decimals=found.unit.scale)


def _sums(found: AccountStatement, language: Language) -> Iterator[dict[str, Any]]:
    """Return opening, the sum of each kind, and closing; both ends include held credits."""
    texts = TEXTS[language.code]
    with_unit = f" {found.unit.unit}" if found.is_named else ""

    def line(label: str, amount: int, *, strong: bool = False) -> dict[str, Any]:
        return {"label": label, "value": _amount(found, language, amount) + (with_unit if strong else ""), "strong": strong}

    yield line(texts["opening"], found.opening.total)
    change = found.closing.total - found.opening.total
    by_kind: dict[str, int] = {}
    for row in found.rows:
        if KINDS[row.kind].moves == "amount":
            by_kind[row.kind] = by_kind.get(row.kind, 0) + row.amount
    captured = change - sum(by_kind.values())
    if captured:
        by_kind["capture"] = captured
    for kind, amount in by_kind.items():
        yield line(KINDS[kind].on_statement[language.code], amount)
    yield line(texts["closing"], found.closing.total, strong=True)
    if found.closing.held:
        yield line(texts["held"], found.closing.held)


def _line(found: AccountStatement, row: StatementRow, language: Language, *, is_listed: bool) -> dict[str, Any]:
    texts = TEXTS[language.code]
    notes = [note for note in (row.reason, row.reference) if note]
    if not is_listed:
        notes = [_count_text(texts["count"], row.entries, language)]
    return {
        "position": str(row.sequence) if is_listed else "",
        "time": language.date_and_time(row.at, UTC) if isinstance(row.at, datetime) else language.day(row.at),
        "what": KINDS[row.kind].on_statement[language.code],
        "notes": notes,
        "amount": _amount(found, language, row.amount),
        "balance": "" if row.balance is None else _amount(found, language, row.balance),
    }


def _notes(found: AccountStatement, language: Language) -> Iterator[str]:
    texts = TEXTS[language.code]
    if not found.entries:
        yield texts["nothing"]
    if found.entries > MOST_ENTRIES:
        yield texts["by_day"].format(count=language.number(found.entries))
    if found.refusals:
        yield _count_text(texts["refusals"], found.refusals, language)


def _count_text(text: str, count: int, language: Language) -> str:
    """Return the text for this count: "1 entry|{count} entries"."""
    one, many = text.split("|")
    return one if count == 1 else many.format(count=language.number(count))


def _proof(found: AccountStatement, texts: Mapping[str, str]) -> dict[str, str]:
    if found.closing.digest is None:
        return {"sentence": texts["no_proof"], "digest": ""}
    return {"sentence": texts["proof"].format(sequence=found.closing.sequence), "digest": found.closing.digest}
