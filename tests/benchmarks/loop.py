"""What the event loop's Python takes for a request: `python -m tests.benchmarks.loop`.

The ASGI application of one process with its log of requests, without a web server and without threads: what a call asks of a
queue is answered at once, with what the ledger answered the first time. µs of CPU, the least of many rounds. Each with 1,000
paths that come again, and with the paths of 100,000 holders, so that no request finds its path in a cache. The last rows are
with the processor's caches emptied before each request, or before each eighth, as other threads and processes empty them.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

from tests.benchmarks.server import KEY, ROOT, BenchmarkServer

OFTEN, MANY = 1_000, 100_000
ROUNDS, TIMES = 24, 500
CACHES = bytes(64 * 1024 * 1024)
"""More than the caches of a core hold, and of a machine's share."""
BODY = b'{"amount":120,"reason":"chat completion","reference":"req_%d"}'
CALLS = {
    "health check": ("GET", "/healthz"),
    "balance": ("GET", "/v1/holders/customer-%d/balance"),
    "spend": ("POST", "/v1/holders/customer-%d/spends"),
}


def measured() -> dict[str, float]:
    """Return µs of CPU by what was asked; the database has a holder `customer-0` with credits."""
    from ledger_project.serving.application import application

    loop = asyncio.new_event_loop()
    loop.run_until_complete(respond(application, next(requests("GET", "/v1/holders/customer-0/balance", 1))))
    found = {}
    for name, call in CALLS.items():
        outcome = outcome_of(loop, application, call)
        real, application.outcome = application.outcome, outcome
        try:
            found[name] = _least(loop, application, requests(*call, OFTEN))
            if "%d" in call[1]:
                found[f"{name}, a path not seen before"] = _least(loop, application, requests(*call, MANY))
                for each in (1, 8):
                    title = f"{name}, caches emptied before each{'' if each == 1 else f' group of {each}'}"
                    found[title] = _least(loop, application, requests(*call, OFTEN), empty_every=each)
        finally:
            application.outcome = real
    loop.run_until_complete(application.close())
    loop.close()
    return found


def outcome_of(loop: asyncio.AbstractEventLoop, application: Any, call: tuple[str, str]) -> Any:
    """Return what answers as the queue does, with the outcome of one such call."""
    from ledger.rest.kit.authentication import LOOKUPS

    found: list[Any] = []
    real = application.outcome

    async def remembered(queue: Any, asked: Any) -> Any:
        found.append(await real(queue, asked))
        return found[-1]

    async def answered(queue: Any, asked: Any) -> Any:
        # A key is looked up again every two seconds.
        return await real(queue, asked) if queue is LOOKUPS else found[-1]

    application.outcome = remembered
    try:
        loop.run_until_complete(respond(application, next(requests(*call, 1))))
    finally:
        application.outcome = real
    return answered


def requests(method: str, path: str, holders: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield requests without end, each of the next holder; as dictionaries that ASGI takes, with their bodies."""
    for number in count():
        body = BODY % number if method == "POST" else b""
        headers = [
            (b"host", b"127.0.0.1"), (b"authorization", b"Bearer %s" % KEY.encode()), (b"accept", b"*/*"),
            (b"user-agent", b"benchmark/1.0"),
        ]  # fmt: skip
        if method == "POST":
            headers += [
                (b"idempotency-key", b"job-%d" % number), (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
            ]  # fmt: skip
        yield {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path.replace("%d", str(number % holders)), "query_string": b"", "root_path": "", "headers": headers,
            "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 80),
        }, body  # fmt: skip


async def respond(application: Any, request: tuple[dict[str, Any], bytes]) -> None:
    scope, body = request
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    await application(scope, receive, send)
    if statuses not in ([200], [201]):
        raise RuntimeError(f"{scope['method']} {scope['path']}: {statuses}")


def _least(
    loop: asyncio.AbstractEventLoop, application: Any, requests: Iterator[Any], *, empty_every: int | None = None
) -> float:
    """Return what a request takes in the round with the least.

    Args:
        empty_every: empty the caches before each group of this number of requests; that takes time, which does not count.
    """
    size = empty_every or TIMES

    async def one_group(prepared: list[Any]) -> float:
        if empty_every:
            CACHES.count(1)
        start = time.thread_time()
        for request in prepared:
            await respond(application, request)
        return time.thread_time() - start

    def one_round() -> float:
        groups = (TIMES if not empty_every else TIMES // 10) // size
        taken = sum(loop.run_until_complete(one_group(list(islice(requests, size)))) for _ in range(groups))
        return taken / groups / size * 1e6

    return min(one_round() for _ in range(ROUNDS))


@contextmanager
def log_to_nowhere() -> Iterator[None]:
    """For the block, have the standard error lead to nowhere: the log is written all the same."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def main() -> None:
    """Print one line for each."""
    server = BenchmarkServer(Path(os.environ.get("LEDGER_DATA_DIR", str(ROOT / ".data"))).absolute() / "bench-loop")
    try:
        server.grant_to_all("customer-", 1)
        with log_to_nowhere():
            found = measured()
        for name, us in found.items():
            sys.stdout.write(f"{name:40} {us:7.1f} µs\n")
    finally:
        server.close()


if __name__ == "__main__":
    main()
