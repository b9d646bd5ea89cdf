"""Random histories: any operations in any order, each step compared with `credit_model`, by the rules or by the services."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from ledger.errors import (
    CaptureExceedsHold,
    EntryNotFound,
    HoldClosed,
    HolderFrozen,
    InsufficientCredits,
    LotClosed,
    NotAHold,
    NothingToVoid,
    NotRefundable,
    NotReversible,
    NotRevocable,
    RefundExceedsSpend,
    Refused,
    ReversalExceedsTransfer,
    RevocationExceedsGrant,
)
from ledger.rules.accounts import AccountState
from ledger.rules.claims import MAX_CLAIMS
from ledger.rules.decisions import credit_rules, hold_rules, transfers
from ledger.rules.decisions.refunds import refund as decide_refund
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.instants import from_us, to_text, to_us
from ledger.rules.kinds import KINDS
from ledger.rules.lots import Lot, in_burn_order, postpaid
from ledger.rules.purposes import Use
from ledger.rules.requests import (
    CaptureRequest,
    ClaimRequest,
    EndClaimRequest,
    ExtendRequest,
    FreezeRequest,
    GrantRequest,
    HoldRequest,
    OverageRequest,
    OverdraftRequest,
    PricedRequest,
    RefundRequest,
    ReissueRequest,
    ReleaseRequest,
    Request,
    ReversalRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
    VoidRequest,
)
from tests.ledger.rules.cost_model import CostModel
from tests.ledger.rules.credit_model import DAY_US, ModelAccount, Terms

START_US = to_us(datetime(2025, 1, 1, tzinfo=UTC))
NEW_LOT_DAYS = 2
HOUR_US = DAY_US // 24
PURPOSE, PURPOSES = "job", ("chat", "image")
"""The label that limits what credits can pay for, and its values."""
FREE = "free"
"""A rate of 0 credits."""


class LedgerUnderTest(Protocol):
    """The interface that a random history needs: a clock that can be set, execution, and two reads."""

    now_us: int

    def execute(self, request: Request) -> Sequence[Entry]: ...
    def account(self, holder_id: str) -> AccountState: ...
    def entry(self, holder_id: str, sequence: int) -> Entry | None: ...


class RulesLedger:
    """A ledger of the rules alone: one list of entries per holder, no database, no lock, and `now_us` as its clock."""

    def __init__(self, policy: Any = "new-lot") -> None:
        self.policy = policy
        self.now_us = START_US
        self.entries: dict[str, list[Entry]] = {}
        self.in_order: list[Entry] = []

    def account(self, holder_id: str) -> AccountState:
        entries = self.entries.get(holder_id, [])
        changes = [entry.freezes for entry in entries if entry.freezes is not None]
        empty = AccountState(holder_id, "credits", self.now_us, is_frozen=bool(changes and changes[-1]))
        return empty.after_all(entries)

    def entry(self, holder_id: str, sequence: int) -> Entry | None:
        entries = self.entries.get(holder_id, [])
        return entries[sequence - 1] if 1 <= sequence <= len(entries) else None

    def execute(self, request: Request) -> Sequence[Entry]:
        """Execute the request by the rules; keep and return the entries, or keep the refusal as an entry and raise it."""
        account = self.account(request.holder_id)
        try:
            if isinstance(request, TransferRequest):
                given, arrived = transfers.transfer(account, self.account(request.to), request)
                self._keep([*given, *arrived])
                return given
            if isinstance(request, ReversalRequest):
                given, taken = self._reverse(account, request)
                self._keep([*given, *taken])
                return given
            entries = self._decide(account, request)
        except Refused as refusal:
            if not refusal.passes:
                self._keep([account.refused(request, refusal)])
            raise
        self._keep(entries)
        return entries

    def _decide(self, account: AccountState, request: Request) -> list[Entry]:
        match request:
            case GrantRequest():
                return credit_rules.grant(account, request)
            case SpendRequest():
                return credit_rules.spend(account, request, amount=_free(request))
            case RefundRequest():
                return self._refund(account, request)
            case RevokeRequest():
                return credit_rules.revoke(account, request, grant=self.entry(account.holder_id, request.grant))
            case HoldRequest():
                return hold_rules.hold(account, request, amount=_free(request))
            case CaptureRequest():
                return hold_rules.capture(account, request, **self._of_hold(account.holder_id, request.hold))
            case ReleaseRequest():
                return hold_rules.release(account, request, **self._of_hold(account.holder_id, request.hold))
            case ExtendRequest():
                return hold_rules.extend(account, request, **self._of_hold(account.holder_id, request.hold))
            case ReissueRequest():
                return credit_rules.reissue(account, request, opening=self.entry(account.holder_id, request.lot))
            case FreezeRequest():
                changes = sum(entry.freezes is not None for entry in self.entries.get(account.holder_id, []))
                return credit_rules.set_frozen(account, request, changes=changes)
            case _:
                return request.decision(account, request)

    def _refund(self, account: AccountState, request: RefundRequest) -> list[Entry]:
        entries = self.entries.get(account.holder_id, [])
        spend = self.entry(account.holder_id, request.spend)
        refunds = [entry for entry in entries if entry.kind == "refund" and entry.refers_to == request.spend]
        openings = {entry.sequence: entry.lots for entry in entries if KINDS[entry.kind].opens_lots}
        terms = {number: _lot_of(lots, number) for number, lots in openings.items() if any(lot.grant == number for lot in lots)}
        return decide_refund(
            account, request, spend=spend, refunded=sum(refund.amount for refund in refunds), terms=terms,
            later=entries[request.spend:],
            expired_lot_policy=self.policy, new_lot_days=NEW_LOT_DAYS,
        )  # fmt: skip

    def _reverse(self, account: AccountState, request: ReversalRequest) -> tuple[list[Entry], list[Entry]]:
        other = self.entries.get(request.to, [])
        arrivals = [
            entry
            for entry in other
            if entry.kind == "transfer_in" and entry.refers_to is None and entry.counterpart is not None
            and (entry.counterpart["holder_id"], entry.counterpart["sequence"]) == (account.holder_id, request.transfer)
        ]  # fmt: skip
        back = [entry for entry in other if entry.kind == "transfer_out" and entry.refers_to is not None]
        openings = {entry.sequence: entry.lots for entry in self.entries.get(account.holder_id, [])}
        return transfers.reverse(
            account,
            self.account(request.to),
            request,
            transfer=self.entry(account.holder_id, request.transfer),
            arrivals=arrivals,
            reversed_before={
                arrival.sequence: sum(-entry.amount for entry in back if entry.refers_to == arrival.sequence)
                for arrival in arrivals
            },
            terms={
                number: _lot_of(lots, number) for number, lots in openings.items() if any(lot.grant == number for lot in lots)
            },
        )

    def _of_hold(self, holder_id: str, hold: int) -> dict[str, Entry | None]:
        closing = [entry for entry in self.entries.get(holder_id, []) if entry.refers_to == hold]
        return {"hold_entry": self.entry(holder_id, hold), "last_closing": closing[-1] if closing else None}

    def _keep(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.entries.setdefault(entry.holder_id, []).append(entry)
            self.in_order.append(entry)


def _lot_of(lots: Sequence[Lot], grant: int) -> Lot:
    """The lot of that grant; None when it is used up."""
    return next(lot for lot in lots if lot.grant == grant)


def _free(request: PricedRequest) -> int | None:
    """The price of what has a rate: the only one of these histories costs nothing."""
    return None if request.rate is None else 0


def _asked(amount: int, purpose: str | None = None) -> dict[str, Any]:
    """The amount as a request has it, where only a rate asks for 0, and what it is for."""
    asked: dict[str, Any] = {"amount": amount} if amount else {"rate": FREE, "quantity": 3}
    return asked if purpose is None else asked | {"metadata": {PURPOSE: purpose}}


@dataclass
class Sent:
    """A part of a transfer: the lot that it came from, the one in which it arrived, and how much was not reversed."""

    lot: int
    into: int
    left: int


class RandomHistory:
    """Sends the same requests to a ledger and to the model, and compares the ledger with the model after each.

    Each method is one step. The model predicts whether the ledger accepts the request or which refusal it raises.
    """

    def __init__(self, ledger: LedgerUnderTest, holders: Sequence[str], *, opens_new_lots: bool = True) -> None:
        self.ledger = ledger
        self.holders = list(holders)
        self.models = {holder: ModelAccount() for holder in holders}
        self.new_lot_for_us = NEW_LOT_DAYS * DAY_US if opens_new_lots else None
        self.costs = CostModel(ledger.entry)
        self.heads = dict.fromkeys(holders, (0, GENESIS))
        self.frozen: set[str] = set()
        self.requests: list[Request] = []
        self.refusal: Refused | None = None
        self.sent: dict[tuple[str, int], tuple[str, list[Sent]]] = {}
        """By sender and number of a transfer: who got it, and its parts in order."""

    # Steps

    def wait(self, us: int) -> None:
        self.ledger.now_us += us

    def grant(
        self, holder: str, amount: int, *, effective_in_us: int = 0, expires_in_us: int | None = None, priority: int = 100,
        promotional: bool = False, paid_minor: int | None = None, currency: str | None = None, purposes: Sequence[str] = (),
    ) -> None:  # fmt: skip
        now_us, model = self.ledger.now_us, self.models[holder]
        effective_us = now_us + effective_in_us
        expires_us = None if expires_in_us is None else max(effective_us, now_us) + expires_in_us
        entry = self._execute(
            GrantRequest, None, holder, amount=amount, priority=priority,
            source="promotional" if promotional else "purchased",
            effective_at=from_us(effective_us), expires_at=None if expires_us is None else from_us(expires_us),
            paid_minor=paid_minor, currency=currency,
            applies_to={"labels": {PURPOSE: list(purposes)}} if purposes else None,
        )  # fmt: skip
        assert entry is not None
        model.catch_up(now_us)
        terms = Terms(effective_us, expires_us, priority, promotional, currency, purposes=frozenset(purposes) or None)
        model.put(entry.sequence, amount, terms)
        model.grants.add(entry.sequence)
        model.flows["granted"] += amount
        model.repay(now_us)
        self.check(holder)

    def spend(self, holder: str, amount: int, *, partial: bool = False, purpose: str | None = None) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        usable = model.usable(now_us, purpose)
        spent = min(amount, usable) if partial else amount
        is_there = spent <= usable and (spent > 0 or amount == 0)
        predicted = self._unless_frozen(holder, None if is_there else InsufficientCredits)
        if entry := self._execute(SpendRequest, predicted, holder, partial=partial, **_asked(amount, purpose)):
            model.catch_up(now_us)
            assert _units_drawn(entry) == model.spend(entry.sequence, spent, now_us, purpose)
            assert (entry.amount, entry.requested) == (-spent, amount if partial else None)
            assert (entry.postpaid or 0) == sum(lot in model.days for lot in model.taken[entry.sequence] if isinstance(lot, int))
        elif isinstance(self.refusal, InsufficientCredits):
            sufficient_us = model.sufficient_from(amount, now_us, purpose)
            assert self.refusal.facts["available"] == usable
            others = self.refusal.facts.get("for_other_things", [])
            assert sum(each["available"] for each in others) == model.for_other_things(now_us, purpose)
            assert self.refusal.facts["earliest_sufficient_at"] == (sufficient_us and to_text(sufficient_us))
        self.check(holder)

    def refund(self, holder: str, spend: int, amount: int | None) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        left = len(model.taken.get(spend, ()))
        predicted: type[Refused] | None = None
        if self.ledger.entry(holder, spend) is None:
            predicted = EntryNotFound
        elif spend not in model.taken:
            predicted = NotRefundable
        elif left == 0 or (amount or 0) > left:
            predicted = RefundExceedsSpend
        if entry := self._execute(RefundRequest, predicted, holder, spend=spend, amount=amount):
            model.catch_up(now_us)
            model.refund(self._numbers_of_refund(holder, entry), spend, amount or left, now_us, self.new_lot_for_us)
            model.lose_expired(now_us)
            model.repay(now_us)
        self.check(holder)

    def _numbers_of_refund(self, holder: str, last: Entry) -> Iterator[int]:
        """Yield the sequences of a refund's entries: consecutive, and the last one has the key."""
        first = last.sequence
        while (before := self.ledger.entry(holder, first - 1)) and (before.kind, before.idempotency_key) == ("refund", None):
            first -= 1
        yield from range(first, last.sequence + 1)

    def revoke(self, holder: str, grant: int, amount: int | None) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        left = model.as_of(now_us).lots.get(grant, 0)
        predicted: type[Refused] | None = None
        if self.ledger.entry(holder, grant) is None:
            predicted = EntryNotFound
        elif grant not in model.grants:
            predicted = NotRevocable
        elif left == 0 or (amount or 0) > left:
            predicted = RevocationExceedsGrant
        if self._execute(RevokeRequest, predicted, holder, grant=grant, amount=amount):
            model.catch_up(now_us)
            model.revoke(grant, amount or left)
        self.check(holder)

    def void(self, holder: str) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        if self._execute(VoidRequest, None if model.as_of(now_us).lots else NothingToVoid, holder):
            model.catch_up(now_us)
            model.void()
        self.check(holder)

    def reissue(self, holder: str, lot: int, *, expires_in_us: int | None, priority: int | None) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        there = model.as_of(now_us).lots
        terms = model.terms.get(lot)
        if lot in there and terms is not None:
            # A request that changes nothing is invalid, which is tested elsewhere.
            priority = (priority or 0) + 1 if priority == terms.priority else priority
            expires_in_us = None if expires_in_us is None else max(terms.effective_us - now_us, 0) + expires_in_us
        predicted = EntryNotFound if self.ledger.entry(holder, lot) is None else None if lot in there else LotClosed
        expires_us = None if expires_in_us is None else now_us + expires_in_us
        entry = self._execute(
            ReissueRequest, predicted, holder, lot=lot, priority=priority,
            expires_at=None if expires_us is None else from_us(expires_us),
        )  # fmt: skip
        if entry and terms is not None:
            model.catch_up(now_us)
            renewed = replace(
                terms,
                expires_us=terms.expires_us if expires_us is None else expires_us,
                priority=terms.priority if priority is None else priority,
            )
            model.reissue(entry.sequence, lot, renewed)
            model.grants.add(entry.sequence)
        self.check(holder)

    def hold(self, holder: str, amount: int, expires_in_us: int, *, purpose: str | None = None) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        expires_us = now_us + expires_in_us
        is_there = amount <= model.usable_by_a_hold(now_us, purpose)
        predicted = self._unless_frozen(holder, None if is_there else InsufficientCredits)
        asked = _asked(amount, purpose)
        if entry := self._execute(HoldRequest, predicted, holder, expires_at=from_us(expires_us), **asked):
            model.catch_up(now_us)
            assert _units_drawn(entry) == model.set_aside(entry.sequence, amount, expires_us, now_us, purpose)
        self.check(holder)

    def capture(self, holder: str, hold: int, amount: int | None, *, final: bool = True, beyond: bool = False) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        predicted = self._no_hold(holder, hold)
        held = len(model.holds[hold].units) if predicted is None else 0
        wanted = held if amount is None else amount
        if predicted is None and wanted > held and not beyond:
            predicted = CaptureExceedsHold
        elif predicted is None and wanted > held and holder in self.frozen:
            predicted = HolderFrozen
        elif predicted is None and wanted > held + model.usable_by_a_hold(now_us, model.holds[hold].purpose):
            predicted = InsufficientCredits
        entry = self._execute(
            CaptureRequest, predicted, holder, hold=hold, amount=amount, final=final,
            over_capture="if_available" if beyond else "refuse",
        )  # fmt: skip
        if entry:
            model.catch_up(now_us)
            model.capture(entry.sequence, hold, wanted, final, now_us)
        self.check(holder)

    def release(self, holder: str, hold: int) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        if self._execute(ReleaseRequest, self._no_hold(holder, hold), holder, hold=hold):
            model.catch_up(now_us)
            model.release(hold)
            model.lose_expired(now_us)
            model.repay(now_us)
        self.check(holder)

    def extend(self, holder: str, hold: int, expires_in_us: int) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        expires_us = now_us + expires_in_us
        if self._execute(ExtendRequest, self._no_hold(holder, hold), holder, hold=hold, expires_at=from_us(expires_us)):
            model.catch_up(now_us)
            model.holds[hold].expires_us = expires_us
        self.check(holder)

    def overdraft(self, holder: str, limit: int) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        self._execute(OverdraftRequest, None, holder, limit=limit)
        model.catch_up(now_us)
        model.overdraft = limit
        self.check(holder)

    def overage(self, holder: str, limit: int | None, ends_in_us: int | None) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        ends_us = None if ends_in_us is None else now_us + ends_in_us
        ends_at = None if ends_us is None else from_us(ends_us)
        self._execute(OverageRequest, None, holder, limit=limit, interval="day", anchor_at=from_us(START_US), ends_at=ends_at)
        model.catch_up(now_us)
        model.overage = (limit, ends_us)
        self.check(holder)

    def claim(self, holder: str, lot: int, amount: int) -> None:
        now_us, model = self.ledger.now_us, self.models[holder]
        # Claims are on what a purchase granted.
        if lot in model.grants - model.days.keys() and len(self.ledger.account(holder).claims) < MAX_CLAIMS:
            entry = self._execute(ClaimRequest, None, holder, lots=[lot], amount=amount)
            assert entry is not None
            model.catch_up(now_us)
            model.claim(entry.sequence, lot, amount)
        self.check(holder)

    def end_claim(self, holder: str, claim: int) -> None:
        entry = self._execute(EndClaimRequest, None, holder, claim=claim)
        model = self.models[holder]
        model.catch_up(self.ledger.now_us)
        assert entry is not None
        assert entry.counterpart is not None
        assert entry.counterpart["amount"] == model.claims.pop(claim, (0, 0))[1]
        self.check(holder)

    def freeze(self, holder: str, *, frozen: bool) -> None:
        self._execute(FreezeRequest, None, holder, frozen=frozen)
        self.models[holder].catch_up(self.ledger.now_us)
        (self.frozen.add if frozen else self.frozen.discard)(holder)
        assert self.ledger.account(holder).is_frozen == frozen
        self.check(holder)

    def transfer(self, holder: str, to: str, amount: int) -> None:
        now_us, source, target = self.ledger.now_us, self.models[holder], self.models[to]
        beyond = InsufficientCredits if amount > source.own_available(now_us) else HolderFrozen if to in self.frozen else None
        predicted = self._unless_frozen(holder, beyond)
        if entry := self._execute(TransferRequest, predicted, holder, to=to, amount=amount):
            source.catch_up(now_us)
            terms = dict(source.terms)
            units = source.take(amount, now_us)
            assert _units_drawn(entry) == units
            source.flows["departed"] += amount
            self.sent[holder, entry.sequence] = to, self._arrive(to, target, units, terms)
        self.check(holder)
        self.check(to)
        self.costs.check_sums(are_all_followed=True)

    def reverse(self, holder: str, transfer: int, amount: int | None) -> None:
        now_us, source = self.ledger.now_us, self.models[holder]
        to, parts = self.sent.get((holder, transfer), (next(each for each in self.holders if each != holder), []))
        target = self.models[to]
        there, plan, wanted = dict(target.as_of(now_us).lots), [], amount
        for part in reversed(parts):
            taken = min(part.left, there.get(part.into, 0), part.left if wanted is None else wanted)
            there[part.into] = there.get(part.into, 0) - taken
            wanted = None if wanted is None else wanted - taken
            plan.append((part, taken))
        predicted: type[Refused] | None = None
        if self.ledger.entry(holder, transfer) is None:
            predicted = EntryNotFound
        elif not parts:
            predicted = NotReversible
        elif sum(taken for _, taken in plan) < (amount or 1):
            predicted = ReversalExceedsTransfer
        if self._execute(ReversalRequest, predicted, holder, transfer=transfer, to=to, amount=amount):
            source.catch_up(now_us)
            target.catch_up(now_us)
            for part, taken in plan:
                target.send_back(part.into, taken)
                source.get_back(part.lot, taken)
                part.left -= taken
            source.repay(now_us)
        self.check(holder)
        self.check(to)
        self.costs.check_sums(are_all_followed=True)

    def _arrive(self, to: str, target: ModelAccount, units: list[int], terms: dict[int, Terms]) -> list[Sent]:
        now_us = self.ledger.now_us
        target.catch_up(now_us)
        # The last entries of the target: one per lot, perhaps followed by a repayment.
        parts = list(dict.fromkeys(units))
        last = self.ledger.account(to).sequence
        entry = self.ledger.entry(to, last)
        assert entry is not None
        first = last - len(parts) + (0 if entry.kind == "adjust" else 1)
        sent: list[Sent] = []
        for offset, lot in enumerate(parts):
            number, amount = first + offset, units.count(lot)
            into = target.receive(number, amount, terms[lot])
            arrived = self.ledger.entry(to, number)
            assert arrived is not None
            assert arrived.drawn == (() if into == number else ((into, amount),))
            sent.append(Sent(lot, into, amount))
        target.flows["arrived"] += len(units)
        target.repay(now_us)
        return sent

    # Comparison

    def _unless_frozen(self, holder: str, predicted: type[Refused] | None) -> type[Refused] | None:
        return HolderFrozen if holder in self.frozen else predicted

    def _no_hold(self, holder: str, hold: int) -> type[Refused] | None:
        entry = self.ledger.entry(holder, hold)
        if entry is None:
            return EntryNotFound
        if entry.kind != "hold" or entry.refers_to is not None:
            return NotAHold
        return None if self.models[holder].is_open_hold(hold, self.ledger.now_us) else HoldClosed

    def _execute(self, kind: type[Request], predicted: type[Refused] | None, holder: str, **what: Any) -> Entry | None:
        request = kind(holder_id=holder, idempotency_key=f"key-{len(self.requests)}", actor="key:test", **what)
        self.requests.append(request)
        before = self.ledger.account(holder)
        try:
            entries = self.ledger.execute(request)
        except Refused as error:
            refusal: Refused | None = error
        else:
            refusal = None
        self.refusal = refusal
        assert type(refusal) is (predicted or type(None)), f"{request}: {refusal!r} instead of {predicted}"
        if refusal is not None:
            self._check_refusal(before, request)
            return None
        return next(entry for entry in entries if entry.idempotency_key == request.idempotency_key)

    def _check_refusal(self, before: AccountState, request: Request) -> None:
        """Assert that the refusal is the account's next entry and that nothing else about the account has changed."""
        after = self.ledger.account(before.holder_id)
        entry = self.ledger.entry(before.holder_id, before.sequence + 1)
        assert entry is not None
        assert (entry.kind, entry.amount, entry.idempotency_key) == ("refusal", 0, request.idempotency_key)
        assert after == before._replace(sequence=before.sequence + 1, digest=entry.digest, recorded_us=entry.recorded_us)

    def check(self, holder: str) -> None:
        """Assert that the account equals the model, and that its new entries continue the chain."""
        account, model = self.ledger.account(holder), self.models[holder]
        now_us = self.ledger.now_us
        assert {lot.grant: lot.remaining for lot in account.lots} == model.lots
        currencies = {known.lot: known.currency for known in account.costs}
        assert {lot.grant: _terms_of(lot, currencies.get(lot.grant)) for lot in account.lots} == {
            lot: self._stored_terms(holder, lot) for lot in model.lots
        }
        parts = [part for hold in account.holds for part in hold.parts]
        assert all(lot.received == (lot.grant in model.received) for lot in (*account.lots, *parts))
        assert account.lots == in_burn_order(account.lots)
        assert {hold.sequence: (hold.expires_us, _units_left(hold.parts)) for hold in account.holds} == {
            number: (hold.expires_us, hold.units) for number, hold in model.holds.items()
        }
        assert (account.balance, account.held, account.owed) == (model.balance, model.held, model.debt)
        assert account.available == model.available(now_us)
        assert account.overage_left == model.overage_left(now_us)
        assert not postpaid(account.lots)
        assert {claim.setting: (*claim.lots, claim.amount) for claim in account.claims} == {
            number: (lot, left) for number, (lot, left) in model.claims.items() if left
        }
        assert account.own_available == model.own_available(now_us)
        for purpose in PURPOSES:
            use = Use(None, {PURPOSE: purpose})
            assert account.available_for(use) == model.available(now_us) + model.restricted(now_us, purpose)
        assert account.balance >= 0 or account.overdraft is not None
        assert model.identity_holds
        self._check_chain(holder, account)
        self.costs.check_sums()

    def _stored_terms(self, holder: str, lot: int) -> Terms:
        """Return the terms as the lot stores them: effective time 0 if that time had come when its entry was recorded."""
        terms, entry = self.models[holder].terms[lot], self.ledger.entry(holder, lot)
        assert entry is not None
        return terms if terms.effective_us > entry.recorded_us else replace(terms, effective_us=0)

    def _check_chain(self, holder: str, account: AccountState) -> None:
        number, digest = self.heads[holder]
        for sequence in range(number + 1, account.sequence + 1):
            entry = self.ledger.entry(holder, sequence)
            assert entry is not None
            assert entry.sequence == sequence
            assert entry.digest == entry.computed_digest(digest)
            self.costs.follow(entry)
            digest = entry.digest
        self.heads[holder] = account.sequence, digest

    # Random steps

    def step(self, chance: random.Random) -> None:
        """Make one step of a random kind: mostly valid requests, and some that must be refused."""
        holder = chance.choice(self.holders)
        chance.choices(
            (
                lambda: self.wait(chance.choice((1, HOUR_US, 7 * HOUR_US, DAY_US))),
                lambda: self._random_grant(chance, holder),
                lambda: self.spend(
                    holder, chance.randint(0, 40), partial=chance.random() < 0.2, purpose=chance.choice((None, *PURPOSES))
                ),
                lambda: self.refund(
                    holder, self._some(chance, holder, self._refundable(holder)), chance.choice((None, chance.randint(1, 20)))
                ),
                lambda: self.revoke(
                    holder, self._some(chance, holder, self.models[holder].lots), chance.choice((None, chance.randint(1, 20)))
                ),
                lambda: self.hold(
                    holder,
                    chance.randint(0, 60),
                    chance.choice((1, HOUR_US, DAY_US, 3 * DAY_US)),
                    purpose=chance.choice((None, *PURPOSES)),
                ),
                lambda: self.capture(
                    holder,
                    self._some(chance, holder, self.models[holder].holds),
                    chance.choice((None, chance.randint(0, 40))),
                    final=chance.random() < 0.6,
                    beyond=chance.random() < 0.5,
                ),
                lambda: self.release(holder, self._some(chance, holder, self.models[holder].holds)),
                lambda: self.extend(
                    holder, self._some(chance, holder, self.models[holder].holds), chance.choice((1, HOUR_US, DAY_US))
                ),
                lambda: self.void(holder),
                lambda: self.reissue(
                    holder,
                    self._some(chance, holder, self.models[holder].lots),
                    expires_in_us=chance.choice((None, HOUR_US, DAY_US + 1, 3 * DAY_US)),
                    priority=chance.choice((10, 50, 200)),
                ),
                lambda: self.reverse(
                    holder,
                    self._some(chance, holder, [number for sender, number in self.sent if sender == holder][-5:]),
                    chance.choice((None, chance.randint(1, 20))),
                ),
                lambda: self.overdraft(holder, chance.choice((0, 10, 50))),
                lambda: self.overage(holder, chance.choice((0, 5, 25, 40, None)), chance.choice((None, HOUR_US, 2 * DAY_US))),
                lambda: self.claim(holder, self._some(chance, holder, self.models[holder].grants), chance.randint(1, 20)),
                lambda: self.end_claim(holder, self._some(chance, holder, self.models[holder].claims)),
                lambda: self.freeze(holder, frozen=holder not in self.frozen and chance.random() < 0.5),
                lambda: self.transfer(holder, chance.choice([h for h in self.holders if h != holder]), chance.randint(1, 30)),
            ),
            weights=(4, 6, 9, 6, 2, 6, 7, 2, 2, 0.2, 1.5, 2, 0.3, 0.5, 0.7, 0.2, 2, 3),
        )[0]()

    def _random_grant(self, chance: random.Random, holder: str) -> None:
        promotional, currency = chance.random() < 0.4, chance.choice((None, "EUR", "EUR", "JPY"))
        paid_minor = None if currency is None else 0 if promotional else chance.choice((0, 1, 7, 100, chance.randint(1, 10_000)))
        self.grant(
            holder,
            chance.randint(1, 60),
            effective_in_us=chance.choice((0, 0, 0, -DAY_US, HOUR_US)),
            expires_in_us=chance.choice((None, 1, HOUR_US, DAY_US, 3 * DAY_US)),
            priority=chance.choice((100, 100, 10, 0)),
            promotional=promotional,
            paid_minor=paid_minor,
            currency=currency,
            purposes=chance.choice(((), (), (), ("chat",), PURPOSES)),
        )

    def _refundable(self, holder: str) -> list[int]:
        return [number for number, units in self.models[holder].taken.items() if units][-5:]

    def _some(self, chance: random.Random, holder: str, likely: Iterable[int]) -> int:
        """Return a sequence to refer to: mostly a likely one, else that of any entry, or one that does not exist."""
        known = list(likely)
        if known and chance.random() < 0.85:
            return chance.choice(known)
        return chance.randint(1, self.ledger.account(holder).sequence + 1)


def _terms_of(lot: Lot, currency: str | None) -> Terms:
    """What a lot keeps from its grant."""
    purposes = None if lot.applies_to is None else frozenset(dict(lot.applies_to.labels)[PURPOSE])
    return Terms(lot.effective_us, lot.expires_us, lot.priority, lot.source == "promotional", currency, purposes=purposes)


def _units_drawn(entry: Entry) -> list[int]:
    """The lot of each single credit that the entry drew."""
    return [lot for lot, amount in entry.drawn for _ in range(amount)]


def _units_left(parts: Sequence[Lot]) -> list[int]:
    """The lot of each single credit that is left."""
    return [part.grant for part in parts for _ in range(part.remaining)]
