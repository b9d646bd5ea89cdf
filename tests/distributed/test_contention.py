"""Three web processes contend for a few holders, while shards move, a worker dies, the coordinator restarts.

Clients behave as they should: they repeat a call with its key until they get a response. They also send each call a second time,
to another process. Then: one result per key, no acknowledged write is missing, the audit is clean.
"""

import http.client
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections

from ledger import services
from ledger.audit.sessions import connector
from ledger.cluster.auditing import audit_shards
from ledger.keys import api_keys
from ledger.scopes import SCOPES
from tests.concurrency.http_clients import HttpClient, Response
from tests.conftest import web_servers
from tests.distributed.cluster import Cluster, StartedCluster, StartedNode
from tests.distributed.test_nodes import move_shard

CLIENTS = 12
HOLDERS = 6
CALLS = 30
ANSWERS = {201, 402}


@dataclass
class Traffic:
    """Clients of three processes that spend, grant and transfer, with the responses that they got."""

    clients: list[HttpClient]
    holders: list[str]
    answers: dict[tuple[str, str], Response] = field(default_factory=dict)
    others: list[tuple[int, str]] = field(default_factory=list)
    """Responses that no client should get."""
    transferred: dict[str, int] = field(default_factory=dict)

    def run(self, during: Callable[[], None]) -> None:
        """Run all clients, and the disturbance beside them, until all calls have a response."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            working = [pool.submit(self._work, random.Random(number)) for number in range(CLIENTS)]
            during()
            for each in working:
                each.result(180)

    def _work(self, chance: random.Random) -> None:
        for _ in range(CALLS):
            holder, key = chance.choice(self.holders), uuid.uuid4().hex
            path, body = self._call(chance, holder)
            one, other = (self._answered(client, path, body, key) for client in chance.sample(self.clients, 2))
            if (one.status, one.content) != (other.status, other.content):
                self.others.append((other.status, f"{one.content!r} and then {other.content!r}"))
            self.answers[holder, key] = one

    def _call(self, chance: random.Random, holder: str) -> tuple[str, dict[str, object]]:
        drawn = chance.random()
        if drawn < 0.2:
            return f"/v1/holders/{holder}/grants", {"amount": chance.randint(1, 20)}
        if drawn < 0.3:
            to = chance.choice([each for each in self.holders if each != holder])
            return f"/v1/holders/{holder}/transfers", {"to": to, "amount": chance.randint(1, 5)}
        return f"/v1/holders/{holder}/spends", {"amount": chance.randint(1, 8)}

    def _answered(self, client: HttpClient, path: str, body: dict[str, object], key: str) -> Response:
        deadline = time.monotonic() + 120
        while True:
            try:
                answer = client.post(path, body, key=key, timeout_s=30)
                if answer.status in ANSWERS:
                    return answer
                if answer.status != 503:
                    self.others.append((answer.status, answer.content.decode()))
            except (OSError, http.client.HTTPException):
                pass
            assert time.monotonic() < deadline, "never answered"
            threading.Event().wait(0.05)

    def check(self) -> None:
        """Compare the responses with the stored entries."""
        assert self.others == []
        with connection.cursor() as cursor:
            for holder in self.holders:
                cursor.execute(
                    "SELECT idempotency_key, sequence, kind, amount FROM ledger_entry WHERE holder_id = %s ORDER BY sequence",
                    [holder],
                )
                stored = cursor.fetchall()
                assert [sequence for _, sequence, _, _ in stored] == list(range(1, len(stored) + 1))
                by_key = {key: (sequence, kind, amount) for key, sequence, kind, amount in stored if key is not None}
                told = {key: answer for (whose, key), answer in self.answers.items() if whose == holder}
                assert set(told) == set(by_key) - {"first"}
                for key, answer in told.items():
                    sequence, kind, amount = by_key[key]
                    if answer.status == 201:
                        assert (answer.json["sequence"], answer.json["kind"], answer.json["amount"]) == (sequence, kind, amount)
                    else:
                        assert kind == "refusal"
        report = audit_shards(partial(connector, "default"), 1)
        assert report.findings == []


@pytest.fixture
def traffic(cluster: Cluster, committed_db, tmp_path: Path, new_holder) -> Iterator[Traffic]:
    """Three web processes, and an API key."""
    _, api_key = api_keys.create_api_key(name=f"contention-{uuid.uuid4().hex[:12]}", scopes=SCOPES)
    holders = [new_holder() for _ in range(HOLDERS)]
    for holder in holders:
        services.grant(holder_id=holder, amount=40, idempotency_key="first")
    with web_servers(tmp_path) as start:
        webs = start(3)
        yield Traffic([HttpClient(web.url, api_key) for web in webs], holders)
        for web in webs:
            assert "Traceback" not in web.log.read_text() or "database-unavailable" in web.log.read_text()
    connections.close_all()


def superuser(cluster: Cluster) -> psycopg.Connection:
    """A superuser's connection to the coordinator."""
    return cluster.coordinator.connect(connection.settings_dict["NAME"])


def test_three_processes(traffic: Traffic) -> None:
    traffic.run(lambda: None)
    traffic.check()


def test_shards_move_under_traffic(cluster: Cluster, traffic: Traffic) -> None:
    def move() -> None:
        with superuser(cluster) as session:
            for holder in traffic.holders[:3]:
                move_shard(session, holder)

    traffic.run(move)
    traffic.check()


def kill(node: StartedNode) -> None:
    """End the server and all its sessions at once, as a machine without power does."""
    pid = node.postmaster_pid()
    assert pid is not None
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for each in (pid, *children):
        os.kill(each, signal.SIGKILL)


def test_a_worker_is_killed_under_traffic(own_cluster: StartedCluster, traffic: Traffic) -> None:
    def kill_and_start() -> None:
        kill(own_cluster.nodes[2])
        own_cluster.nodes[2].start()

    traffic.run(kill_and_start)
    traffic.check()


def test_the_coordinator_restarts_under_traffic(own_cluster: StartedCluster, traffic: Traffic) -> None:
    def stop_and_start() -> None:
        own_cluster.nodes[0].stop()
        own_cluster.nodes[0].start()

    traffic.run(stop_and_start)
    connections.close_all()
    traffic.check()
