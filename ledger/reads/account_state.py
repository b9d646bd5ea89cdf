"""The state of an account, now or at an earlier time: its last entry up to then, and the changes by the clock since."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import orjson
from django.utils import timezone

from ledger import conf, journal
from ledger.clocks import TimedStatement, time_of
from ledger.database.loop_reads import GATHER_SECONDS, IN_A_THREAD, ReadQueue
from ledger.database.statements import Statement, array, instant_us, integer, parameter
from ledger.due_grants import with_due_grants
from ledger.entry_rows import LOADERS, READ_COLUMNS, entry_of
from ledger.journal import EFFECTIVE_TIMES
from ledger.previews import preview
from ledger.rules.accounts import AccountState
from ledger.rules.claims import Claims, decode_claims
from ledger.rules.cost_shares import LotCost, LotCosts, decode_costs
from ledger.rules.entries import BY_THE_LEDGER, Entry
from ledger.rules.holds import Holds, decode_holds
from ledger.rules.instants import from_us, to_us
from ledger.rules.lots import SINCE_ITS_GRANT, Lots, available, decode, in_burn_order, in_full, total
from ledger.rules.overage import Overage, decode_overage
from ledger.rules.pending import settled
from ledger.rules.purposes import Purpose, Use

__all__ = [
    "BALANCES", "Balance", "NextExpiry", "ShownHold", "ShownLot", "balance", "balance_by_effective_time", "balances",
    "lots_in_full", "page_of_holds", "page_of_lots",
]  # fmt: skip

Part = TypeVar("Part")

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
    """An account in the state of its last entry `e`. From `sequence` on, all fields are None for an account without entries."""

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
    """The effective times of lots that do not store them: by grant, in microseconds."""
    costs: LotCosts | None = None
    overage: Overage | None = None
    claims: Claims | None = None
    next_grant_us: int | None = None


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
    {OWN_EFFECTIVE_TIMES},
    e.costs::text,
    e.overage::text,
    e.claims::text,
    e.next_grant_at"""
"""The columns of an `AccountRow` behind the account's name, of its entry `e`."""
STATE_OF_ONE_HOLDER = ACCOUNT_STATE.replace("holder_id = e.holder_id", "holder_id = %(holder_id)s")
"""As ACCOUNT_STATE. With the holder's value, the whole query is about one holder, wherever its entries are."""

ACCOUNT_LOADERS = (
    bytes.decode, bytes.decode, instant_us, integer, integer, integer, decode, decode_holds, integer, instant_us, _by_grant,
    decode_costs, decode_overage, decode_claims, instant_us,
)  # fmt: skip

LAST_ENTRIES = TimedStatement(
    "last_entries",
    f"""
SELECT
    accounts.holder_id,
    accounts.credit_type,{ACCOUNT_STATE}
FROM unnest(%s::text[], %s::text[]) AS accounts (holder_id, credit_type)
LEFT JOIN LATERAL (
    SELECT *
    FROM ledger_entry
    WHERE holder_id = accounts.holder_id AND credit_type = accounts.credit_type
    ORDER BY sequence DESC
    LIMIT 1
) e ON true
""",
    ACCOUNT_LOADERS,
    holder="accounts.holder_id",
    row=AccountRow._make,
)

_LAST_ENTRY = f"""
SELECT
    e.holder_id,
    e.credit_type,{STATE_OF_ONE_HOLDER}
FROM ledger_entry e
WHERE e.holder_id = %(holder_id)s
    AND e.credit_type = %(credit_type)s
    AND e.sequence = """
_RECORDED_AT = "ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(recorded_by)s)"

LAST_ENTRY_AT = Statement("last_entry_at", f"{_LAST_ENTRY}{_RECORDED_AT}", ACCOUNT_LOADERS, row=AccountRow._make)

# Entries are decided in the order of their numbers, but an import records them later than they were decided. So the last entry
# that was decided by `at` is the last one recorded by then, or a later one that took effect by then. A grant can count from
# another time than that of its decision, and so can what the ledger books.
LAST_DECIDED_AT = Statement(
    "last_decided_at",
    f"""{_LAST_ENTRY}GREATEST(
        {_RECORDED_AT},
        (
            SELECT d.sequence
            FROM ledger_entry d
            WHERE d.holder_id = %(holder_id)s
                AND d.credit_type = %(credit_type)s
                AND d.effective_at <> d.recorded_at
                AND d.kind <> 'grant'
                AND d.actor <> '{BY_THE_LEDGER}'
                AND d.effective_at <= %(at)s
            ORDER BY d.effective_at DESC, d.sequence DESC
            LIMIT 1
        )
    )
""",
    ACCOUNT_LOADERS,
    row=AccountRow._make,
)

