"""The database keeps its promises on all nodes: one lock per holder, entries that follow, and no entry changed."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import permutations

import psycopg
import pytest
from django.db import DatabaseError, NotSupportedError, connection, connections, transaction

from ledger import reads, services
from ledger.database.locks import holder_key, holder_lock, lock_number, sqlstate
from ledger.entry_rows import COLUMNS
from ledger.totals.counting import CountResult, count_entries
from ledger_project.database.triggers import TRIGGERS, enabled_as
from ledger_project.serving.postgres.credentials import APPLICATION, OWNER
from tests.distributed.cluster import Cluster, Node
from tests.nodes import node_of

LOCK_NOT_AVAILABLE = "55P03"
NOT_PLANNED = """
    WITH entry AS (
        SELECT credit_type FROM ledger_entry
        WHERE EXISTS (SELECT FROM billing_invoice WHERE id = sequence)
        GROUP BY credit_type
    )
    SELECT * FROM entry FULL JOIN ledger_daily_total USING (credit_type)
"""

KEPT = ", ".join(name for name in COLUMNS.split(", ") if name not in {"sequence", "balance", "idempotency_key", "request_digest"})
FORGED = f"""
    INSERT INTO ledger_entry (sequence, balance, {KEPT})
    SELECT sequence + 1, balance + 5, {KEPT} FROM ledger_entry WHERE holder_id = %(holder)s AND sequence = {{sequence}}
"""


@pytest.fixture
def session(cluster: Cluster, committed_db) -> Iterator[Callable[[Node], psycopg.Connection]]:
    """Makes sessions of the application at a node, in transactions."""
    opened = []

    def connect(node: Node) -> psycopg.Connection:
        url = node.url(APPLICATION, connection.settings_dict["NAME"])
        opened.append(psycopg.connect(url))
        opened[-1].execute("SET LOCAL lock_timeout = '100ms'")
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@contextmanager
def at_node(node: Node) -> Iterator[None]:
    """For the block, Django's connection goes to that node."""
    before = dict(connection.settings_dict)
    connections.close_all()
    connection.settings_dict.update(HOST=node.host, PORT=node.port)
    try:
        yield
    finally:
        connections.close_all()
        connection.settings_dict.update(before)


@pytest.mark.parametrize(
    "way", ["ledger_lock(%s, %s, true)", "ledger_open(true, ARRAY[%s::bigint], ARRAY[%s], ARRAY['credits'], ARRAY['k'])"]
)
def test_sessions_of_the_coordinator_and_of_the_holders_node_exclude_each_other(cluster, session, new_holder, way):
    for _ in range(3):
        holder = new_holder()
        asked = (lock_number(holder_key(holder)), holder)
        for first, second in permutations((cluster.coordinator, holders_node(cluster, holder))):
            holding, waiting = session(first), session(second)
            holding.execute("SELECT * FROM " + way, asked)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                waiting.execute("SELECT * FROM " + way, asked)
            waiting.rollback()
            assert waiting.execute("SELECT ledger_lock(%s, %s, false)", asked).fetchone() == (False,)
            holding.rollback()
            assert waiting.execute("SELECT ledger_lock(%s, %s, false)", asked).fetchone() == (True,)
            waiting.rollback()


def holders_node(cluster: Cluster, holder: str) -> Node:
    """The node that has the holder's rows."""
    place = node_of(holder)
    return next(node for node in cluster.workers if (node.host, node.port) == place)


