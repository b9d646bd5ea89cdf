"""The feed: makes signals of new entries, and deliveries of signals. One session at a time, on whichever machine.

Note [No entry is passed over]
    The entries are the outbox: each was written in the transaction of its cause. An account's numbers have no gaps, and its
    entries become visible in their order, because each is written under the holder's lock. So the feed keeps for each account up
    to which number it has read, and reads on from there; what commits late is the next number, never one that was passed.
    Which accounts have new entries is only looked for by time, again and again from an instant before which no entry can appear
    any more: the end of the feed of entries (`ledger.reads.entry_feed`, docs/adr/0070). A clock that is set back could hide
    an account from that look until its next entry; once a day all accounts are looked at. Neither can lose or repeat an entry:
    the number decides.
    All accounts of a holder are read in one statement, so their entries are in the order of their times, which are read under
    one lock. Under load most holders have an entry or two since the last look: they are read many at once, up to
    FEW_ENTRIES of an account. Who has more is read alone, piece by piece.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db import connection, transaction

from ledger import conf
from ledger.database.horizon import find_horizon
from ledger.database.lock_names import SIGNAL_FEED
from ledger.database.locks import try_advisory_lock
from ledger.database.statements import fetch_rows, fetch_value
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.errors import FeedUnavailable
from ledger.reads.entry_feed import feed_end
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us, to_text, to_us
from ledger.signals import alert_watching
from ledger.signals.alert_declarations import alerts_of
from ledger.signals.alert_states import AlertSignal, DeclaredAlert
from ledger.signals.alert_watching import Watch, watch_all
from ledger.signals.budget_reports import BudgetReports
from ledger.signals.types import BUDGET_EXCEEDED, types_of
from ledger.values import encode_json

PATIENCE_SECONDS: Final = 1.0
"""How long a cluster waits for transactions that may still write an earlier entry."""
SLOTS_WITH: Final = 5_000
"""About how many entries one round looks at for accounts."""
ENTRIES_AT_ONCE: Final = 2_000
"""How many entries of an account are read at once."""
HOLDERS_IN_ONE: Final = 100
"""How many holders are read at once; on a cluster one, because each statement about one holder goes to the holder's node only."""
FEW_ENTRIES: Final = 20
"""How many entries of an account are read at once, if its holder is read with others."""
SPREAD_AT_ONCE: Final = 5_000

