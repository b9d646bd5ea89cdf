"""What the clock brings about counts from its instant, booked or not: by the rules alone, on random histories."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import rules
from ledger.errors import InsufficientCredits, Refused
from ledger.rules import Account, Entry
from ledger.rules.instants import from_us
from tests.ledger.credit_model import DAY_US
from tests.ledger.walks import HOUR_US, NEW_LOT_DAYS, RulesLedger, Walk

HOLDERS = ("ada", "bob")
POLICIES = ("new-lot", "gone")


def lived(policy: str, seed: int) -> RulesLedger:
    """A history of both holders in which anything has happened, debts and lots to come included."""
    walk = Walk(RulesLedger(policy), HOLDERS, opens_new_lots=policy == "new-lot")
    chance = random.Random(seed)
    for holder in HOLDERS:
        walk.overdraft(holder, chance.choice((0, 20, 60)))
    for _ in range(40):
        walk.step(chance)
    for holder in HOLDERS:
        walk.grant(holder, 9, effective_in_us=chance.choice((1, HOUR_US, DAY_US)), expires_in_us=chance.choice((None, HOUR_US)))
        walk.spend(holder, chance.randint(1, 30))
    return walk.ledger  # type: ignore[return-value]


def asked(kind: type[rules.Request], **what: Any) -> Any:
    return kind(holder_id="ada", idempotency_key="k", **what)


def outcome(decide: Callable[[], list[Entry]]) -> tuple[Any, ...]:
    """What a request comes to: the refusal with the facts that decide it, or the account after it."""
    try:
        entries = decide()
    except Refused as refusal:
        if isinstance(refusal, InsufficientCredits):
            names = ("available", "requested", "shortfall", "earliest_sufficient_at")
            return (refusal.code, *(refusal.facts[name] for name in names))
        return (refusal.code, {name: refusal.facts[name] for name in refusal.facts if name not in ("closed_by", "open_lots")})
    last = entries[-1]
    # A lot that a refund has opened is named by its number, which differs.
    lots = sorted((lot[1:] for lot in last.lots), key=repr)
    answer = next(entry for entry in entries if entry.idempotency_key == "k")
    return last.balance, last.held, lots, answer.kind, answer.amount


def outcomes(ledger: RulesLedger, account: Account, chance: random.Random) -> list[Any]:
    """What requests of every kind come to at the account's instant."""
    decisions: list[Callable[[], list[Entry]]] = []
    until = from_us(account.now_us + DAY_US)
    for amount in (1, max(1, account.available), account.available + 1, account.available + 7, chance.randint(1, 90)):
        decisions.append(partial(rules.spend, account, asked(rules.SpendRequest, amount=amount)))
        decisions.append(partial(rules.hold, account, asked(rules.HoldRequest, amount=amount, expires_at=until)))
        decisions.append(partial(departed, account, amount))
    entries = ledger.entries[account.holder_id]
    for entry in entries:
        if entry.kind in ("grant", "spend"):
            decisions.append(partial(rules.revoke, account, asked(rules.RevokeRequest, grant=entry.sequence), grant=entry))
        if entry.taken:
            decisions.append(partial(refunded, ledger, account, entry))
        if entry.kind == "hold" and entry.refers_to is None:
            of_hold = {"hold_entry": entry, "last_closing": closing(entries, entry)}
            amount = chance.randint(1, 60)
            capture = asked(rules.CaptureRequest, hold=entry.sequence, amount=amount, over_capture="if_available")
            decisions.append(partial(rules.capture, account, capture, **of_hold))
            decisions.append(partial(rules.release, account, asked(rules.ReleaseRequest, hold=entry.sequence), **of_hold))
    return [(account.available, account.own_available), *map(outcome, decisions)]


def departed(account: Account, amount: int) -> list[Entry]:
    request = asked(rules.TransferRequest, amount=amount, to="eve")
    return rules.transfer(account, Account("eve", "credits", account.now_us), request)[0]


def closing(entries: list[Entry], hold: Entry) -> Entry | None:
    return next((entry for entry in reversed(entries) if entry.refers_to == hold.sequence), None)


def refunded(ledger: RulesLedger, account: Account, spend: Entry) -> list[Entry]:
    entries = ledger.entries[account.holder_id]
    done = [entry for entry in entries if entry.kind == "refund" and entry.refers_to == spend.sequence]
    return rules.refund(
        account,
        asked(rules.RefundRequest, spend=spend.sequence),
        spend=spend,
        refunded=sum(entry.amount for entry in done),
        later=entries[spend.sequence :],
        terms={lot.grant: lot for entry in entries for lot in entry.lots if lot.grant == entry.sequence},
        expired_lot_policy=ledger.policy,
        new_lot_days=NEW_LOT_DAYS,
    )


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), waits=st.lists(st.sampled_from((1, HOUR_US, 2 * HOUR_US, DAY_US, 3 * DAY_US)), max_size=5))
def test_what_can_be_had_and_what_is_refused_does_not_depend_on_what_has_been_booked(policy, seed, waits):
    ledger = lived(policy, seed)
    for holder in HOLDERS:
        account = ledger.account(holder)
        swept = RulesLedger(policy)
        swept.entries[holder] = list(ledger.entries[holder])
        for us in [0, *waits]:
            account = account._replace(now_us=account.now_us + us)
            booked = account.after_all(swept.entries[holder])
            swept.entries[holder] += rules.settle_due(booked)
            booked = account.after_all(swept.entries[holder])
            assert rules.settle_due(booked) == []
            assert outcomes(swept, booked, random.Random(seed)) == outcomes(ledger, account, random.Random(seed))
