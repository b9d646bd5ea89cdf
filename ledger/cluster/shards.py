"""Reads a distributed ledger for the audit: each shard, then the comparisons between shards.

All laws but `transfers` are about one holder, and a holder is on one shard. So the audit's SQL runs on each shard, with the
shard's name instead of the table's. There is no snapshot of all nodes. The comparison between holders ends at a cut in time: an
instant before which every transaction has ended at the time of the comparison.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from ledger.audit.reports import Finding
from ledger.audit.sessions import Session
from ledger.cluster.distribution import BESIDE_ENTRIES
from ledger.cluster.nodes import SHARDS

PATIENCE_SECONDS: Final = 60.0
LOOK_EVERY_SECONDS: Final = 0.1
GATHERED: Final = "audited_entry"
COPIED: Final = "audited_"
"""The copies of what stands beside the entries begin with it."""
NO_TABLES: Final[Mapping[str, str]] = {}

# Each shard of the entries with a shard of another table that has rows of the same holders.
BESIDE: Final = """
SELECT e.shardid, beside.logicalrelid::text, beside.shardid
FROM pg_dist_shard e
JOIN pg_dist_shard beside USING (shardminvalue)
WHERE e.logicalrelid = 'ledger_entry'::regclass AND beside.logicalrelid = ANY (%s::regclass[])
"""

LAST_ENTRIES: Final = """(
    SELECT last.*
    FROM ledger_entry first
    CROSS JOIN LATERAL (
        SELECT * FROM ledger_entry e
        WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
        ORDER BY e.sequence DESC
        LIMIT 1
    ) AS last
    WHERE first.sequence = 1
    ORDER BY first.holder_id, first.credit_type
) AS account"""
"""The view ledger_account, of one shard."""

# Of each node: sessions with a transaction from before the cut, and transactions that are prepared and not yet committed.
UNDER_WAY: Final = """
    SELECT sum(result::int), bool_and(success)
      FROM run_command_on_all_nodes($$
          SELECT (SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND backend_type = 'client backend' AND state <> 'idle'
                     AND xact_start < '{cut}' AND pid <> pg_backend_pid())
               + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database() AND prepared < '{cut}')
      $$)
"""

# The rows for the law `transfers`: both sides, and the entries before the departures.
GATHER_TRANSFERS: Final = (
    "SELECT * FROM ledger_entry WHERE kind = 'transfer_out'",
    """
    SELECT before.*
    FROM ledger_entry o
    JOIN ledger_entry before
        ON before.holder_id = o.holder_id AND before.credit_type = o.credit_type AND before.sequence = o.sequence - 1
    WHERE o.kind = 'transfer_out' AND before.kind NOT IN ('transfer_in', 'transfer_out')
    """,
    "SELECT * FROM ledger_entry WHERE kind = 'transfer_in'",
)
# The departures, of other holders, that one holder's arrivals name, and the entries before them.
NAMED_DEPARTURES: Final = f"""
    INSERT INTO {GATHERED}
    SELECT e.*
    FROM (
        SELECT DISTINCT
            counterpart ->> 'holder_id' AS holder_id, credit_type, (counterpart ->> 'sequence')::bigint - back AS sequence
        FROM {GATHERED}, generate_series(0, 1) AS back
        WHERE kind = 'transfer_in' AND counterpart ->> 'holder_id' <> holder_id
    ) AS named
    JOIN ledger_entry e USING (holder_id, credit_type, sequence)
"""
NOT_ARRIVED: Final = f"""
    SELECT o.holder_id, o.credit_type, o.sequence, o.counterpart ->> 'holder_id', -o.amount, COALESCE(i.amount, 0)::bigint
    FROM {GATHERED} o
    LEFT JOIN (
        SELECT
            counterpart ->> 'holder_id' AS holder_id,
            credit_type,
            (counterpart ->> 'sequence')::bigint AS sequence,
            sum(amount) AS amount
        FROM {GATHERED}
        WHERE kind = 'transfer_in'
        GROUP BY 1, 2, 3
    ) AS i USING (holder_id, credit_type, sequence)
    WHERE o.kind = 'transfer_out' AND o.recorded_at < %s AND -o.amount <> COALESCE(i.amount, 0)
    ORDER BY 1, 2, 3
"""


class NotComparable(psycopg.OperationalError):
    """The shards cannot be compared: a transaction from before the cut is still open, or a node does not answer."""


class Shard(NamedTuple):
    """A part of the ledger, and the node that has it."""

    number: int
    host: str
    port: int
    beside: Mapping[str, str]
    """The other tables with rows of its holders, each with the name that it has on the node."""

    @property
    def table(self) -> str:
        """The table's name on its node."""
        return f"ledger_entry_{self.number}"


Lend = Callable[[], AbstractContextManager[Session]]
"""Lends a session without an open transaction."""


def shards_of(session: Session, connect: Callable[..., Callable[[], Session]]) -> Iterator[tuple[Shard, Lend]]:
    """Yield the shards of the ledger, node by node, each with a function that lends sessions at its node.

    A new session has no plans, and planning and connecting take most of the time of a small shard. So the sessions of a node
    serve all its shards.
    """
    beside: dict[int, dict[str, str]] = {}
    for number, table, shard in session.execute(BESIDE, [list(BESIDE_ENTRIES)]).fetchall():
        beside.setdefault(number, {})[table] = f"{table}_{shard}"
    shards = [Shard(number, host, port, beside[number]) for number, host, port, _ in session.execute(SHARDS).fetchall()]
    shards.sort(key=lambda shard: (shard.host, shard.port))
    for (host, port), of_node in groupby(shards, key=lambda shard: (shard.host, shard.port)):
        with _keep_sessions(connect(host=host, port=port)) as lend:
            for shard in of_node:
                yield shard, lend


