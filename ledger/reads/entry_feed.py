"""The feed: every entry of every holder, refusals included, in an order in which no entry appears behind a reader.

An entry gets its time under its holder's lock, and is seen only after COMMIT. So a reader that goes on from the last time or
number that it saw misses what commits later with an earlier one. The feed ends before the first entry that can still appear.

Note [Before which instant no entry can appear any more]
    A writer reads the clock while it has a holder's lock, an advisory lock, and has both locks and rows until it ends. A writer
    without that lock has a RowExclusiveLock on the table from its INSERT on. So an entry that is not visible yet was recorded
    after the beginning of a transaction that has such a lock, or will be recorded later than now. The feed ends before the
    earliest of these beginnings. They are looked up first, by one statement, and the entries then by the next one, whose
    snapshot has all that had ended by then.
    Of a session whose state the server hides, and of a prepared transaction, the beginning is unknown: the feed waits for
    its end.

Note [Order]
    By time, then holder, credit type and sequence. Within an account that is the order of the sequence, because `recorded_at`
    never goes back there. A time is no xid: it goes on when a dump is restored in another cluster.

Note [A clock that was set back]
    Then entries of other accounts get times behind the reader. Such an entry is behind the reader only while the clock is, and
    the reader, which asks all the time, is seen to be ahead of the clock. It is given what was recorded in the minute before the
    clock's time once more, and goes on from there.
"""

import base64
import binascii
from datetime import UTC, datetime
from operator import itemgetter
from typing import Final, NamedTuple

import orjson
from django.db import connection

from ledger.database.cluster import on_cluster
from ledger.database.statements import Statement, boolean, instant_us, parameter
from ledger.errors import FeedPositionLost, FeedUnavailable
from ledger.reads.entry_search import ALL, EntryFilter, FeedEntry, search_entries
from ledger.rules.instants import SECOND_US, from_us, to_text, to_us
from ledger.values import CREDIT_TYPE, HOLDER_ID, MAX_SEQUENCE

__all__ = ["START", "FeedPage", "FeedPosition", "feed", "feed_end", "feed_marker"]

REPEATED_US: Final = 60 * SECOND_US
"""How much is given once more to a reader that is ahead of a clock that was set back."""
POSITION_DIGEST_BYTES: Final = 8
"""How much of the digest of its entry a position keeps."""
LATEST_US: Final = to_us(datetime(2200, 1, 1, tzinfo=UTC))
"""The latest time that an entry has."""

CLEAR_SNAPSHOT: Final = Statement("clear_snapshot", "SELECT pg_stat_clear_snapshot()", [bytes])
MARKER: Final = Statement("feed_marker", "SELECT pg_current_snapshot()::text", [bytes.decode], row=itemgetter(0))
# `statement_timestamp` is read before the locks are looked at, whatever the plan is. A session that has ended its transaction in
# between is idle, or gone, and its entries are visible to the next statement.
HORIZON: Final = Statement(
    "feed_horizon",
    f"""
SELECT
    pg_is_in_recovery(),
    statement_timestamp(),
    GREATEST(timestamptz 'epoch', LEAST(statement_timestamp(), (
        SELECT min(
            CASE
                WHEN lock.pid IS NULL OR session.state = 'disabled' THEN '-infinity'
                WHEN session.pid IS NULL THEN NULL
                WHEN session.state IS NULL THEN '-infinity'
                ELSE session.xact_start
            END
        )
        FROM pg_locks lock
        LEFT JOIN pg_stat_activity session ON session.pid = lock.pid
        WHERE lock.granted
            AND lock.pid IS DISTINCT FROM pg_backend_pid()
            AND split_part(lock.virtualtransaction, '/', 2) <> '0'
            AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (
                lock.locktype = 'advisory'
                OR (lock.relation = 'ledger_entry'::regclass AND lock.mode = 'RowExclusiveLock')
            )
    ))),
    %(sequence)s::bigint = 0
        OR EXISTS (
            SELECT
            FROM ledger_entry
            WHERE holder_id = %(holder_id)s
                AND credit_type = %(credit_type)s
                AND sequence = %(sequence)s::bigint
                AND substr(digest, 1, {POSITION_DIGEST_BYTES}) = decode(%(digest)s, 'hex')
        )
""",
    [boolean, instant_us, instant_us, boolean],
)

NOT_A_POSITION: Final = "This is not a position in the feed."


