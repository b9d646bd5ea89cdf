"""The nodes of a Citus cluster: which of them has a holder's rows, and this thread's connection to it.

A transaction whose holders are all on the connected node locks, reads and writes only there, and commits in one phase. A process
is connected to the coordinator, which executes any request; only the threads of group commit connect to the nodes themselves. A
node refuses requests for holders that it does not have (LG003), and the coordinator then executes them. So this knowledge may be
out of date; that costs only speed.
"""

import json
import logging
import time
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from struct import iter_unpack, unpack
from typing import Any, Final, NamedTuple

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 10.0
"""How long the places of the shards count before they are read again."""
UNREACHABLE_SECONDS: Final = 60.0
"""How long a node that could not be reached is not tried again."""
CONNECT_SECONDS: Final = 2
"""How long connecting to a node may take; libpq allows no less."""

SHARDS: Final = """
    SELECT s.shardid, n.nodename, n.nodeport, s.shardminvalue::integer
      FROM pg_dist_shard s
      JOIN pg_dist_placement p USING (shardid)
      JOIN pg_dist_node n USING (groupid)
     WHERE s.logicalrelid = 'ledger_entry'::regclass AND n.noderole = 'primary'
     ORDER BY s.shardminvalue::integer
"""
"""The shards of the ledger's entries in the order of the hashes, each with its node and its least hash."""

LISTED: Final = """
SELECT nodename, nodeport, groupid, isactive, groupid = (SELECT groupid FROM pg_dist_local_group)
FROM pg_dist_node
WHERE noderole = 'primary'
ORDER BY groupid
"""

WORD: Final = 0xFFFFFFFF


ON_EACH_NODE: Final = """
    SELECT n.nodeid, n.nodename || ':' || n.nodeport, r.success, r.result
      FROM run_command_on_all_nodes(%s) r
      JOIN pg_dist_node n USING (nodeid)
"""


class Node(NamedTuple):
    """The address of a node, as the cluster knows it."""

    host: str
    port: int


class Nodes:
    """The nodes as this process last saw them."""

    def __init__(self) -> None:
        """Start without any node; nothing is sent."""
        self._shards: tuple[Sequence[int], Sequence[Node]] = ((), ())
        """The least hash of each shard, in order, and the shard's node."""
        self._refresh_at = 0.0
        self._try_again_at: dict[Node, float] = {}
        """Nodes that could not be reached."""

    def node_of(self, holder_id: str) -> Node | None:
        """Return the node that had the holder's rows when the shards' places were read last, or None before; sends nothing."""
        least_hashes, nodes = self._shards
        return nodes[bisect_right(least_hashes, hash_of(holder_id)) - 1] if nodes else None

    @property
    def listed(self) -> frozenset[Node]:
        """The nodes that had shards when the shards' places were read last."""
        return frozenset(self._shards[1])

    def is_due(self) -> bool:
        """Return whether the places of the shards should be read now; True to one caller only. Sends nothing."""
        now = time.monotonic()
        if now < self._refresh_at:
            return False
        self._refresh_at = now + REFRESH_SECONDS
        return True

    def refresh(self) -> None:
        """Read the places of the shards at the coordinator, by this thread's connection.

        If the coordinator does not answer, the earlier places remain. A worker is never asked: a removed worker has the places of
        the time of its removal.
        """
        connection = connections[DEFAULT_DB_ALIAS]
        try:
            with connection.cursor() as cursor:
                cursor.execute(SHARDS)
                rows = cursor.fetchall()
            self._shards = [least_hash for *_, least_hash in rows], [Node(host, port) for _, host, port, _ in rows]
        except Error as error:
            logger.warning("The places of the shards were not read: %s", error)
            connection.close()

    def connect_to(self, node: Node) -> None:
        """Connect this thread to the node, or for a while after that failed to the coordinator.

        A transaction that is open stays on its connection: then this does nothing.
        """
        connection = connections[DEFAULT_DB_ALIAS]
        if connection.in_atomic_block:
            return
        configured = connections.settings[DEFAULT_DB_ALIAS]
        is_tried = time.monotonic() >= self._try_again_at.get(node, 0.0)
        target = _at(node, configured) if is_tried else configured
        if _address(connection.settings_dict) != _address(target):
            if connection.connection is not None:
                # The session had to return to the coordinator: the known places are no longer right.
                self._refresh_at = 0.0
            connection.close()
            connection.settings_dict = target
        if is_tried and connection.connection is None:
            try:
                connection.ensure_connection()
            except Error as error:
                logger.warning("Cannot connect to the node %s:%s, so its holders cost more: %s", *node, error)
                self._try_again_at[node] = time.monotonic() + UNREACHABLE_SECONDS
                connection.settings_dict = configured