@contextmanager
def _keep_sessions(connect: Callable[[], Session]) -> Iterator[Lend]:
    """Yield a function that lends sessions and takes them back to lend them again; the sessions end with the block."""
    with ExitStack() as stack:
        free: list[Session] = []

        @contextmanager
        def lend() -> Iterator[Session]:
            session = free.pop() if free else stack.enter_context(connect())
            yield session
            session.execute("ROLLBACK")
            free.append(session)

        yield lend


def reading(session: Session, table: str, beside: Mapping[str, str] = NO_TABLES) -> Session:
    """Let the session read that table, a shard or a copy, wherever the audit's SQL names ledger_entry or ledger_account.

    Args:
        beside: the tables to read where it names others, by their names there.
    """

    class Cursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            return super().execute(on_table(query, table, beside), params, **options)

    class ServerCursor(psycopg.ServerCursor[Any]):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            return super().execute(on_table(query, table, beside), params, **options)

    session.cursor_factory, session.server_cursor_factory = Cursor, ServerCursor
    return session


def on_table(query: str, table: str, beside: Mapping[str, str] = NO_TABLES) -> str:
    """Return the query for these tables. Its rows are cast to the ledger's, which the digest function takes."""
    query = query.replace("FROM ledger_account", f"FROM {LAST_ENTRIES}")
    query = re.sub(r"(ledger_entry_digest\(COALESCE\(.*?'hex'\)\)), e\)", r"\1, ROW(e.*)::ledger_entry)", query)
    for name, there in beside.items():
        query = query.replace(f"FROM {name}", f"FROM {there}")
    return re.sub(r"\b(FROM|JOIN) ledger_entry\b", rf"\1 {table}", query)


@contextmanager
def in_one_table(sessions: Sequence[Session], holder_id: str | None) -> Iterator[list[Session]]:
    """Replaces `ledger.audit.auditing._in_one_table`."""
    with gathered(sessions[0], holder_id) as session:
        yield [session]


@contextmanager
def gathered(session: Session, holder_id: str | None) -> Iterator[Session]:
    """While the block runs, the session reads copies of a holder's entries and what stands beside them, or of a small ledger's.

    Args:
        session: in a transaction that may make temporary tables.
    """
    only = sql.SQL("") if holder_id is None else sql.SQL(" WHERE holder_id = {}").format(sql.Literal(holder_id))
    factories = session.cursor_factory, session.server_cursor_factory
    copies = {table: f"{COPIED}{table}" for table in BESIDE_ENTRIES}
    for table, copy in {"ledger_entry": GATHERED, **copies}.items():
        _make_copy(session, table, copy)
        session.execute(sql.SQL(f"INSERT INTO {copy} SELECT * FROM {table}") + only)
    if holder_id is not None:
        session.execute(NAMED_DEPARTURES)
    session.execute(f"CREATE INDEX ON {GATHERED} (holder_id, credit_type, sequence)")
    try:
        yield reading(session, GATHERED, copies)
    finally:
        session.cursor_factory, session.server_cursor_factory = factories
        if session.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
            session.execute(f"DROP TABLE {', '.join((GATHERED, *copies.values()))}")


@contextmanager
def one_copying_session(connect: Callable[[], Session]) -> Iterator[list[Session]]:
    """Yield a session in a transaction that may make a temporary table, for `gathered`."""
    with connect() as session:
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL statement_timeout = 0")
        yield [session]
        session.execute("ROLLBACK")


def _make_copy(session: Session, table: str = "ledger_entry", copy: str = GATHERED) -> None:
    session.execute(f"CREATE TEMPORARY TABLE {copy} (LIKE {table})")


def between_shards(
    connect: Callable[[], Session],
    cut: datetime,
    broken: Callable[[Session], list[Finding]],
    *,
    patience: float = PATIENCE_SECONDS,
) -> list[Finding]:
    """Return the findings about transfers that were recorded before the cut.

    Args:
        connect: opens a session with the coordinator.
        broken: finds the violations of the law `transfers` with a session.

    Raises:
        NotComparable: a transaction from before the cut was still open, or a node did not answer.
    """
    with connect() as session:
        _wait_for_transactions_before(session, cut, patience)
        session.execute("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL work_mem = '64MB'")
        _make_copy(session)
        for part in GATHER_TRANSFERS:
            session.execute(f"INSERT INTO {GATHERED} {part}")
        session.execute(f"CREATE INDEX ON {GATHERED} (holder_id, credit_type, sequence)")
        found = [
            Finding("transfers", holder, credit_type, sequence, f"{arrived} arrived at {to}", f"{left} left")
            for holder, credit_type, sequence, to, left, arrived in session.execute(NOT_ARRIVED, [cut]).fetchall()
        ]
        # The other side of later transfers may not be visible yet.
        session.execute(f"DELETE FROM {GATHERED} WHERE kind = 'transfer_in' AND recorded_at >= %s", [cut])
        found += broken(reading(session, GATHERED))
        session.execute("ROLLBACK")
    return found


def _wait_for_transactions_before(session: Session, cut: datetime, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        row = session.execute(UNDER_WAY.format(cut=cut.isoformat())).fetchone()
        assert row is not None
        under_way, all_answered = row
        if all_answered and not under_way:
            return
        if time.monotonic() > deadline:
            raise NotComparable(
                f"transfers up to {cut}: {under_way} earlier transactions are still open" if all_answered else "a node is down"
            )
        time.sleep(LOOK_EVERY_SECONDS)