# Recorded after the account's entry of that number, but effective at or before `at`.
GRANTED_LATER = Statement(
    "granted_later",
    f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND kind = 'grant'
    AND effective_at <> recorded_at
    AND effective_at <= %(at)s
    AND sequence > %(sequence)s
ORDER BY sequence
""",
    LOADERS,
    row=entry_of,
)

RECORDED_BY = Statement("recorded_by", "SELECT ledger_recorded_by(%s, %s)::text", [bytes])

TIMES_OF_GRANTS = Statement("times_of_grants", EFFECTIVE_TIMES, [integer, instant_us])


class NextExpiry(NamedTuple):
    """The instant of the next expiry, and how many credits expire at that time."""

    at: datetime
    amount: int


class ShownLot(NamedTuple):
    """A lot and its state at the displayed time."""

    grant: int
    remaining: int
    effective_us: int
    expires_us: int | None
    priority: int
    source: str
    state: str
    cost: LotCost | None = None
    applies_to: dict[str, Any] | None = None
    """What its credits can pay for; None: for everything."""


class OtherCredits(NamedTuple):
    """Credits that can be spent, but not on the use of the balance."""

    applies_to: dict[str, Any]
    available: int


class ShownHold(NamedTuple):
    """A hold and its state at the displayed time."""

    hold: int
    amount: int
    expires_us: int
    state: str


@dataclass(frozen=True, slots=True)
class Balance:
    """The state of an account at `as_of`: all zeros for an account that was never used."""

    holder_id: str
    credit_type: str
    available: int
    balance: int
    held: int
    sequence: int
    as_of: datetime
    overdraft: int
    lots: Lots
    """The lots of the balance, in burn order; an expired lot stays among them until its expiry is booked."""
    holds: Holds
    """The holds of `held`, in the same form."""
    next_expiry: NextExpiry | None
    is_as_written: bool = True
    """Whether the clock alone has changed nothing since the last entry: no lot expired or became effective, no hold expired."""
    costs: LotCosts = ()
    """What is left of the costs of lots, open or held."""
    overage: Overage | None = None
    """The overage in the period of `as_of`; None if there is none then."""
    claims: Claims = ()
    """What will be taken back of the credits that come back, without what expired holds give back."""
    restricted_lots: Lots = ()
    """The lots that can be spent at `as_of`, due changes made, whose credits cannot pay for everything."""
    use: Use | None = None
    """What `available` is for; None: for everything."""

    @property
    def owed(self) -> int:
        """The used part of the overdraft: the lots add up to the balance and this."""
        return total(self.lots) - self.balance

    @property
    def shown_lots(self) -> list[ShownLot]:
        """The lots with their states at `as_of`."""
        as_of_us, costs = to_us(self.as_of), {cost.lot: cost for cost in self.costs}
        return [
            ShownLot(
                *lot[:6],
                lot.state(as_of_us),
                costs.get(lot.grant),
                None if lot.applies_to is None else lot.applies_to.shown(),
            )
            for lot in self.lots
        ]

    def for_use(self, use: Use) -> "Balance":
        """Return the balance whose `available` counts what can be spent on this use."""
        paying = sum([lot.remaining for lot in self.restricted_lots if lot.covers(use)])
        return replace(self, available=self.available + paying, use=use)

    @property
    def for_other_things(self) -> list[OtherCredits] | None:
        """What can be spent and is not in `available`, by what it can pay for, in burn order; None if there is none."""
        amounts: dict[Purpose, int] = {}
        for lot in self.restricted_lots:
            if lot.applies_to is not None and not lot.covers(self.use):
                amounts[lot.applies_to] = amounts.get(lot.applies_to, 0) + lot.remaining
        return [OtherCredits(purpose.shown(), amount) for purpose, amount in amounts.items()] or None

    @property
    def shown_holds(self) -> list[ShownHold]:
        """The holds with their states at `as_of`."""
        as_of_us = to_us(self.as_of)
        return [ShownHold(hold.sequence, hold.amount, hold.expires_us, hold.state(as_of_us)) for hold in self.holds]


def balance(holder_id: str, credit_type: str = "credits", *, at: datetime | None = None) -> Balance:
    """Return the current account, or the account at an earlier time: what was recorded and could be spent by then."""
    if at is not None and (conf.TEST_CLOCKS.value or at < timezone.now()):
        found = LAST_ENTRY_AT.read(_account(holder_id, credit_type) | {"recorded_by": _recorded_by(holder_id, at)})
        return balance_of(found[0], as_of_us=to_us(at)) if found else _zeros(holder_id, credit_type, at)
    [row] = LAST_ENTRIES.present.read([array([holder_id]), array([credit_type])])
    return present_balance(row) if at is None else balance_of(row, as_of_us=to_us(at))


def balances(account_refs: Sequence[tuple[str, str]]) -> list[Balance]:
    """Return the current accounts of those (holder_id, credit_type), in that order, by one prepared statement."""
    rows: list[AccountRow] = LAST_ENTRIES.present.read(_accounts_read(account_refs))
    found = {(row.holder_id, row.credit_type): present_balance(row) for row in rows}
    return [found[account_ref] for account_ref in account_refs]


def _accounts_read(account_refs: Sequence[tuple[str, str]]) -> tuple[bytes, bytes]:
    """Return the parameters of LAST_ENTRIES."""
    holders, types = zip(*dict.fromkeys(account_refs), strict=True)
    return array(holders), array(types)


def _balances_in(account_refs: Sequence[tuple[str, str]], rows: Sequence[AccountRow]) -> list[Any]:
    """Return the balances in the rows of LAST_ENTRIES; those with due grants need more statements."""
    found = {row[:2]: IN_A_THREAD if _has_due_grants(row) else balance_of(row, as_of_us=row.now_us) for row in rows}
    return [found[account_ref] for account_ref in account_refs]


BALANCES = ReadQueue(
    "ledger-balances",
    balances,
    most=lambda: 64,
    gather_seconds=GATHER_SECONDS,
    statement=lambda: LAST_ENTRIES.present,
    parameters=_accounts_read,
    outcomes=_balances_in,
)
"""The queue of reads of balances that arrive together: each gives a (holder_id, credit_type) and gets a `Balance`."""


def balance_by_effective_time(holder_id: str, credit_type: str = "credits", *, at: datetime | None = None) -> Balance:
    """Return the account at a time by today's knowledge: each entry counts from its effective time on, whenever it was recorded.

    It starts from the last entry that was decided by then, with all changes by the clock, and adds the grants that were decided
    later but effective by then; it leaves out those that are effective later. Both are few, and indexed.
    """
    seen = _decided_by(holder_id, credit_type, at)
    at_us = to_us(seen.as_of)
    parameters = {"at": parameter(seen.as_of), "sequence": parameter(seen.sequence)}
    later: list[Entry] = GRANTED_LATER.read(_account(holder_id, credit_type) | parameters)
    state = settled(seen.lots, seen.holds, seen.owed, seen.claims, at_us)
    added = [
        lot
        for entry in later
        for lot in in_full(entry.lots, {entry.sequence: entry.effective_us})
        if lot.grant == entry.sequence and not lot.is_expired(at_us)
    ]
    open_lots = in_burn_order([*state.lots, *added])
    effective = tuple([lot for lot in open_lots if lot.effective_us <= at_us])
    state = settled(effective, state.holds, state.owed, state.claims, at_us)
    amount = total(state.lots) - state.owed
    brought = [cost for entry in later for cost in entry.costs if cost.lot == entry.sequence]
    return replace(
        seen,
        available=max(0, available(state.lots, at_us) - state.owed + seen.overdraft),
        balance=amount,
        held=sum(hold.amount for hold in state.holds),
        lots=state.lots,
        holds=state.holds,
        next_expiry=_next_expiry(open_lots, at_us),
        costs=(*seen.costs, *brought),
        restricted_lots=_restricted_lots(state.lots, at_us),
    )


def _decided_by(holder_id: str, credit_type: str, at: datetime | None) -> Balance:
    """Return the account after the last entry that was decided by a time, as of that time."""
    if at is None or at >= time_of(holder_id):
        return balance(holder_id, credit_type, at=at)
    times = {"recorded_by": _recorded_by(holder_id, at), "at": parameter(at)}
    found = LAST_DECIDED_AT.read(_account(holder_id, credit_type) | times)
    return balance_of(found[0], as_of_us=to_us(at)) if found else _zeros(holder_id, credit_type, at)


def _recorded_by(holder_id: str, at: datetime) -> bytes | None:
    """Return until when entries were recorded by a time of the holder's."""
    if not conf.TEST_CLOCKS.value:
        return parameter(at)
    recorded_by: bytes = RECORDED_BY.first([parameter(holder_id), parameter(at)])[0]
    return recorded_by


def present_balance(row: AccountRow) -> Balance:
    """Return the state of an account now. What recurring grants have due is available, although no write has made it yet."""
    found = balance_of(row, as_of_us=row.now_us)
    if not _has_due_grants(row):
        return found
    with preview(), journal.open(accounts=[row[:2]]) as accounts:
        available = with_due_grants(accounts.account(*row[:2])).state.available
    return replace(found, available=available, is_as_written=False)


def _has_due_grants(row: AccountRow) -> bool:
    return row.next_grant_us is not None and row.next_grant_us <= row.now_us


def balance_of(row: AccountRow, *, as_of_us: int) -> Balance:
    """Return the state of an account at a time at which `row` is its last entry."""
    as_of = from_us(as_of_us)
    if row.sequence is None:
        return _zeros(row.holder_id, row.credit_type, as_of)
    lots = in_full(row.lots, row.effective_times or {})
    account = AccountState(
        row.holder_id, row.credit_type, as_of_us, row.sequence, row.balance, row.held, lots, row.holds or (), row.overdraft
    )._replace(overage=row.overage, claims=row.claims or ())
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
        next_expiry=_next_expiry(lots, as_of_us),
        # With a test clock the entry's recorded_at does not say what it had to consider.
        is_as_written=not conf.TEST_CLOCKS.value
        and not _any_changes_between(row.recorded_us, account.now_us, lots)
        and not [hold for hold in account.holds if hold.state(account.now_us) != hold.state(row.recorded_us)],
        costs=row.costs or (),
        overage=account.present_overage,
        claims=account.claims,
        restricted_lots=_restricted_of(account),
    )


