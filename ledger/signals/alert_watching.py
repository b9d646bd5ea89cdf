"""Asks the alerts of an account what each of its entries crosses, and keeps their states, in the transaction of the feed.

Note [Neither lost nor doubled]
    The states are written in one transaction with the feed's positions and with the signals, under the lock of the feed. If the
    worker ends before COMMIT, all of it is read and decided again from the same entries.
    What changes by time alone is looked at when a state says so, and what a changed alert means for accounts without new entries
    page by page; both after the holder's new entries were read. A holder with a test clock is looked at when the clock moves.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger.clocks import clock_of
from ledger.database.statements import fetch_rows
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.rules.accounts import AccountState
from ledger.rules.budget_windows import HOUR_US, ROLLING, end_of, oldest_of
from ledger.rules.entries import Entry
from ledger.rules.instants import to_text, to_us
from ledger.rules.kinds import KINDS, sql_list
from ledger.signals.alert_declarations import alerts_of_holders, watching
from ledger.signals.alert_states import BELOW_PERCENT, DAY_HOURS, DAYS_LEFT, GIVING, AlertSignal, AlertState, DeclaredAlert, judge
from ledger.values import encode_json

STATES: Final = """
    SELECT holder_id, credit_type, alert, kind, is_crossed, is_depleted, crossings, crossed_at, facts::text, look_at
    FROM ledger_alert_state WHERE holder_id = ANY(%s)
"""
KEEP: Final = """
    INSERT INTO ledger_alert_state AS known
        (holder_id, credit_type, alert, kind, is_crossed, is_depleted, crossings, crossed_at, facts, look_at)
    SELECT %s, s.credit_type, s.alert, s.kind, s.is_crossed, s.is_depleted, s.crossings, s.crossed_at, s.facts, s.look_at
    FROM jsonb_to_recordset(%s::jsonb) AS s (
        credit_type text, alert text, kind text, is_crossed boolean, is_depleted boolean, crossings bigint,
        crossed_at timestamptz, facts jsonb, look_at timestamptz
    )
    ON CONFLICT (holder_id, credit_type, alert) DO UPDATE SET
        kind = EXCLUDED.kind, is_crossed = EXCLUDED.is_crossed, is_depleted = EXCLUDED.is_depleted,
        crossings = EXCLUDED.crossings, crossed_at = EXCLUDED.crossed_at, facts = EXCLUDED.facts, look_at = EXCLUDED.look_at
"""
FORGET: Final = "DELETE FROM ledger_alert_state WHERE holder_id = %s AND credit_type = %s AND alert = %s"
LAST_ENTRIES: Final = f"""
    SELECT {READ_COLUMNS} FROM (
        SELECT e.*
        FROM ledger_entry AS first
        CROSS JOIN LATERAL (
            SELECT * FROM ledger_entry AS own
            WHERE own.holder_id = first.holder_id AND own.credit_type = first.credit_type ORDER BY own.sequence DESC LIMIT 1
        ) AS e
        WHERE first.holder_id = %s AND first.sequence = 1
    ) AS found
"""
# By the index of kinds, without a walk through the spends.
LAST_GRANT: Final = f"""
    SELECT {READ_COLUMNS} FROM ledger_entry
    WHERE holder_id = %(holder)s AND credit_type = %(credit_type)s AND sequence = greatest({
    ", ".join(
        "(SELECT max(sequence) FROM ledger_entry WHERE holder_id = %(holder)s AND credit_type = %(credit_type)s "
        f"AND kind = '{kind}' AND sequence <= %(last)s)"
        for kind in sorted(GIVING)
    )
})
"""
TAKEN: Final = {
    "amount": "-amount",
    "drawn": "COALESCE((SELECT sum((part ->> 1)::numeric) FROM json_array_elements(drawn) AS part), 0)",
}
SPENDING: Final = [kind for kind in KINDS.values() if kind.total == "spent"]
TAKEN_BY_KIND: Final = " ".join(f"WHEN '{kind.name}' THEN {TAKEN[kind.moves]}" for kind in SPENDING)
SPENT: Final = f"""
    SELECT (us - mod(us, %(step)s))::bigint AS start, sum(taken)::numeric FROM (
        SELECT extract(epoch FROM recorded_at) * 1000000 AS us, CASE kind {TAKEN_BY_KIND} END AS taken
        FROM ledger_entry
        WHERE holder_id = %(holder)s AND credit_type = %(credit_type)s AND sequence <= %(last)s
            AND sequence > ledger_sequence_at(%(holder)s, %(credit_type)s, %(since)s::timestamptz)
            AND kind IN {sql_list(kind.name for kind in SPENDING)}
    ) AS found
    GROUP BY start
    ORDER BY start
"""
DUE: Final = """
    SELECT DISTINCT holder_id FROM (
        SELECT holder_id FROM ledger_alert_state WHERE look_at <= clock_timestamp() ORDER BY look_at LIMIT %s
    ) AS first
    ORDER BY holder_id
