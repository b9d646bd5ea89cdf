"""The window: reads without a lock, for showing only. Nothing is decided by what is seen here."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Q
from django.utils import timezone

from ledger.database.queues import Queue
from ledger.database.statements import Statement, array, instant_us, integer
from ledger.entry_rows import READ_COLUMNS, entry_from_row
from ledger.journal import EFFECTIVE_TIMES
from ledger.models import Rate
from ledger.rules import Account, Entry, Hold, Lot
from ledger.rules.explanations import explain, is_booked_by_itself
from ledger.rules.holds import MAX_HOLD_PARTS, Holds, decode_holds
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import MAX_OPEN_LOTS, SINCE_ITS_GRANT, Lots, decode, in_burn_order, in_full, total
from ledger.rules.pending import settled
from ledger.rules.requests import MAX_SEQUENCE

# Of the lots of entry `e` that bear no effective time, that of their grants, one look into the primary key each.
OWN_EFFECTIVE_TIMES = f"""(
    SELECT json_object_agg(g.sequence, (extract(epoch FROM COALESCE(g.effective_at, g.recorded_at)) * 1000000)::bigint)::text
    FROM json_array_elements(e.lots) AS lot
    CROSS JOIN LATERAL (
        SELECT sequence, effective_at, recorded_at
        FROM ledger_entry
        WHERE holder_id = e.holder_id AND credit_type = e.credit_type AND sequence = (lot ->> 0)::bigint
        LIMIT 1
    ) AS g
    WHERE lot ->> 2 = '{SINCE_ITS_GRANT}'
)"""

RECORDED_US = "(extract(epoch FROM e.recorded_at) * 1000000)::bigint"

LAST_ENTRIES = Statement(
    "last_entries",
    f"""
SELECT
    asked.holder_id,
    asked.credit_type,
    statement_timestamp(),
    e.sequence,
    e.balance,
    e.held,
    e.lots::text,
    e.holds::text,
    e.overdraft,
    e.recorded_at,
    {OWN_EFFECTIVE_TIMES}
FROM unnest(%s::text[], %s::text[]) AS asked (holder_id, credit_type)
LEFT JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    WHERE holder_id = asked.holder_id AND credit_type = asked.credit_type
    ORDER BY sequence DESC
    LIMIT 1
) e ON true
""",
    [
        bytes.decode, bytes.decode, instant_us, integer, integer, integer, bytes.decode, bytes.decode, integer, instant_us,
        bytes.decode,
    ],
)  # fmt: skip

LAST_ENTRY_AT = f"""
SELECT e.sequence, e.balance, e.held, e.lots::text, e.holds::text, e.overdraft, {RECORDED_US}, {OWN_EFFECTIVE_TIMES}
FROM ledger_entry e
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND sequence = ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(at)s)
"""

# Recorded after the account's entry of that number, but counting from an instant at or before `at`.
RECORDED_LATER = f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND effective_at <> recorded_at
    AND effective_at <= %(at)s
    AND sequence > %(sequence)s
ORDER BY sequence
"""

CREDIT_TYPES = "SELECT credit_type FROM ledger_entry WHERE holder_id = %s AND sequence = 1 ORDER BY credit_type"

# From first entry to first entry, which have an index, and of each account only the last one: what it costs grows with the page,
# not with the history.
ACCOUNTS = """
SELECT
    statement_timestamp(),
    account.holder_id,
    account.credit_type,
    last.sequence,
    last.balance,
    last.held,
    last.lots::text,
    last.holds::text,
    last.overdraft,
    last.recorded_us,
    last.effective_times
FROM (
    SELECT holder_id, credit_type
    FROM ledger_entry
    WHERE sequence = 1
        AND (holder_id, credit_type) {comparison} (%(holder_id)s, %(credit_type)s)
        AND starts_with(holder_id, %(prefix)s)
        AND (%(type)s::text IS NULL OR credit_type = %(type)s)
    ORDER BY holder_id {direction}, credit_type {direction}
    LIMIT %(limit)s
) AS account
CROSS JOIN LATERAL (
    SELECT e.*, {recorded_us} AS recorded_us, {effective_times} AS effective_times
    FROM ledger_entry e
    WHERE e.holder_id = account.holder_id AND e.credit_type = account.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) AS last
ORDER BY account.holder_id {direction}, account.credit_type {direction}
"""


class NextExpiry(NamedTuple):
    """When the next credits expire, and how many at that instant."""

    at: datetime
    amount: int


