"""Moves holders' credits from the other system into the ledger, exactly once, and back.

A promotion grants what the shadow has, lot by lot with its terms, so the holder can spend in the ledger what he could spend in
the other system. A return takes it all back in one step with every spend before it, and says how much there was.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from django.db import transaction

from ledger import journal
from ledger.database.batch_slots import take_slots
from ledger.database.locks import holder_key, wait_seconds, waits_bounded
from ledger.database.statements import fetch_rows
from ledger.database.transactions import in_transaction
from ledger.errors import Invalid
from ledger.journal import LockedAccounts
from ledger.records import check
from ledger.rules.accounts import AccountState
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT, Lot, available
from ledger.rules.requests import GrantRequest, VoidRequest
from ledger.services.execute import execute_one, unwrap
from ledger.shadow import deciding
from ledger.shadow.observing import RECORD as RECORD_OBSERVATION
from ledger.shadow.observing import Shadow, row_of
from ledger.values import Holder

MAX_HOLDERS: Final = 500
"""How many holders one transaction moves."""
MOVED, BEFORE = "moved", "moved before"
UNKNOWN, DIFFERENT, CHANGED, HELD, NEGATIVE, IN_USE = (
    "not observed", "different", "other balance", "held", "negative", "in use",
)  # fmt: skip
RESULTS: Final = {
    MOVED: "Its credits moved.",
    BEFORE: "Its credits had moved before; nothing was done.",
    UNKNOWN: "It was never observed, or never promoted. Nothing was done.",
    DIFFERENT: "The ledger would have decided otherwise, and nobody has said why that is accepted. Nothing was done.",
    CHANGED: "The last observation has another balance than the one that was given: observations are missing. Nothing was done.",
    HELD: "It has open holds. Capture or release them first. Nothing was done.",
    NEGATIVE: "It has a debt in the other system. An account begins with 0 or more. Nothing was done.",
    IN_USE: "Its account in the ledger has credits already, which would add up. Nothing was done.",
}
"""What became of a holder."""

ACCOUNTS_OF: Final = """
    SELECT DISTINCT o.holder_id, o.credit_type FROM ledger_observation AS o WHERE o.holder_id = ANY(%s) AND o.number = 1
    ORDER BY 1, 2
"""
LAST: Final = """
    SELECT wanted.holder_id, wanted.credit_type, last.number, last.differences, last.first_difference, last.state::text,
        last.balance
    FROM unnest(%s::text[], %s::text[]) AS wanted (holder_id, credit_type)
    CROSS JOIN LATERAL (
        SELECT number, differences, first_difference, state, balance
        FROM ledger_observation AS o
        WHERE o.holder_id = wanted.holder_id AND o.credit_type = wanted.credit_type
        ORDER BY o.number DESC
        LIMIT 1
    ) AS last
"""
PROMOTIONS: Final = """
    SELECT wanted.holder_id, last.number, last.is_return, last.accounts
    FROM unnest(%s::text[]) AS wanted (holder_id)
    CROSS JOIN LATERAL (
        SELECT number, is_return, accounts
        FROM ledger_promotion AS p
        WHERE p.holder_id = wanted.holder_id
        ORDER BY p.number DESC
        LIMIT 1
    ) AS last
"""
RECORD: Final = """
    INSERT INTO ledger_promotion (holder_id, number, is_return, accounts, reason, actor, request_id)
    SELECT r.holder_id, r.number, r.is_return, r.accounts, r.reason, r.actor, r.request_id
    FROM json_to_recordset(%s::json) AS r (
        holder_id text, number bigint, is_return boolean, accounts json, reason text, actor text, request_id text
    )
    RETURNING id
"""
# What happened to an account since its promotion, which the other system may want to know.
SINCE: Final = """
    SELECT wanted.holder_id, wanted.credit_type, e.kind, count(*), sum(e.amount)::bigint
    FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS wanted (holder_id, credit_type, sequence)
    JOIN ledger_entry AS e
        ON e.holder_id = wanted.holder_id AND e.credit_type = wanted.credit_type AND e.sequence > wanted.sequence
    WHERE e.kind <> 'refusal'
    GROUP BY 1, 2, 3
    ORDER BY 1, 2, 3
