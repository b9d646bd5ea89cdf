"""The statements of the last months on the customer's page, as PDFs."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Final

from ledger.database.statements import fetch_rows
from ledger.months import month_before
from ledger.portal.parts import Cell, Document, PageDisplay, PageList
from ledger.services import time_of
from ledger.statements.statements import statement_file_name, statement_pdf
from ledger.typesetting.languages import Language
from ledger.typesetting.typeset import IS_INSTALLED

MONTHS_SHOWN: Final = 12
NAME: Final = re.compile(r"statement-(2[01][0-9]{2}-(?:0[1-9]|1[0-2]))-([a-z0-9_]+)")
FIRST_ENTRY: Final = "SELECT recorded_at FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = 1"

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "title": "Statements",
        "month": "Month",
        "file": "File",
        "pdf": "{month} as PDF",
        "running": "{month}, until today, as PDF",
    },
    "de": {
        "title": "Auszüge",
        "month": "Monat",
        "file": "Datei",
        "pdf": "{month} als PDF",
        "running": "{month}, bis heute, als PDF",
    },
}
"""In every language of `ledger.typesetting.languages`."""


def sections(holder_id: str, credit_type: str, shown: PageDisplay) -> list[PageList]:
    """Return the list of the months of an account, the newest first; no list without entries, or where no PDF can be made."""
    months = _months(holder_id, credit_type) if IS_INSTALLED else []
    if not months:
        return []
    texts, rows, cells = TEXTS[shown.language.code], [], []
    for month in months:
        url = shown.document_url(f"statement-{month:%Y-%m}-{credit_type}")
        text = texts["running" if month == months[0] else "pdf"].format(month=shown.language.month(month))
        rows.append({"month": f"{month:%Y-%m}", "pdf_url": url})
        cells.append([Cell(shown.language.month(month)), Cell(text, url)])
    headers = [Cell(texts["month"]), Cell(texts["file"])]
    return [PageList(name="statements", title=texts["title"], empty="", headers=headers, cells=cells, rows=rows)]


def document(holder_id: str, name: str, credit_types: Sequence[str], language: Language) -> Document | None:
    """Return the statement that `sections` names so; None for another name, or a month that is not listed."""
    parts = NAME.fullmatch(name)
    if parts is None or not IS_INSTALLED:
        return None
    month, credit_type = date.fromisoformat(f"{parts[1]}-01"), parts[2]
    if (credit_types and credit_type not in credit_types) or month not in _months(holder_id, credit_type):
        return None
    content = statement_pdf(holder_id, month, credit_type=credit_type, language=language.code)
    return Document(content, statement_file_name(holder_id, month, credit_type))


def _months(holder_id: str, credit_type: str) -> list[date]:
    """Return the first days of the months from the account's first entry on, the newest first, at most MONTHS_SHOWN."""
    instants: list[datetime] = fetch_rows(lambda at: at, FIRST_ENTRY, [holder_id, credit_type])
    if not instants:
        return []
    first, months = instants[0].astimezone(UTC).date().replace(day=1), [time_of(holder_id).astimezone(UTC).date().replace(day=1)]
    while months[-1] > first and len(months) < MONTHS_SHOWN:
        months.append(month_before(months[-1]))
    return months