def ask_all_nodes(command: str, using: str = "default") -> dict[int, tuple[str, Any]]:
    """Replaces `ledger.database.cluster.ask_all_nodes`."""
    with connections[using].cursor() as cursor:
        cursor.execute(ON_EACH_NODE, [command])
        replies = cursor.fetchall()
    for _, node, has_replied, reply in replies:
        if not has_replied:
            logger.warning("The node %s does not answer: %s", node, reply)
    return {number: (node, json.loads(reply)) for number, node, has_replied, reply in replies if has_replied}


def listed_nodes(connection: BaseDatabaseWrapper) -> list[tuple[Any, ...]]:
    """Replaces `ledger_project.monitoring.node_checks.listed_nodes`."""
    with connection.cursor() as cursor:
        cursor.execute(LISTED)
        return list(cursor.fetchall())


def return_to_coordinator() -> None:
    """End this thread's session; the next one is at the coordinator, as the settings say."""
    connection = connections[DEFAULT_DB_ALIAS]
    connection.close()
    connection.settings_dict = connections.settings[DEFAULT_DB_ALIAS]


def _at(node: Node, configured: dict[str, Any]) -> dict[str, Any]:
    options = {**configured["OPTIONS"], "connect_timeout": CONNECT_SECONDS}
    return {**configured, "HOST": node.host, "PORT": node.port, "OPTIONS": options}


def _address(settings: dict[str, Any]) -> tuple[str, str]:
    return settings["HOST"], str(settings["PORT"])


# The hash function -----------------------------------------------------------------------------------


@lru_cache(maxsize=65_536)
def hash_of(text: str) -> int:
    """Return PostgreSQL's hash of a text, from -2^31 to 2^31 - 1, by which Citus finds the shard.

    Source: hash_bytes in PostgreSQL's src/common/hashfn.c, on little-endian machines; Bob Jenkins, lookup3.c.
    """
    data = text.encode()
    whole = len(data) // 12 * 12
    a = b = c = (0x9E3779B9 + len(data) + 3_923_095) & WORD
    for x, y, z in iter_unpack("<3I", data[:whole]):
        a, b, c = _mix_words((a + x) & WORD, (b + y) & WORD, (c + z) & WORD)
    x, y, z = unpack("<3I", data[whole:].ljust(12, b"\0"))
    # The lowest byte of c has the length already.
    found = _last((a + x) & WORD, (b + y) & WORD, (c + (z << 8)) & WORD)
    return found - (found >> 31 << 32)


def _rotate_word(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & WORD


def _mix_words(a: int, b: int, c: int) -> tuple[int, int, int]:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a, c = (a - c & WORD) ^ _rotate_word(c, first), c + b & WORD
        b, a = (b - a & WORD) ^ _rotate_word(a, second), a + c & WORD
        c, b = (c - b & WORD) ^ _rotate_word(b, third), b + a & WORD
    return a, b, c


def _last(a: int, b: int, c: int) -> int:
    c = (c ^ b) - _rotate_word(b, 14) & WORD
    a = (a ^ c) - _rotate_word(c, 11) & WORD
    b = (b ^ a) - _rotate_word(a, 25) & WORD
    c = (c ^ b) - _rotate_word(b, 16) & WORD
    a = (a ^ c) - _rotate_word(c, 4) & WORD
    b = (b ^ a) - _rotate_word(a, 14) & WORD
    return (c ^ b) - _rotate_word(b, 24) & WORD
