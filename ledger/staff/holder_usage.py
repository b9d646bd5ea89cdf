"""The part of a holder's page that says where the credits went, and its file."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from ledger import reads
from ledger.operators import staff_log
from ledger.reads import LABEL, RATE, AccountUsage, Balance, Days, Used, sum_of
from ledger.rules.credit_units import CreditUnit
from ledger.staff.kit.cells import digits
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.csv_files import csv_response
from ledger.staff.links import holder_url

BY, FORMAT, CSV = "by", "format", "usage-csv"
"""In the address: what use is grouped by, and that it is sent as a file."""
FIRST: Final = f"{LABEL}model"
ROWS_SHOWN: Final = 20
ROWS_IN_FILE: Final = 200
LABELS_SHOWN: Final = 12
OTHERS, WITHOUT, NO_RATE = "all others", "not named", "no rate"
AND_RATE: Final = f",{RATE}"
"""After a label in the address: its values by rate."""


def usage_section(request: HttpRequest, account: Balance, unit: CreditUnit, days: int) -> list[dict[str, Any]]:
    """Return a section with what the account used in these days, by a label or by rate; nothing where it used nothing."""
    labels = reads.usage_labels(account.holder_id, account.credit_type)
    by = _by(request, labels)
    usage = _read(account, by, days)
    if not usage.sums.entries:
        return []
    whole = usage.sums.amount
    table = table_of(
        list(_rows(usage, by)),
        *((words, partial(_cell, place)) for place, words in enumerate(_headings(by))),
        ("Used", lambda row: digits(unit.number(row[1].amount))),
        ("Share", lambda row: digits(f"{100 * row[1].amount / whole:.0f} %") if whole > 0 else ""),
        ("On overage", lambda row: digits(unit.number(row[1].postpaid)) if row[1].postpaid else ""),
        ("Entries", lambda row: digits(f"{row[1].entries:,}")),
    )
    groups = [RATE, *(f"{LABEL}{label}" for label in labels[:LABELS_SHOWN])]
    label = by.removesuffix(AND_RATE)
    groups += [f"{label}{AND_RATE}"] if label != RATE else []
    return [
        {
            "title": f"Where {unit.number(whole)} {unit.unit} went, last {days} days",
            "table": table,
            "empty": "",
            "pills": [(_words(each), _url(account, days, each), each == by) for each in groups],
            "more_url": _url(account, days, by, **{FORMAT: CSV}),
            "more_text": "By day, as CSV",
        }
    ]


def usage_file(request: HttpRequest, account: Balance, days: int) -> HttpResponseBase:
    """Send the use of each day and value as a file, and write it into the staff log."""
    by = _by(request, reads.usage_labels(account.holder_id, account.credit_type))
    usage = _read(account, by, days, by_day=True, limit=ROWS_IN_FILE)
    name = f"usage-{account.holder_id}-{account.credit_type}.csv".replace(":", "-").replace("@", "-")
    staff_log.record(request, "exported", about=name)
    rows = [(day, texts, used) for texts, days in _parts(usage, by) for day, used in days.items()]
    columns: Sequence[tuple[str, Callable[[Any], Any]]] = (
        ("Day", lambda row: row[0]),
        *((words, partial(_cell, place)) for place, words in enumerate(_headings(by))),
        ("Used", lambda row: row[2].amount),
        ("On overage", lambda row: row[2].postpaid),
        ("Entries", lambda row: row[2].entries),
    )
    return csv_response(name, columns, [rows])


def _by(request: HttpRequest, labels: Sequence[str]) -> str:
    """Return what use is grouped by: as the address says, else by model, or by the first label without models."""
    by_label = [f"{LABEL}{label}" for label in labels]
    known = [RATE, *by_label, *(f"{each}{AND_RATE}" for each in by_label)]
    first = FIRST if FIRST in known or not by_label else by_label[0]
    given = request.GET.get(BY, first)
    return given if given in known else first


def _read(account: Balance, by: str, days: int, *, by_day: bool = False, limit: int = ROWS_SHOWN) -> AccountUsage:
    zone = ZoneInfo(timezone.get_current_timezone_name())
    since, until = reads.days_until(account.as_of, zone, days)
    return reads.usage(
        account.holder_id,
        account.credit_type,
        since=since,
        until=until,
        zone=zone,
        by=by.removesuffix(AND_RATE),
        by_rate=by.endswith(AND_RATE),
        by_day=by_day,
        limit=limit,
    )


def _rows(found: AccountUsage, by: str) -> Iterator[tuple[Sequence[str], Used]]:
    return ((texts, sum_of(days)) for texts, days in _parts(found, by) if days)


def _parts(found: AccountUsage, by: str) -> Iterator[tuple[Sequence[str], Days]]:
    """Return the groups in words, as many as _headings has, and what each used."""
    if not by.endswith(AND_RATE):
        yield from (([each.value or ""], each.days) for each in found.values)
        yield from (([OTHERS], found.others), ([WITHOUT], found.without))
        return
    yield from (([each.value or "", each.rate or NO_RATE], each.days) for each in found.values)
    yield [OTHERS, ""], found.others
    yield from (([WITHOUT, each.rate or NO_RATE], each.days) for each in found.without_by_rate)


def _headings(by: str) -> list[str]:
    return [_words(by.removesuffix(AND_RATE)).capitalize(), *(["Rate"] if by.endswith(AND_RATE) else [])]


def _cell(place: int, row: Sequence[Any]) -> str:
    """Return the words of a row at a place; they come before what was used."""
    return row[-2][place]


def _words(by: str) -> str:
    return by.removeprefix(LABEL).replace(AND_RATE, " and rate")


def _url(account: Balance, days: int, by: str, **more: str) -> str:
    return holder_url(account.holder_id, type=account.credit_type, days=days, **{BY: by}, **more)
