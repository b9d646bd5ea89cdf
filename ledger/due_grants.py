"""The recurring grants of an account under its lock: what they are, and granting what is due of them.

Note [By the clock, without a job]
    The state of an account says when a recurring grant is due next. The first write from that instant on makes the grant, in its
    own transaction, before it is decided. So a write compares one number, and a spend in the first microsecond of a period takes
    from that period's credits. A worker makes the grants of accounts without writes. Both read under the holder's lock what is
    due, and each grant has the key of its period, so no period is granted twice. See docs/explanation/ledger.md.
"""

from typing import Any, Final, NamedTuple

from django.db import connection

from ledger import conf
from ledger.errors import IdempotencyKeyReused, LotLimit
from ledger.journal import ENTRY_BY_KEY, LockedAccount, fetch_entry
from ledger.previews import AccountRef
from ledger.rules.decisions import recurring_rules
from ledger.rules.entries import BY_THE_LEDGER, Entry
from ledger.rules.instants import from_us, to_us, us_of
from ledger.rules.recurring_terms import RecurringGrant

BY_BILLING: Final = "billing"
ROLLS_OVER_WITH: Final = "rolls_over_with"
"""In the metadata of a grant of billing: the recurring grant whose caps count its credits."""
RECURRING_GRANTS: Final = """
SELECT r.name, r.setting, s.counterpart, l.metadata, l.sequence, l.amount
FROM ledger_recurring_grant r
JOIN ledger_entry s ON s.holder_id = r.holder_id AND s.credit_type = r.credit_type AND s.sequence = r.setting
LEFT JOIN ledger_entry l
    ON l.holder_id = r.holder_id AND l.credit_type = r.credit_type AND l.sequence = r.last AND r.last > r.setting
WHERE r.holder_id = %s AND r.credit_type = %s
"""
LOTS_OF_RECURRING_GRANT: Final = """
SELECT sequence
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
    AND kind = 'grant' AND CASE actor
        WHEN 'ledger' THEN metadata ->> 'recurring_grant' = %s
        WHEN 'billing' THEN metadata ->> 'rolls_over_with' = %s
    END
"""
EXPIRED_OF_RECURRING_GRANT: Final = """
SELECT e.effective_at, -e.amount
FROM ledger_entry e
JOIN ledger_entry g ON g.holder_id = e.holder_id AND g.credit_type = e.credit_type AND g.sequence = e.refers_to
WHERE e.holder_id = %s AND e.credit_type = %s AND e.kind = 'expire' AND e.effective_at > %s
    AND g.kind = 'grant' AND g.actor = %s AND g.metadata ->> 'recurring_grant' = %s
"""
# What the test clock showed when the entry was decided.
CLOCK_THEN: Final = """(
    SELECT t.counterpart ->> 'clock'
    FROM ledger_entry t
    WHERE t.holder_id = %(holder_id)s AND t.kind = 'adjust' AND t.counterpart ->> 'tick' IS NOT NULL
        AND t.recorded_at < e.recorded_at
    ORDER BY (t.counterpart ->> 'tick')::integer DESC
    LIMIT 1
)"""
# Past what the ledger books by itself for lots and holds, which does not depend on when it is booked.
LAST_DECISION: Final = """
SELECT recorded_at, CASE WHEN actor = %(ledger)s THEN metadata ->> 'as_of' END, {clock}
FROM ledger_entry e
WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND kind <> 'refusal'
    AND (actor <> %(ledger)s OR metadata ->> 'as_of' IS NOT NULL)
ORDER BY sequence DESC
LIMIT 1
"""


# What they are ---------------------------------------------------------------------------------------


class OtherGrants(NamedTuple):
    """The recurring grants of other names that have not ended: how many, and when one of them is due next; None: never."""

    number: int
    next_us: int | None


def recurring_grants(account: LockedAccount) -> dict[str, RecurringGrant]:
    """Return the recurring grants of the account by name, also those that have ended."""
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(RECURRING_GRANTS, _ref(account))
        found: dict[str, tuple[Any, ...]] = {row[0]: row for row in cursor.fetchall()}
    for entry in account.among.previewed(state):
        if entry.is_recurring_period:
            name = entry.metadata["recurring_grant"]
            found[name] = (*found[name][:3], entry.metadata, entry.sequence, entry.amount)
        elif entry.recurring_grant is not None:
            found[entry.recurring_grant] = (entry.recurring_grant, entry.sequence, entry.counterpart, None, None, None)
    return {name: RecurringGrant.from_entries(*facts) for name, facts in found.items()}


def others_than(name: str, known: dict[str, RecurringGrant]) -> OtherGrants:
    """Return what is to know of those of other names."""
    others = [one for one in known.values() if one.name != name and one.terms is not None]
    return OtherGrants(len(others), min((one.next_us for one in others if one.next_us is not None), default=None))


# What is due -----------------------------------------------------------------------------------------


class DuePeriod(NamedTuple):
    """A period that was granted, or several that were skipped: the entries, and the recurring grant after it."""

    entries: list[Entry]
    after: RecurringGrant