# The types that somebody gets, and since when there is a webhook or an alert. A webhook that is disabled still collects; one that
# was removed does not. An alert counts from its first declaration after its last end; after the end of all of them, only accounts
# are still looked at, to forget what they crossed.
SUBSCRIBED: Final = """
    SELECT coalesce(jsonb_agg(DISTINCT type), '[]')::text,
        least(
            min(w.created_at),
            (
                SELECT a.recorded_at FROM ledger_alert AS a
                WHERE NOT EXISTS (
                    SELECT FROM ledger_alert AS e
                    WHERE e.is_ended AND e.id >= a.id AND COALESCE(e.holder_id, '') = COALESCE(a.holder_id, '')
                        AND e.name = a.name AND COALESCE(e.credit_type, '') = COALESCE(a.credit_type, '')
                )
                ORDER BY a.id LIMIT 1
            ),
            (SELECT statement_timestamp() WHERE EXISTS (SELECT FROM ledger_alert_look))
        )
    FROM ledger_webhook AS w CROSS JOIN LATERAL jsonb_array_elements_text(w.types) AS type
    WHERE w.removed_at IS NULL
"""
# A hint: without it, all entries since the first webhook are looked at.
LOOKED_UNTIL: Final = "SELECT coalesce(max(looked_until), '2000-01-01Z') FROM ledger_signal_feed"
# The slot in which about that many entries after `since` end; null where there are fewer. Refusals have a separate index.
SLICE_END: Final = """
    SELECT min(slot) + interval '5 seconds' FROM (
        (SELECT ledger_slot(recorded_at) AS slot FROM ledger_entry
         WHERE kind <> 'refusal' AND ledger_slot(recorded_at) >= ledger_slot(%(since)s)
         ORDER BY ledger_slot(recorded_at) OFFSET %(most)s LIMIT 1)
        UNION ALL
        (SELECT ledger_slot(recorded_at) FROM ledger_entry
         WHERE kind = 'refusal' AND ledger_slot(recorded_at) >= ledger_slot(%(since)s)
         ORDER BY ledger_slot(recorded_at) OFFSET %(most)s LIMIT 1)
    ) AS found
"""
HOLDERS: Final = """
    SELECT DISTINCT holder_id FROM (
        SELECT holder_id FROM ledger_entry
        WHERE kind <> 'refusal' AND ledger_slot(recorded_at) BETWEEN ledger_slot(%(since)s) AND ledger_slot(%(until)s)
        UNION ALL
        SELECT holder_id FROM ledger_entry
        WHERE kind = 'refusal' AND ledger_slot(recorded_at) BETWEEN ledger_slot(%(since)s) AND ledger_slot(%(until)s)
    ) AS found
    ORDER BY holder_id
"""
OF_ONE, OF_MANY = "= %(holder)s", "= ANY(%(holders)s)"
POSITIONS: Final = "SELECT holder_id, credit_type, sequence FROM ledger_signal_position WHERE holder_id {whose}"
ACCOUNTS: Final = """
    SELECT holder_id, credit_type, ledger_sequence_at(holder_id, credit_type, %(since)s::timestamptz - interval '1 microsecond')
    FROM ledger_entry WHERE holder_id {whose} AND sequence = 1 AND (%(known)s::jsonb -> holder_id ->> credit_type) IS NULL
"""
# One statement, so one snapshot: see Note [No entry is passed over]. An account without a position is newer than they.
ENTRIES: Final = f"""
    SELECT {READ_COLUMNS} FROM (
        SELECT e.*
        FROM ledger_entry AS first
        CROSS JOIN LATERAL (
            SELECT * FROM ledger_entry AS own
            WHERE own.holder_id = first.holder_id AND own.credit_type = first.credit_type
                AND own.sequence > COALESCE((%(positions)s::jsonb -> first.holder_id ->> first.credit_type)::bigint, 0)
            ORDER BY own.sequence
            LIMIT %(most)s
        ) AS e
        WHERE first.holder_id {{whose}} AND first.sequence = 1
    ) AS found
"""
MOVE: Final = """
    INSERT INTO ledger_signal_position AS known (holder_id, credit_type, sequence)
    SELECT moved.holder_id, moved.credit_type, moved.sequence
    FROM jsonb_to_recordset(%s::jsonb) AS moved (holder_id text, credit_type text, sequence bigint)
    ON CONFLICT (holder_id, credit_type) DO UPDATE SET sequence = EXCLUDED.sequence
"""
STORE: Final = """
    INSERT INTO ledger_signal (type, stream, holder_id, credit_type, sequence, data, occurred_at)
    SELECT signal.type, signal.holder_id, signal.holder_id, signal.credit_type, signal.sequence, signal.data, signal.occurred_at
    FROM jsonb_to_recordset(%s::jsonb)
        AS signal (place bigint, type text, holder_id text, credit_type text, sequence bigint, data json, occurred_at timestamptz)
    ORDER BY signal.place
    ON CONFLICT (holder_id, credit_type, sequence, type) WHERE sequence IS NOT NULL DO NOTHING
"""
# Streams in their order, in which a round of a worker locks them, too.
SPREAD: Final = """
    WITH fresh AS (
        SELECT number, type, stream, holder_id, webhook_id, occurred_at FROM ledger_signal
        WHERE NOT is_spread ORDER BY number LIMIT %s
    ), made AS (
        INSERT INTO ledger_delivery (webhook_id, signal, stream)
        SELECT w.id, s.number, s.stream
        FROM fresh AS s JOIN ledger_webhook AS w
            ON w.removed_at IS NULL
            AND CASE WHEN s.webhook_id IS NULL
                THEN w.types ? s.type AND (w.holder_id IS NULL OR w.holder_id = s.holder_id) AND s.occurred_at >= w.created_at
                ELSE w.id = s.webhook_id END
        ON CONFLICT (webhook_id, signal) DO NOTHING
        RETURNING webhook_id, stream
    ), woken AS (
        INSERT INTO ledger_delivery_stream AS known (webhook_id, stream, due_at)
        SELECT DISTINCT webhook_id, stream, statement_timestamp() FROM made ORDER BY webhook_id, stream
        ON CONFLICT (webhook_id, stream) DO UPDATE SET due_at = COALESCE(known.due_at, EXCLUDED.due_at)
    )
    UPDATE ledger_signal AS s SET is_spread = true FROM fresh WHERE s.number = fresh.number
"""
MOVE_FEED: Final = "UPDATE ledger_signal_feed SET looked_until = greatest(looked_until, %s)"
ALL_HOLDERS: Final = """
    SELECT DISTINCT holder_id FROM (
        SELECT holder_id FROM ledger_entry WHERE sequence = 1 AND holder_id > %s ORDER BY holder_id LIMIT %s
    ) AS page
    ORDER BY holder_id
"""
HOLDERS_AT_ONCE: Final = 500