# A holder's accounts by their first entries; of each the last one, by the primary key.
SEEN = """
SELECT min(first.recorded_at), max(last.recorded_at)
FROM ledger_entry first
CROSS JOIN LATERAL (
    SELECT e.recorded_at
    FROM ledger_entry e
    WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
    ORDER BY e.sequence DESC
    LIMIT 1
) last
WHERE first.holder_id = %s AND first.sequence = 1
"""
ACCOUNTS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Balance:
    """An account as it looks at `as_of`: all zeros for one that was never used."""

    holder_id: str
    credit_type: str
    available: int
    balance: int
    held: int
    sequence: int
    as_of: datetime
    overdraft: int
    lots: Lots
    """What the balance is made of, in burn order; what has expired is among them until that is booked."""
    holds: Holds
    """What `held` is made of, in the same manner."""
    next_expiry: NextExpiry | None
    is_as_written: bool = True
    """Nothing has come about by the clock alone since the last entry: no lot expired or became effective, no hold expired."""

    @property
    def owed(self) -> int:
        """How much of the overdraft is used: the lots add up to the balance and this."""
        return total(self.lots) - self.balance


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was refused."""

    holder_id: str
    credit_type: str
    sequence: int
    idempotency_key: str
    recorded_at: datetime
    operation: str
    code: str
    facts: dict[str, Any]
    request: dict[str, Any]
    request_id: str
    actor: str


MAX_BOOKED_TOGETHER = 2 * MAX_OPEN_LOTS + MAX_HOLD_PARTS
"""More entries than one writer can have to book before or after its own."""

EntryPosition = tuple[datetime, str, int]
"""Where an entry stands in a listing: recorded_at, credit_type, sequence."""


def balance(holder_id: str, credit_type: str = "credits", *, at: datetime | None = None) -> Balance:
    """The account as it looks now, or as it looked at an instant: what was recorded and could be spent by then."""
    if at is not None and at < timezone.now():
        row = _row(LAST_ENTRY_AT, {"holder_id": holder_id, "credit_type": credit_type, "at": at})
        return _balance(holder_id, credit_type, to_us(at), row or (None,) * 8)
    ((_, _, now_us, *state),) = LAST_ENTRIES.read([array([holder_id]), array([credit_type])])
    return _balance(holder_id, credit_type, now_us if at is None else to_us(at), state)


def balances(wanted: Sequence[tuple[str, str]]) -> list[Balance]:
    """The accounts of those (holder_id, credit_type) as they look now, in that order, by one prepared statement."""
    holders, types = zip(*dict.fromkeys(wanted), strict=True)
    rows = LAST_ENTRIES.read([array(holders), array(types)])
    found = {(holder, type_): _balance(holder, type_, now_us, state) for holder, type_, now_us, *state in rows}
    return [found[position] for position in wanted]


BALANCES = Queue("ledger-balances", balances, most=lambda: 64)
"""Where reads of balances queue that arrive together: each asks for a (holder_id, credit_type) and gets a `Balance`."""


def balance_by_effective_time(holder_id: str, credit_type: str = "credits", *, at: datetime | None = None) -> Balance:
    """The account as it counts now or at an instant by what is known today: back-dated grants count from their effective time on.

    It starts from the state recorded by then, with all that the clock had brought about, and adds the grants that were recorded
    later but effective by then; those that are effective later are left out. Both are few, and indexed.
    """
    now = timezone.now()
    seen = balance(holder_id, credit_type, at=at)
    at = seen.as_of
    at_us = to_us(at)
    parameters: dict[str, Any] = {
        "holder_id": holder_id,
        "credit_type": credit_type,
        "at": min(at, now),
        "sequence": seen.sequence,
    }
    with connection.cursor() as cursor:
        cursor.execute(RECORDED_LATER, parameters)
        later = [entry_from_row(row) for row in cursor.fetchall()]
    state = settled(seen.lots, seen.holds, seen.owed, at_us)
    added = [
        lot
        for entry in later
        if entry.kind == "grant"
        for lot in in_full(entry.lots, {entry.sequence: entry.effective_us})
        if lot.grant == entry.sequence and not lot.is_expired(at_us)
    ]
    open_lots = in_burn_order([*state.lots, *added])
    state = settled(tuple([lot for lot in open_lots if lot.effective_us <= at_us]), state.holds, state.owed, at_us)
    amount = total(state.lots) - state.owed
    return replace(
        seen,
        as_of=at,
        available=max(0, amount + seen.overdraft),
        balance=amount,
        held=sum(hold.amount for hold in state.holds),
        lots=state.lots,
        holds=state.holds,
        next_expiry=_next_expiry(open_lots),
    )


def _balance(holder_id: str, credit_type: str, as_of_us: int, state: Sequence[Any]) -> Balance:
    sequence, booked, held, lots, holds, overdraft, recorded_us, effective_times = state
    as_of = from_us(as_of_us)
    if sequence is None:
        return Balance(holder_id, credit_type, 0, 0, 0, 0, as_of, 0, (), (), None)
    told = in_full(decode(lots), _by_grant(effective_times))
    account = Account(holder_id, credit_type, as_of_us, sequence, booked, held, told, decode_holds(holds), overdraft)
    return Balance(
        holder_id=holder_id,
        credit_type=credit_type,
        available=account.available,
        balance=booked,
        held=held,
        sequence=sequence,
        as_of=as_of,
        overdraft=overdraft or 0,
        lots=account.lots,
        holds=account.holds,
        next_expiry=_next_expiry([lot for lot in account.lots if not lot.is_expired(as_of_us)]),
        is_as_written=all(lot.state(account.now_us) == lot.state(recorded_us) for lot in account.lots)
        and all(hold.state(account.now_us) == hold.state(recorded_us) for hold in account.holds),
    )


def _by_grant(effective_times: str | None) -> dict[int, int]:
    return {} if effective_times is None else {int(grant): us for grant, us in json.loads(effective_times).items()}


def lots_in_full(holder_id: str, credit_type: str, lots: Lots) -> Lots:
    """The account's lots with their effective times, which those that could be spent from the first do not bear."""
    unknown = [lot.grant for lot in lots if lot.effective_us == SINCE_ITS_GRANT]
    if not unknown:
        return lots
    with connection.cursor() as cursor:
        cursor.execute(EFFECTIVE_TIMES, [holder_id, credit_type, unknown])
        return in_full(lots, {grant: to_us(effective_at) for grant, effective_at in cursor.fetchall()})


