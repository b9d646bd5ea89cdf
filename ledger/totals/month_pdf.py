"""The figures of a month on paper, for finance."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

from ledger.months import starts
from ledger.totals.figures import FigureSection, Month
from ledger.typesetting.languages import ENGLISH
from ledger.typesetting.letterheads import letterhead_of
from ledger.typesetting.typeset import typeset

TEMPLATE: Final = Path(__file__).with_name("month.typ")
MOST_COLUMNS: Final = 6
"""Of a table; the further columns of a section are in tables below it."""


def month_pdf(found: Month) -> bytes:
    """Return the figures of a month as a PDF.

    Once the month is final, its bytes change only with the letterhead and the names of credit types.
    """
    return typeset(TEMPLATE, month_page(found), at=starts(found.month)).content


def month_file_name(month: date, form: str) -> str:
    """Return the name of a file of a month; `form` is csv or pdf."""
    return f"month-{month:%Y-%m}.{form}"


def month_page(found: Month) -> dict[str, Any]:
    """Return the data of month.typ."""
    letterhead = letterhead_of("", ENGLISH.code)
    title = f"{found.month:%B %Y}"
    parts = [part for section in found.sections for part in _parts(section)]
    return {
        "language": ENGLISH.code,
        "title": title,
        "stamp": None if found.is_final else {"word": "PRELIMINARY", "sentence": "The month is not over, or not closed yet."},
        "running": title,
        "page": "Page {page} of {pages}",
        "sender": {"name": letterhead.name, "line": letterhead.line, **letterhead.brand},
        "recipient": [],
        "facts": [],
        "footer": letterhead.footer,
        "rows": sum(len(part["rows"]) for part in parts),
        "parts": parts,
        "nothing": "There is nothing in this month.",
    }


def _parts(section: FigureSection) -> Iterator[dict[str, Any]]:
    """Yield the section as tables with as many columns as fit."""
    figures = [figure for figure in section.figures if figure.is_shown]
    for start in range(0, len(section.columns), MOST_COLUMNS):
        places = range(start, min(start + MOST_COLUMNS, len(section.columns)))
        yield {
            "title": section.title + (" (continued)" if start else ""),
            "note": "" if start else section.note,
            "first": section.first,
            "columns": [section.columns[place].title for place in places],
            "rows": [
                {
                    "title": figure.title,
                    "definition": "" if start else figure.definition,
                    "strong": figure.is_sum,
                    "cells": [amount.text if (amount := figure.amounts[place]) else "" for place in places],
                }
                for figure in figures
            ],
        }
