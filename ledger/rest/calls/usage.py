"""Where the credits of an account went: what was used, by label, rate and day."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest

from ledger import reads
from ledger.reads import LABEL, AccountUsage, Days
from ledger.rest.kit.authentication import LEDGER_READ
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import InvalidRequest
from ledger.rest.kit.schema import ResponseBody, operation
from ledger.rest.schemas import examples, response_schemas
from ledger.rest.schemas.parameters import HOLDER_PATH
from ledger.rest.schemas.request_schemas import MOST_USAGE_DAYS, Grouping, UsageQuery
from ledger.rules.instants import to_text, to_us
from ledger.values import FieldError

DAYS: Final = 30
"""How many days it is about if the query does not say so."""
VALUE, OTHERS, WITHOUT = "value", "others", "without"


class HolderUsage(Endpoint):
    """What an account used."""

    reads_quickly = True

    @operation(
        "readUsage",
        "Read where the credits went",
        "What spends and captures took, less what refunds returned, by label, rate and day: exactly the sum of the entries. A "
        "use counts at its effective time, a refund at its own, under the labels of what it refunds. A capture has the labels "
        "of its hold and its own, which prevail; a use without a label `model` counts by its rate. The values with the most "
        "come first, by label and rate the pairs of both; then `others`, then what has no such label. Of an account with more "
        "than 256 entries, 200 values of a label and 200 rates are told apart on a day, and ids of which none repeats are not; "
        "the rest is in `others`. The call takes no lock.",
        tag="History",
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=UsageQuery,
        responses={200: ResponseBody(response_schemas.CreditUsageSerializer, examples.USAGE, "What was used.")},
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(UsageQuery, request)
        credit_type, zone = query["credit_type"], ZoneInfo(query["zone"])
        grouping = query.get("group_by") or Grouping()
        since, until = _span(query, holder, credit_type, zone)
        usage = reads.usage(holder, credit_type, since=since, until=until, zone=zone, limit=query["limit"], **grouping._asdict())
        return json_response(_body(usage, grouping))


def _span(query: dict[str, Any], holder: str, credit_type: str, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return from when to when, or raise for a span that is empty or too long."""
    # The holder's time: that of its test clock, if it has one.
    now = reads.balance(holder, credit_type).as_of
    until = _start(query["until"], zone) if "until" in query else reads.days_until(now, zone, 1)[1]
    since = (
        _start(query["since"], zone) if "since" in query else reads.days_until(until - timedelta(microseconds=1), zone, DAYS)[0]
    )
    if since >= until:
        raise InvalidRequest([FieldError("/to", "not-after-from", "This must be after `from`.")])
    if until - since > timedelta(days=MOST_USAGE_DAYS, hours=2):
        raise InvalidRequest([FieldError("/to", "too-long", f"This must be at most {MOST_USAGE_DAYS} days after `from`.")])
    return since, until


def _start(given: date | datetime, zone: ZoneInfo) -> datetime:
    return given if isinstance(given, datetime) else reads.start_of(given, zone)


def _body(found: AccountUsage, grouping: Grouping) -> dict[str, Any]:
    return {
        "holder_id": found.holder_id,
        "credit_type": found.credit_type,
        "from": to_text(to_us(found.since)),
        "to": to_text(to_us(found.until)),
        "zone": found.zone,
        **found.sums._asdict(),
        "values_left_out": max(0, found.values_left_out),
        "results": list(_results(found, grouping)),
    }


def _results(found: AccountUsage, grouping: Grouping) -> Iterator[dict[str, Any]]:
    if not grouping.by:
        yield from _rows(found.everything, grouping, VALUE)
        return
    for each in found.values:
        yield from _rows(each.days, grouping, VALUE, each.value, each.rate)
    yield from _rows(found.others, grouping, OTHERS)
    if grouping.by_rate:
        for each in found.without_by_rate:
            yield from _rows(each.days, grouping, WITHOUT, None, each.rate)
    else:
        yield from _rows(found.without, grouping, WITHOUT)


def _rows(
    days: Days, grouping: Grouping, group: str, value: str | None = None, rate: str | None = None
) -> Iterator[dict[str, Any]]:
    label = grouping.by.removeprefix(LABEL) if grouping.by.startswith(LABEL) else None
    for day, used in days.items():
        yield {
            "group": group,
            "labels": {} if label is None else {label: value},
            "rate": value if label is None else rate,
            "day": None if day is None else f"{day:%Y-%m-%d}",
            **used._asdict(),
        }
