"""Random histories by the rules alone: after each step the account equals the unit-by-unit model in `credit_model`."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.ledger.random_histories import HOUR_US, PURPOSES, RandomHistory, RulesLedger
from tests.ledger.rules.credit_model import DAY_US
from tests.parts import spread

HOLDERS = ("ada", "bob", "cy")

holders = st.sampled_from(HOLDERS)
amounts = st.integers(1, 60)
prices = st.integers(0, 60)
purposes = st.sampled_from((None, *PURPOSES))
maybe_amounts = st.none() | amounts
waits = st.sampled_from((1, HOUR_US, 7 * HOUR_US, DAY_US, 3 * DAY_US))
numbers = st.integers(1, 60)


class Credits(RuleBasedStateMachine):
    """Hypothesis chooses the steps, and shortens a history that fails."""

    @initialize(policy=st.sampled_from(("new-lot", "gone")))
    def begin(self, policy):
        self.history = RandomHistory(RulesLedger(policy), HOLDERS, opens_new_lots=policy == "new-lot")

    @rule(us=waits)
    def wait(self, us):
        self.history.wait(us)

    @rule(
        holder=holders, amount=amounts, effective=st.sampled_from((0, 0, -DAY_US, HOUR_US)), expires=st.none() | waits,
        priority=st.sampled_from((0, 10, 100)), promotional=st.booleans(), paid=st.none() | st.integers(0, 1000),
        currency=st.sampled_from(("EUR", "JPY")), only=st.sampled_from(((), (), ("chat",), PURPOSES)),
    )  # fmt: skip
    def grant(self, holder, amount, effective, expires, priority, promotional, paid, currency, only):
        self.history.grant(
            holder, amount, effective_in_us=effective, expires_in_us=expires, priority=priority, promotional=promotional,
            paid_minor=0 if promotional and paid else paid, currency=None if paid is None else currency,
            purposes=only,
        )  # fmt: skip

    @rule(holder=holders, amount=prices, purpose=purposes)
    def spend(self, holder, amount, purpose):
        self.history.spend(holder, amount, purpose=purpose)

    @rule(holder=holders, number=numbers, amount=maybe_amounts)
    def refund(self, holder, number, amount):
        self.history.refund(holder, self._among(holder, self.history.models[holder].taken, number), amount)

    @rule(holder=holders, number=numbers, amount=maybe_amounts)
    def revoke(self, holder, number, amount):
        self.history.revoke(holder, self._among(holder, self.history.models[holder].lots, number), amount)

    @rule(holder=holders, amount=prices, expires=waits, purpose=purposes)
    def hold(self, holder, amount, expires, purpose):
        self.history.hold(holder, amount, expires, purpose=purpose)

    @rule(holder=holders, number=numbers, amount=st.none() | prices, final=st.booleans(), beyond=st.booleans())
    def capture(self, holder, number, amount, final, beyond):
        self.history.capture(
            holder, self._among(holder, self.history.models[holder].holds, number), amount, final=final, beyond=beyond
        )

    @rule(holder=holders, number=numbers)
    def release(self, holder, number):
        self.history.release(holder, self._among(holder, self.history.models[holder].holds, number))

    @rule(holder=holders, number=numbers, expires=waits)
    def extend(self, holder, number, expires):
        self.history.extend(holder, self._among(holder, self.history.models[holder].holds, number), expires)

    @rule(holder=holders, limit=st.sampled_from((0, 5, 50)))
    def overdraft(self, holder, limit):
        self.history.overdraft(holder, limit)

    @rule(holder=holders, limit=st.sampled_from((0, 5, 50, None)), ends=st.none() | waits)
    def overage(self, holder, limit, ends):
        self.history.overage(holder, limit, ends)

    @rule(holder=holders, number=numbers, amount=amounts)
    def claim(self, holder, number, amount):
        self.history.claim(holder, self._among(holder, self.history.models[holder].grants, number), amount)

    @rule(holder=holders, number=numbers)
    def end_claim(self, holder, number):
        self.history.end_claim(holder, self._among(holder, self.history.models[holder].claims, number))

    @rule(holder=holders, frozen=st.booleans())
    def freeze(self, holder, frozen):
        self.history.freeze(holder, frozen=frozen)

    @rule(holders=st.permutations(HOLDERS), amount=amounts)
    def transfer(self, holders, amount):
        self.history.transfer(holders[0], holders[1], amount)

    @staticmethod
    def _among(holder, known, number):
        """Return mostly one of the known sequences, else the number itself, so that unknown sequences are tried too."""
        return list(known)[number % (len(known) + 1)] if number % (len(known) + 1) < len(known) else number


Credits.TestCase.settings = settings(stateful_step_count=60)
TestCredits = Credits.TestCase


@pytest.mark.parametrize(
    "named", spread([f"{policy} {seed}" for policy in ("new-lot", "gone") for seed in range(1, 20)], test=(), check=["new-lot 1"])
)
def test_2000_random_steps_match_the_model_and_make_every_kind_of_entry(named):
    """By what becomes of credits that return late, and a seed."""
    policy = named.partition(" ")[0]
    history = RandomHistory(RulesLedger(policy), HOLDERS, opens_new_lots=policy == "new-lot")
    chance = random.Random(named)
    for _ in range(2_000):
        history.step(chance)
    kinds = {entry.kind for entry in history.ledger.in_order}
    assert kinds == {
        "grant", "spend", "refund", "revoke", "reissue", "expire", "hold", "capture", "release", "transfer_in", "transfer_out",
        "adjust",
        "refusal",
    }  # fmt: skip
    departed = sum(model.flows["departed"] for model in history.models.values())
    assert departed == sum(model.flows["arrived"] for model in history.models.values()) > 0