def test_a_number_without_a_holder_excludes_on_the_node_that_has_it(cluster, session):
    """The lock of a batch's key is such a number."""
    nobody = "ARRAY[NULL::text]"
    look = f"SELECT is_locked FROM ledger_open(false, ARRAY[123456789::bigint], {nobody}, {nobody}, {nobody})"
    for first, second in permutations((cluster.coordinator, holders_node(cluster, "123456789"))):
        holding, other = session(first), session(second)
        assert holding.execute(look).fetchone() == (True,)
        assert other.execute(look).fetchone() == (False,)
        holding.rollback()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT ledger_lock(%(number)s, %(holder)s, true)",
        "SELECT * FROM ledger_open(true, ARRAY[%(number)s::bigint], ARRAY[%(holder)s], ARRAY['credits'], ARRAY['k'])",
        FORGED.format(sequence=1),
    ],
)
def test_a_session_at_another_worker_is_refused(cluster, session, new_holder, statement):
    """It could have been taken out of the cluster, and send statements to where a shard was."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    home = holders_node(cluster, holder)
    told = {}
    for node in cluster.workers:
        asking = session(node)
        try:
            asking.execute(statement, {"number": lock_number(holder_key(holder)), "holder": holder})
            told[node] = None
        except psycopg.Error as error:
            told[node] = error.sqlstate
        # The holder's node may be asked first: its session has the lock then.
        asking.rollback()
    assert {node for node, state in told.items() if state == "LG003"} == {*cluster.workers} - {home}
    assert reads.balance(holder).sequence == 1


def test_an_entry_that_does_not_follow_is_refused_on_its_shard(session, cluster, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    services.spend(holder_id=holder, amount=1, idempotency_key="s")
    for node in (cluster.coordinator, holders_node(cluster, holder)):
        with pytest.raises(psycopg.Error) as refused:
            session(node).execute(FORGED.format(sequence=2), {"holder": holder})
        assert refused.value.sqlstate == "LG002"
    assert reads.balance(holder).sequence == 2


@pytest.mark.parametrize("change", ["UPDATE ledger_entry SET reason = 'x'", "DELETE FROM ledger_entry", "TRUNCATE ledger_entry"])
def test_nobody_changes_an_entry_on_any_node(cluster, committed_db, new_holder, change):
    services.grant(holder_id=new_holder(), amount=10, idempotency_key="g")
    for node in cluster.nodes:
        with node.connect(connection.settings_dict["NAME"], OWNER) as owner, pytest.raises(psycopg.Error) as refused:
            owner.execute(change)
        assert refused.value.sqlstate in {"LG001", "42501"}


def test_a_moved_shard_keeps_its_triggers_and_its_locks(cluster, session, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    database = connection.settings_dict["NAME"]
    with cluster.coordinator.connect(database) as superuser:
        move_shard(superuser, holder)
        sql = (
            "SELECT shardid, nodeport FROM pg_dist_shard_placement"
            " WHERE shardid = get_shard_id_for_distribution_column('ledger_entry', %s::text)"
        )
        shard, port = superuser.execute(sql, [holder]).fetchone()
    node = next(node for node in cluster.workers if node.port == port)
    with node.connect(database) as superuser:
        sql = (
            "SELECT split_part(tgname, '_1', 1), tgenabled FROM pg_trigger"
            " WHERE tgrelid = %s::regclass AND NOT tgisinternal ORDER BY 1"
        )
        found = dict(superuser.execute(sql, [f"ledger_entry_{shard}"]).fetchall())
        assert found == {name: enabled_as(name) for name in TRIGGERS["ledger_entry"]}
    assert services.spend(holder_id=holder, amount=4, idempotency_key="s").balance == 6
    asked = (lock_number(holder_key(holder)), holder)
    holding, other = session(cluster.coordinator), session(node)
    holding.execute("SELECT ledger_lock(%s, %s, true)", asked)
    assert other.execute("SELECT ledger_lock(%s, %s, false)", asked).fetchone() == (False,)


def move_shard(superuser: psycopg.Connection, holder: str) -> None:
    """Move the holder's shard to another worker, without blocking writes."""
    shard, name, port = superuser.execute(
        "SELECT p.shardid, p.nodename, p.nodeport FROM pg_dist_shard_placement p"
        " WHERE p.shardid = get_shard_id_for_distribution_column('ledger_entry', %s::text)",
        [holder],
    ).fetchone()
    other = superuser.execute(
        "SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards AND (nodename, nodeport) <> (%s, %s) LIMIT 1",
        [name, port],
    ).fetchone()
    superuser.execute("SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'auto')", [shard, name, port, *other])


def test_a_session_that_takes_no_call_to_the_holders_node_is_given_up(committed_db, new_holder):
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    # Citus fails while it plans a part of this, and from then on delegates nothing in this session.
    with pytest.raises(NotSupportedError), connection.cursor() as cursor:
        cursor.execute(NOT_PLANNED)
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT ledger_lock(%s, %s, true)", [lock_number(holder_key(holder)), holder])
    assert sqlstate(refused.value) == "LG003"
    assert services.spend(holder_id=holder, amount=4, idempotency_key="s").balance == 6


def test_totals_count_what_all_nodes_wrote(committed_db, new_holder):
    holder = new_holder()
    kind = f"t{uuid.uuid4().hex[:12]}"
    services.grant(holder_id=holder, amount=10, credit_type=kind, idempotency_key="g")

    def count() -> CountResult:
        try:
            return count_entries(patience_seconds=0)
        finally:
            connections.close_all()

    with transaction.atomic(), holder_lock(holder), ThreadPoolExecutor(1) as aside:
        assert aside.submit(count).result().is_held_up
    assert not count_entries().is_held_up
    with connection.cursor() as cursor:
        cursor.execute("SELECT granted_purchased, entries FROM ledger_daily_total WHERE credit_type = %s", [kind])
        assert cursor.fetchall() == [(10, 1)]
