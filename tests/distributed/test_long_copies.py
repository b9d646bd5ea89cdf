"""The timeouts bind the application and no work of Citus: here each is 1 s, and a shard of 120 MB takes longer to copy."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from ledger import services
from ledger.cluster.checks import verify_cluster
from ledger.entry_rows import COLUMNS
from ledger.errors import UnsafeDatabase
from ledger_project.serving import bootstrap
from ledger_project.serving.postgres.credentials import OWNER
from tests.deployment.serving.test_serve import wait_until
from tests.distributed.test_another_node import is_balanced, prepare, third
from tests.distributed.test_nodes import move_shard
from tests.distributed.test_prepare import another_database
from tests.distributed.test_removed_node import few_shards

__all__ = ["another_database", "few_shards", "third"]

WHALE = "whale"
ROWS = 17_500
KEPT = ", ".join(
    name for name in COLUMNS.split(", ") if name not in {"sequence", "metadata", "idempotency_key", "request_digest"}
)
# 7 KB a row, which does not compress. The entries are no good ones: nothing reads them.
FILL = f"""
    INSERT INTO ledger_entry (sequence, metadata, {KEPT})
    SELECT n, (SELECT json_build_object('t', string_agg(md5(random()::text), '')) FROM generate_series(1, 220)), {KEPT}
    FROM ledger_entry, generate_series(2, {ROWS}) AS n
    WHERE holder_id = '{WHALE}' AND sequence = 1
"""


def seconds(work: Callable[[], Any]) -> float:
    """How long the work takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """All timeouts are 1 s."""
    monkeypatch.setattr(bootstrap, "SETTINGS_OF_ROLE", dict.fromkeys(bootstrap.TIMEOUTS, "1s"))


@pytest.mark.slow
@pytest.mark.usefixtures("second", "few_shards")
def test_what_takes_longer_than_the_timeouts_ends(own_cluster, another_database, third) -> None:
    call_command("migrate", interactive=False, verbosity=0)
    services.grant(holder_id=WHALE, amount=10, idempotency_key="g")
    connection.close()
    with own_cluster.coordinator.connect(another_database) as superuser:
        superuser.execute("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
        superuser.execute(FILL)
        superuser.execute("ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only, ENABLE ALWAYS TRIGGER follows")

        assert seconds(prepare) > 1, "the first distribution"
        [(size,)] = superuser.execute("SELECT max(shard_size) FROM citus_shards").fetchall()
        assert size > 120_000_000
        assert seconds(lambda: move_shard(superuser, WHALE)) > 1

        superuser.execute(f"ALTER DATABASE {another_database} SET statement_timeout = '1s'")
        with (
            own_cluster.coordinator.connect(another_database) as limited,
            pytest.raises(psycopg.Error, match="statement timeout"),
        ):
            move_shard(limited, WHALE)
        prepare()

        third.make_database(another_database)
        superuser.execute("SELECT citus_add_node(%s, %s)", [third.host, third.port])
        for worker in own_cluster.workers:
            superuser.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', false)", [worker.host, worker.port])
        superuser.execute("SELECT citus_rebalance_start(drain_only => true)")
        status = "SELECT * FROM citus_rebalance_status()"
        wait_until(lambda: is_balanced(superuser, status), "the shards were moved", timeout_s=200)
        assert superuser.execute("SELECT DISTINCT nodeport FROM citus_shards WHERE shard_size > 1e8").fetchall() == [
            (third.port,)
        ]
    prepare()
    ensure_bound(own_cluster, another_database, third)


def ensure_bound(cluster, database: str, added) -> None:
    """The application is bound on every node, and a node where it is not is refused."""
    for node in (*cluster.nodes, added):
        with node.connect(database, OWNER) as session, pytest.raises(psycopg.errors.QueryCanceled):
            session.execute("SELECT pg_sleep(2)")
    verify_cluster(connection)
    with added.connect(database) as superuser:
        superuser.execute("SET citus.enable_ddl_propagation = off; SET citus.enable_alter_role_set_propagation = off")
        superuser.execute(f"ALTER ROLE {OWNER} IN DATABASE {database} RESET statement_timeout")
    connection.close()
    with pytest.raises(UnsafeDatabase, match=f"statement_timeout = 0 on {added.host}:{added.port}"):
        verify_cluster(connection)
    prepare()
    verify_cluster(connection)
