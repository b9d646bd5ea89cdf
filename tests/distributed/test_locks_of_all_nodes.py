"""`manage.py locks` and its page show who holds and who awaits a lock on any node, and whose sessions those are."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from ledger.database.locks import holder_key, lock_number
from ledger.reads.lock_report import SessionLock, current_locks
from ledger_project.serving.postgres.credentials import APPLICATION
from tests import nodes
from tests.conftest import wait_until_waiting
from tests.distributed.cluster import Cluster, Node


@dataclass
class Contended:
    """A holder's lock: a session of the coordinator holds it, another awaits it; both are clients."""

    name: str
    node: Node
    holding: psycopg.Connection
    waiting: psycopg.Connection


def shard_node(cluster: Cluster, holder: str) -> Node:
    """The node that has the holder's shard."""
    shard = "get_shard_id_for_distribution_column('ledger_entry', %s::text)"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = {shard}", [holder])
        (port,) = cursor.fetchone()
    return next(node for node in cluster.nodes if node.port == port)


@pytest.fixture
def contended(cluster: Cluster, as_application, new_holder) -> Iterator[Contended]:
    """A holder's lock that one session of the coordinator holds, and another waits for."""
    holder = new_holder()
    database, node = connection.settings_dict["NAME"], shard_node(cluster, holder)
    asked = (lock_number(holder_key(holder)), holder)
    with ExitStack() as stack:
        holding, waiting = (
            stack.enter_context(psycopg.connect(cluster.coordinator.url(APPLICATION, database), application_name=name))
            for name in ("the holding", "the waiting")
        )
        observer = stack.enter_context(node.connect(database))
        holding.execute("SELECT ledger_lock(%s, %s, true)", asked)

        def wait() -> None:
            waiting.execute("SET LOCAL lock_timeout = '60s'")
            waiting.execute(f"SELECT ledger_lock(%s, %s, true) /* {holder_key(holder)} */", asked)

        session = nodes.session_id(waiting)
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until_waiting(observer, session)
        yield Contended(holder_key(holder), node, holding, waiting)
        holding.rollback()
        thread.join(60)
        waiting.rollback()


def address(node: Node) -> str:
    """Host and port of a node."""
    return f"{node.host}:{node.port}"


def of(found: list[SessionLock], name: str) -> list[SessionLock]:
    """The locks of that name."""
    return [lock for lock in found if lock.number == lock_number(name)]


def test_who_holds_and_who_waits_on_another_node_is_told(cluster, contended):
    held, awaited = of(current_locks(), contended.name)
    assert (held.name, awaited.name) == (contended.name, contended.name)
    assert (held.granted, awaited.granted) == (True, False)
    assert held.node == awaited.node == address(contended.node)
    assert awaited.blocked_by == (held.pid,)
    assert (held.application, held.state) == ("the holding", "idle in transaction")
    assert (held.client_node, held.client_pid) == (address(cluster.coordinator), contended.holding.info.backend_pid)
    assert (awaited.application, awaited.client_pid) == ("the waiting", contended.waiting.info.backend_pid)
    assert held.transaction_started_at < awaited.waiting_since


def test_the_command_shows_the_node(contended):
    def printed(*arguments: str) -> str:
        out = StringIO()
        call_command("locks", *arguments, stdout=out)
        return out.getvalue()

    title, *rows = printed("--names").splitlines()
    assert title.startswith("NODE ")
    assert [row.split()[0] for row in rows if contended.name in row] == [address(contended.node)] * 2
    found = [row for row in json.loads(printed("--format", "json")) if row["number"] == lock_number(contended.name)]
    assert [row["application"] for row in found] == ["the holding", "the waiting"]


def test_a_lock_of_a_client_of_its_own_node_is_shown_once(cluster, as_application, new_holder):
    holder = new_holder()
    node = shard_node(cluster, holder)
    with psycopg.connect(node.url(APPLICATION, connection.settings_dict["NAME"])) as session:
        session.execute("SELECT ledger_lock(%s, %s, true)", [lock_number(holder_key(holder)), holder])
        (held,) = of(current_locks(), holder_key(holder))
        assert (held.pid, held.client_node, held.client_pid) == (session.info.backend_pid, "", None)
