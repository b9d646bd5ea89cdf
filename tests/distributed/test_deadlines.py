"""A request's deadline ends its waits for locks of holders on other nodes too."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from django.db import connection, transaction

from ledger.database.locks import holder_key, holder_lock, keep_to_deadline, lock_number, waits_bounded
from ledger.database.statements import wait_at_most
from ledger.errors import HolderBusy
from ledger_project.serving.postgres.credentials import APPLICATION
from tests.distributed.cluster import Cluster

LEFT_S = 0.2
LOCK_TIMEOUT_S = 2.0
NODE_OF = """
    SELECT nodeport FROM pg_dist_shard_placement WHERE shardid = get_shard_id_for_distribution_column(%s, %s::text)
"""


@pytest.fixture
def busy(cluster: Cluster, committed_db, new_holder) -> Iterator[list[str]]:
    """Holders of both workers, whose locks another session holds."""
    holders = [new_holder() for _ in range(12)]
    with closing(psycopg.connect(cluster.coordinator.url(APPLICATION, connection.settings_dict["NAME"]))) as session:
        by_node = {}
        for holder in holders:
            by_node[session.execute(NODE_OF, ["ledger_entry", holder]).fetchone()] = holder
        assert len(by_node) == len(cluster.workers)
        for holder in by_node.values():
            session.execute("SELECT ledger_lock(%s, %s, true)", [lock_number(holder_key(holder)), holder])
        yield list(by_node.values())


def seconds_until_busy(holder: str, shorten: Callable[[], object]) -> float:
    """Ask for the lock after `shorten`, with little time left; return how long the refusal took."""

    def ask() -> None:
        with waits_bounded(LEFT_S), transaction.atomic(durable=True):
            shorten()
            with holder_lock(holder):
                pytest.fail("the lock was free")

    connection.ensure_connection()
    before = time.monotonic()
    with pytest.raises(HolderBusy):
        ask()
    return time.monotonic() - before


def shorten_here_only() -> None:
    """As `keep_to_deadline`, but the nodes of the transaction do not learn of it."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL citus.propagate_set_commands = none")
    keep_to_deadline()


def test_a_wait_on_another_node_ends_with_the_requests_time(busy):
    for holder in busy:
        assert LEFT_S <= seconds_until_busy(holder, keep_to_deadline) < LOCK_TIMEOUT_S


def test_without_passing_the_setting_on_the_wait_lasts_for_the_nodes_own_lock_timeout(busy):
    """The control of the test above."""
    for holder in busy:
        assert seconds_until_busy(holder, shorten_here_only) >= LOCK_TIMEOUT_S


def test_the_time_of_a_waiter_reaches_the_other_nodes(busy):
    """As group commit sets it, in one message with the beginning of the transaction."""
    for holder in busy:
        assert LEFT_S <= seconds_until_busy(holder, lambda: wait_at_most(int(LEFT_S * 1000))) < LOCK_TIMEOUT_S
