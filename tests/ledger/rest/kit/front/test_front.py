"""The front: what it receives, what it turns away before it has received it, and that nothing blocks its event loop."""

import asyncio
import contextvars
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, MutableMapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import Resolver404, get_resolver

from ledger import reads, services
from ledger.database import pacing
from ledger.rest.kit.front import application as front
from ledger.rest.kit.front.application import PAGE_BODY_LIMIT_BYTES, Front
from ledger.rest.kit.front.interpreter import SHORT_SWITCH_INTERVAL_S
from ledger.rest.kit.parsing import BATCH_LIMIT_BYTES, BODY_LIMIT_BYTES
from ledger.rest.kit.rendering import Response
from ledger.rest.kit.requests import FastRequest
from ledger.services import execute
from ledger.testing import api_key
from tests import asgi_client
from tests.asgi_client import AsgiClient, response_of
from tests.ledger.rest.conftest import ApiClient, nothing_written

SPENDS = "/v1/holders/customer-42/spends"
TIMEOUT_S = 30

Message = MutableMapping[str, Any]


class Exchange:
    """A request whose messages a test sends one by one, on the loop of the test client, to the application."""

    def __init__(self, method: str, path: str, *headers: tuple[bytes, bytes]) -> None:
        self.received = 0
        """How many messages the application has asked for."""
        self.sent: list[Message] = []
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "query_string": b"", "root_path": "", "headers": [(b"host", b"testserver"), *headers],
            "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 80),
        }  # fmt: skip

    async def receive(self) -> Message:
        self.received += 1
        return await self.messages.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def body(self, chunk: bytes, *, more: bool = False) -> "Exchange":
        self.messages.put_nowait({"type": "http.request", "body": chunk, "more_body": more})
        return self

    def run(self) -> HttpResponse | None:
        """Give it to the application; its response, or None where it sent none."""
        from ledger_project.serving.application import application

        run_on_loop(application(self.scope, self.receive, self.send))
        return response_of(self.sent) if self.sent else None

    def run_beside(self, application: Any, loop: asyncio.AbstractEventLoop) -> HttpResponse:
        """The same while others are under way."""
        asyncio.run_coroutine_threadsafe(application(self.scope, self.receive, self.send), loop).result(TIMEOUT_S)
        return response_of(self.sent)


def run_on_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine on the loop of the front; return its result."""
    with asgi_client._on_this_connection():
        return asyncio.run_coroutine_threadsafe(work, asgi_client.loop()).result(TIMEOUT_S)


def headers_with_key(api: ApiClient, *headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The headers of a write under the client's key."""
    return [
        (b"authorization", f"Bearer {api.secret}".encode()), (b"idempotency-key", b"k"), (b"content-type", b"application/json"),
        *headers,
    ]  # fmt: skip


def problem_of(response: HttpResponse | None) -> tuple[int, str]:
    """Status and slug of a problem that says that nothing was executed."""
    assert response is not None
    problem = json.loads(response.content)
    assert response["Content-Type"] == "application/problem+json"
    assert problem["outcome"] == "not_executed"
    return response.status_code, problem["type"].rsplit("/", 1)[1]


# Bodies ----------------------------------------------------------------------------------------------


CHUNKED = (b"transfer-encoding", b"chunked")


def test_a_body_in_pieces_is_one_body(api: ApiClient, holder: str) -> None:
    exchange = Exchange("POST", SPENDS, *headers_with_key(api, CHUNKED))
    exchange.body(b'{"amo', more=True).body(b"", more=True).body(b'unt": 7}')
    response = exchange.run()
    assert response is not None
    assert (response.status_code, json.loads(response.content)["balance"]) == (201, 93)


def test_a_body_whose_length_was_announced_is_whole_with_its_last_byte(api: ApiClient, holder: str) -> None:
    """Servers end each body with a further, empty message; to wait for it would wake the loop again."""
    exchange = Exchange("POST", SPENDS, *headers_with_key(api, (b"content-length", b"13")))
    exchange.body(b'{"amo', more=True).body(b'unt": 7}', more=True)
    response = exchange.run()
    assert response is not None
    assert (response.status_code, exchange.received) == (201, 2)