"""
# Pages of the holders that are to move, by the index of first observations.
CANDIDATES: Final = """
    SELECT DISTINCT holder_id FROM ledger_observation WHERE number = 1 AND holder_id > %s ORDER BY holder_id LIMIT %s
"""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A holder to move.

    Args:
        balances: what the other system has, by credit type, if it is known: then nothing moves unless the last observation has
            the same.
    """

    holder_id: str
    balances: Mapping[str, int] = field(default_factory=dict)


class MoveResult(NamedTuple):
    """What became of a holder.

    Args:
        result: one of RESULTS.
        accounts: of a holder that has moved, now or before: by credit type what moved, and the last entry; of a return also what
            happened since the promotion.
        detail: why nothing moved.
    """

    holder_id: str
    result: str
    accounts: list[dict[str, Any]]
    detail: str = ""


def promote(
    moves: Sequence[Move], *, reason: str = "", actor: str = "", request_id: str = "", dry_run: bool = False
) -> list[MoveResult]:
    """Have holders' accounts begin in the ledger with what the other system has, each once; in one transaction.

    Make sure that the other system decides nothing about these holders any more, and that its last decisions have been observed.

    Args:
        moves: up to 500.
        reason: why open differences are accepted; without it, holders with differences do not move.
        dry_run: return the results, and write nothing.

    Returns:
        A result for each, in their order. Those that do not move keep nobody else back.

    Raises:
        Invalid: there are too many, or a holder is named twice or is none.
        HolderBusy, SequenceTaken, OutcomeUnknown: repeat it; a holder that has moved is not moved again.
    """
    return _move_all(moves, _Promoting(reason, actor, request_id), dry_run=dry_run)


def bring_back(
    holder_ids: Sequence[str], *, reason: str = "", actor: str = "", request_id: str = "", dry_run: bool = False
) -> list[MoveResult]:
    """Take all credits of promoted holders out of the ledger, and say how many there were, so that the other system has them.

    From then on the holders are observed again, beginning with these balances. A repeated call gets the same balances.

    Args, Returns, Raises: as `promote`.
    """
    moves = [Move(holder_id=holder_id) for holder_id in holder_ids]
    return _move_all(moves, _Returning(reason, actor, request_id), dry_run=dry_run)


def _move_all(moves: Sequence[Move], moving: "_Moving", *, dry_run: bool) -> list[MoveResult]:
    holders = [check(Holder(), move.holder_id, f"/holders/{number}") for number, move in enumerate(moves)]
    if len(holders) > MAX_HOLDERS or len(set(holders)) < len(holders):
        raise Invalid(pointer="/holders", rule="length", detail=f"must be at most {MAX_HOLDERS} holders, each once")
    if not holders:
        return []
    names = [holder_key(holder_id) for holder_id in holders]

    def once() -> list[MoveResult]:
        take_slots(len(holders) + 1)
        with journal.open(accounts=[(holder_id, "credits") for holder_id in holders]) as locked:
            # Which accounts there are is only certain under the locks.
            refs = fetch_rows(lambda *row: row, ACCOUNTS_OF, [holders])
            every = dict.fromkeys([*refs, *((holder_id, "credits") for holder_id in holders)])
            with journal.open(accounts=list(every), held=locked.lock) as accounts:
                results = moving.move(moves, refs, accounts)
        if dry_run:
            transaction.set_rollback(True)
        return results

    with waits_bounded(wait_seconds(len(holders))):
        return in_transaction(once, locks=names)


class _Account(NamedTuple):
    """An account as its last observation left it."""

    credit_type: str
    shadow: Shadow
    balance: int


