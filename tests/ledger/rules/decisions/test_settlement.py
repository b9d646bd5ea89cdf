"""Expiries and repayments count from their time, booked or not: by the rules alone, on random histories."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import InsufficientCredits, Refused
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, hold_rules, refunds, settlement, transfers
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.requests import (
    CaptureRequest,
    HoldRequest,
    RefundRequest,
    ReleaseRequest,
    Request,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)
from tests.ledger.random_histories import HOUR_US, NEW_LOT_DAYS, RandomHistory, RulesLedger
from tests.ledger.rules.credit_model import DAY_US
from tests.parts import spread

HOLDERS = ("ada", "bob")
POLICIES = ("new-lot", "gone")


def random_ledger(policy: str, seed: int) -> RulesLedger:
    """Return a ledger after a random history of both holders, with debts and with lots that are not yet effective."""
    history = RandomHistory(RulesLedger(policy), HOLDERS, opens_new_lots=policy == "new-lot")
    chance = random.Random(seed)
    for holder in HOLDERS:
        history.overdraft(holder, chance.choice((0, 20, 60)))
    for _ in range(40):
        history.step(chance)
    for holder in HOLDERS:
        history.grant(
            holder, 9, effective_in_us=chance.choice((1, HOUR_US, DAY_US)), expires_in_us=chance.choice((None, HOUR_US))
        )
        history.spend(holder, chance.randint(1, 30))
    return history.ledger  # type: ignore[return-value]


def request_of_ada(kind: type[Request], **what: Any) -> Any:
    """A request of ada under the key `k`."""
    return kind(holder_id="ada", idempotency_key="k", **what)


def outcome_of(decide: Callable[[], list[Entry]]) -> tuple[Any, ...]:
    """Return what a request leads to: the refusal with its deciding facts, or the account after its entries."""
    try:
        entries = decide()
    except Refused as refusal:
        if isinstance(refusal, InsufficientCredits):
            names = ("available", "requested", "shortfall", "earliest_sufficient_at")
            return (refusal.code, *(refusal.facts[name] for name in names))
        return (refusal.code, {name: refusal.facts[name] for name in refusal.facts if name not in ("closed_by", "open_lots")})
    last = entries[-1]
    # A lot opened by a refund has the refund's sequence, which differs: compare without it.
    lots = sorted((lot[1:] for lot in last.lots), key=repr)
    own = next(entry for entry in entries if entry.idempotency_key == "k")
    return last.balance, last.held, lots, own.kind, own.amount


def outcomes(ledger: RulesLedger, account: AccountState, chance: random.Random) -> list[Any]:
    """Return the outcomes of requests of every kind at the account's time."""
    decisions: list[Callable[[], list[Entry]]] = []
    until = from_us(account.now_us + DAY_US)
    for amount in (1, max(1, account.available), account.available + 1, account.available + 7, chance.randint(1, 90)):
        decisions.append(partial(credit_rules.spend, account, request_of_ada(SpendRequest, amount=amount)))
        decisions.append(partial(hold_rules.hold, account, request_of_ada(HoldRequest, amount=amount, expires_at=until)))
        decisions.append(partial(transfer_to_eve, account, amount))
    entries = ledger.entries[account.holder_id]
    for entry in entries:
        if entry.kind in ("grant", "spend"):
            decisions.append(
                partial(credit_rules.revoke, account, request_of_ada(RevokeRequest, grant=entry.sequence), grant=entry)
            )
        if entry.taken:
            decisions.append(partial(refund_rest, ledger, account, entry))
        if entry.kind == "hold" and entry.refers_to is None:
            of_hold = {"hold_entry": entry, "last_closing": last_referring(entries, entry)}
            amount = chance.randint(1, 60)
            capture = request_of_ada(CaptureRequest, hold=entry.sequence, amount=amount, over_capture="if_available")
            decisions.append(partial(hold_rules.capture, account, capture, **of_hold))
            decisions.append(partial(hold_rules.release, account, request_of_ada(ReleaseRequest, hold=entry.sequence), **of_hold))
    return [(account.available, account.own_available), *map(outcome_of, decisions)]


def transfer_to_eve(account: AccountState, amount: int) -> list[Entry]:
    """Ada's entry of a transfer to eve."""
    request = request_of_ada(TransferRequest, amount=amount, to="eve")
    return transfers.transfer(account, AccountState("eve", "credits", account.now_us), request)[0]


def last_referring(entries: list[Entry], hold: Entry) -> Entry | None:
    """The newest entry that refers to the hold; None without one."""
    return next((entry for entry in reversed(entries) if entry.refers_to == hold.sequence), None)


def refund_rest(ledger: RulesLedger, account: AccountState, spend: Entry) -> list[Entry]:
    """Refund what is left of a spend, by the rules."""
    entries = ledger.entries[account.holder_id]
    done = [entry for entry in entries if entry.kind == "refund" and entry.refers_to == spend.sequence]
    return refunds.refund(
        account,
        request_of_ada(RefundRequest, spend=spend.sequence),
        spend=spend,
        refunded=sum(entry.amount for entry in done),
        later=entries[spend.sequence :],
        terms={lot.grant: lot for entry in entries for lot in entry.lots if lot.grant == entry.sequence},
        expired_lot_policy=ledger.policy,
        new_lot_days=NEW_LOT_DAYS,
    )


@pytest.mark.parametrize("policy", spread(POLICIES, test=(), check=POLICIES[:1]))
@settings(max_examples=settings().max_examples // 2)
@given(seed=st.integers(0, 10**9), waits=st.lists(st.sampled_from((1, HOUR_US, 2 * HOUR_US, DAY_US, 3 * DAY_US)), max_size=5))
def test_available_credits_and_refusals_do_not_depend_on_whether_due_entries_are_booked(policy, seed, waits):
    ledger = random_ledger(policy, seed)
    for holder in HOLDERS:
        account = ledger.account(holder)
        up_to_date = RulesLedger(policy)
        up_to_date.entries[holder] = list(ledger.entries[holder])
        for us in [0, *waits]:
            account = account._replace(now_us=account.now_us + us)
            booked = account.after_all(up_to_date.entries[holder])
            up_to_date.entries[holder] += settlement.settle_due(booked)[0]
            booked = account.after_all(up_to_date.entries[holder])
            assert settlement.settle_due(booked) == ([], booked)
            assert outcomes(up_to_date, booked, random.Random(seed)) == outcomes(ledger, account, random.Random(seed))
