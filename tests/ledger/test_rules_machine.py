"""Histories in which anything may follow anything, by the rules alone, each step against a second opinion (`credit_model`)."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.ledger.credit_model import DAY_US
from tests.ledger.walks import HOUR_US, RulesLedger, Walk

HOLDERS = ("ada", "bob", "cy")

holders = st.sampled_from(HOLDERS)
amounts = st.integers(1, 60)
maybe_amounts = st.none() | amounts
waits = st.sampled_from((1, HOUR_US, 7 * HOUR_US, DAY_US, 3 * DAY_US))
numbers = st.integers(1, 60)


class Credits(RuleBasedStateMachine):
    """Hypothesis chooses the steps, and shortens a history that goes wrong."""

    @initialize(policy=st.sampled_from(("new-lot", "gone")))
    def begin(self, policy):
        self.walk = Walk(RulesLedger(policy), HOLDERS, opens_new_lots=policy == "new-lot")

    @rule(us=waits)
    def wait(self, us):
        self.walk.wait(us)

    @rule(
        holder=holders, amount=amounts, effective=st.sampled_from((0, 0, -DAY_US, HOUR_US)), expires=st.none() | waits,
        priority=st.sampled_from((0, 10, 100)), promotional=st.booleans(),
    )  # fmt: skip
    def grant(self, holder, amount, effective, expires, priority, promotional):
        self.walk.grant(
            holder, amount, effective_in_us=effective, expires_in_us=expires, priority=priority, promotional=promotional
        )

    @rule(holder=holders, amount=amounts)
    def spend(self, holder, amount):
        self.walk.spend(holder, amount)

    @rule(holder=holders, number=numbers, amount=maybe_amounts)
    def refund(self, holder, number, amount):
        self.walk.refund(holder, self._among(holder, self.walk.models[holder].taken, number), amount)

    @rule(holder=holders, number=numbers, amount=maybe_amounts)
    def revoke(self, holder, number, amount):
        self.walk.revoke(holder, self._among(holder, self.walk.models[holder].lots, number), amount)

    @rule(holder=holders, amount=amounts, expires=waits)
    def hold(self, holder, amount, expires):
        self.walk.hold(holder, amount, expires)

    @rule(holder=holders, number=numbers, amount=maybe_amounts, final=st.booleans(), beyond=st.booleans())
    def capture(self, holder, number, amount, final, beyond):
        self.walk.capture(holder, self._among(holder, self.walk.models[holder].holds, number), amount, final=final, beyond=beyond)

    @rule(holder=holders, number=numbers)
    def release(self, holder, number):
        self.walk.release(holder, self._among(holder, self.walk.models[holder].holds, number))

    @rule(holder=holders, number=numbers, expires=waits)
    def extend(self, holder, number, expires):
        self.walk.extend(holder, self._among(holder, self.walk.models[holder].holds, number), expires)

    @rule(holder=holders, limit=st.sampled_from((0, 5, 50)))
    def overdraft(self, holder, limit):
        self.walk.overdraft(holder, limit)

    @rule(holders=st.permutations(HOLDERS), amount=amounts)
    def transfer(self, holders, amount):
        self.walk.transfer(holders[0], holders[1], amount)

    @staticmethod
    def _among(holder, known, number):
        """Mostly one of the known; the number itself where it stands beyond them, so that strangers are named too."""
        return list(known)[number % (len(known) + 1)] if number % (len(known) + 1) < len(known) else number


Credits.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestCredits = Credits.TestCase


@pytest.mark.parametrize("policy", ["new-lot", "gone"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thousands_of_steps_come_to_what_the_second_opinion_says(policy, seed):
    walk = Walk(RulesLedger(policy), HOLDERS, opens_new_lots=policy == "new-lot")
    chance = random.Random(f"{policy} {seed}")
    for _ in range(2_000):
        walk.step(chance)
    kinds = {entry.kind for entry in walk.ledger.in_order}
    assert kinds == {
        "grant", "spend", "refund", "revoke", "expire", "hold", "capture", "release", "transfer_in", "transfer_out", "adjust",
        "refusal",
    }  # fmt: skip
    departed = sum(model.flows["departed"] for model in walk.models.values())
    assert departed == sum(model.flows["arrived"] for model in walk.models.values()) > 0