@dataclass(slots=True)
class _Moving:
    """One transaction that moves holders, under their locks."""

    reason: str
    actor: str
    request_id: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    observed: list[dict[str, Any]] = field(default_factory=list)

    is_return = False

    def move(self, moves: Sequence[Move], refs: Sequence[tuple[str, str]], accounts: LockedAccounts) -> list[MoveResult]:
        """Move each holder that can move, and store all of it."""
        self.rows, self.observed = [], []
        holders = [move.holder_id for move in moves]
        known = {holder: (number, was, done) for holder, number, was, done in fetch_rows(lambda *row: row, PROMOTIONS, [holders])}
        last = self._last(refs, accounts)
        self._read({holder: done for holder, (_, _, done) in known.items()})
        results = []
        for move in moves:
            number, is_back, done = known.get(move.holder_id, (0, True, []))
            if is_back == self.is_return and number:
                results.append(MoveResult(move.holder_id, BEFORE, done, RESULTS[BEFORE]))
                continue
            results.append(self._move_one(move, number, done, last.get(move.holder_id, []), accounts))
        accounts.append()
        if self.observed:
            fetch_rows(int, RECORD_OBSERVATION, [json.dumps(self.observed)])
        if self.rows:
            fetch_rows(int, RECORD, [json.dumps(self.rows)])
        return results

    def _read(self, done: Mapping[str, list[dict[str, Any]]]) -> None:
        """Read what is needed of all holders at once."""

    def _last(self, refs: Sequence[tuple[str, str]], accounts: LockedAccounts) -> dict[str, list[_Account]]:
        found: dict[str, list[_Account]] = {}
        if not refs:
            return found
        holders, types = zip(*refs, strict=True)
        for holder, kind, number, count, first, text, balance in fetch_rows(lambda *row: row, LAST, [list(holders), list(types)]):
            now_us = accounts.account(holder, "credits").state.now_us
            state = deciding.decode_state(holder, kind, text, now_us)
            found.setdefault(holder, []).append(_Account(kind, Shadow(number, count, first, state), balance))
        return found

    def _move_one(
        self, move: Move, number: int, done: list[dict[str, Any]], known: list[_Account], accounts: LockedAccounts
    ) -> MoveResult:
        raise NotImplementedError

    def _finish_move(self, holder_id: str, number: int, moved: list[dict[str, Any]]) -> MoveResult:
        self.rows.append({
            "holder_id": holder_id, "number": number + 1, "is_return": self.is_return, "accounts": moved, "reason": self.reason,
            "actor": self.actor, "request_id": self.request_id,
        })  # fmt: skip
        return MoveResult(holder_id, MOVED, moved)


def _refused_move(holder_id: str, result: str, more: str = "") -> MoveResult:
    return MoveResult(holder_id, result, [], f"{RESULTS[result]}{more}")


class _Promoting(_Moving):
    """Into the ledger."""

    def _move_one(
        self, move: Move, number: int, done: list[dict[str, Any]], known: list[_Account], accounts: LockedAccounts
    ) -> MoveResult:
        why = self._why_not(move, known, accounts)
        if why is not None:
            return why
        moved = []
        for account in known:
            state = account.shadow.state
            assert state is not None
            for lot in _as_of_now(state).lots:
                request = self._grant(move.holder_id, account.credit_type, number + 1, lot)
                unwrap(execute_one(accounts, request))
            after = accounts.account(move.holder_id, account.credit_type).state
            moved.append({"credit_type": account.credit_type, "balance": after.available, "sequence": after.sequence})
        return self._finish_move(move.holder_id, number, moved)

    def _why_not(self, move: Move, known: list[_Account], accounts: LockedAccounts) -> MoveResult | None:
        by_type = {account.credit_type: account for account in known}
        if not known or move.balances.keys() - by_type.keys():
            return _refused_move(move.holder_id, UNKNOWN)
        for account in known:
            state, there = account.shadow.state, accounts.account(move.holder_id, account.credit_type).state
            assert state is not None
            given = move.balances.get(account.credit_type)
            if given is not None and given != account.balance:
                return _refused_move(move.holder_id, CHANGED, f" {account.balance:,} was observed, and {given:,} is given.")
            if account.shadow.differences and not self.reason:
                return _refused_move(move.holder_id, DIFFERENT)
            if state.settled.holds:
                return _refused_move(move.holder_id, HELD)
            if account.balance < 0:
                return _refused_move(move.holder_id, NEGATIVE)
            if there.balance or there.held or there.lots or there.settled.lots:
                return _refused_move(move.holder_id, IN_USE)
        return None

    def _grant(self, holder_id: str, credit_type: str, number: int, lot: Lot) -> GrantRequest:
        return GrantRequest(
            holder_id=holder_id,
            credit_type=credit_type,
            amount=lot.remaining,
            source=lot.source,
            effective_at=None if lot.effective_us == SINCE_ITS_GRANT else from_us(lot.effective_us),
            expires_at=lot.expires_at,
            priority=lot.priority,
            applies_to=None if lot.applies_to is None else lot.applies_to.shown(),
            idempotency_key=f"promotion/{number}/{credit_type}/{lot.grant}",
            reason=self.reason or "Moved from the other system",
            reference=f"promotion {number}",
            actor=self.actor,
            request_id=self.request_id,
        )