@dataclass(slots=True)
class Fed:
    """What a run of the feed did: how many entries it read, of how many holders."""

    entries: int = 0
    holders: int = 0


def feed() -> Fed:
    """Make signals of all entries that are visible, and deliveries of all signals. Without webhooks and alerts it costs nothing.

    Raises:
        LockBusy: another session feeds; what it does, it does for all.
    """
    fed = Fed()
    if _read_subscriptions() is None:
        return fed
    until = _end()
    place: datetime | None = None
    is_over = False
    while not is_over:
        with transaction.atomic(), try_advisory_lock(SIGNAL_FEED()):
            subscribed = _read_subscriptions()
            if subscribed is not None:
                place, is_over = _feed_slice(fed, subscribed, place, until)
            _spread_all()
        is_over = is_over or subscribed is None
    _look_at_alerts(fed)
    return fed


def feed_all_accounts() -> Fed:
    """Make signals of entries that the look by time did not find; see Note [No entry is passed over].

    Raises: as `feed`.
    """
    fed = Fed()
    after: str | None = ""
    while after is not None:
        with transaction.atomic(), try_advisory_lock(SIGNAL_FEED()):
            subscribed = _read_subscriptions()
            holders = fetch_rows(str, ALL_HOLDERS, [after, HOLDERS_AT_ONCE]) if subscribed is not None else []
            if subscribed is not None:
                _feed_holders(fed, holders, subscribed)
            _spread_all()
        after = holders[-1] if holders else None
    return fed


def _end() -> datetime | None:
    """The instant before which no entry can appear any more; None where a writer on some node of a cluster goes on."""
    try:
        return from_us(feed_end().recorded_us)
    except FeedUnavailable:
        return find_horizon(PATIENCE_SECONDS)


class Subscribed(NamedTuple):
    """Of which types signals are made, from which instant on, and which alerts watch all holders."""

    types: frozenset[str]
    since: datetime
    defaults: list[DeclaredAlert]


def _read_subscriptions() -> Subscribed | None:
    """What webhooks and alerts subscribe to; None if there are none."""
    [(names, since)] = fetch_rows(lambda *row: row, SUBSCRIBED)
    return None if since is None else Subscribed(frozenset(json.loads(names)), since, alerts_of(None))


def _look_at_alerts(fed: Fed) -> None:
    """Look at the accounts for which an alert has changed, and at those for which time has passed, until there are none."""
    is_over = False
    while not is_over:
        with transaction.atomic(), try_advisory_lock(SIGNAL_FEED()):
            subscribed = _read_subscriptions()
            if subscribed is None:
                return
            page = alert_watching.next_page()
            holders = alert_watching.due_holders() if page is None else page.holders
            for holder in holders:
                _feed_holders(fed, [holder], subscribed)
                _look_at(holder, subscribed)
            if page is not None:
                alert_watching.note(page)
            _spread_all()
        is_over = page is None and not holders


def _look_at(holder: str, subscribed: Subscribed) -> None:
    now_us = to_us(fetch_value(_as_it_is, "SELECT clock_timestamp()"))
    watch = watch_all([holder], subscribed.defaults)[holder]
    signals = watch.crossed_now(now_us)
    watch.keep()
    _store([_row_of(signal, holder, to_text(now_us)) for signal in signals if signal.type in subscribed.types])


