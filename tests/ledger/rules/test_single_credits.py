"""Random histories of two accounts beside a model of single credits: any operation may follow any other.

The model has no lots and no balances. Each credit is an object that is free, held or taken, and the account that the rules
compute must match the places of these objects. Amounts are small, so that counting is cheap.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.errors import HoldClosed, InsufficientCredits, RefundExceedsSpend, Refused, RevocationExceedsGrant
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, hold_rules, refunds, settlement, transfers
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US, from_us, to_us
from ledger.rules.requests import (
    CaptureRequest,
    GrantRequest,
    HoldRequest,
    OverdraftRequest,
    RefundRequest,
    ReleaseRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)

START_US = 20_000 * DAY_US
NEW_LOT_DAYS = 5
AMOUNTS = st.integers(1, 12)
NAMES = st.sampled_from(["ada", "bob"])


@dataclass(eq=False)
class Credit:
    """One credit, with the terms of the lot that it belongs to."""

    grant: int
    effective_us: int
    expires_us: int | None
    priority: int
    promotional: bool
    received: bool = False

    def is_spendable(self, now_us: int) -> bool:
        return self.effective_us <= now_us and not self.is_expired(now_us)

    def is_expired(self, now_us: int) -> bool:
        return self.expires_us is not None and self.expires_us <= now_us

    def rank(self) -> tuple[Any, ...]:
        return self.priority, float("inf") if self.expires_us is None else self.expires_us, not self.promotional, self.grant


@dataclass(eq=False)
class Owed:
    """One credit that was spent before it was there, and the one that came for it later."""

    paid_with: Credit | None = None


@dataclass
class Purse:
    """The model of one account."""

    free: list[Credit] = field(default_factory=list)
    held: dict[int, tuple[int, list[Credit]]] = field(default_factory=dict)
    taken: dict[int, list[Credit | Owed]] = field(default_factory=dict)
    unpaid: list[Owed] = field(default_factory=list)
    limit: int = 0
    flows: Counter[str] = field(default_factory=Counter)

    @property
    def owed(self) -> int:
        return len(self.unpaid)

    def settle(self, now_us: int) -> None:
        """Let the clock strike at every instant up to now at which it may matter, one after the other."""
        instants = {now_us} | {hold_us for hold_us, _ in self.held.values()}
        for credit in [*self.free, *(credit for _, parts in self.held.values() for credit in parts)]:
            instants |= {credit.effective_us} | ({credit.expires_us} if credit.expires_us is not None else set())
        for instant_us in sorted(instant_us for instant_us in instants if instant_us <= now_us):
            for hold in [hold for hold, (expires_us, _) in self.held.items() if expires_us <= instant_us]:
                self.free += self.held.pop(hold)[1]
            self.settle_now(instant_us)

    def settle_now(self, now_us: int) -> None:
        self.flows["expired"] += sum(credit.is_expired(now_us) for credit in self.free)
        self.free = [credit for credit in self.free if not credit.is_expired(now_us)]
        for credit in self.spendable(now_us)[: self.owed]:
            self.unpaid.pop(0).paid_with = credit
            self.free.remove(credit)

    def spendable(self, now_us: int) -> list[Credit]:
        return sorted((credit for credit in self.free if credit.is_spendable(now_us)), key=Credit.rank)

    def available(self, now_us: int) -> int:
        struck = self.as_of(now_us)
        return max(0, len(struck.spendable(now_us)) + self.limit - struck.owed)

    def as_of(self, now_us: int) -> "Purse":
        """A copy, without its history, that the clock has struck."""
        struck = Purse(free=list(self.free), held=dict(self.held), unpaid=[Owed() for _ in self.unpaid])
        struck.settle(now_us)
        return struck

    def take(self, amount: int, now_us: int) -> list[Credit]:
        taken = self.spendable(now_us)[:amount]
        self.free = [credit for credit in self.free if credit not in taken]
        return taken

    def bring(self, credit: Credit, amount: int) -> None:
        self.free += [Credit(**vars(credit)) for _ in range(amount)]

    def shared(self, credit: Credit) -> int | None:
        """The lot of the received credits like this one, free or held; None if there are none."""
        there = [*self.free, *(each for _, parts in self.held.values() for each in parts)]
        terms = (credit.expires_us, credit.priority, credit.promotional)
        same = {each.grant for each in there if each.received and (each.expires_us, each.priority, each.promotional) == terms}
        assert len(same) <= 1
        return next(iter(same), None)


class AccountHistories(RuleBasedStateMachine):
    """Two holders, a clock, and everything that can be asked."""

    @initialize()
    def begin(self) -> None:
        self.now_us = START_US
        self.entries: dict[str, list[Entry]] = {"ada": [], "bob": []}
        self.purses = {"ada": Purse(), "bob": Purse()}
        self.keys = 0

    def account(self, name: str) -> AccountState:
        return AccountState(name, "credits", self.now_us).after_all(self.entries[name])

    def request(self, kind: type[Any], name: str, **values: Any) -> Any:
        self.keys += 1
        return kind(holder_id=name, idempotency_key=f"key {self.keys}", **values)

    def write(self, name: str, entries: list[Entry]) -> Entry:
        """Store the entries, let the model's clock strike, and give the answer among them."""
        self.entries[name] += entries
        self.purses[name].settle(self.now_us)
        return next((entry for entry in entries if entry.idempotency_key is not None), entries[-1])

    def refused(self, name: str, error: type[Refused], decide: Any) -> None:
        before = len(self.entries[name])
        try:
            decide()
        except error:
            assert len(self.entries[name]) == before
        else:
            raise AssertionError(f"{error.__name__} was due")

    # What time does

    @rule(days=st.sampled_from([0, 1, 1, 2, 4]), a_bit=st.integers(0, 1))
    def wait(self, days: int, a_bit: int) -> None:
        self.now_us += days * DAY_US + a_bit

    @rule(name=NAMES)
    def sweep(self, name: str) -> None:
        self.entries[name] += settlement.settle_due(self.account(name))[0]
        self.purses[name].settle(self.now_us)

    # What is asked

    @rule(
        name=NAMES,
        amount=AMOUNTS,
        begins=st.sampled_from([-1, 0, 0, 0, 1]),
        lasts=st.sampled_from([None, 2, 3, 6]),
        priority=st.sampled_from([100, 100, 50]),
        promotional=st.booleans(),
    )
    def grant(self, name: str, amount: int, begins: int, lasts: int | None, priority: int, promotional: bool) -> None:
        effective_us = self.now_us + begins * DAY_US
        expires_us = None if lasts is None else effective_us + lasts * DAY_US
        request = self.request(
            GrantRequest,
            name,
            amount=amount,
            effective_at=from_us(effective_us),
            expires_at=None if expires_us is None else from_us(expires_us),
            priority=priority,
            source="promotional" if promotional else "purchased",
        )
        entry = self.write(name, credit_rules.grant(self.account(name), request))
        self.purses[name].bring(Credit(entry.sequence, effective_us, expires_us, priority, promotional), amount)
        self.purses[name].settle_now(self.now_us)
        self.purses[name].flows["granted"] += amount

    @rule(name=NAMES, amount=AMOUNTS)
    def spend(self, name: str, amount: int) -> None:
        purse, request = self.purses[name], self.request(SpendRequest, name, amount=amount)
        if amount > purse.available(self.now_us):
            self.refused(name, InsufficientCredits, lambda: credit_rules.spend(self.account(name), request))
            return
        entry = self.write(name, credit_rules.spend(self.account(name), request))
        taken = purse.take(amount, self.now_us)
        assert Counter(dict(entry.drawn)) == Counter(credit.grant for credit in taken)
        owed = [Owed() for _ in range(amount - len(taken))]
        purse.unpaid += owed
        purse.taken[entry.sequence] = [*taken, *owed]
        purse.flows["spent"] += amount

    @precondition(lambda self: any(purse.taken for purse in self.purses.values()))
    @rule(data=st.data(), amount=st.none() | AMOUNTS, policy=st.sampled_from(["new-lot", "gone"]))
    def refund(self, data: Any, amount: int | None, policy: Any) -> None:
        name = data.draw(st.sampled_from([name for name, purse in self.purses.items() if purse.taken]))
        purse = self.purses[name]
        sequence = data.draw(st.sampled_from(sorted(purse.taken)))
        taken, request = purse.taken[sequence], self.request(RefundRequest, name, spend=sequence, amount=amount)
        spend = self.entries[name][sequence - 1]

        def decide() -> list[Entry]:
            return refunds.refund(
                self.account(name),
                request,
                spend=spend,
                refunded=spend.taken - len(taken),
                later=self.entries[name][sequence:],
                terms={lot.grant: lot for entry in self.entries[name] for lot in entry.lots if lot.grant == entry.sequence},
                expired_lot_policy=policy,
                new_lot_days=NEW_LOT_DAYS,
            )

        if not taken or (amount or 0) > len(taken):
            self.refused(name, RefundExceedsSpend, decide)
            return
        entries = decide()
        self.write(name, entries)
        numbers = [entry.sequence for entry in entries if entry.kind == "refund"]
        back = [taken.pop() for _ in range(len(taken) if amount is None else amount)]
        self._give_back(purse, back, numbers, policy)
        purse.flows["refunded"] += len(back)
        purse.settle_now(self.now_us)

    def _give_back(self, purse: Purse, back: list[Credit | Owed], numbers: list[int], policy: str) -> None:
        """Each credit as it was; one that has expired begins again, with those like it, under the number of the entry."""
        last: Credit | None = None
        for unit in back:
            credit = unit.paid_with if isinstance(unit, Owed) else unit
            if credit is None:
                purse.unpaid.remove(unit)
                continue
            if policy == "new-lot" and credit.is_expired(self.now_us):
                if last is not None and (last.priority, last.promotional) != (credit.priority, credit.promotional):
                    numbers.pop(0)
                expires_us = self.now_us + NEW_LOT_DAYS * DAY_US
                last = credit = Credit(numbers[0], self.now_us, expires_us, credit.priority, credit.promotional)
            elif credit.received:
                credit.grant = purse.shared(credit) or credit.grant
            purse.free.append(credit)
        assert len(numbers) == 1

    @precondition(lambda self: any(purse.free for purse in self.purses.values()))
    @rule(data=st.data(), amount=st.none() | AMOUNTS)
    def revoke(self, data: Any, amount: int | None) -> None:
        name = data.draw(st.sampled_from([name for name, purse in self.purses.items() if purse.free]))
        purse = self.purses[name]
        granted = sorted({credit.grant for credit in purse.free if self.entries[name][credit.grant - 1].kind == "grant"})
        if not granted:
            return
        sequence = data.draw(st.sampled_from(granted))
        request = self.request(RevokeRequest, name, grant=sequence, amount=amount)
        # What has come due is booked first: a hold that has expired gives its credits back before they are revoked.
        there = [credit for credit in purse.as_of(self.now_us).free if credit.grant == sequence]
        grant = self.entries[name][sequence - 1]
        if not there or (amount or 0) > len(there):
            self.refused(name, RevocationExceedsGrant, lambda: credit_rules.revoke(self.account(name), request, grant=grant))
            return
        self.write(name, credit_rules.revoke(self.account(name), request, grant=grant))
        there = [credit for credit in purse.free if credit.grant == sequence]
        gone = there if amount is None else there[:amount]
        purse.free = [credit for credit in purse.free if credit not in gone]
        purse.flows["revoked"] += len(gone)

    @rule(name=NAMES, amount=AMOUNTS, lasts_days=st.sampled_from([1, 3, 9]))
    def hold(self, name: str, amount: int, lasts_days: int) -> None:
        purse, expires_us = self.purses[name], self.now_us + lasts_days * DAY_US
        request = self.request(HoldRequest, name, amount=amount, expires_at=from_us(expires_us))
        if amount > max(0, purse.available(self.now_us) - purse.limit):
            self.refused(name, InsufficientCredits, lambda: hold_rules.hold(self.account(name), request))
            return
        entry = self.write(name, hold_rules.hold(self.account(name), request))
        purse.held[entry.sequence] = (expires_us, purse.take(amount, self.now_us))

    @precondition(lambda self: any(purse.held for purse in self.purses.values()))
    @rule(data=st.data(), amount=st.none() | AMOUNTS, final=st.booleans())
    def capture(self, data: Any, amount: int | None, final: bool) -> None:
        name, sequence = self._drawn_hold(data)
        purse = self.purses[name]
        expires_us, set_aside = purse.held[sequence]
        request = self.request(CaptureRequest, name, hold=sequence, amount=amount, final=final, over_capture="if_available")

        def decide() -> list[Entry]:
            entry = self.entries[name][sequence - 1]
            return hold_rules.capture(self.account(name), request, hold_entry=entry, last_closing=None)

        if expires_us <= self.now_us:
            self.refused(name, HoldClosed, decide)
            return
        wanted = len(set_aside) if amount is None else amount
        beyond = max(0, wanted - len(set_aside))
        if beyond and beyond > max(0, purse.available(self.now_us) - purse.limit):
            self.refused(name, InsufficientCredits, decide)
            return
        entry = self.write(name, decide())
        captured, rest = set_aside[:wanted], set_aside[wanted:]
        del purse.held[sequence]
        if rest and not final:
            purse.held[sequence] = (expires_us, rest)
        else:
            purse.free += rest
            purse.settle_now(self.now_us)
        captured += purse.take(beyond, self.now_us)
        purse.taken[entry.sequence] = self._as_drawn(entry, captured)
        purse.flows["spent"] += wanted

    def _as_drawn(self, entry: Entry, captured: list[Credit]) -> list[Credit | Owed]:
        """Return the captured credits in the order of the entry's lots, which a refund reverses."""
        assert Counter(dict(entry.drawn)) == Counter(credit.grant for credit in captured)
        order = [grant for grant, _ in entry.drawn]
        return sorted(captured, key=lambda credit: order.index(credit.grant))

    @precondition(lambda self: any(purse.held for purse in self.purses.values()))
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        name, sequence = self._drawn_hold(data)
        purse, request = self.purses[name], self.request(ReleaseRequest, name, hold=sequence)

        def decide() -> list[Entry]:
            entry = self.entries[name][sequence - 1]
            return hold_rules.release(self.account(name), request, hold_entry=entry, last_closing=None)

        if purse.held[sequence][0] <= self.now_us:
            self.refused(name, HoldClosed, decide)
            return
        self.write(name, decide())
        purse.free += purse.held.pop(sequence)[1]
        purse.settle_now(self.now_us)

    def _drawn_hold(self, data: Any) -> tuple[str, int]:
        name = data.draw(st.sampled_from([name for name, purse in self.purses.items() if purse.held]))
        return name, data.draw(st.sampled_from(sorted(self.purses[name].held)))

    @rule(name=NAMES, limit=st.integers(0, 15))
    def agree_overdraft(self, name: str, limit: int) -> None:
        request = self.request(OverdraftRequest, name, limit=limit)
        self.write(name, credit_rules.set_overdraft(self.account(name), request))
        self.purses[name].limit = limit

    @rule(source=NAMES, amount=AMOUNTS)
    def transfer(self, source: str, amount: int) -> None:
        target = "bob" if source == "ada" else "ada"
        giving, taking = self.purses[source], self.purses[target]
        request = self.request(TransferRequest, source, to=target, amount=amount)
        if amount > max(0, giving.available(self.now_us) - giving.limit):
            decide = lambda: transfers.transfer(self.account(source), self.account(target), request)  # noqa: E731
            self.refused(source, InsufficientCredits, decide)
            return
        given, arrived = transfers.transfer(self.account(source), self.account(target), request)
        self.write(source, given)
        self.write(target, arrived)
        moved = giving.take(amount, self.now_us)
        lots = [entry for entry in arrived if entry.kind == "transfer_in"]
        for entry in lots:
            assert entry.counterpart is not None
            same = [credit for credit in moved if credit.grant == entry.counterpart["grant"]]
            assert len(same) == entry.amount
            first = same[0]
            arrived = Credit(entry.sequence, first.effective_us, first.expires_us, first.priority, first.promotional, True)
            arrived.grant = taking.shared(arrived) or entry.sequence
            assert entry.drawn == (() if arrived.grant == entry.sequence else ((arrived.grant, len(same)),))
            taking.bring(arrived, len(same))
        taking.settle_now(self.now_us)
        giving.flows["transferred_out"] += amount
        taking.flows["transferred_in"] += amount

    # Invariants

    @invariant()
    def account_matches_the_single_credits(self) -> None:
        for name, purse in getattr(self, "purses", {}).items():
            account = self.account(name)
            held = [credit for _, set_aside in purse.held.values() for credit in set_aside]
            assert account.available == purse.available(self.now_us)
            assert account.held == len(held)
            assert account.balance == len(purse.free) - purse.owed
            assert {lot.grant: lot.remaining for lot in account.lots} == Counter(credit.grant for credit in purse.free)
            assert account.owed == purse.owed

    @invariant()
    def entries_are_numbered_chained_and_lots_in_burn_order(self) -> None:
        for name, entries in getattr(self, "entries", {}).items():
            previous, balance = bytes(32), 0
            for sequence, entry in enumerate(entries, start=1):
                balance += entry.amount
                assert (entry.holder_id, entry.sequence, entry.balance) == (name, sequence, balance)
                assert entry.digest == entry.computed_digest(previous)
                assert list(entry.lots) == sorted(entry.lots, key=lambda lot: lot.burn_rank)
                assert entry.held == sum(hold.amount for hold in entry.holds)
                assert entry.kind != "spend" or entry.balance >= -(entry.overdraft or 0)
                previous = entry.digest

    @invariant()
    def explains_every_credit(self) -> None:
        """The accounting identity holds for each account, with its transfers."""
        for name, purse in getattr(self, "purses", {}).items():
            account, flows = self.account(name), purse.flows
            expired = -sum(entry.amount for entry in self.entries[name] if entry.kind == "expire")
            assert expired == flows["expired"]
            assert flows["granted"] + flows["transferred_in"] - flows["transferred_out"] == (
                account.balance + account.held + flows["spent"] - flows["refunded"] + flows["expired"] + flows["revoked"]
            )


TestAccountHistories = AccountHistories.TestCase
TestAccountHistories.settings = settings(stateful_step_count=50, derandomize=True)


def test_a_time_keeps_its_microseconds() -> None:
    instant = datetime.fromisoformat("2026-11-21T05:55:13.000001+00:00")
    assert from_us(to_us(instant)) == instant
