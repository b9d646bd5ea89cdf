"""What an account has, now or at an earlier time: from its last entry by then, and what the clock has brought about since."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import orjson
from django.utils import timezone

from ledger.database.load.queues import Queue
from ledger.database.statements import Statement, array, instant_us, integer, parameter
from ledger.entry_rows import LOADERS, READ_COLUMNS, entry_of
from ledger.journal import EFFECTIVE_TIMES
from ledger.rules import Account, Entry, Hold, Lot
from ledger.rules.holds import Holds, decode_holds
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import SINCE_ITS_GRANT, Lots, decode, in_burn_order, in_full, total
from ledger.rules.pending import settled

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


class AccountRow(NamedTuple):
    """An account as its last entry `e` has it. `sequence` and all behind it are None for an account without entries."""

    holder_id: str
    credit_type: str
    now_us: int
    sequence: int | None
    balance: int
    held: int
    lots: Lots
    holds: Holds | None
    overdraft: int | None
    recorded_us: int
    effective_times: dict[int, int] | None
    """Of the lots that bear none: by grant, in microseconds."""


def _by_grant(times: bytes) -> dict[int, int]:
    return {int(grant): us for grant, us in orjson.loads(times).items()}


ACCOUNT_STATE = f"""
    statement_timestamp(),
    e.sequence,
    e.balance,
    e.held,
    e.lots::text,
    e.holds::text,
    e.overdraft,
    e.recorded_at,
    {OWN_EFFECTIVE_TIMES}"""
"""The columns of an `AccountRow` behind the account's name, of its entry `e`."""
STATE_OF_ONE_HOLDER = ACCOUNT_STATE.replace("holder_id = e.holder_id", "holder_id = %(holder_id)s")
"""As ACCOUNT_STATE. With the holder named by its value, all of the query is about one holder, wherever its entries are."""

ACCOUNT_LOADERS = (
    bytes.decode, bytes.decode, instant_us, integer, integer, integer, decode, decode_holds, integer, instant_us, _by_grant,
)  # fmt: skip

LAST_ENTRIES = Statement(
    "last_entries",
    f"""
SELECT
    asked.holder_id,
    asked.credit_type,{ACCOUNT_STATE}
FROM unnest(%s::text[], %s::text[]) AS asked (holder_id, credit_type)
LEFT JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    WHERE holder_id = asked.holder_id AND credit_type = asked.credit_type
    ORDER BY sequence DESC
    LIMIT 1
) e ON true
""",
    ACCOUNT_LOADERS,
    row=AccountRow._make,
)

LAST_ENTRY_AT = Statement(
    "last_entry_at",
    f"""
SELECT
    e.holder_id,
    e.credit_type,{STATE_OF_ONE_HOLDER}
FROM ledger_entry e
WHERE e.holder_id = %(holder_id)s
    AND e.credit_type = %(credit_type)s
    AND e.sequence = ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(at)s)
""",
    ACCOUNT_LOADERS,
    row=AccountRow._make,
)