@pytest.mark.parametrize(
    ("path", "limit"),
    [(SPENDS, BODY_LIMIT_BYTES), ("/v1/batches", BATCH_LIMIT_BYTES), ("/admin/login/", PAGE_BODY_LIMIT_BYTES)],
)
def test_what_announces_a_body_beyond_the_limit_is_refused_before_a_byte_is_received(
    api: ApiClient, holder: str, path: str, limit: int
) -> None:
    exchange = Exchange("POST", path, *headers_with_key(api, (b"content-length", b"%d" % (limit + 1))))
    with nothing_written(holder):
        assert problem_of(exchange.run()) == (413, "body-too-large")
    assert exchange.received == 0


@pytest.mark.parametrize(
    ("path", "limit"),
    [(SPENDS, BODY_LIMIT_BYTES), ("/v1/batches", BATCH_LIMIT_BYTES), ("/admin/login/", PAGE_BODY_LIMIT_BYTES)],
)
def test_what_sends_more_than_the_limit_is_refused_at_the_limit(api: ApiClient, holder: str, path: str, limit: int) -> None:
    exchange = Exchange("POST", path, *headers_with_key(api, CHUNKED))
    for _ in range(limit // 32_768 + 10):
        exchange.body(b" " * 32_768, more=True)
    with nothing_written(holder):
        assert problem_of(exchange.run()) == (413, "body-too-large")
    assert exchange.received == limit // 32_768 + 1


def test_without_a_key_nothing_is_received(api: ApiClient) -> None:
    exchange = Exchange("POST", SPENDS, (b"content-length", b"14"), (b"content-type", b"application/json"))
    assert problem_of(exchange.run()) == (401, "unauthenticated")
    assert exchange.received == 0


@pytest.mark.parametrize("path", [SPENDS, "/admin/login/"])
def test_a_body_that_does_not_arrive_in_time_is_a_408(
    api: ApiClient, holder: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "BODY_SECONDS", 0.05)
    exchange = Exchange("POST", path, *headers_with_key(api, (b"content-length", b"14"))).body(b'{"amount":', more=True)
    with nothing_written(holder):
        assert problem_of(exchange.run()) == (408, "body-timeout")


@pytest.mark.parametrize("path", [SPENDS, "/admin/login/"])
def test_a_body_that_ends_in_the_middle_is_a_400_and_nothing_is_written(api: ApiClient, holder: str, path: str) -> None:
    exchange = Exchange("POST", path, *headers_with_key(api, (b"content-length", b"14"))).body(b'{"amount":', more=True)
    exchange.messages.put_nowait({"type": "http.disconnect"})
    with nothing_written(holder):
        assert problem_of(exchange.run()) == (400, "malformed-request")


def test_beyond_a_size_of_all_bodies_at_once_the_next_gets_a_503(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "BODIES_LIMIT_BYTES", 100)
    exchange = Exchange("POST", SPENDS, *headers_with_key(api, (b"content-length", b"200"))).body(b" " * 101, more=True)
    with nothing_written(holder):
        assert problem_of(exchange.run()) == (503, "server-busy")
    monkeypatch.undo()
    assert api.post(SPENDS, {"amount": 1}).status_code == 201


# Heads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"idempotency-key", b"authorization", b"content-type", b"if-match", b"host"])
def test_a_header_that_means_one_thing_given_twice_is_a_400(api: ApiClient, holder: str, name: bytes) -> None:
    headers = headers_with_key(api, (b"content-length", b"13"), (b"if-match", b"*"), (name, b"other"))
    exchange = Exchange("POST", SPENDS, *headers).body(b'{"amount": 7}')
    with nothing_written(holder):
        response = exchange.run()
    assert problem_of(response) == (400, "malformed-request")
    assert response is not None
    (error,) = json.loads(response.content)["errors"]
    assert (error["pointer"].lower(), error["code"]) == (f"/{name.decode()}", "duplicate-header")


def test_a_header_with_underscores_is_none_that_is_known(api: ApiClient, holder: str) -> None:
    headers = [(name.replace(b"-", b"_") if name == b"idempotency-key" else name, value) for name, value in headers_with_key(api)]
    exchange = Exchange("POST", SPENDS, *headers, (b"content-length", b"13")).body(b'{"amount": 7}')
    with nothing_written(holder):
        assert problem_of(exchange.run()) == (400, "idempotency-key-missing")


# Bounds ----------------------------------------------------------------------------------------------


@pytest.mark.one_node("each node of a cluster has its own queue")
def test_beyond_its_bound_a_queue_turns_calls_away_with_nothing_written(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.get("/v1/holders").status_code == 200  # its key is known now
    monkeypatch.setattr(services.GROUP_COMMIT, "_limit", 0)
    with nothing_written(holder):
        response = api.post(SPENDS, {"amount": 1})
    assert problem_of(response) == (503, "server-busy")
    assert response["Retry-After"] == "1"


async def take_a_thread(application: Front, holder_id: str, order: list[str], name: str, leave: asyncio.Event) -> None:
    """Take one of the holder's threads until the event comes; note both in `order`."""
    async with application._a_thread_of(holder_id):
        order.append(f"{name} in")
        await leave.wait()
    order.append(f"{name} out")


def test_calls_of_one_holder_wait_for_a_thread_in_order_and_those_of_another_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "THREADS_PER_HOLDER", 1)

    async def main() -> list[str]:
        application, order = Front(page_view), list[str]()
        leave = {name: asyncio.Event() for name in ("first", "second", "third", "other")}
        tasks = []
        for name, event in leave.items():
            holder_id = "bob" if name == "other" else "ada"
            tasks.append(asyncio.create_task(take_a_thread(application, holder_id, order, name, event)))
            await asyncio.sleep(0)
        for event in leave.values():
            event.set()
        await asyncio.gather(*tasks)
        assert application._threads_of == {}, "nothing is kept of holders that have no call"
        return order

    order = asyncio.run(main())
    assert order[:2] == ["first in", "other in"]
    assert [step for step in order if "other" not in step] == [
        "first in", "first out", "second in", "second out", "third in", "third out"
    ]  # fmt: skip


@pytest.mark.parametrize(("waiting", "patience_s"), [(0, 60), (1, 0.0)], ids=["too many wait", "it takes too long"])
def test_a_call_that_gets_no_thread_in_time_is_told_that_the_server_is_busy_and_nothing_is_written(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch, waiting: int, patience_s: float
) -> None:
    """Not that the holder is: no lock was tried."""
    from ledger_project.serving.application import application

    monkeypatch.setattr(front, "THREADS_PER_HOLDER", 1)
    monkeypatch.setattr(front, "PATIENCE_SECONDS", patience_s)
    monkeypatch.setattr(front, "WAITING_PER_HOLDER", waiting)
    has_it, leave = threading.Event(), asyncio.Event()

    async def keep_the_thread() -> None:
        async with application._a_thread_of(holder):
            has_it.set()
            await leave.wait()

    loop = asgi_client.loop()
    keeping = asyncio.run_coroutine_threadsafe(keep_the_thread(), loop)
    assert has_it.wait(TIMEOUT_S)
    try:
        with nothing_written(holder):
            refused = api.post(f"/v1/holders/{holder}/transfers", {"amount": 1, "to": "b"})
    finally:
        loop.call_soon_threadsafe(leave.set)
        keeping.result(TIMEOUT_S)
    assert problem_of(refused) == (503, "server-busy")
    assert api.post(f"/v1/holders/{holder}/transfers", {"amount": 1, "to": "b"}).status_code == 201


# The loop --------------------------------------------------------------------------------------------


class StalledCommitter:
    """The committer begins with a group and waits until the test lets it go on."""

    def __init__(self) -> None:
        self._has_begun, self._may_go_on = threading.Event(), threading.Event()

    def execute(self, requests: Sequence[Any]) -> Any:
        self._has_begun.set()
        assert self._may_go_on.wait(TIMEOUT_S)
        return execute.execute_group(requests)

    def wait_until_begun(self) -> None:
        assert self._has_begun.wait(TIMEOUT_S)

    def go_on(self) -> None:
        self._may_go_on.set()


@pytest.fixture
def committer(monkeypatch: pytest.MonkeyPatch) -> Iterator[StalledCommitter]:
    """The committer of this process, stalled; it goes on with the end of the test."""
    committer = StalledCommitter()
    monkeypatch.setattr(services.GROUP_COMMIT, "_execute", committer.execute)
    yield committer
    committer.go_on()


@pytest.mark.one_node("each node of a cluster has its own queue")
def test_while_the_database_hangs_the_event_loop_responds_and_no_step_of_it_is_slow(
    api: ApiClient,
    holder: str,
    committer: StalledCommitter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With asyncio's debug mode, which logs each step of the loop that takes longer than `slow_callback_duration`."""
    assert api.get("/v1/holders").status_code == 200
    caplog.set_level(logging.WARNING, logger="asyncio")
    loop = asgi_client.loop()
    monkeypatch.setattr(loop, "slow_callback_duration", 1.0)
    loop.call_soon_threadsafe(loop.set_debug, True)
    try:
        with asgi_client._on_this_connection():
            spend = Exchange("POST", SPENDS, *headers_with_key(api, (b"content-length", b"13"))).body(b'{"amount": 7}')
            from ledger_project.serving.application import application

            spending = asyncio.run_coroutine_threadsafe(application(spend.scope, spend.receive, spend.send), loop)
            committer.wait_until_begun()
            answers = [Exchange("GET", "/healthz").run_beside(application, loop) for _ in range(20)]
            assert not spending.done()
            committer.go_on()
            spending.result(TIMEOUT_S)
    finally:
        committer.go_on()
        loop.call_soon_threadsafe(loop.set_debug, False)
    assert [answer.status_code for answer in answers] == [200] * 20
    assert response_of(spend.sent).status_code == 201
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_beside_a_long_call_the_interpreter_changes_threads_sooner(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = sys.getswitchinterval(), []
    batch = services.batch

    def watched(*arguments: Any, **more: Any) -> Any:
        seen.append(sys.getswitchinterval())
        return batch(*arguments, **more)

    monkeypatch.setattr(services, "batch", watched)
    operations = [{"operation": "grant", "holder": holder, "amount": 1}]
    assert api.post("/v1/batches", {"mode": "atomic", "operations": operations}).status_code == 200
    assert seen == [pytest.approx(SHORT_SWITCH_INTERVAL_S)]
    assert sys.getswitchinterval() == usual


def a_front(loop: asyncio.AbstractEventLoop) -> Front:
    """A front of its own on this loop, without pages."""
    own = Front(lambda request: HttpResponse())
    own._loop = loop
    return own


def test_the_callers_of_a_large_group_are_woken_in_several_turns_of_the_loop() -> None:
    async def turns() -> list[int]:
        loop = asyncio.get_running_loop()
        callers = [loop.create_future() for _ in range(3 * front.WOKEN_AT_ONCE - 1)]
        callers[-1].cancel()
        group: list[Any] = [SimpleNamespace(caller=caller) for caller in callers]
        loop.call_soon(a_front(loop)._wake, group)
        found = []
        while not all(caller.done() for caller in callers):
            await asyncio.sleep(0)
            found.append(sum(caller.done() for caller in callers))
        return found

    first, second, third = run_on_loop(turns())
    assert (first, second, third) == (33, 65, 95), "with the one whose client has gone"


@pytest.mark.parametrize("is_group", [True, False], ids=["a group", "control: one by one"])
def test_a_group_makes_all_its_responses_and_then_sends_them(monkeypatch: pytest.MonkeyPatch, is_group: bool) -> None:
    """Note [Sent together]. The lines of the log are written in between."""
    steps: list[str] = []
    monkeypatch.setattr(front, "log_request", lambda request, *rest, **more: steps.append(f"made {request.request_id}"))
    monkeypatch.setattr(front, "hold_lines", lambda: steps.append("held"))
    monkeypatch.setattr(front, "release_lines", lambda: steps.append("logged"))

    async def respond_to(*names: str) -> None:
        loop = asyncio.get_running_loop()
        own = a_front(loop)
        callers = {name: loop.create_future() for name in names}

        async def respond(request: FastRequest) -> Response:
            await callers[request.request_id]
            return Response(b"")

        async def send(name: str, message: Message) -> None:
            if message["type"] == "http.response.body":
                steps.append(f"sent {name}")

        monkeypatch.setattr(own, "_respond", respond)
        exchanges = [Exchange("GET", "/", (b"x-request-id", name.encode())) for name in names]
        requests = [FastRequest(each.scope, each.receive) for each in exchanges]
        served = [loop.create_task(own._serve(each, partial(send, each.request_id))) for each in requests]
        await asyncio.sleep(0)
        pendings: list[Any] = [SimpleNamespace(caller=caller) for caller in callers.values()]
        for group in [pendings] if is_group else [[each] for each in pendings]:
            loop.call_soon(own._wake, group)
        await asyncio.gather(*served)

    run_on_loop(respond_to("1", "2"))
    assert steps == (
        ["held", "made 1", "made 2", "logged", "sent 1", "sent 2"] if is_group else ["made 1", "sent 1", "made 2", "sent 2"]
    )


def test_a_response_whose_client_has_gone_keeps_no_other_of_its_group_back() -> None:
    async def joined() -> list[bool]:
        own = a_front(asyncio.get_running_loop())
        together: list[asyncio.Future[None]] = []
        own._together = together
        tasks = [asyncio.create_task(own._join(together)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        own._send_together()
        await asyncio.wait(tasks)
        return [task.cancelled() for task in tasks]

    assert run_on_loop(joined()) == [True, False]


@pytest.mark.parametrize(("call", "is_quick"), [("spends", True), ("batches", False)])
def test_a_quick_call_counts_as_work_from_its_arrival_on_for_a_moment(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch, call: str, is_quick: bool
) -> None:
    """A batch, the control, does not count: it would rest for itself."""
    from ledger_project.serving.application import application

    monkeypatch.setattr(application, "_quick_call_came_at", 0.0)
    if call == "spends":
        assert api.post(f"/v1/holders/{holder}/spends", {"amount": 1}).status_code == 201
    else:
        operations = [{"operation": "grant", "holder": holder, "amount": 1}]
        assert api.post("/v1/batches", {"mode": "each", "operations": operations}).status_code == 200
    monkeypatch.setattr(front, "QUICK_CALL_SECONDS", 0.0)
    deadline = time.monotonic() + TIMEOUT_S
    while application._has_quick_work():  # the thread that has executed it is not idle yet
        assert time.monotonic() < deadline
    monkeypatch.setattr(front, "QUICK_CALL_SECONDS", TIMEOUT_S)
    assert application._has_quick_work() is is_quick


@pytest.mark.one_node("each node of a cluster has its own queue")
@pytest.mark.parametrize("is_beside_a_spend", [True, False])
@pytest.mark.parametrize("mode", ["atomic", "each"])
def test_a_batch_pauses_between_its_operations_while_a_spend_is_executed(
    api: ApiClient,
    holder: str,
    committer: StalledCommitter,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    is_beside_a_spend: bool,
) -> None:
    """Without a spend, the control, it does not rest. The pauses take no time here."""
    from ledger_project.serving.application import application

    pauses: list[float] = []
    monkeypatch.setattr(pacing, "WORK_SECONDS", 0.0)
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    spend = Exchange("POST", SPENDS, *headers_with_key(api, (b"content-length", b"13"))).body(b'{"amount": 7}')
    operations = [{"operation": "grant", "holder": holder, "amount": 1}] * 100
    body = json.dumps({"mode": mode, "operations": operations}).encode()
    batch = Exchange("POST", "/v1/batches", *headers_with_key(api, (b"content-length", str(len(body)).encode()))).body(body)
    loop = asgi_client.loop()
    # From here on the key is known, and the thread that has looked it up is idle.
    assert api.get("/v1/holders").status_code == 200
    deadline = time.monotonic() + TIMEOUT_S
    while application._has_quick_work():
        assert time.monotonic() < deadline
    with asgi_client._on_this_connection():
        if is_beside_a_spend:
            spending = asyncio.run_coroutine_threadsafe(application(spend.scope, spend.receive, spend.send), loop)
            committer.wait_until_begun()
        assert batch.run_beside(application, loop).status_code == 200
        committer.go_on()
        if is_beside_a_spend:
            spending.result(TIMEOUT_S)
            assert response_of(spend.sent).status_code == 201
    if is_beside_a_spend:
        # Reading, digest, execution and response each go over all operations; the limit of all pauses comes in between.
        assert len(pauses) == pytest.approx(pacing.PAUSES_SECONDS / pacing.PAUSE_SECONDS, abs=1)
    else:
        assert pauses == []


@pytest.mark.one_node("each node of a cluster has its own queue")
def test_context_variables_of_the_request_reach_the_thread_that_executes_it(
    api: ApiClient, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledger_project.serving.application import application

    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")
    seen: list[str] = []
    group = execute.execute_group

    def watched(requests: Sequence[Any]) -> Any:
        seen.append(trace.get())
        return group(requests)

    async def traced(exchange: Exchange) -> None:
        trace.set("the trace of this request")
        await application(exchange.scope, exchange.receive, exchange.send)

    monkeypatch.setattr(services.GROUP_COMMIT, "_execute", watched)
    spend = Exchange("POST", SPENDS, *headers_with_key(api, (b"content-length", b"13"))).body(b'{"amount": 7}')
    run_on_loop(traced(spend))
    assert response_of(spend.sent).status_code == 201
    assert seen == ["the trace of this request"]


# The life of the process -----------------------------------------------------------------------------


def page_view(request: HttpRequest) -> HttpResponse:
    """A view that returns a page."""
    return HttpResponse(b"a page")


def test_the_front_follows_the_lifespan_protocol_and_finishes_accepted_requests_before_it_ends() -> None:
    """Send the two messages of the ASGI server, with a request between them."""
    go_on = threading.Event()

    def slow(request: HttpRequest) -> HttpResponse:
        assert go_on.wait(TIMEOUT_S)
        return page_view(request)

    async def live() -> tuple[list[str], HttpResponse, list[Message]]:
        application, messages, sent = Front(slow), asyncio.Queue[Message](), []

        async def say(message: Message) -> None:
            sent.append(message["type"])

        life = asyncio.create_task(application({"type": "lifespan"}, messages.get, say))
        messages.put_nowait({"type": "lifespan.startup"})
        while not sent:
            await asyncio.sleep(0)
        taken_in, late = Exchange("GET", "/"), Exchange("GET", "/")
        late.scope["client"] = ("192.0.2.1", 40000)
        request = asyncio.create_task(application(taken_in.scope, taken_in.receive, taken_in.send))
        while not application._page_threads._running:
            await asyncio.sleep(0)
        messages.put_nowait({"type": "lifespan.shutdown"})
        while not application._page_threads._is_closing:
            await asyncio.sleep(0)
        await application(late.scope, late.receive, late.send)
        go_on.set()
        await asyncio.wait_for(asyncio.gather(life, request), TIMEOUT_S)
        return sent, response_of(taken_in.sent), late.sent

    sent, response, late = asyncio.run(live())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert response.content == b"a page"
    assert late[0]["status"] == 503


@pytest.mark.parametrize("has_lifespan", [True, False])
def test_balances_are_read_in_the_loop_where_the_server_says_when_it_ends(
    committed_db: None, new_holder: Callable[[], str], has_lifespan: bool
) -> None:
    """Otherwise nobody would close the loop's connection."""
    secret, holder = api_key("ledger:read"), new_holder()
    services.grant(holder_id=holder, amount=3, idempotency_key="g")

    async def live() -> tuple[int, bool]:
        application, messages, sent = Front(page_view), asyncio.Queue[Message](), []

        async def say(message: Message) -> None:
            sent.append(message["type"])

        async def read() -> None:
            request = Exchange("GET", f"/v1/holders/{holder}/balance", (b"authorization", f"Bearer {secret}".encode()))
            await application(request.scope, request.receive, request.send)
            assert json.loads(response_of(request.sent).content)["balance"] == 3

        life = asyncio.create_task(application({"type": "lifespan"}, messages.get, say))
        if has_lifespan:
            messages.put_nowait({"type": "lifespan.startup"})
            while not sent:
                await asyncio.sleep(0)
        await read()
        readers = list(application._readers.values())
        for reader in readers:
            if reader._opening is not None:
                await reader._opening
        reads.BALANCES.close()
        await read()
        by_thread = bool(reads.BALANCES._running)
        if has_lifespan:
            messages.put_nowait({"type": "lifespan.shutdown"})
            await asyncio.wait_for(life, TIMEOUT_S)
        else:
            life.cancel()
            await application.close()
        assert all(reader._session is None for reader in readers)
        return len(readers), by_thread

    assert asyncio.run(live()) == ((1, False) if has_lifespan else (0, True))


def test_a_websocket_is_closed() -> None:
    async def connect() -> list[Message]:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "websocket.connect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await Front(page_view)({"type": "websocket"}, receive, send)
        return sent

    assert asyncio.run(connect()) == [{"type": "websocket.close"}]


# Pages -----------------------------------------------------------------------------------------------


def test_a_form_is_read_and_a_file_is_sent_in_pieces(db: None) -> None:
    client = AsgiClient()
    token = client.get("/admin/login/").cookies["csrftoken"].value
    fields = {"username": "nobody", "password": "x" * 300, "csrfmiddlewaretoken": token}
    form = client.post("/admin/login/", fields)
    assert form.status_code == 200
    assert b"Please enter the correct" in form.content
    script = client.get("/static/admin/js/core.js")
    assert script.status_code == 200
    assert len(script.content) == int(script["Content-Length"])


def sent_of(method: str, read: list[int], *, hangs_up_after: int | None = None) -> list[Message]:
    """What is sent of a file of 100 pieces; `read` gets the number of each piece that is read."""
    exchange = Exchange(method, "/admin/file/")

    def pieces() -> Iterator[bytes]:
        for number in range(100):
            read.append(number)
            yield b"piece"

    async def send(message: Message) -> None:
        await exchange.send(message)
        if len(read) == hangs_up_after:
            exchange.messages.put_nowait({"type": "http.disconnect"})

    async def download() -> None:
        application = Front(lambda request: StreamingHttpResponse(pieces()))
        await application(exchange.scope, exchange.receive, send)
        await application.close()

    asyncio.run(download())
    return exchange.sent


def test_a_file_is_read_piece_by_piece_and_a_head_reads_none_of_it() -> None:
    read: list[int] = []
    assert response_of(sent_of("GET", read)).content == b"piece" * 100
    assert read == list(range(100))
    read.clear()
    assert response_of(sent_of("HEAD", read)).content == b""
    assert read == []


def test_after_a_client_that_hung_up_no_more_of_a_file_is_read() -> None:
    read: list[int] = []
    sent_of("GET", read, hangs_up_after=3)
    assert 3 <= len(read) < 10


# Paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/holders/ada/balance", "/v1/holders/any/entries/7", "/v1/holders/a.b:c@d-e_f/entries/7/explanation",
        "/v1/holders/ada/statements/2026-01.pdf", "/v1/holders/ada/holds/3/captures", "/v1/holders/ada",
        "/v1/holders", "/healthz",
    ],
)  # fmt: skip
def test_a_path_of_a_holder_leads_where_its_resolution_does(path: str) -> None:
    for _ in range(2):
        function, taken, _ = front._resolve_path(path)
        found = get_resolver().resolve(path)
        assert (function, taken) == (found.func, found.kwargs)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/holders/-ada/balance", "/v1/holders//balance", "/v1/holders/a b/balance", f"/v1/holders/{'a' * 65}/balance",
        "/v1/holders/ada/balance\n", "/v1/holders/ada/", "/v1/holders/ada/nothing", "/v1/v1/holders/ada/balance",
        "/v1/holders/ada\n/balance",
    ],
)  # fmt: skip
def test_control_what_is_no_path_of_a_holder_leads_nowhere(path: str) -> None:
    for resolve in (front._resolve_path, get_resolver().resolve):
        with pytest.raises(Resolver404):
            resolve(path)


def test_no_route_has_a_word_where_the_holder_is() -> None:
    """One would be taken for a holder."""
    routes = [str(each.pattern) for each in get_resolver("ledger.rest.urls").url_patterns]
    of_holders = [route for route in routes if route.startswith("holders/")]
    assert of_holders
    assert [route for route in of_holders if not route.startswith("holders/<holder:holder>")] == []


def test_whoever_waits_for_news_is_told_that_the_client_has_hung_up() -> None:
    told: list[str] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def wait() -> None:
        async with front._watch_client(receive, partial(told.append, "gone")) as gone:
            await gone
            await asyncio.sleep(0)

    asyncio.run(wait())
    assert told == ["gone"]


def test_a_path_is_resolved_once_for_all_holders() -> None:
    front._resolved_whole.cache_clear()
    for holder in ("ada", "ben"):
        _, taken, route = front._resolve_path(f"/v1/holders/{holder}/balance")
        assert (taken, route) == ({"holder": holder}, "/v1/holders/{holder}/balance")
    assert front._resolved_whole.cache_info().misses == 1