def _feed_slice(fed: Fed, subscribed: Subscribed, place: datetime | None, until: datetime | None) -> tuple[datetime, bool]:
    """Look at the next stretch of time, move the feed as far as no earlier entry can appear, and say whether it was the last one.

    Args:
        place: where the stretch begins; None: where the feed is.
        until: the instant before which no entry can appear any more; None: unknown, and the feed stays where it is.
    """
    begin = max(place or fetch_value(_as_it_is, LOOKED_UNTIL), subscribed.since)
    now = fetch_value(_as_it_is, "SELECT clock_timestamp()")
    full_at = fetch_value(_as_it_is, SLICE_END, {"since": begin, "most": SLOTS_WITH})
    end = min(full_at or now, now)
    _feed_holders(fed, fetch_rows(str, HOLDERS, {"since": begin, "until": end}), subscribed)
    if until is not None:
        with connection.cursor() as cursor:
            cursor.execute(MOVE_FEED, [min(end, until)])
    return end, end == now


def _as_it_is(value: Any) -> Any:
    return value


def _feed_holders(fed: Fed, holders: Sequence[str], subscribed: Subscribed) -> None:
    """Read all entries of the holders behind the positions."""
    at_once = 1 if conf.DISTRIBUTED.value else HOLDERS_IN_ONE
    fed.holders += len(holders)
    for first in range(0, len(holders), at_once):
        part = holders[first : first + at_once]
        for holder in _feed_piece(fed, part, subscribed, most=FEW_ENTRIES if len(part) > 1 else ENTRIES_AT_ONCE):
            while _feed_piece(fed, [holder], subscribed, most=ENTRIES_AT_ONCE):
                pass


def _feed_piece(fed: Fed, holders: Sequence[str], subscribed: Subscribed, *, most: int) -> list[str]:
    """Read up to `most` entries of each account of the holders; return the holders who may have more."""
    whose = OF_ONE if len(holders) == 1 else OF_MANY
    these = {"holder": holders[0], "holders": list(holders)}
    positions: dict[str, dict[str, int]] = {}
    for holder, credit_type, sequence in _rows(POSITIONS, whose, these):
        positions.setdefault(holder, {})[credit_type] = sequence
    for holder, credit_type, sequence in _rows(
        ACCOUNTS, whose, these | {"since": subscribed.since, "known": json.dumps(positions)}
    ):
        positions.setdefault(holder, {})[credit_type] = sequence
    entries: dict[str, list[Entry]] = {}
    for row in _rows(ENTRIES, whose, these | {"positions": json.dumps(positions), "most": most}):
        entry = entry_from_row(row)
        entries.setdefault(entry.holder_id, []).append(entry)
    return _tell(fed, entries, subscribed, most) if entries else []