class FeedPosition(NamedTuple):
    """A place in the feed: behind an entry, or at an instant."""

    recorded_us: int = 0
    holder_id: str = ""
    credit_type: str = ""
    sequence: int = 0
    digest: bytes = b""
    """The first bytes of the entry's digest: in a ledger that was restored from before the entry, another may have its number."""

    @classmethod
    def at(cls, instant: datetime) -> "FeedPosition":
        """Return the place before all entries that were recorded at that instant or later."""
        return cls(to_us(instant))

    @classmethod
    def behind(cls, fed: FeedEntry) -> "FeedPosition":
        """Return the place behind an entry."""
        entry = fed.entry
        digest = entry.digest[:POSITION_DIGEST_BYTES]
        return cls(entry.recorded_us, entry.holder_id, entry.credit_type, entry.sequence, digest)

    @property
    def text(self) -> str:
        """The position as ASCII of at most 240 characters, for a URL or a column; `read` reads it."""
        packed = orjson.dumps([self.recorded_us, self.holder_id, self.credit_type, self.sequence, self.digest.hex()])
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "FeedPosition":
        """Return the position of that text; ValueError for a text that no position has."""
        try:
            packed = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            recorded_us, holder_id, credit_type, sequence, digest = orjson.loads(packed)
            position = cls(recorded_us, holder_id, credit_type, sequence, bytes.fromhex(digest))
        except (binascii.Error, UnicodeError, TypeError, orjson.JSONDecodeError) as error:
            raise ValueError(NOT_A_POSITION) from error
        if not position._is_sound() or position.text != text:
            raise ValueError(NOT_A_POSITION)
        return position

    def _is_sound(self) -> bool:
        values = [type(value) for value in self]
        if values != [int, str, str, int, bytes] or not 0 <= self.recorded_us <= LATEST_US:
            return False
        if not self.sequence:
            return self[1:] == FeedPosition()[1:]
        return (
            1 <= self.sequence <= MAX_SEQUENCE
            and len(self.digest) == POSITION_DIGEST_BYTES
            and HOLDER_ID.fullmatch(self.holder_id) is not None
            and CREDIT_TYPE.fullmatch(self.credit_type) is not None
        )


START: Final = FeedPosition()
"""Before the first entry."""


class FeedPage(NamedTuple):
    """Entries in the order of the feed, and where the next page begins."""

    entries: list[FeedEntry]
    next: FeedPosition
    until_us: int
    """Up to here the ledger's entries are complete: the feed has no others, now or later, that were recorded before."""
    is_held_up: bool
    """True while a transaction goes on that may add an entry that was recorded earlier than now."""


def feed(after: FeedPosition = START, wanted: EntryFilter = ALL, *, limit: int = 200) -> FeedPage:
    """Return the entries of all holders behind a position, as far as no entry can appear between them any more.

    Who reads on from `next` gets each entry once, and each account's entries in the order of their sequence. After the server's
    clock was set back, some entries come again. The call takes no lock and writes nothing. In the caller's own transaction the
    feed has what that transaction wrote.

    Args:
        after: a position out of a page, kept for any time; `START`; or `FeedPosition.at(instant)`.
        wanted: only these; by default all, refusals included. One call looks at a limited number of entries, so that a page of
            few or none may have a `next` that lies further on.
        limit: at most this many entries, 1 or more.

    Raises:
        FeedPositionLost: this ledger does not have the position's entry: it was restored from before it, or is another one.
        FeedUnavailable: the server is a standby, or the ledger is distributed; it cannot tell which entries can still appear.
    """
    now_us, until_us = _horizon(after)
    ahead_us = after.recorded_us - now_us
    if ahead_us > 0 and (after.sequence or ahead_us <= REPEATED_US):
        after = FeedPosition(max(0, now_us - REPEATED_US))
    at = from_us(after.recorded_us)
    place = (at, after.holder_id, after.credit_type, after.sequence) if after.sequence else None
    scan = search_entries(wanted, at=at, place=place, bound=from_us(until_us), newest=False, limit=limit)
    last = scan.found[-1] if len(scan.found) == limit else scan.last
    return FeedPage(scan.found, FeedPosition.behind(last) if last else after, until_us, until_us < now_us)


def feed_marker() -> str:
    """Return a text that changes with each transaction of the server that may have written: while it stays, the feed stays.

    It looks at no table, so that many readers can wait for a change.
    """
    marker: str = MARKER.first([])
    return marker


def feed_end() -> FeedPosition:
    """Return the end of the feed as it is now: behind it comes only what is not yet in it. Raises as `feed` does."""
    _, until_us = _horizon(START)
    return FeedPosition(until_us)


@on_cluster("queries.feed_horizon")
def _horizon(after: FeedPosition) -> tuple[int, int]:
    """Return the server's time, and the instant before which no entry can appear any more. See the note."""
    if connection.in_atomic_block:
        # Else the server would repeat the sessions that it showed this transaction first.
        CLEAR_SNAPSHOT.rows([])
    values = {"holder_id": after.holder_id, "credit_type": after.credit_type, "digest": after.digest.hex()}
    known = {name: parameter(value) for name, value in values.items()} | {"sequence": parameter(after.sequence)}
    [(is_standby, now_us, until_us, is_known)] = HORIZON.read(known)
    if is_standby:
        raise FeedUnavailable(reason="standby")
    if not is_known:
        raise FeedPositionLost(
            holder_id=after.holder_id,
            credit_type=after.credit_type,
            sequence=after.sequence,
            recorded_at=to_text(after.recorded_us),
        )
    return now_us, until_us
