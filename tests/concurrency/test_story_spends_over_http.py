"""What goes wrong between a client and the ledger, over HTTP, against two servers: nothing is taken twice, none is lost.

Each story is told of two processes of the front, and of two of a WSGI server that serves Django's own views.

The stories of Peachjar's credit ledger. Where two requests have to be there at the same moment, a gate holds the holder's lock
until they are seen to wait for it.
"""

import http.client
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from pytest_django.plugin import DjangoDbBlocker

from ledger import services
from ledger.database.locks import holder_key, lock_number
from ledger.keys import api_keys
from ledger_project.serving.web import command
from tests.concurrency.http_clients import HttpClient, Response, hang_up
from tests.conftest import WebProcess, on_committed_database, web_servers, wsgi_command
from tests.nodes import lock_holder, pause, waiting_for_advisory_lock

Connect = Callable[..., psycopg.Connection[Any]]
SCOPES = ("ledger:read", "ledger:spend", "ledger:refund", "ledger:hold", "ledger:transfer", "ledger:grant")
CROWD = 50


@pytest.fixture(scope="module", params=[command, pytest.param(wsgi_command, marks=pytest.mark.slow)], ids=["front", "wsgi"])
def two_servers(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., list[WebProcess]]]:
    """Two web processes for all the stories, with a thread for each of the crowd; and a way to start another."""
    with django_db_blocker.unblock(), web_servers(tmp_path_factory.mktemp("web")) as start:
        with on_committed_database():
            both = start(2, way=request.param)
        yield lambda more=0: start(more, way=request.param) if more else both


@pytest.fixture
def clients(committed_db: None, two_servers: Callable[..., list[WebProcess]]) -> tuple[HttpClient, HttpClient]:
    """One API key at both servers."""
    _, api_key = api_keys.create_api_key(name=f"stories-{uuid.uuid4().hex[:12]}", scopes=SCOPES)
    first, second = two_servers()
    return HttpClient(first.url, api_key), HttpClient(second.url, api_key)


@dataclass
class Story:
    """A holder, and a view on what became of it."""

    holder: str
    observer: psycopg.Connection[Any]
    connect: Connect

    @property
    def spends(self) -> str:
        return f"/v1/holders/{self.holder}/spends"

    @property
    def grants(self) -> str:
        return f"/v1/holders/{self.holder}/grants"

    @property
    def refunds(self) -> str:
        return f"/v1/holders/{self.holder}/refunds"

    def entries(self) -> list[tuple[int, str, int, int]]:
        """(sequence, kind, amount, balance) of all but refusals."""
        sql = (
            "SELECT sequence, kind, amount, balance FROM ledger_entry"
            " WHERE holder_id = %s AND kind <> 'refusal' ORDER BY sequence"
        )
        return self.observer.execute(sql, [self.holder]).fetchall()

    def refusals(self) -> list[tuple[str, str]]:
        """(idempotency key, code) of all."""
        sql = "SELECT idempotency_key, code FROM ledger_refusal_listing WHERE holder_id = %s ORDER BY 1"
        return self.observer.execute(sql, [self.holder]).fetchall()

    @contextmanager
    def gate(self) -> Iterator[Callable[[int], None]]:
        """For the block, nobody gets the holder's lock. Gives a function that waits until `count` sessions wait for the lock."""
        number = lock_number(holder_key(self.holder))

        def wait_for(count: int) -> None:
            deadline = time.monotonic() + 60
            while waiting_for_advisory_lock(self.observer, number) < count:
                assert time.monotonic() < deadline, f"{count} never waited at once"
                pause()

        with self.connect() as holding:
            lock_holder(holding, self.holder)
            yield wait_for
            holding.rollback()

    def wait_until_nobody_is_at_it(self) -> None:
        """Return when nobody holds the holder's lock or waits for it."""
        with self.connect(autocommit=True) as session, session.transaction():
            session.execute("SET LOCAL lock_timeout = '60s'")
            lock_holder(session, self.holder)