def _next_expiry(lots: Sequence[Lot]) -> NextExpiry | None:
    expiring = [lot for lot in lots if lot.expires_us is not None]
    if not expiring:
        return None
    soonest = min(expiring, key=lambda lot: lot.expires_us or 0)
    assert soonest.expires_at is not None
    return NextExpiry(soonest.expires_at, sum(lot.remaining for lot in expiring if lot.expires_us == soonest.expires_us))


def entry(holder_id: str, credit_type: str, sequence: int) -> Entry | None:
    """The entry of that number, if the account has it."""
    sql = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND sequence = %s"
    row = _row(sql, [holder_id, credit_type, sequence])
    return None if row is None else entry_from_row(row)


def explanation(holder_id: str, credit_type: str, sequence: int) -> dict[str, Any] | None:
    """Why the entry of that number is as it is, as plain JSON: see `rules.explanations`. None if there is no such entry."""
    found = _where(holder_id, credit_type, "sequence BETWEEN %s AND %s", [sequence - 1, sequence])
    if not found or found[-1].sequence != sequence:
        return None
    found = _with_lots_in_full(found)
    explained = found[-1]
    beside = [sequence - MAX_BOOKED_TOGETHER, sequence + MAX_BOOKED_TOGETHER, explained.recorded_at]
    together = _where(holder_id, credit_type, "sequence BETWEEN %s AND %s AND recorded_at = %s", beside)
    earlier = takewhile(is_booked_by_itself, (each for each in reversed(together) if each.sequence < sequence))
    later = takewhile(is_booked_by_itself, (each for each in together if each.sequence > sequence))
    return explain(
        explained,
        found[0] if found[0].sequence < sequence else None,
        booked_before=list(earlier)[::-1],
        booked_after=list(later),
        referred=None if explained.refers_to is None else entry(holder_id, credit_type, explained.refers_to),
    )


def _with_lots_in_full(entries: list[Entry]) -> list[Entry]:
    """Entries of one account, each with its lots in full, by one query for all of them."""
    first = entries[0]
    by_grant = {lot.grant: lot for entry in entries for lot in entry.lots}
    told = lots_in_full(first.holder_id, first.credit_type, tuple(by_grant.values()))
    times = {lot.grant: lot.effective_us for lot in told}
    return [entry._replace(lots=in_full(entry.lots, times)) for entry in entries]


def _where(holder_id: str, credit_type: str, condition: str, values: list[Any]) -> list[Entry]:
    sql = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s AND {condition} ORDER BY sequence"
    with connection.cursor() as cursor:
        cursor.execute(sql, [holder_id, credit_type, *values])
        return [entry_from_row(row) for row in cursor.fetchall()]


