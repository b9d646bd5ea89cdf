"""The statements for a cluster that replace those for one server, by the statement's name."""

from typing import TYPE_CHECKING, Final

from ledger.database import locks
from ledger.errors import FeedUnavailable

if TYPE_CHECKING:
    # `ledger.database.statements` asks for a statement while it is imported, before what the reads need is there.
    from ledger.reads.entry_feed import FeedPosition

CALL_SECONDS: Final = 0.01
"""The most time for the call that opens an account on its node, if no other session has the lock."""

PAGE_OF_ACCOUNTS: Final = """
SELECT *
FROM ledger_page_of_accounts(
    {is_after}, %(holder_id)s, %(credit_type)s, %(prefix)s, %(beyond)s, %(type)s, %(limit)s::integer, {by_clock}
)
"""
# On all nodes: a writer holds its lock on its holder's node, except for this session's part. A node that does not answer counts
# as a writer that does not end.
WRITERS_OF_ALL_NODES: Final = """
    SELECT DISTINCT node.nodeid || ':' || writer
    FROM run_command_on_all_nodes(replace($$
        SELECT COALESCE(string_agg(DISTINCT virtualtransaction, ','), '') FROM pg_locks
        WHERE granted AND virtualtransaction NOT LIKE '%%/0'
            AND pid NOT IN (SELECT process_id FROM get_all_active_transactions() WHERE global_pid = :own)
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (
                locktype = 'advisory'
                OR mode = 'RowExclusiveLock'
                    AND relation IN (SELECT oid FROM pg_class WHERE relname ~ '^ledger_entry(_[0-9]+)?$')
            )
    $$, ':own', citus_backend_gpid()::text)) AS node
    CROSS JOIN LATERAL unnest(
        CASE WHEN node.success THEN string_to_array(node.result, ',') ELSE ARRAY['down'] END
    ) AS writer
"""

SQL: Final = {
    "accounts_after": PAGE_OF_ACCOUNTS.format(is_after=True, by_clock=False),
    "accounts_before": PAGE_OF_ACCOUNTS.format(is_after=False, by_clock=False),
    "accounts_after_by_clock": PAGE_OF_ACCOUNTS.format(is_after=True, by_clock=True),
    "accounts_before_by_clock": PAGE_OF_ACCOUNTS.format(is_after=False, by_clock=True),
    "last_entries": "SELECT * FROM ledger_states(%s::text[], %s::text[])",
    "last_entries_by_clock": "SELECT * FROM ledger_states(%s::text[], %s::text[], true)",
    # Citus sends the whole message of a SET LOCAL to other nodes, in a transaction that it began there: BEGIN precedes it.
    "begin with a statement": "BEGIN\n{}",
    # Each node gives the entries of its holders their time.
    "clock": "SELECT min(result::timestamptz) FROM run_command_on_all_nodes('SELECT clock_timestamp()') WHERE success",
    "writers": WRITERS_OF_ALL_NODES,
    "sessions of clients": "get_all_active_transactions()",
}


def sql_of(name: str, sql: str) -> str:
    """Replaces `ledger.database.cluster.sql_of`."""
    return SQL.get(name, sql)


def wait_seconds(accounts: int) -> float:
    """A cluster calls the nodes of the accounts one after the other, and the bound of the statement includes these calls."""
    return locks.WAIT_SECONDS + CALL_SECONDS * accounts


def feed_horizon(after: "FeedPosition") -> tuple[int, int]:
    """Replaces `ledger.reads.entry_feed._horizon`: a prepared transaction of a node does not say when it began."""
    raise FeedUnavailable(reason="cluster")