@pytest.fixture
def story(committed_db: None, raw_connection: Connect, new_holder: Callable[[], str]) -> Story:
    """A new holder, its lock, and what the database has of it."""
    return Story(new_holder(), raw_connection(autocommit=True), raw_connection)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for each request of the crowd."""
    with ThreadPoolExecutor(CROWD) as made:
        yield made


Clients = tuple[HttpClient, HttpClient]


# Double click ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_a_double_click_at_two_servers_is_one_spend(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    body = {"amount": 30, "reason": "flyer to 30 schools", "reference": "order 7"}

    with story.gate() as wait_for:
        clicks = [pool.submit(client.post, story.spends, body, key="order 7") for client in clients]
        wait_for(2)
    one, other = sorted((click.result(60) for click in clicks), key=lambda response: response.replayed)

    assert (one.status, one.replayed) == (201, False)
    assert (other.status, other.replayed) == (201, True)
    assert other.content == one.content
    # Holder, credits used, updated balance.
    assert {name: one.json[name] for name in ("holder_id", "amount", "balance")} == {
        "holder_id": story.holder, "amount": -30, "balance": 70,
    }  # fmt: skip
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)]


def test_two_clicks_with_keys_of_their_own_are_two_spends(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    """The control: it is the key that makes a double click one spend."""
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")

    with story.gate() as wait_for:
        clicks = [pool.submit(client.post, story.spends, {"amount": 30}, key=f"click {n}") for n, client in enumerate(clients)]
        wait_for(2)

    assert [click.result(60).status for click in clicks] == [201, 201]
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70), (3, "spend", -30, 40)]


def test_a_key_for_another_basket_at_the_same_time_is_refused(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")

    with story.gate() as wait_for:
        clicks = [pool.submit(client.post, story.spends, {"amount": 30 + n}, key="order 7") for n, client in enumerate(clients)]
        wait_for(2)
    one, other = sorted((click.result(60) for click in clicks), key=lambda response: response.status)

    assert (one.status, other.status) == (201, 422)
    assert other.json["type"].endswith("/idempotency-key-reused")
    assert other.json["outcome"] == "not_executed"
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", one.json["amount"], one.json["balance"])]


# A replayed POST -------------------------------------------------------------------------------------


def test_a_replayed_post_gets_the_first_response_from_any_server_byte_for_byte(story: Story, clients: Clients) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    body = {"amount": 30, "metadata": {"schools": ["Ü", "b"], "flyer": 9}}

    first = clients[0].post(story.spends, body, key="captured")
    again = [client.post(story.spends, body, key="captured") for client in (*clients, *clients)]

    assert (first.status, first.replayed) == (201, False)
    assert [(response.status, response.replayed, response.content) for response in again] == 4 * [(201, True, first.content)]
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)]


def test_a_refusal_is_replayed_after_a_top_up_and_only_a_new_request_succeeds(story: Story, clients: Clients) -> None:
    services.grant(holder_id=story.holder, amount=10, idempotency_key="grant")

    first = clients[0].post(story.spends, {"amount": 30}, key="order 7")
    topped_up = clients[1].post(story.grants, {"amount": 100}, key="top-up")
    again = clients[1].post(story.spends, {"amount": 30}, key="order 7")
    retry = clients[0].post(story.spends, {"amount": 30}, key="order 8")

    assert (first.status, first.replayed, topped_up.status) == (402, False, 201)
    facts = {name: first.json[name] for name in ("available", "balance", "requested", "shortfall")}
    assert facts == {"available": 10, "balance": 10, "requested": 30, "shortfall": 20}
    assert (again.status, again.replayed, again.content) == (402, True, first.content)
    assert (retry.status, retry.json["balance"]) == (201, 80)
    assert story.refusals() == [("order 7", "insufficient-credits")]


# Abuse -----------------------------------------------------------------------------------------------


def test_fifty_spends_at_once_at_two_servers_get_the_ten_that_are_paid_for(
    story: Story, clients: Clients, pool: ThreadPoolExecutor
) -> None:
    services.grant(holder_id=story.holder, amount=70, idempotency_key="grant")

    def spend_seven(n: int) -> Response:
        return clients[n % 2].post_until_response(story.spends, {"amount": 7}, key=f"spend {n}")

    with story.gate() as wait_for:
        running = [pool.submit(spend_seven, n) for n in range(CROWD)]
        wait_for(len(clients))  # One of each server waits, for all that have come in there.
    answers = [each.result(60) for each in running]

    assert Counter(response.status for response in answers) == {201: 10, 402: 40}
    assert sorted(response.json["balance"] for response in answers if response.status == 201) == list(range(0, 70, 7))
    assert story.entries() == [(1, "grant", 70, 70), *((n, "spend", -7, 70 - 7 * (n - 1)) for n in range(2, 12))]
    assert Counter(code for _, code in story.refusals()) == {"insufficient-credits": 40}


def test_two_whole_refunds_at_once_give_back_once(story: Story, clients: Clients, pool: ThreadPoolExecutor) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    services.spend(holder_id=story.holder, amount=60, idempotency_key="spend")

    with story.gate() as wait_for:
        running = [pool.submit(client.post, story.refunds, {"spend": 2}, key=f"refund {n}") for n, client in enumerate(clients)]
        wait_for(2)
    one, other = sorted((each.result(60) for each in running), key=lambda response: response.status)

    assert (one.status, one.json["amount"], one.json["refers_to"]) == (201, 60, 2)
    assert (other.status, other.json["refundable"]) == (409, 0)
    assert other.json["type"].endswith("/refund-exceeds-spend")
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -60, 40), (3, "refund", 60, 100)]


# Lost answers and timeouts ---------------------------------------------------------------------------


def test_the_retry_after_a_lost_response_gets_that_response(story: Story, clients: Clients) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")

    with story.gate() as wait_for:
        wire = clients[0].send_and_keep_open(story.spends, {"amount": 30}, key="order 7")
        wait_for(1)
        hang_up(wire)
    story.wait_until_nobody_is_at_it()
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)], "it took effect, although nobody heard of it"

    retry = clients[1].post(story.spends, {"amount": 30}, key="order 7")

    assert (retry.status, retry.replayed, retry.json["sequence"], retry.json["balance"]) == (201, True, 2, 70)
    assert len(story.entries()) == 2


def test_a_request_that_breaks_off_takes_no_effect_and_its_retry_does(story: Story, clients: Clients) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")

    hang_up(clients[0].send_and_keep_open(story.spends, {"amount": 30}, key="order 7", cut_after_bytes=6))
    retry = clients[0].post(story.spends, {"amount": 30}, key="order 7")

    assert (retry.status, retry.replayed) == (201, False)
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)]


def test_a_client_that_gives_up_and_retries_elsewhere_while_the_first_still_runs_pays_once(
    story: Story, clients: Clients, pool: ThreadPoolExecutor
) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")

    with story.gate() as wait_for:
        given_up = clients[0].send_and_keep_open(story.spends, {"amount": 30}, key="order 7")
        wait_for(1)
        hang_up(given_up)
        retry = pool.submit(clients[1].post, story.spends, {"amount": 30}, key="order 7")
        wait_for(2)
    response = retry.result(60)
    story.wait_until_nobody_is_at_it()

    assert (response.status, response.json["sequence"], response.json["balance"]) == (201, 2, 70)
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)]


@pytest.mark.slow
def test_a_request_beyond_the_lock_timeout_gets_a_503_with_retry_after_and_writes_nothing(story: Story, clients: Clients) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")

    with story.gate():
        busy = clients[0].post(story.spends, {"amount": 30}, key="order 7")
        assert story.entries() == [(1, "grant", 100, 100)]
    retry = clients[0].post(story.spends, {"amount": 30}, key="order 7")

    assert (busy.status, busy.json["outcome"]) == (503, "not_executed")
    assert busy.headers["retry-after"] in ("1", "2", "3", "4")
    assert busy.json["type"].endswith("/holder-busy")
    assert (retry.status, retry.replayed) == (201, False)
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)]
    assert story.refusals() == []


# A server that dies ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_kill_9_of_a_server_in_the_middle_loses_nothing_and_doubles_nothing(
    story: Story, clients: Clients, two_servers: Callable[..., list[WebProcess]], pool: ThreadPoolExecutor
) -> None:
    services.grant(holder_id=story.holder, amount=100, idempotency_key="grant")
    (doomed,) = two_servers(1)

    with story.gate() as wait_for:
        lost = pool.submit(clients[0].at(doomed.url).post, story.spends, {"amount": 30}, key="order 7")
        wait_for(1)
        doomed.kill()
        with pytest.raises((OSError, http.client.HTTPException)):
            lost.result(60)
    retry = clients[1].post_until_response(story.spends, {"amount": 30}, key="order 7")

    assert (retry.status, retry.replayed) == (201, False), "what was not committed was not done"
    assert story.entries() == [(1, "grant", 100, 100), (2, "spend", -30, 70)]


# A purchase that is recorded although adding its credits failed --------------------------------------


@dataclass
class Shop:
    """Who sells credits: writes the purchase down first, then has the credits added under the purchase's own id.

    A purchase whose credits are not confirmed is settled later, by anybody, as often as one likes.
    """

    client: HttpClient
    story: Story
    purchases: dict[str, int]
    confirmed: dict[str, int]

    def sell(self, purchase: str, amount: int) -> None:
        self.purchases[purchase] = amount
        self.settle(purchase)

    def settle(self, purchase: str) -> Response | None:
        """Add the credits, or leave the purchase for the next time."""
        body = {"amount": self.purchases[purchase], "source": "purchased", "reference": purchase}
        try:
            response = self.client.post(self.story.grants, body, key=purchase, timeout_s=5)
        except (OSError, http.client.HTTPException):
            return None
        if response.status == 201:
            self.confirmed[purchase] = response.json["sequence"]
        return response

    @property
    def unsettled(self) -> list[str]:
        return [purchase for purchase in self.purchases if purchase not in self.confirmed]


@pytest.mark.slow
def test_a_purchase_whose_credits_could_not_be_added_is_settled_later_and_once(
    story: Story, clients: Clients, two_servers: Callable[..., list[WebProcess]], pool: ThreadPoolExecutor
) -> None:
    (doomed,) = two_servers(1)
    shop = Shop(clients[0].at(doomed.url), story, {}, {})

    with story.gate() as wait_for:
        sale = pool.submit(shop.sell, "purchase 1", 500)
        wait_for(1)
        doomed.kill()
        sale.result(60)
    assert shop.purchases == {"purchase 1": 500}
    assert shop.unsettled == ["purchase 1"]
    assert story.entries() == []
    assert clients[1].post(story.spends, {"amount": 1}, key="too early").status == 402

    # Two workers come by to settle, at the same moment.
    workers = [Shop(client, story, shop.purchases, shop.confirmed) for client in clients]
    with story.gate() as wait_for:
        settling = [pool.submit(worker.settle, "purchase 1") for worker in workers]
        wait_for(2)
    answers = [each.result(60) for each in settling]

    assert sorted((response.status, response.replayed) for response in answers if response) == [(201, False), (201, True)]
    assert shop.unsettled == []
    # Behind the refusal of the one that came too early.
    assert story.entries() == [(2, "grant", 500, 500)]
    balance = clients[0].get(f"/v1/holders/{story.holder}/balance").json
    assert (balance["available"], balance["sequence"]) == (500, 2)


def test_a_purchase_whose_response_was_lost_is_found_to_be_settled(story: Story, clients: Clients) -> None:
    shop = Shop(clients[0], story, {"purchase 1": 500}, {})
    body = {"amount": 500, "source": "purchased", "reference": "purchase 1"}

    with story.gate() as wait_for:
        wire = clients[0].send_and_keep_open(story.grants, body, key="purchase 1")
        wait_for(1)
        hang_up(wire)
    story.wait_until_nobody_is_at_it()
    assert shop.unsettled == ["purchase 1"], "the shop does not know yet"
    assert story.entries() == [(1, "grant", 500, 500)]

    response = shop.settle("purchase 1")

    assert response is not None
    assert (response.status, response.replayed) == (201, True)
    assert shop.confirmed == {"purchase 1": 1}
    assert story.entries() == [(1, "grant", 500, 500)]


def test_a_purchase_that_a_limit_refuses_leaves_nothing_and_is_settled_with_its_key_when_there_is_room(
    story: Story, clients: Clients
) -> None:
    for n in range(500):
        services.grant(holder_id=story.holder, amount=1, idempotency_key=f"grant {n}", priority=n)
    before = story.entries()
    shop = Shop(clients[0], story, {"purchase 1": 500}, {})

    for _ in range(2):
        refused = shop.settle("purchase 1")
        assert refused is not None
        assert (refused.status, refused.replayed) == (409, False)
        assert refused.json["type"].endswith("/lot-limit")
        assert (refused.json["open_lots"], refused.json["limit"], refused.json["outcome"]) == (500, 500, "not_executed")
    assert story.entries() == before
    assert story.refusals() == []
    assert shop.unsettled == ["purchase 1"]

    # Room comes. The money was taken once, and the purchase is settled under the key that it had from the start.
    assert clients[1].post(story.spends, {"amount": 1}, key="make room").status == 201
    settled = shop.settle("purchase 1")
    assert settled is not None
    assert (settled.status, settled.replayed, settled.json["balance"]) == (201, False, 999)
    assert shop.unsettled == []