"""
CHANGED: Final = "SELECT alert, holder_id, after_holder FROM ledger_alert_look ORDER BY alert LIMIT 1"
LOOKED: Final = "UPDATE ledger_alert_look SET after_holder = %s WHERE alert = %s"
LOOKED_AT_ALL: Final = "DELETE FROM ledger_alert_look WHERE alert = %s"
HOLDERS: Final = """
    SELECT DISTINCT holder_id FROM (
        SELECT holder_id FROM ledger_entry WHERE sequence = 1 AND holder_id > %s ORDER BY holder_id LIMIT %s
    ) AS page
    ORDER BY holder_id
"""
HOLDERS_AT_ONCE: Final = 200

At = tuple[str, str]
"""A credit type and the name of an alert."""


class Watch:
    """The alerts and states of one holder, in the transaction of the feed."""

    def __init__(self, holder: str, alerts: Sequence[DeclaredAlert], states: "dict[At, AlertState]") -> None:
        """Watch by these alerts, some of which may be for all holders."""
        self.holder = holder
        self.alerts = alerts
        self.states = states
        self._before = dict(self.states)
        clock = clock_of(holder) if self.alerts else None
        self._clock_us = None if clock is None else to_us(clock)

    def crossed_by(self, entry: Entry) -> list[AlertSignal]:
        """Return the signals of what an entry crosses; entries come in the order in which they were recorded."""
        return self._judge_all(_account(entry, self._clock_us or entry.recorded_us), entry)

    def crossed_now(self, now_us: int) -> list[AlertSignal]:
        """Return the signals of what the holder's accounts have crossed by now, without a new entry."""
        signals: list[AlertSignal] = []
        self.states = self.states or _states([self.holder]).get(self.holder, {})
        self._before |= self.states
        for last in fetch_rows(lambda *row: entry_from_row(row), LAST_ENTRIES, [self.holder]):
            signals += self._judge_all(_account(last, self._clock_us or max(now_us, last.recorded_us)), None)
            self._forget_ended(last.credit_type)
        return signals

    def keep(self) -> None:
        """Write the states that have changed."""
        changed = [self._row(*at, state) for at, state in self.states.items() if self._before.get(at) != state]
        gone = self._before.keys() - self.states.keys()
        with connection.cursor() as cursor:
            if changed:
                cursor.execute(KEEP, [self.holder, encode_json(changed)])
            for credit_type, alert in gone:
                cursor.execute(FORGET, [self.holder, credit_type, alert])

    def _judge_all(self, account: AccountState, entry: Entry | None) -> list[AlertSignal]:
        signals: list[AlertSignal] = []
        for name, alert in sorted(watching(self.alerts, self.holder, account.credit_type).items()):
            at = (account.credit_type, name)
            state = self.states.get(at)
            if state is None or state.kind != alert.kind:
                # What was recorded before the alert was declared is looked at as of now.
                if entry is not None and entry.recorded_us < alert.recorded_us:
                    continue
                last = account.sequence if entry is None else account.sequence - 1
                state = AlertState(alert.kind, facts=_first_facts(alert, account, last))
            after, found = judge(alert, state, account, entry)
            if self._clock_us is not None:  # it stands still until an entry moves it
                after = after._replace(look_us=None)
            if at in self.states or after != AlertState(alert.kind):
                self.states[at] = after
            signals += found
        return signals

    def _forget_ended(self, credit_type: str) -> None:
        names = watching(self.alerts, self.holder, credit_type)
        for at in [at for at in self.states if at[0] == credit_type and at[1] not in names]:
            del self.states[at]

    def _row(self, credit_type: str, alert: str, state: AlertState) -> dict[str, Any]:
        return {
            "credit_type": credit_type,
            "alert": alert,
            "kind": state.kind,
            "is_crossed": state.is_crossed,
            "is_depleted": state.is_depleted,
            "crossings": state.crossings,
            "crossed_at": None if state.crossed_us is None else to_text(state.crossed_us),
            "facts": state.facts,
            "look_at": None if state.look_us is None else to_text(state.look_us),
        }


def _account(entry: Entry, now_us: int) -> AccountState:
    """The account after an entry, at that instant."""
    return AccountState(entry.holder_id, entry.credit_type, now_us).after(entry)._replace(now_us=now_us)


def watch_all(holders: Sequence[str], defaults: Sequence[DeclaredAlert]) -> dict[str, Watch]:
    """Return the watches of these holders, in their order.

    Args:
        defaults: the alerts for all holders.
    """
    own: dict[str, list[DeclaredAlert]] = {}
    for alert in alerts_of_holders(holders):
        assert alert.holder_id is not None
        own.setdefault(alert.holder_id, []).append(alert)
    states = _states([holder for holder in holders if defaults or holder in own])
    return {holder: Watch(holder, [*defaults, *own.get(holder, ())], states.get(holder, {})) for holder in holders}