def entries(
    holder_id: str,
    *,
    credit_type: str | None = None,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: EntryPosition | None = None,
    after: EntryPosition | None = None,
    limit: int = 50,
) -> list[Entry]:
    """A page of a holder's entries, newest first.

    Args:
        kind: entries of that kind only; by default all but refusals.
        since, until: recorded in [since, until).
        before: only entries older than that position; `after`: only newer ones, those next to it.
        limit: at most so many, 1 or more.
    """
    types = [credit_type] if credit_type is not None else _credit_types(holder_id)
    if not types:
        return []
    # One branch per account: each reads no more of its primary key than the page needs.
    pages = [
        _page(holder_id, each, kind, _bounds(holder_id, each, since, until, before, after), limit, not after) for each in types
    ]
    direction = "ASC" if after else "DESC"
    order = f"recorded_at {direction}, credit_type {direction}, sequence {direction}"
    sql = f"SELECT * FROM ({' UNION ALL '.join(page for page, _ in pages)}) AS page ORDER BY {order} LIMIT {limit:d}"
    with connection.cursor() as cursor:
        cursor.execute(sql, [value for _, values in pages for value in values])
        rows = cursor.fetchall()
    found = [entry_from_row(row) for row in rows]
    return found[::-1] if after else found


class _Bounds(NamedTuple):
    """Between which numbers of an account a page lies, neither included: SQL of two numbers, and its values."""

    above: str
    below: str
    values: list[Any]


def _bounds(
    holder_id: str,
    credit_type: str,
    since: datetime | None,
    until: datetime | None,
    before: EntryPosition | None,
    after: EntryPosition | None,
) -> _Bounds:
    """Every bound in time as a bound on the account's numbers, which the primary key serves: recorded_at rises with them."""
    above, below = ["0"], [str(MAX_SEQUENCE)]
    at_or_before = "ledger_sequence_at(%s, %s, %s)"
    earlier = "ledger_sequence_at(%s, %s, %s::timestamptz - interval '1 microsecond')"
    values_above: list[Any] = []
    values_below: list[Any] = []

    def bound(side: list[str], values: list[Any], sql: str, at: datetime) -> None:
        side.append(sql if side is above else f"{sql} + 1")
        values.extend([holder_id, credit_type, at])

    if since is not None:
        bound(above, values_above, earlier, since)
    if until is not None:
        bound(below, values_below, earlier, until)
    # Entries of one instant stand in the order of their credit types, then of their numbers.
    if before is not None and before[1] == credit_type:
        below.append(str(before[2]))
    elif before is not None:
        bound(below, values_below, at_or_before if credit_type < before[1] else earlier, before[0])
    if after is not None and after[1] == credit_type:
        above.append(str(after[2]))
    elif after is not None:
        bound(above, values_above, earlier if credit_type > after[1] else at_or_before, after[0])
    return _Bounds(f"GREATEST({', '.join(above)})", f"LEAST({', '.join(below)})", [*values_above, *values_below])


def _page(holder_id: str, credit_type: str, kind: str | None, bounds: _Bounds, limit: int, newest: bool) -> tuple[str, list[Any]]:
    """SQL of an account's page, and its values: of one kind, or of all but refusals."""
    of_account = f"SELECT {READ_COLUMNS} FROM ledger_entry WHERE holder_id = %s AND credit_type = %s"
    account = [holder_id, credit_type]
    if kind is None:
        numbers = f"ledger_movements(%s, %s, {bounds.above}, {bounds.below}, {limit:d}, {newest})"
        return f"({of_account} AND sequence = ANY({numbers}))", [*account, *account, *bounds.values]
    direction = "DESC" if newest else "ASC"
    within = f"kind = %s AND sequence > {bounds.above} AND sequence < {bounds.below}"
    return f"({of_account} AND {within} ORDER BY sequence {direction} LIMIT {limit:d})", [*account, kind, *bounds.values]


def refusals(
    holder_id: str, *, before: EntryPosition | None = None, after: EntryPosition | None = None, limit: int = 50
) -> list[Refusal]:
    """A page of a holder's refusals, newest first.

    Args:
        before: only refusals older than that position; `after`: only newer ones, those next to it.
    """
    return [_refusal(entry) for entry in entries(holder_id, kind="refusal", before=before, after=after, limit=limit)]


def _refusal(entry: Entry) -> Refusal:
    assert entry.refusal is not None
    assert entry.idempotency_key is not None
    told = {name: entry.refusal[name] for name in ("operation", "code", "facts", "request", "request_id")}
    return Refusal(
        holder_id=entry.holder_id,
        credit_type=entry.credit_type,
        sequence=entry.sequence,
        idempotency_key=entry.idempotency_key,
        recorded_at=entry.recorded_at,
        actor=entry.actor,
        **told,
    )


