"""Requests: how many calls came in, how fast they were answered, and which were refused, by route, key and reason.

The figures are those of /metrics, of the processes of this web server, read once a minute: `ledger.telemetry.count_history`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from ledger.operators.permissions import VIEW_LOCKS
from ledger.staff.kit import charts
from ledger.staff.kit.cells import link
from ledger.telemetry.count_history import HISTORY, KEPT, Growth

NAME: Final = "request-rates"
WINDOWS: Final[Mapping[str, tuple[str, timedelta | None]]] = {
    "5": ("Last 5 minutes", timedelta(minutes=5)),
    "15": ("Last 15 minutes", timedelta(minutes=15)),
    "60": ("Last hour", KEPT),
    "all": ("Since the start", None),
}
USUAL_WINDOW: Final = "15"
CALLS: Final = "/v1"
"""How the routes of calls begin; other requests are for pages and probes."""
ROWS_SHOWN: Final = 50
DURATION: Final = "ledger_http_request_duration_seconds"


@dataclass
class Requests:
    """Requests of one kind, such as those of a route.

    Args:
        within: how many took at most that many seconds, by the bounds of the histogram.
    """

    by_status: Counter[str] = field(default_factory=Counter)
    within: Counter[float] = field(default_factory=Counter)

    @property
    def number(self) -> int:
        return self.by_status.total()

    @property
    def refused(self) -> int:
        """How many were not executed for a reason that the client can remove: a status of 400 to 499."""
        return sum(count for status, count in self.by_status.items() if status.startswith("4"))

    @property
    def failed(self) -> int:
        """How many ended with a status of 500 or more."""
        return sum(count for status, count in self.by_status.items() if status.startswith("5"))

    def within_seconds(self, share: float) -> float | None:
        """Return the least bound of the histogram within which this share of the requests ended; None without any.

        It is infinite if they took longer than its last bound.
        """
        if not self.number:
            return None
        return next((bound for bound in sorted(self.within) if self.within[bound] >= share * self.number), float("inf"))

    def add(self, other: "Requests") -> None:
        """Count other requests too."""
        self.by_status += other.by_status
        self.within += other.within


def requests_by_route(growth: Growth) -> dict[tuple[str, str], Requests]:
    """Return the requests by method and route."""
    by_route: dict[tuple[str, str], Requests] = {}
    for name, labels, count in _samples(growth):
        if name not in (f"{DURATION}_count", f"{DURATION}_bucket"):
            continue
        requests = by_route.setdefault((labels["method"], labels["route"]), Requests())
        if name == f"{DURATION}_count":
            requests.by_status[labels["status"]] += count
        else:
            requests.within[float(labels["le"])] += count
    return {route: each for route, each in by_route.items() if each.number}


def requests_by_key(growth: Growth) -> dict[str, Requests]:
    """Return the calls by the name of their API key."""
    by_key: dict[str, Requests] = {}
    for name, labels, count in _samples(growth):
        if name == "ledger_http_key_calls_total":
            by_key.setdefault(labels["key"], Requests()).by_status[labels["status"]] += count
    return by_key


def problems_by_code(growth: Growth) -> Counter[tuple[str, str]]:
    """Return how often each problem was the response, by status and code."""
    problems: Counter[tuple[str, str]] = Counter()
    for name, labels, count in _samples(growth):
        if name == "ledger_http_problems_total":
            problems[labels["status"], labels["code"]] += count
    return problems


def calls_in(growth: Growth) -> Requests:
    """Return all calls as one."""
    calls = Requests()
    for (_, route), requests in requests_by_route(growth).items():
        if route.startswith(CALLS):
            calls.add(requests)
    return calls


def _samples(growth: Growth) -> Iterator[tuple[str, dict[str, str], int]]:
    for (name, labels), count in growth.counts.items():
        yield name, dict(labels), round(count)


# The page --------------------------------------------------------------------------------------------


def page(request: HttpRequest) -> HttpResponse:
    """Show the figures of a window of time."""
    if not request.user.has_perm(VIEW_LOCKS):
        raise PermissionDenied
    chosen = request.GET.get("window", USUAL_WINDOW)
    chosen = chosen if chosen in WINDOWS else USUAL_WINDOW
    now = timezone.now()
    growth = HISTORY.growth(now, WINDOWS[chosen][1])
    context = {
        **admin.site.each_context(request),
        "title": "Requests",
        "windows": [(title, f"?window={name}", name == chosen) for name, (title, _) in WINDOWS.items()],
        "growth": growth,
        "headlines": _headlines(growth),
        "tables": _tables(growth, request),
        **_chart(HISTORY.steps(now, KEPT)),
    }
    return TemplateResponse(request, "admin/request_rates.html", context)


def _headlines(growth: Growth) -> list[tuple[str, str, str, bool]]:
    """Return the figures of all calls: title, amount, note, and whether it is bad."""
    calls = calls_in(growth)
    half, most = calls.within_seconds(0.5), calls.within_seconds(0.95)
    return [
        ("Calls a second", _rate(calls.number / growth.seconds), f"{calls.number:,.0f} calls", False),
        ("Refused", f"{calls.refused:,.0f}", _share(calls.refused, calls.number), False),
        ("Failed", f"{calls.failed:,.0f}", _share(calls.failed, calls.number), bool(calls.failed)),
        ("Half of the calls took", _seconds(half), f"95 of 100 took {_seconds(most)}" if most is not None else "no calls", False),
    ]


def _tables(growth: Growth, request: HttpRequest) -> list[dict[str, Any]]:
    routes, keys, problems = requests_by_route(growth), requests_by_key(growth), problems_by_code(growth)
    minutes = growth.seconds / 60

    def number_of(requests: Requests) -> int:
        return requests.number

    return [
        {
            "title": "By route",
            "text": "Pages of people are counted together by the beginning of their path.",
            "table": {
                "headers": ["Route", *COUNTED, "Half took", "95 of 100 took"],
                "rows": [
                    [
                        f"{method} {route}",
                        *_count_cells(each, minutes),
                        _seconds(each.within_seconds(0.5)),
                        _seconds(each.within_seconds(0.95)),
                    ]
                    for (method, route), each in _most(routes, number_of)
                ],
            },
        },
        {
            "title": "By API key",
            "text": "Calls with a valid key. What the operators' pages do has no key.",
            "table": {
                "headers": ["Key", *COUNTED],
                "rows": [[_key(name, request), *_count_cells(each, minutes)] for name, each in _most(keys, number_of)],
            },
        },
        {
            "title": "Refused and failed, by reason",
            "text": "Each repeats as often as the client has sent it.",
            "table": {
                "headers": ["Reason", "Status", "Calls"],
                "rows": [
                    [link(f"/problems/{code}", code), status, f"{count:,.0f}"]
                    for (status, code), count in _most(problems, lambda count: count)
                ],
            },
        },
    ]


COUNTED: Final = ("Requests", "A minute", "Refused", "Failed")


def _count_cells(requests: Requests, minutes: float) -> list[str]:
    return [
        f"{requests.number:,.0f}",
        _rate(requests.number / minutes),
        _with_share(requests.refused, requests.number),
        _with_share(requests.failed, requests.number),
    ]


def _most(counted: Mapping[Any, Any], number: Callable[[Any], float]) -> list[tuple[Any, Any]]:
    """Return the rows with the most requests first."""
    return sorted(counted.items(), key=lambda row: (-number(row[1]), row[0]))[:ROWS_SHOWN]


def _key(name: str, request: HttpRequest) -> SafeString | str:
    """Return the name of a key; for those who may see keys, as a link to the list with this key."""
    if not apps.is_installed("ledger.keys"):
        return name
    from ledger.keys.permissions import VIEW_APIKEY

    if not request.user.has_perm(VIEW_APIKEY):
        return name
    return link(f"{reverse('admin:ledger_keys_apikey_changelist')}?{urlencode({'q': name})}", name)


def _chart(steps: Sequence[Growth]) -> dict[str, str]:
    """Return the chart of the last hour and, in words, what it shows."""
    calls = [calls_in(step) for step in steps]
    if not any(each.number for each in calls):
        return {}
    good = [each.number - each.refused - each.failed for each in calls]
    return {
        "chart": charts.data(
            [f"{step.until:%H:%M}" for step in steps],
            charts.bars("Succeeded", good),
            charts.bars("Refused", [each.refused for each in calls], charts.AMBER),
            charts.bars("Failed", [each.failed for each in calls], charts.RED),
        ),
        "chart_options": charts.options(unit="calls", is_stacked=True),
        "chart_text": f"The busiest minute up to {_busiest(steps, calls)} UTC. A bar ends at the time below it.",
    }


def _busiest(steps: Sequence[Growth], calls: Sequence[Requests]) -> str:
    number, step = max(((each.number, step) for step, each in zip(steps, calls, strict=True)), key=lambda pair: pair[0])
    return f"{step.until:%H:%M} had {number:,.0f} calls"


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:,.1f}" if number >= 1 else f"{number:,.2f}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%} of the calls" if whole else "no calls"


def _with_share(part: float, whole: float) -> str:
    return f"{part:,.0f} ({part / whole:.1%})" if part else "0"


def _seconds(bound: float | None) -> str:
    if bound is None:
        return ""
    if bound == float("inf"):
        return "over 5 s"
    return f"≤ {bound * 1000:g} ms" if bound < 1 else f"≤ {bound:g} s"