def _states(holders: Sequence[str]) -> dict[str, dict[At, AlertState]]:
    states: dict[str, dict[At, AlertState]] = {}
    if holders:
        for holder, at, state in fetch_rows(_known_state, STATES, [list(holders)]):
            states.setdefault(holder, {})[at] = state
    return states


def _known_state(holder: str, credit_type: str, alert: str, kind: str, *columns: Any) -> tuple[str, At, AlertState]:
    is_crossed, is_depleted, crossings, crossed_at, facts, look_at = columns
    crossed_us, look_us = (None if at is None else to_us(at) for at in (crossed_at, look_at))
    state = AlertState(kind, is_crossed, is_depleted, crossings, crossed_us, json.loads(facts), look_us)
    return holder, (credit_type, alert), state


def _first_facts(alert: DeclaredAlert, account: AccountState, last: int) -> Mapping[str, Any]:
    """What is known of an account that the alert has not seen: from its entries up to `last`."""
    of = {"holder": account.holder_id, "credit_type": account.credit_type, "last": last}
    if alert.kind == BELOW_PERCENT:
        given = fetch_rows(lambda *row: entry_from_row(row), LAST_GRANT, of)
        return {"most": max((_account(entry, entry.recorded_us).available for entry in given), default=0)}
    if alert.kind == DAYS_LEFT:
        hours = (alert.rate_days or 1) * DAY_HOURS
        since = to_text(oldest_of(ROLLING, hours, "UTC", account.now_us) - 1)
        step = end_of(ROLLING, hours, "UTC", 0) - hours * HOUR_US
        return {"spent": fetch_rows(lambda start, taken: [start, int(taken)], SPENT, {**of, "since": since, "step": step})}
    return {}


# What is looked at without a new entry ---------------------------------------------------------------


def due_holders() -> list[str]:
    """Return some holders who are to be looked at because time has passed."""
    return fetch_rows(str, DUE, [HOLDERS_AT_ONCE])


class HolderPage(NamedTuple):
    """Some holders who are to be looked at because an alert changed."""

    alert: int
    holders: list[str]
    is_last: bool


def next_page() -> HolderPage | None:
    """Return the next holders to look at because an alert changed; None if each change was looked at."""
    rows: list[tuple[Any, ...]] = fetch_rows(lambda *row: row, CHANGED)
    if not rows:
        return None
    [(alert, holder, after)] = rows
    if holder is not None:
        return HolderPage(alert, [holder], is_last=True)
    holders = fetch_rows(str, HOLDERS, [after, HOLDERS_AT_ONCE])
    return HolderPage(alert, holders, is_last=not holders)


def note(page: HolderPage) -> None:
    """Note that the holders of a page were looked at."""
    with connection.cursor() as cursor:
        if page.is_last:
            cursor.execute(LOOKED_AT_ALL, [page.alert])
        else:
            cursor.execute(LOOKED, [page.holders[-1], page.alert])


# For showing -----------------------------------------------------------------------------------------

CROSSED: Final = """
    SELECT holder_id, credit_type, crossed_at, crossings, is_depleted, id FROM ledger_alert_state
    WHERE is_crossed AND alert = %(alert)s AND (%(holder)s::text IS NULL OR holder_id = %(holder)s)
        AND (%(credit_type)s::text IS NULL OR credit_type = %(credit_type)s)
        AND (%(at)s::timestamptz IS NULL OR (crossed_at, id) {beyond} (%(at)s, %(at_id)s))
    ORDER BY crossed_at {order}, id {order} LIMIT %(limit)s
"""


class CrossedAccount(NamedTuple):
    """An account that has crossed an alert and not recovered."""

    holder_id: str
    credit_type: str
    crossed_at: datetime
    crossings: int
    is_depleted: bool
    id: int

    @property
    def keyset(self) -> tuple[datetime, int]:
        """Its place in the list."""
        return self.crossed_at, self.id


def crossed(
    alert: str,
    *,
    holder: str | None = None,
    credit_type: str | None = None,
    before: tuple[datetime, int] | None = None,
    after: tuple[datetime, int] | None = None,
    limit: int,
) -> list[CrossedAccount]:
    """Return a page of the accounts that have crossed an alert of this name and not recovered, those that crossed it last first.

    Args:
        holder, credit_type: only accounts of this holder or type.
        before: only accounts before this one; after: the next ones after it, still with the last crossing first.
    """
    at, at_id = after or before or (None, None)
    given = {"alert": alert, "holder": holder, "credit_type": credit_type, "at": at, "at_id": at_id, "limit": limit}
    beyond, order = ("<", "DESC") if after is None else (">", "ASC")
    crossed_accounts = fetch_rows(CrossedAccount, CROSSED.format(beyond=beyond, order=order), given)
    return crossed_accounts if after is None else crossed_accounts[::-1]