def _rows(sql: str, whose: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    return fetch_rows(lambda *row: row, sql.replace("{whose}", whose), parameters)


def _tell(fed: Fed, entries: dict[str, list[Entry]], subscribed: Subscribed, most: int) -> list[str]:
    """Make the signals of entries, by holder, and move the positions behind them; return the holders who may have more."""
    watches = watch_all(sorted(entries), subscribed.defaults)
    moved: dict[tuple[str, str], int] = {}
    signals: list[dict[str, Any]] = []
    unfinished, on_clocks = [], set()
    for holder, watch in watches.items():
        read, is_all = _up_to_the_first_end(entries[holder], most)
        if not is_all:
            unfinished.append(holder)
        if any(entry.clock_us is not None for entry in read):
            on_clocks.add(holder)
        fed.entries += len(read)
        reports = BudgetReports(holder)
        signals += [each for entry in read for each in _causes(entry, watch, reports, subscribed.types)]
        moved |= {(holder, entry.credit_type): entry.sequence for entry in read}
        watch.keep()
        reports.keep()
    names = ("holder_id", "credit_type", "sequence")
    with connection.cursor() as cursor:
        cursor.execute(MOVE, [json.dumps([dict(zip(names, (*at, last), strict=True)) for at, last in moved.items()])])
    _store(signals)
    for holder in sorted(on_clocks):
        _look_at(holder, subscribed)
    return unfinished


def _causes(entry: Entry, watch: Watch, reports: BudgetReports, subscribed: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield the signals of an entry, and then those of what it crosses."""
    occurred_at = to_text(entry.recorded_us)
    holder = entry.holder_id
    for name in types_of(entry):
        if name in subscribed:
            of = {"holder_id": holder, "credit_type": entry.credit_type, "sequence": entry.sequence}
            yield {"type": name, **of, "occurred_at": occurred_at}
    for signal in watch.crossed_by(entry):
        if signal.type in subscribed:
            yield _row_of(signal, holder, occurred_at)
    if BUDGET_EXCEEDED.name in subscribed:
        for signal in reports.exceeded_by(entry):
            yield _row_of(signal, holder, occurred_at)


def _row_of(signal: AlertSignal, holder: str, occurred_at: str) -> dict[str, Any]:
    of = {"holder_id": holder, "credit_type": signal.data["credit_type"]}
    return {"type": signal.type, **of, "data": signal.data, "occurred_at": occurred_at}


def _store(signals: Sequence[dict[str, Any]]) -> None:
    if signals:
        with connection.cursor() as cursor:
            cursor.execute(STORE, [encode_json([{"place": place, **each} for place, each in enumerate(signals)])])


def _up_to_the_first_end(entries: list[Entry], most: int) -> tuple[list[Entry], bool]:
    """Return a holder's entries in the order in which they were recorded, up to where those of one account may go on unread.

    Returns:
        The entries, and whether no account has more of them.
    """
    by_type: dict[str, list[Entry]] = {}
    for entry in entries:
        by_type.setdefault(entry.credit_type, []).append(entry)
    ends = [of_type[-1].recorded_us for of_type in by_type.values() if len(of_type) == most]
    in_order = sorted(entries, key=lambda entry: (entry.recorded_us, entry.credit_type, entry.sequence))
    return [entry for entry in in_order if not ends or entry.recorded_us <= min(ends)], not ends


def _spread_all() -> None:
    with connection.cursor() as cursor:
        cursor.execute(SPREAD, [SPREAD_AT_ONCE])
        while cursor.rowcount == SPREAD_AT_ONCE:
            cursor.execute(SPREAD, [SPREAD_AT_ONCE])


# What is over ----------------------------------------------------------------------------------------


FORGET: Final = """
    WITH old AS (
        SELECT number FROM (SELECT number, occurred_at FROM ledger_signal ORDER BY number LIMIT %(most)s) AS first
        WHERE occurred_at < %(before)s
    ), gone AS (
        DELETE FROM ledger_delivery AS d USING old WHERE d.signal = old.number RETURNING d.webhook_id, d.signal
    ), attempts AS (
        DELETE FROM ledger_delivery_attempt AS a USING gone WHERE a.webhook_id = gone.webhook_id AND a.signal = gone.signal
    )
    DELETE FROM ledger_signal AS s USING old WHERE s.number = old.number
"""
FORGET_STREAMS: Final = """
    DELETE FROM ledger_delivery_stream AS s
    WHERE s.due_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM ledger_delivery AS d WHERE d.webhook_id = s.webhook_id AND d.stream = s.stream AND d.state = 'pending'
    )
"""
FORGET_REPORTS: Final = "DELETE FROM ledger_budget_report WHERE until < %s"
FORGOTTEN_AT_ONCE: Final = 2_000


def forget(kept: timedelta) -> int:
    """Delete signals that are older, with their deliveries and attempts; return how many there were.

    Raises: as `feed`.
    """
    forgotten = 0
    deleted = FORGOTTEN_AT_ONCE
    while deleted == FORGOTTEN_AT_ONCE:
        with transaction.atomic(), try_advisory_lock(SIGNAL_FEED()), connection.cursor() as cursor:
            cursor.execute(FORGET, {"most": FORGOTTEN_AT_ONCE, "before": datetime.now(UTC) - kept})
            deleted = cursor.rowcount
            if deleted:
                cursor.execute(FORGET_STREAMS)
            cursor.execute(FORGET_REPORTS, [datetime.now(UTC) - kept])
        forgotten += deleted
    return forgotten
