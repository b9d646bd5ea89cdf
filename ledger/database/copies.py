"""Rows leave the database as files, by COPY: as CSV that is safe in spreadsheets, or as one JSON object a line.

CSV that is made of other rows has the same rules: `csv_text`.
"""

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

from django.db import connection, transaction

Form = Literal["text", "time", "json", "plain"]
"""How a column is written. `text` is what people and programs typed, and may look like a formula; `plain` never does."""

BYTE_ORDER_MARK: Final = "\ufeff"
"""Without it, spreadsheets read UTF-8 in the encoding of their country."""
STARTS_A_FORMULA: Final = ("=", "+", "@", "-")

LONG_READ: Final = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"

# The characters that `str.isspace` names.
_SPACES: Final = r"[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
# Text that begins like a formula, also behind spaces or in wide letters, gets an apostrophe. Source: OWASP, CSV Injection.
_GUARDED: Final = rf"""CASE
        WHEN left({{0}}, 1) IN (E'\t', E'\r', E'\n')
            OR normalize(left(regexp_replace({{0}}, '^{_SPACES}+', ''), 1), NFKC) ~ '^[{"".join(STARTS_A_FORMULA)}]'
        THEN '''' || ({{0}}) ELSE {{0}} END"""
_TIME: Final = """to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
# A JSON text has no control characters, so nothing in it is quoted or doubled.
_LINES: Final = r"(FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')"

FORMS: Final[dict[str, dict[Form, str]]] = {
    "csv": {"text": _GUARDED, "time": _TIME, "json": "{0}::text", "plain": "{0}"},
    "ndjson": {"text": "{0}", "time": _TIME, "json": "{0}", "plain": "{0}"},
}
"""The SQL of a column by the format of the file."""
FORMATS: Final = tuple(FORMS)


@dataclass(frozen=True)
class FileColumn:
    """One column of a file: its expression in SQL, and how it is written."""

    sql: str
    form: Form = "plain"


def select(fields: Mapping[str, FileColumn], rows: str, file_format: str) -> str:
    """Return the query whose columns are the fields.

    Args:
        rows: what stands behind the columns, from FROM on.
        file_format: one of FORMATS.
    """
    forms = FORMS[file_format]
    columns = ",\n    ".join(f'{forms[field.form].format(field.sql)} AS "{name}"' for name, field in fields.items())
    return f"SELECT\n    {columns}\n{rows}"


def copy_out(query: str, parameters: Mapping[str, Any], file_format: str) -> Iterator[bytes]:
    """Yield the file in pieces, of one snapshot. Memory does not grow with the number of rows.

    Args:
        query: as `select` returns it for the same format.
    """
    target = "(FORMAT csv, HEADER true)"
    if file_format == "csv":
        yield BYTE_ORDER_MARK.encode()
    else:
        query, target = f"SELECT row_to_json(line)::text FROM (\n{query}\n) AS line", _LINES
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LONG_READ)
        with connection.wrap_database_errors, cursor.copy(f"COPY (\n{query}\n) TO STDOUT {target}", parameters) as copy:
            for piece in copy:
                yield bytes(piece)


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows in the format of RFC 4180; `cell` formats each value."""
    target = io.StringIO()
    csv.writer(target).writerows([[cell(value) for value in row] for row in rows])
    return target.getvalue()


def cell(value: Any) -> str:
    """A value for a spreadsheet: numbers as numbers, times in UTC, and text never as a formula.

    Source: OWASP, CSV Injection. Text that begins like a formula, also behind spaces or in wide letters, gets an apostrophe.
    """
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    text = str(value)
    return f"'{text}" if _is_like_a_formula(text) else text


def _is_like_a_formula(text: str) -> bool:
    if text[:1] in ("\t", "\r", "\n"):
        return True
    return unicodedata.normalize("NFKC", text.lstrip()[:1]).startswith(STARTS_A_FORMULA)
