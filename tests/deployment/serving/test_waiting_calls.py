"""Calls that wait for an entry, in a web process of its own: none of them keeps a thread, and none holds up its end."""

import http.client
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ledger import services
from ledger.keys import api_keys
from ledger.rest.schemas.request_schemas import LONGEST_WAIT_SECONDS
from ledger.scopes import SCOPES
from ledger.testing import unique
from ledger_project.serving.web import SHUTDOWN_TIMEOUT_S
from tests.conftest import WebProcess

pytestmark = pytest.mark.one_node("a cluster has no feed")

WAITING = 40
NewHolder = Callable[[], str]


@pytest.fixture
def web(server_processes: Callable[..., list[WebProcess]]) -> WebProcess:
    """One web process of the front."""
    [web] = server_processes(1)
    return web


@pytest.fixture
def ask(web: WebProcess) -> Iterator[Callable[[str], http.client.HTTPConnection]]:
    """Sends a request and returns its connection, from which the response can be read."""
    _, secret = api_keys.create_api_key(name=unique("waits"), scopes=SCOPES)
    with ExitStack() as stack:

        def send(path: str) -> http.client.HTTPConnection:
            connection = stack.enter_context(closing(http.client.HTTPConnection(urlsplit(web.url).netloc, timeout=60)))
            connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
            return connection

        yield send


def body_of(connection: http.client.HTTPConnection) -> Any:
    return json.loads(connection.getresponse().read())


def threads_of(web: WebProcess) -> int:
    """How many threads the server's processes have together."""
    statuses = Path("/proc").glob("[0-9]*/status")
    texts = [path.read_text() for path in statuses]
    of_group = [text for text in texts if f"NSpgid:\t{web.process.pid}\n" in text]
    assert of_group
    return sum(int(text.split("Threads:\t")[1].split("\n")[0]) for text in of_group)


@pytest.mark.slow
@pytest.mark.check
def test_calls_that_wait_take_no_threads_and_all_of_them_get_the_entry(web: WebProcess, ask: Any, new_holder: NewHolder) -> None:
    holder = new_holder()
    after = parse_qs(urlsplit(body_of(ask("/v1/entries?after=end"))["next"]).query)["after"][0]
    feed = f"/v1/entries?after={after}&wait=4&holder={holder}"
    first = ask(feed)
    body_of(ask(f"/v1/holders/{holder}/balance"))
    before = threads_of(web)
    waiting = [first, *[ask(feed) for _ in range(WAITING)]]
    assert body_of(ask(f"/v1/holders/{holder}/balance"))["balance"] == 0
    assert threads_of(web) <= before + 4
    services.grant(holder_id=holder, amount=1, idempotency_key="1")
    found = [body_of(each)["results"] for each in waiting]
    # On a machine that is slow, some of them waited in vain before.
    ids = [[entry["id"] for entry in page or body_of(ask(feed))["results"]] for page in found]
    assert ids == [[f"{holder}/credits/1"]] * (WAITING + 1)


@pytest.mark.slow
def test_a_call_that_waits_does_not_outlive_what_a_server_gives_its_requests_when_it_stops(
    web: WebProcess, ask: Any, new_holder: NewHolder
) -> None:
    waiting = ask(f"/v1/entries?after=end&wait=4&holder={new_holder()}")
    body_of(ask(f"/v1/holders/{new_holder()}/balance"))
    web.process.send_signal(signal.SIGTERM)
    page = body_of(waiting)
    assert page["results"] == []
    assert page["next"] is not None
    assert web.process.wait(60) == 0
    assert LONGEST_WAIT_SECONDS < SHUTDOWN_TIMEOUT_S