def with_due_grants(account: LockedAccount, entries: list[Entry] | None = None) -> LockedAccount:
    """Collect the grants that are due in an account, and return it after them. See Note [By the clock, without a job].

    A grant that cannot be made, because the account has too many lots or another request has used its key, prevents no write: it
    stays due, and the worker says why. Many periods that have left nothing by now are one entry: see `grant_period`.

    Args:
        entries: gets the entries that were collected.
    """
    state = account.state
    if not state.has_due_grants:
        return account
    known = recurring_grants(account)
    while (recurring := _first_due(known, account.state.now_us)) is not None:
        try:
            period = collect_period(account, recurring, known)
        except (LotLimit, IdempotencyKeyReused):
            break
        known[recurring.name] = period.after
        if entries is not None:
            entries += period.entries
        account = account.among.account(state.holder_id, state.credit_type)
    return account


def due_grant(account: LockedAccount, known: dict[str, RecurringGrant]) -> RecurringGrant | None:
    """Return the recurring grant of the account that has been due for longest, or None if none is due."""
    return _first_due(known, account.state.now_us)


def collect_period(account: LockedAccount, recurring: RecurringGrant, known: dict[str, RecurringGrant]) -> DuePeriod:
    """Collect the entries of the next period of a recurring grant, or the one of several periods that it skips.

    Raises:
        LotLimit: the account has too many lots. IdempotencyKeyReused: another request has used the key of the period. Nothing was
            collected.
    """
    terms, start_us = recurring.terms, recurring.next_us
    assert terms is not None
    assert start_us is not None
    key = recurring_rules.key_of(recurring, account.state.credit_type)
    if _has_key(account, key):
        raise IdempotencyKeyReused(idempotency_key=key)
    part, fills = recurring.due_part, terms.up_to is not None
    looks_at_lots = fills or (terms if part is None else part).rollover_cap is not None
    entries, after = recurring_rules.grant_period(
        account.state,
        recurring,
        lots=lots_of(account, recurring.name) if looks_at_lots else (),
        expired=_expired_of(account, recurring.name, start_us) if fills else (),
        decided_from_us=_decided_us(account),
        others_next_us=others_than(recurring.name, known).next_us,
    )
    account.among.collect(entries)
    return DuePeriod(entries, after)


def _first_due(known: dict[str, RecurringGrant], now_us: int) -> RecurringGrant | None:
    # Two that are due at the same instant are made in the order of their names.
    due = sorted((one.next_us, one.name) for one in known.values() if one.next_us is not None and one.next_us <= now_us)
    return known[due[0][1]] if due else None


def _ref(account: LockedAccount) -> AccountRef:
    return account.state.holder_id, account.state.credit_type


def _is_of(entry: Entry, name: str) -> bool:
    if entry.kind != "grant":
        return False
    if entry.actor == BY_BILLING:
        return entry.metadata.get(ROLLS_OVER_WITH) == name
    return entry.is_recurring_period and entry.metadata["recurring_grant"] == name


def lots_of(account: LockedAccount, name: str) -> frozenset[int]:
    """Return the numbers of the lots, open or held, that a recurring grant opened, or a run of billing for it."""
    state = account.stored_state()
    numbers = sorted({lot.grant for lot in state.lots_and_held_parts})
    with connection.cursor() as cursor:
        cursor.execute(LOTS_OF_RECURRING_GRANT, [*_ref(account), numbers, name, name])
        stored = [number for (number,) in cursor.fetchall()]
    return frozenset([*stored, *(entry.sequence for entry in account.among.previewed(state) if _is_of(entry, name))])


def _expired_of(account: LockedAccount, name: str, since_us: int) -> list[tuple[int, int]]:
    """Return what has been booked of a recurring grant's lots that expired after an instant: each with time and amount."""
    state = account.stored_state()
    with connection.cursor() as cursor:
        cursor.execute(EXPIRED_OF_RECURRING_GRANT, [*_ref(account), from_us(since_us), BY_THE_LEDGER, name])
        expired = [(to_us(expired_at), amount) for expired_at, amount in cursor.fetchall()]
    previewed = account.among.previewed(state)
    booked = [entry for entry in previewed if entry.kind == "expire" and entry.effective_us > since_us]
    if booked:
        numbers = [entry.refers_to for entry in booked]
        with connection.cursor() as cursor:
            cursor.execute(LOTS_OF_RECURRING_GRANT, [*_ref(account), numbers, name, name])
            own = {number for (number,) in cursor.fetchall()} | {entry.sequence for entry in previewed if _is_of(entry, name)}
        expired += [(entry.effective_us, -entry.amount) for entry in booked if entry.refers_to in own]
    return expired


def _has_key(account: LockedAccount, idempotency_key: str) -> bool:
    """Return whether the holder has an entry with this key, or with another one of the same hash."""
    account.stored_state()
    return fetch_entry(ENTRY_BY_KEY, [account.state.holder_id, idempotency_key, idempotency_key]) is not None


def _decided_us(account: LockedAccount) -> int:
    """Return as of when the last request, or the last grant that recurs, was decided; 0 if there was none."""
    state = account.stored_state()
    for entry in reversed(account.among.previewed(state)):
        if entry.kind != "refusal" and (entry.actor != BY_THE_LEDGER or "as_of" in entry.metadata):
            return us_of(entry.metadata.get("as_of") if entry.actor == BY_THE_LEDGER else None) or entry.decided_us
    named = {"holder_id": state.holder_id, "credit_type": state.credit_type, "ledger": BY_THE_LEDGER}
    with connection.cursor() as cursor:
        cursor.execute(LAST_DECISION.format(clock=CLOCK_THEN if conf.TEST_CLOCKS.value else "NULL"), named)
        row = cursor.fetchone()
    if row is None:
        return 0
    recorded_at, as_of, clock = row
    return us_of(as_of) or us_of(clock) or to_us(recorded_at)
