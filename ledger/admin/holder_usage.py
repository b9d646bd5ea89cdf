"""The part of a holder's page that says where the credits went, and its file."""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from ledger import reads
from ledger.admin.kit.cells import digits
from ledger.admin.kit.columns import table_of
from ledger.admin.kit.csv_files import csv_response
from ledger.admin.links import holder_url
from ledger.operators import staff_log
from ledger.reads import LABEL, RATE, Balance, Usage, Used, sum_of
from ledger.rules.texts.credit_units import CreditUnit

BY, FORMAT, CSV = "by", "format", "usage-csv"
"""In the address: what use is grouped by, and that it is sent as a file."""
FIRST: Final = f"{LABEL}model"
ROWS_SHOWN: Final = 20
ROWS_IN_FILE: Final = 200
LABELS_SHOWN: Final = 12
OTHERS, WITHOUT = "all others", "not named"


def usage_section(request: HttpRequest, account: Balance, unit: CreditUnit, days: int) -> list[dict[str, Any]]:
    """Return a section with what the account used in these days, by a label or by rate; nothing where it used nothing."""
    labels = reads.usage_labels(account.holder_id, account.credit_type)
    by = _by(request, labels)
    found = _read(account, by, days)
    if not found.sums.entries:
        return []
    whole = found.sums.amount
    table = table_of(
        list(_rows(found)),
        (_words(by).capitalize(), lambda row: row[0]),
        ("Used", lambda row: digits(unit.number(row[1].amount))),
        ("Share", lambda row: digits(f"{100 * row[1].amount / whole:.0f} %") if whole > 0 else ""),
        ("On overage", lambda row: digits(unit.number(row[1].postpaid)) if row[1].postpaid else ""),
        ("Entries", lambda row: digits(f"{row[1].entries:,}")),
    )
    groups = [RATE, *(f"{LABEL}{label}" for label in labels[:LABELS_SHOWN])]
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
    found = _read(account, by, days, by_day=True, limit=ROWS_IN_FILE)
    name = f"usage-{account.holder_id}-{account.credit_type}.csv".replace(":", "-").replace("@", "-")
    staff_log.record(request, "exported", about=name)
    parts = [*((each.value, each.days) for each in found.values), (OTHERS, found.others), (WITHOUT, found.without)]
    rows = [(day, value, used) for value, by_days in parts for day, used in by_days.items()]
    columns = (
        ("Day", lambda row: row[0]),
        (_words(by).capitalize(), lambda row: row[1]),
        ("Used", lambda row: row[2].amount),
        ("On overage", lambda row: row[2].postpaid),
        ("Entries", lambda row: row[2].entries),
    )
    return csv_response(name, columns, [rows])


def _by(request: HttpRequest, labels: Sequence[str]) -> str:
    """Return what use is grouped by: as the address says, else by model, or by the first label without models."""
    known = [RATE, *(f"{LABEL}{label}" for label in labels)]
    first = FIRST if FIRST in known or len(known) == 1 else known[1]
    given = request.GET.get(BY, first)
    return given if given in known else first


def _read(account: Balance, by: str, days: int, *, by_day: bool = False, limit: int = ROWS_SHOWN) -> Usage:
    zone = ZoneInfo(timezone.get_current_timezone_name())
    since, until = reads.days_until(account.as_of, zone, days)
    return reads.usage(
        account.holder_id, account.credit_type, since=since, until=until, zone=zone, by=by, by_day=by_day, limit=limit
    )


def _rows(found: Usage) -> Iterator[tuple[str, Used]]:
    for each in found.values:
        yield each.value, each.sums
    for words, days in ((OTHERS, found.others), (WITHOUT, found.without)):
        if days:
            yield words, sum_of(days)


def _words(by: str) -> str:
    return by.removeprefix(LABEL)


def _url(account: Balance, days: int, by: str, **more: str) -> str:
    return holder_url(account.holder_id, type=account.credit_type, days=days, **{BY: by}, **more)