def holders(
    *,
    prefix: str = "",
    credit_type: str | None = None,
    after: tuple[str, str] | None = None,
    before: tuple[str, str] | None = None,
    limit: int = 50,
) -> list[Balance]:
    """A page of accounts with their balances, by holder and credit type.

    Args:
        prefix: only holders whose id begins so.
        after: only accounts behind that (holder_id, credit_type); `before`: only those ahead of it, next to it.
    """
    if before is not None:
        comparison, direction, start = "<", "DESC", before
    else:
        comparison, direction, start = ">", "ASC", after or (prefix, "")
    sql = ACCOUNTS.format(
        comparison=comparison, direction=direction, recorded_us=RECORDED_US, effective_times=OWN_EFFECTIVE_TIMES
    )
    parameters = {"holder_id": start[0], "credit_type": start[1], "prefix": prefix, "type": credit_type, "limit": limit}
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = [_balance(holder, type_, to_us(now), state) for now, holder, type_, *state in cursor.fetchall()]
    return found[::-1] if before is not None else found


def accounts(holder_id: str) -> list[Balance]:
    """All accounts of a holder with their balances, by credit type."""
    found: list[Balance] = []
    page = holders(prefix=holder_id, limit=ACCOUNTS_AT_ONCE)
    while page:
        # Of all holders whose id begins so, the one that is nothing but the prefix comes first.
        own = [account for account in page if account.holder_id == holder_id]
        found += own
        if len(own) < ACCOUNTS_AT_ONCE:
            break
        page = holders(prefix=holder_id, after=(holder_id, own[-1].credit_type), limit=ACCOUNTS_AT_ONCE)
    return found


def seen(holder_id: str) -> tuple[datetime, datetime] | None:
    """When the holder's first and last entries were recorded, over all accounts; None for a holder who never had one."""
    with connection.cursor() as cursor:
        cursor.execute(SEEN, [holder_id])
        row = cursor.fetchone()
    return None if row is None or row[0] is None else (row[0], row[1])


def is_known(holder_id: str) -> bool:
    """Whether the holder has an account, in whatever credit type."""
    return seen(holder_id) is not None


def page_of_holds(
    found: Balance, *, after: tuple[int] | None = None, before: tuple[int] | None = None, limit: int = 50
) -> list[Hold]:
    """A page of an account's holds, the oldest first.

    Args:
        after: only holds made after the one of that sequence; `before`: only those made before it, next to it.
    """
    holds = found.holds
    if after is not None:
        holds = tuple(hold for hold in holds if hold.sequence > after[0])
    if before is not None:
        return [hold for hold in holds if hold.sequence < before[0]][-limit:]
    return list(holds[:limit])


def rates(
    *,
    credit_type: str | None = None,
    after: tuple[str, str] | None = None,
    before: tuple[str, str] | None = None,
    limit: int = 50,
) -> list[Rate]:
    """A page of rates, each in its newest version, by credit type and code.

    Args:
        after: only rates behind that (credit_type, code); `before`: only those ahead of it, next to it.
    """
    found = Rate.objects.all() if credit_type is None else Rate.objects.filter(credit_type=credit_type)
    direction = "-" if before is not None else ""
    if after is not None or before is not None:
        type_, code = before or after or ("", "")
        side = "lt" if before is not None else "gt"
        found = found.filter(Q(**{f"credit_type__{side}": type_}) | Q(credit_type=type_, **{f"code__{side}": code}))
    newest = found.order_by(f"{direction}credit_type", f"{direction}code", "-version").distinct("credit_type", "code")[:limit]
    return list(newest)[::-1] if before is not None else list(newest)


def rate_versions(
    code: str,
    credit_type: str = "credits",
    *,
    before: tuple[int] | None = None,
    after: tuple[int] | None = None,
    limit: int = 50,
) -> list[Rate]:
    """A page of a rate's versions, newest first.

    Args:
        before: only versions older than that one; `after`: only newer ones, those next to it.
    """
    found = Rate.objects.filter(credit_type=credit_type, code=code)
    if before is not None:
        found = found.filter(version__lt=before[0])
    if after is not None:
        return list(found.filter(version__gt=after[0]).order_by("version")[:limit])[::-1]
    return list(found.order_by("-version")[:limit])


def _credit_types(holder_id: str) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(CREDIT_TYPES, [holder_id])
        return [row[0] for row in cursor.fetchall()]


def _row(sql: str, parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchone()
