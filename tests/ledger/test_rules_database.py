"""The same histories as in test_rules_machine, through the services and the database, with retries in between."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection

from ledger import journal, rules, selectors, services
from ledger.audit import audit
from ledger.errors import IdempotencyKeyReused, Refused
from ledger.rules import Account, Entry
from tests.ledger.walks import NEW_LOT_DAYS, START_US, Walk

pytestmark = pytest.mark.django_db

HOLDERS = ("ada", "bob", "cy")


class ServicesLedger:
    """The ledger as its callers see it, at a clock that the walk moves."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.outcomes: list[tuple[rules.Request, Entry | Refused]] = []

    def answer(self, request: rules.Request) -> Sequence[Entry]:
        try:
            entry = ask(request)
        except Refused as refusal:
            self.outcomes.append((request, refusal))
            raise
        self.outcomes.append((request, entry))
        return [entry]

    def account(self, holder_id: str) -> Account:
        return journal._read_accounts({(holder_id, "credits")})[holder_id, "credits"]

    def entry(self, holder_id: str, sequence: int) -> Entry | None:
        return selectors.entry(holder_id, "credits", sequence)


def ask(request: rules.Request) -> Entry:
    if isinstance(request, rules.TransferRequest):
        return services.transfer(
            holder_id=request.holder_id, to=request.to, amount=request.amount, idempotency_key=request.idempotency_key,
            actor=request.actor,
        )  # fmt: skip
    return services.answer(request)


@pytest.fixture
def ledger(monkeypatch, settings) -> ServicesLedger:
    made = ServicesLedger()
    read = journal._account

    def at_the_walks_clock(*arguments: Any) -> Any:
        state, is_answered = read(*arguments)
        return state._replace(now_us=made.now_us), is_answered

    monkeypatch.setattr(journal, "_account", at_the_walks_clock)
    settings.LEDGER = settings.LEDGER | {"REFUND_LOT_DAYS": NEW_LOT_DAYS}
    return made


@pytest.mark.parametrize("policy", ["new-lot", "gone"])
def test_hundreds_of_steps_come_to_what_the_second_opinion_says_and_every_retry_to_the_first_answer(ledger, policy, settings):
    settings.LEDGER = settings.LEDGER | {"REFUND_TO_EXPIRED_LOT": policy}
    walk = Walk(ledger, HOLDERS, opens_new_lots=policy == "new-lot")
    chance = random.Random(policy)
    for _ in range(400):
        walk.step(chance)
        if ledger.outcomes and chance.random() < 0.3:
            replay(ledger, *chance.choice(ledger.outcomes))
    entries = [outcome for _, outcome in ledger.outcomes if isinstance(outcome, Entry)]
    refusals = [outcome for _, outcome in ledger.outcomes if isinstance(outcome, Refused)]
    assert len(entries) > 100
    assert len(refusals) > 50

    report = audit([connection.connection])
    assert report.findings == []
    assert report.refusals == len(refusals)
    identity = report.identities["credits"]
    assert identity.granted == sum(model.flows["granted"] for model in walk.models.values())
    assert identity.spent == sum(model.flows["spent"] for model in walk.models.values())


def replay(ledger: ServicesLedger, request: rules.Request, first: Entry | Refused) -> None:
    """The same request gets the first answer, another one under its key gets none, and nothing is written by either."""
    before = [ledger.account(holder) for holder in HOLDERS]
    if isinstance(first, Entry):
        assert ask(request) == first._replace(replayed=True)
    else:
        with pytest.raises(type(first)) as again:
            ask(request)
        assert (again.value.facts, again.value.replayed) == (first.facts, True)
    other = rules.SpendRequest(holder_id=request.holder_id, idempotency_key=request.idempotency_key, amount=4_711)
    with pytest.raises(IdempotencyKeyReused):
        ask(other)
    assert [ledger.account(holder) for holder in HOLDERS] == before