# Recorded after the account's entry of that number, but counting from a time at or before `at`.
RECORDED_LATER = Statement(
    "recorded_later",
    f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND effective_at <> recorded_at
    AND effective_at <= %(at)s
    AND sequence > %(sequence)s
ORDER BY sequence
""",
    LOADERS,
    row=entry_of,
)

TIMES_OF_GRANTS = Statement("times_of_grants", EFFECTIVE_TIMES, [integer, instant_us])


class NextExpiry(NamedTuple):
    """When the next credits expire, and how many at that time."""

    at: datetime
    amount: int


class ShownLot(NamedTuple):
    """A lot and its state at the time that it is shown for."""

    grant: int
    remaining: int
    effective_us: int
    expires_us: int | None
    priority: int
    source: str
    state: str


class ShownHold(NamedTuple):
    """A hold and its state at the time that it is shown for."""

    hold: int
    amount: int
    expires_us: int
    state: str


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

    @property
    def shown_lots(self) -> list[ShownLot]:
        """The lots with their states at `as_of`."""
        as_of_us = to_us(self.as_of)
        return [ShownLot(*lot[:6], lot.state(as_of_us)) for lot in self.lots]

    @property
    def shown_holds(self) -> list[ShownHold]:
        """The holds with their states at `as_of`."""
        return self.show(self.holds)

    def show(self, holds: Sequence[Hold]) -> list[ShownHold]:
        """Return some of the account's holds with their states at `as_of`."""
        as_of_us = to_us(self.as_of)
        return [ShownHold(hold.sequence, hold.amount, hold.expires_us, hold.state(as_of_us)) for hold in holds]


def balance(holder_id: str, credit_type: str = "credits", *, at: datetime | None = None) -> Balance:
    """The account as it looks now, or as it looked at an earlier time: what was recorded and could be spent by then."""
    if at is not None and at < timezone.now():
        found = LAST_ENTRY_AT.read(_account(holder_id, credit_type) | {"at": parameter(at)})
        return balance_of(found[0], as_of_us=to_us(at)) if found else _zeros(holder_id, credit_type, at)
    [row] = LAST_ENTRIES.read([array([holder_id]), array([credit_type])])
    return balance_of(row, as_of_us=row.now_us if at is None else to_us(at))


def balances(wanted: Sequence[tuple[str, str]]) -> list[Balance]:
    """The accounts of those (holder_id, credit_type) as they look now, in that order, by one prepared statement."""
    holders, types = zip(*dict.fromkeys(wanted), strict=True)
    rows: list[AccountRow] = LAST_ENTRIES.read([array(holders), array(types)])
    found = {(row.holder_id, row.credit_type): balance_of(row, as_of_us=row.now_us) for row in rows}
    return [found[position] for position in wanted]


BALANCES = Queue("ledger-balances", balances, most=lambda: 64)
"""Where reads of balances queue that arrive together: each asks for a (holder_id, credit_type) and gets a `Balance`."""


def balance_by_effective_time(holder_id: str, credit_type: str = "credits", *, at: datetime | None = None) -> Balance:
    """The account as it counts now or at a time by what is known today: back-dated grants count from their effective time on.

    It starts from the state recorded by then, with all that the clock had brought about, and adds the grants that were recorded
    later but effective by then; those that are effective later are left out. Both are few, and indexed.
    """
    now = timezone.now()
    seen = balance(holder_id, credit_type, at=at)
    at = seen.as_of
    at_us = to_us(at)
    asked = {"at": parameter(min(at, now)), "sequence": parameter(seen.sequence)}
    later: list[Entry] = RECORDED_LATER.read(_account(holder_id, credit_type) | asked)
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


def balance_of(row: AccountRow, *, as_of_us: int) -> Balance:
    """An account as it looks at a time at which `row` is its last entry."""
    as_of = from_us(as_of_us)
    if row.sequence is None:
        return _zeros(row.holder_id, row.credit_type, as_of)
    lots = in_full(row.lots, row.effective_times or {})
    account = Account(
        row.holder_id, row.credit_type, as_of_us, row.sequence, row.balance, row.held, lots, row.holds or (), row.overdraft
    )
    return Balance(
        holder_id=row.holder_id,
        credit_type=row.credit_type,
        available=account.available,
        balance=row.balance,
        held=row.held,
        sequence=row.sequence,
        as_of=as_of,
        overdraft=row.overdraft or 0,
        lots=account.lots,
        holds=account.holds,
        next_expiry=_next_expiry([lot for lot in account.lots if not lot.is_expired(as_of_us)]),
        is_as_written=all(lot.state(account.now_us) == lot.state(row.recorded_us) for lot in account.lots)
        and all(hold.state(account.now_us) == hold.state(row.recorded_us) for hold in account.holds),
    )


def _account(holder_id: str, credit_type: str) -> dict[str, bytes | None]:
    return {"holder_id": parameter(holder_id), "credit_type": parameter(credit_type)}


def _zeros(holder_id: str, credit_type: str, as_of: datetime) -> Balance:
    return Balance(holder_id, credit_type, 0, 0, 0, 0, as_of, 0, (), (), None)


def lots_in_full(holder_id: str, credit_type: str, lots: Lots) -> Lots:
    """The account's lots with their effective times, which those that could be spent from the first do not bear."""
    unknown = [str(lot.grant) for lot in lots if lot.effective_us == SINCE_ITS_GRANT]
    if not unknown:
        return lots
    return in_full(lots, dict(TIMES_OF_GRANTS.read([parameter(holder_id), parameter(credit_type), array(unknown)])))


def _next_expiry(lots: Sequence[Lot]) -> NextExpiry | None:
    expiring = [lot for lot in lots if lot.expires_us is not None]
    if not expiring:
        return None
    soonest = min(expiring, key=lambda lot: lot.expires_us or 0)
    assert soonest.expires_at is not None
    return NextExpiry(soonest.expires_at, sum(lot.remaining for lot in expiring if lot.expires_us == soonest.expires_us))


def page_of_holds(
    found: Balance, *, after: tuple[int] | None = None, before: tuple[int] | None = None, limit: int = 50
) -> list[ShownHold]:
    """A page of an account's holds, the oldest first.

    Args:
        after: only holds made after the one of that sequence; `before`: only those made before it, next to it.
    """
    holds: Sequence[Hold] = found.holds
    if after is not None:
        holds = [hold for hold in holds if hold.sequence > after[0]]
    if before is not None:
        return found.show([hold for hold in holds if hold.sequence < before[0]][-limit:])
    return found.show(holds[:limit])
