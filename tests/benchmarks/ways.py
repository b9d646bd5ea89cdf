"""What a spend takes by each way in, and what parts of the kit take beside Django's and DRF's: `python -m tests.benchmarks.ways`.

No database is asked: what a call asks of a queue is answered at once, as in `tests.benchmarks.loop`. µs of CPU, the least of many
rounds, the rows in turns.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from tests.benchmarks.loop import CALLS, OFTEN, log_to_nowhere, outcome_of, requests, respond
from tests.benchmarks.server import ROOT, BenchmarkServer

ROUNDS, TIMES = 24, 200
HEAD = {
    "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http", "query_string": b"",
    "path": "/v1/holders/customer-1/spends", "root_path": "", "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 80),
    "headers": [
        (b"host", b"127.0.0.1"), (b"authorization", b"Bearer k"), (b"accept", b"*/*"), (b"user-agent", b"benchmark/1.0"),
        (b"idempotency-key", b"job-1"), (b"content-type", b"application/json"), (b"content-length", b"14"),
    ],
}  # fmt: skip
SPEND = b'{"amount":120,"reason":"chat completion","reference":"req_1"}'

Work = Callable[[], Any]


def ways() -> dict[str, Work]:
    """Return what makes TIMES spends, by the way in; the database has a holder `customer-0` with credits."""
    from django.core.handlers.wsgi import WSGIHandler
    from django.test import override_settings

    from ledger.rest.kit.authentication import LOOKUPS
    from ledger.rest.kit.endpoint import CallersThread
    from ledger_project.serving.application import application

    loop = asyncio.new_event_loop()
    answer = outcome_of(loop, application, CALLS["spend"])
    looked_up = CallersThread.outcome

    async def outcome(way: CallersThread, queue: Any, request: Any) -> Any:
        return await (looked_up(way, queue, request) if queue is LOOKUPS else answer(queue, request))

    async def by_the_front() -> None:
        for request in islice(asked, TIMES):
            await respond(application, request)

    application.outcome = answer
    CallersThread.outcome = outcome  # type: ignore[method-assign]
    asked = requests(*CALLS["spend"], OFTEN)
    behind_all = WSGIHandler()
    with override_settings(MIDDLEWARE=[]):
        behind_none = WSGIHandler()
    return {
        "the front": lambda: loop.run_until_complete(by_the_front()),
        "a view, without middleware": _often(lambda: _of_wsgi(behind_none, next(asked))),
        "a view, behind the project's middleware": _often(lambda: _of_wsgi(behind_all, next(asked))),
    }


def _often(work: Work) -> Work:
    """Return what does it TIMES times."""

    def repeated() -> None:
        for _ in range(TIMES):
            work()

    return repeated


def _of_wsgi(application: Any, request: tuple[dict[str, Any], bytes]) -> None:
    scope, body = request
    environ = {
        "REQUEST_METHOD": scope["method"], "PATH_INFO": scope["path"], "QUERY_STRING": "", "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": "127.0.0.1", "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(body), "wsgi.errors": sys.stderr,
        **{f"HTTP_{name.decode().upper().replace('-', '_')}": value.decode() for name, value in scope["headers"]},
        "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)),
    }  # fmt: skip
    statuses: list[str] = []
    response = application(environ, lambda status, headers: statuses.append(status))
    b"".join(response)
    response.close()
    if statuses != ["201 Created"]:
        raise RuntimeError(f"{scope['path']}: {statuses}")


def parts() -> dict[str, tuple[Work, Work]]:
    """Return, by part of a spend, how the kit does it, and how Django or DRF does."""
    from django.core.handlers.asgi import ASGIRequest
    from django.http import HttpResponse
    from django.urls import get_resolver
    from rest_framework import parsers, renderers, serializers

    from ledger.rest.kit import parsing
    from ledger.rest.kit.endpoint import ensure_acceptable
    from ledger.rest.kit.front import application
    from ledger.rest.kit.rendering import Response, json_response
    from ledger.rest.kit.requests import FastRequest
    from ledger.rest.schemas import examples
    from ledger.rest.schemas.request_schemas import body_of
    from ledger.rules.requests import SpendRequest

    class Spend(serializers.Serializer[Any]):
        """As little as DRF needs to read what the spend says."""

        amount = serializers.IntegerField(min_value=1, max_value=2**53 - 1)
        credit_type = serializers.RegexField("^[a-z0-9_]{1,32}$", default="credits")
        reason = serializers.CharField(max_length=500, default="")
        reference = serializers.CharField(max_length=200, default="")
        metadata = serializers.DictField(default=dict)

    async def receive() -> Any:
        return {}

    request, path, shape = FastRequest(HEAD, receive), HEAD["path"], body_of(SpendRequest)
    request.is_call = True
    headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    body = renderers.JSONRenderer().render(examples.SPEND)
    return {
        "request": (lambda: FastRequest(HEAD, receive), lambda: ASGIRequest(HEAD, BytesIO(SPEND))),
        "path": (lambda: application._resolve_path(path), lambda: get_resolver().resolve(path)),
        "Accept": (
            lambda: ensure_acceptable("application/json"),
            lambda: request.get_preferred_type(["application/json"]),
        ),
        "body": (
            lambda: parsing.read(shape, parsing.parse_object(SPEND)),
            lambda: Spend(data=parsers.JSONParser().parse(BytesIO(SPEND))).is_valid(raise_exception=True),
        ),
        "bytes of the response": (
            lambda: json_response(examples.SPEND),
            lambda: renderers.JSONRenderer().render(examples.SPEND),
        ),
        "response with its headers": (
            lambda: application._headers(request, Response(body, 201, headers)),
            lambda: application._headers(request, HttpResponse(body, status=201, headers=headers)),
        ),
    }


def _least(rows: list[Work]) -> Iterator[float]:
    """Yield for each row what it takes in the round with the least; the rows take turns."""
    found = [float("inf")] * len(rows)
    for _ in range(ROUNDS):
        for place, work in enumerate(rows):
            start = time.thread_time()
            work()
            found[place] = min(found[place], (time.thread_time() - start) / TIMES * 1e6)
    yield from found


def main() -> None:
    """Print one line for each way, and one for each part."""
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-ways")
    try:
        server.grant_to_all("customer-", 1)
        with log_to_nowhere():
            by_way = ways()
            taken = dict(zip(by_way, _least(list(by_way.values())), strict=True))
            pairs = parts()
            each = _least([_often(work) for pair in pairs.values() for work in pair])
            saved = {name: (next(each), next(each)) for name in pairs}
        for name, us in taken.items():
            sys.stdout.write(f"a spend by {name:40} {us:7.1f} µs\n")
        for name, (ours, theirs) in saved.items():
            sys.stdout.write(f"{name:28} {ours:6.1f} µs, Django's or DRF's {theirs:6.1f} µs\n")
    finally:
        server.close()


if __name__ == "__main__":
    main()