def _as_of_now(state: AccountState) -> AccountState:
    """Return the shadow without what has expired by now."""
    return state._replace(lots=state.settled.lots, holds=())


@dataclass(slots=True)
class _Returning(_Moving):
    """Back to the other system."""

    is_return = True
    since: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def _read(self, done: Mapping[str, list[dict[str, Any]]]) -> None:
        self.since = {}
        promoted = [(holder, each["credit_type"], each["sequence"]) for holder, accounts in done.items() for each in accounts]
        if not promoted:
            return
        columns = [list(column) for column in zip(*promoted, strict=True)]
        for holder, credit_type, kind, count, amount in fetch_rows(lambda *row: row, SINCE, columns):
            self.since.setdefault((holder, credit_type), {})[kind] = {"entries": count, "amount": amount}

    def _move_one(
        self, move: Move, number: int, done: list[dict[str, Any]], known: list[_Account], accounts: LockedAccounts
    ) -> MoveResult:
        if not number:
            return _refused_move(move.holder_id, UNKNOWN)
        before = {account.credit_type: accounts.account(move.holder_id, account.credit_type).state for account in known}
        if any(state.settled.holds for state in before.values()):
            return _refused_move(move.holder_id, HELD)
        if any(state.settled.owed for state in before.values()):
            return _refused_move(move.holder_id, NEGATIVE)
        moved = [self._take_back(move.holder_id, number + 1, account, accounts) for account in known]
        return self._finish_move(move.holder_id, number, moved)

    def _take_back(self, holder_id: str, number: int, account: _Account, accounts: LockedAccounts) -> dict[str, Any]:
        credit_type = account.credit_type
        state = accounts.account(holder_id, credit_type).state
        lots = state.settled.lots
        if lots:
            request = VoidRequest(
                holder_id=holder_id,
                credit_type=credit_type,
                idempotency_key=f"return/{number}/{credit_type}",
                reason=self.reason or "Back to the other system",
                reference=f"return {number}",
                actor=self.actor,
                request_id=self.request_id,
            )
            unwrap(execute_one(accounts, request))
        after = accounts.account(holder_id, credit_type).state
        balance = available(tuple(lots), state.now_us)
        self._observe(holder_id, account, lots, balance, state.now_us)
        return {
            "credit_type": credit_type,
            "balance": balance,
            "sequence": after.sequence,
            "since": self.since.get((holder_id, credit_type), {}),
            "lots": [
                {
                    "amount": lot.remaining,
                    "effective_at": None if lot.effective_us == SINCE_ITS_GRANT else lot.effective_at.isoformat(),
                    "expires_at": None if lot.expires_at is None else lot.expires_at.isoformat(),
                    "priority": lot.priority,
                    "source": lot.source,
                    "applies_to": None if lot.applies_to is None else lot.applies_to.shown(),
                }
                for lot in lots
            ],
        }

    def _observe(self, holder_id: str, account: _Account, lots: Sequence[Lot], balance: int, now_us: int) -> None:
        """Have the shadow go on with what came back, without the differences of before."""
        shadow, old = account.shadow, account.shadow.state
        assert old is not None
        # The numbers of the ledger's lots are not those of the shadow.
        own = tuple(lot._replace(grant=old.sequence + 1 + place) for place, lot in enumerate(lots))
        state = AccountState(
            holder_id, account.credit_type, max(now_us, old.now_us), sequence=old.sequence + len(own), lots=own,
            balance=sum(lot.remaining for lot in own),
        )  # fmt: skip
        after = Shadow(shadow.number + 1, 0, None, state)
        self.observed.append({
            **row_of(holder_id, account.credit_type, after),
            "operation": "return",
            "is_allowed": True,
            "balance": balance,
            "reference": "",
            "occurred_at": from_us(now_us).isoformat(),
            "ledger_allows": True,
            "ledger_balance": balance,
            "actor": self.actor,
            "request_id": self.request_id,
        })  # fmt: skip


def candidates(after: str = "", limit: int = MAX_HOLDERS) -> list[str]:
    """Return the next observed holders after this one, in the order of their names."""
    return fetch_rows(str, CANDIDATES, [after, limit])