def _any_changes_between(earlier_us: int, later_us: int, lots: Lots) -> bool:
    """Return whether a lot has another state at `later_us` than at `earlier_us`, at or before it."""
    # Written out, as below: every balance passes through here with all lots of its account.
    for _, _, effective_us, expires_us, *_ in lots:
        if earlier_us < effective_us <= later_us or (expires_us is not None and earlier_us < expires_us <= later_us):
            return True
    return False


def _restricted_of(account: AccountState) -> Lots:
    if not [lot for lot in account.lots_and_held_parts if lot.applies_to is not None]:
        return ()
    return _restricted_lots(account.settled.lots, account.now_us)


def _restricted_lots(lots: Lots, now_us: int) -> Lots:
    return tuple([lot for lot in lots if lot.applies_to is not None and lot.is_spendable(now_us)])


def _account(holder_id: str, credit_type: str) -> dict[str, bytes | None]:
    return {"holder_id": parameter(holder_id), "credit_type": parameter(credit_type)}


def _zeros(holder_id: str, credit_type: str, as_of: datetime) -> Balance:
    return Balance(holder_id, credit_type, 0, 0, 0, 0, as_of, 0, (), (), None)


def lots_in_full(holder_id: str, credit_type: str, lots: Lots) -> Lots:
    """Return the account's lots with their effective times; lots that were spendable from the start do not store them."""
    unknown = [str(lot.grant) for lot in lots if lot.effective_us == SINCE_ITS_GRANT]
    if not unknown:
        return lots
    return in_full(lots, dict(TIMES_OF_GRANTS.read([parameter(holder_id), parameter(credit_type), array(unknown)])))


