"""Reads files of rows: one JSON object a line, one JSON list, or CSV whose headings are the names of fields."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from ledger.values import UNSTORABLE

_ESCAPED_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


LISTS: Final = ("data", "items", "wallets", "wallet_transactions")
"""The members in which APIs return a list."""

FORBIDDEN: Final = "contains NUL or half of a surrogate pair"


class Line(NamedTuple):
    """A row of a file. `value` is None for a row that cannot be read; `error` says why."""

    number: int
    value: dict[str, Any] | None
    error: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the rows of a file, whose format is that of its ending; one of `.json` is read whole, others row by row."""
    match path.suffix:
        case ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield from _of_csv(file)
        case ".json":
            with path.open(encoding="utf-8") as file:
                yield from _of_list(file.read())
        case _:
            with path.open(encoding="utf-8") as file:
                for number, text in enumerate(file, 1):
                    if text.strip():
                        yield _of_json(number, text)


def _of_csv(file: Iterable[str]) -> Iterator[Line]:
    """Yield rows without their empty cells; `Line.number` is that of the row's last line."""
    reader = csv.DictReader(file, strict=True)
    try:
        if twice := [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1]:
            yield Line(reader.line_num, None, f"has two columns {', '.join(twice)}")
            return
        for row in reader:
            if None in row or None in row.values():
                yield Line(reader.line_num, None, "has another number of cells than the headings")
            elif any(UNSTORABLE.search(cell) for cell in row.values()):
                yield Line(reader.line_num, None, FORBIDDEN)
            else:
                yield Line(reader.line_num, {name: cell for name, cell in row.items() if cell})
    except csv.Error as error:
        yield Line(reader.line_num, None, f"is not CSV: {error}")


def _of_list(text: str) -> Iterator[Line]:
    """Yield the members of a JSON list, or of the list of an object, as APIs return it; one page of several is refused."""
    try:
        found = decode(text)
    except ValueError as error:
        yield Line(1, None, str(error))
        return
    if isinstance(found, dict):
        if why := _why_partial(found):
            yield Line(1, None, why)
            return
        found = next((found[name] for name in LISTS if isinstance(found.get(name), list)), [found])
    for number, value in enumerate(found if isinstance(found, list) else [found], 1):
        yield Line(number, value if isinstance(value, dict) else None, "" if isinstance(value, dict) else "is not an object")


def _why_partial(page: dict[str, Any]) -> str:
    """Return why a page of a list is not the whole list, by what its API says of it; empty if it is."""
    meta = page.get("meta") if isinstance(page.get("meta"), dict) else {}
    pages = (meta or {}).get("total_pages")
    if page.get("has_more") or (isinstance(pages, int) and pages > 1):
        return "is one page of several: put the objects of all pages into one file"
    return ""


def _of_json(number: int, text: str) -> Line:
    try:
        value = decode(text)
    except ValueError as error:
        return Line(number, None, str(error))
    return Line(number, value) if isinstance(value, dict) else Line(number, None, "is not an object")


def decode(text: str) -> Any:
    """Return the JSON value.

    Raises:
        ValueError: not JSON, a key twice in one object, nested too deeply, or a string that PostgreSQL cannot hold.
    Source: RFC 7493 (I-JSON).
    """
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
        if _ESCAPED_NUL.search(text) or UNSTORABLE.search(json.dumps(value, ensure_ascii=False)):
            raise ValueError(FORBIDDEN)
        return value
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON at character {error.pos}: {error.msg}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("contains a key twice")
    return value


def _refuse(literal: str) -> Any:
    raise ValueError(f"is not JSON: {literal}")
