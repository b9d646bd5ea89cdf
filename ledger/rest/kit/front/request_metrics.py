"""Counts each request for /metrics: by method, route and status, with its duration; by its key; and each problem by its code.

The event loop counts in variables, and `write_counts` writes them: all functions here belong to the loop's thread.
"""

import re
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from time import perf_counter

from ledger.rest.kit.rendering import AnyResponse
from ledger.rest.kit.requests import FastRequest
from ledger.telemetry.metrics import KEY_CALLS, PROBLEMS, REQUEST_SECONDS, SECONDS, add_observations, call_before_reading

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
UNMATCHED = "unmatched"
"""The label of a path without a route. Clients invent such paths, so a label for each would have no bound."""
PAGES = ("/admin/", "/static/", "/docs")
"""Pages are counted together by the beginning of their path."""
KEYS_APART = 500
"""How many names of keys a process counts apart: a key may make others without end."""
OTHER_KEYS = "(other keys)"
"""The label of all further keys."""
PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")

_tallies: dict[tuple[str, str, int], list[float]] = {}
"""By method, route and status: how many requests since the last writing fell into each bucket, and the sum of their seconds."""
_problems: Counter[tuple[int, str]] = Counter()
_key_calls: Counter[tuple[str, int]] = Counter()
_keys_apart: set[str] = set()


def count_request(request: FastRequest, response: AnyResponse, *, started_at: float) -> None:
    """Count a response.

    Args:
        started_at: `time.perf_counter()` at the start of the request.
    """
    key = label_of(request, response)
    tally = _tallies.get(key)
    if tally is None:
        tally = _tallies[key] = [0.0] * (len(SECONDS) + 2)
    seconds = perf_counter() - started_at
    tally[bisect_left(SECONDS, seconds)] += 1
    tally[-1] += seconds
    if request.key_name:
        _key_calls[request.key_name, response.status_code] += 1
    problem = getattr(response, "problem", None)
    if problem is not None:
        _problems[response.status_code, problem["type"].rsplit("/", 1)[1]] += 1


def label_of(request: FastRequest, response: AnyResponse) -> tuple[str, str, int]:
    """Return method, route and status of a request: only a few values, whatever clients send."""
    method = request.method or OTHER_METHOD
    route = request.route or _page_route(request.path_info)
    return method if method in METHODS else OTHER_METHOD, route, response.status_code


def _write() -> None:
    for (method, route, status), tally in _tallies.items():
        if tally[-1]:
            add_observations(REQUEST_SECONDS.labels(method, route, str(status)), tally[:-1], tally[-1])
            tally[:] = [0.0] * len(tally)
    for (status, code), count in _problems.items():
        PROBLEMS.labels(str(status), code).inc(count)
    _problems.clear()
    for (key, status), count in _key_calls.items():
        KEY_CALLS.labels(_key_label(key), str(status)).inc(count)
    _key_calls.clear()


def _key_label(key: str) -> str:
    """Return the name of a key, or OTHER_KEYS once KEYS_APART names are known."""
    if key not in _keys_apart and len(_keys_apart) >= KEYS_APART:
        return OTHER_KEYS
    _keys_apart.add(key)
    return key


@lru_cache(1024)
def route_label(route: str) -> str:
    """Return a pattern of Django's as a label: `v1/holders/<holder:holder>` as `/v1/holders/{holder}`."""
    return "/" + PARAMETER.sub(r"{\1}", route)


def _page_route(path: str) -> str:
    return next((page for page in PAGES if path.startswith(page)), "/" if path == "/" else UNMATCHED)


call_before_reading(_write)