def _next_expiry(lots: Lots, now_us: int) -> NextExpiry | None:
    instants = [expires_us for _, _, _, expires_us, *_ in lots if expires_us is not None and now_us < expires_us]
    if not instants:
        return None
    soonest_us = min(instants)
    return NextExpiry(from_us(soonest_us), sum([lot.remaining for lot in lots if lot.expires_us == soonest_us]))


def page_of_holds(
    found: Balance, *, after: tuple[int] | None = None, before: tuple[int] | None = None, limit: int = 50
) -> list[ShownHold]:
    """Return a page of an account's holds, the oldest first.

    Args:
        after: only holds made after the one of that sequence; `before`: only those made before it, next to it.
    """
    return _page_of(found.shown_holds, lambda hold: hold.hold, after, before, limit)


def page_of_lots(
    found: Balance, *, after: tuple[int] | None = None, before: tuple[int] | None = None, limit: int = 50
) -> list[ShownLot]:
    """A page of an account's open lots, the oldest first.

    Args:
        after: only lots of later grants than that sequence; `before`: only those of earlier ones, next to it.
    """
    return _page_of(sorted(found.shown_lots), lambda lot: lot.grant, after, before, limit)


def _page_of(
    parts: Sequence[Part],
    number_of: Callable[[Part], int],
    after: tuple[int] | None,
    before: tuple[int] | None,
    limit: int,
) -> list[Part]:
    if after is not None:
        parts = [part for part in parts if number_of(part) > after[0]]
    if before is not None:
        return [part for part in parts if number_of(part) < before[0]][-limit:]
    return list(parts[:limit])
