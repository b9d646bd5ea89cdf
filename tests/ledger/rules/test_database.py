"""Random histories by the services and the database, with retries in between: they match the model, and retries are replays."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection, transaction

from ledger import journal, reads, services
from ledger.audit.auditing import audit
from ledger.errors import IdempotencyKeyReused, Refused
from ledger.rules.accounts import AccountState
from ledger.rules.entries import Entry
from ledger.rules.requests import Request, SpendRequest, TransferRequest
from tests.ledger.random_histories import FREE, NEW_LOT_DAYS, START_US, RandomHistory
from tests.parts import spread

pytestmark = pytest.mark.django_db

HOLDERS = ("ada", "bob", "cy")


class ServicesLedger:
    """The services, at a clock that the random history moves; keeps each request with its first outcome."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.outcomes: list[tuple[Request, Entry | Refused]] = []

    def execute(self, request: Request) -> Sequence[Entry]:
        try:
            entry = execute_by_services(request)
        except Refused as refusal:
            self.outcomes.append((request, refusal))
            raise
        self.outcomes.append((request, entry))
        return [entry]

    def account(self, holder_id: str) -> AccountState:
        with transaction.atomic(), journal.open(accounts=[(holder_id, "credits")]) as accounts:
            return accounts.account(holder_id, "credits").state

    def entry(self, holder_id: str, sequence: int) -> Entry | None:
        return reads.entry(holder_id, "credits", sequence)


def execute_by_services(request: Request) -> Entry:
    """Execute the request through the services."""
    if isinstance(request, TransferRequest):
        return services.transfer(
            holder_id=request.holder_id, to=request.to, amount=request.amount, idempotency_key=request.idempotency_key,
            actor=request.actor,
        )  # fmt: skip
    return services.execute_once(request)


@pytest.fixture
def ledger_on_database(monkeypatch, settings) -> ServicesLedger:
    """A ledger of the services, whose clock is that of the history."""
    made = ServicesLedger()
    read = journal._account

    def at_the_historys_clock(*arguments: Any) -> Any:
        return read(*arguments)._replace(now_us=made.now_us)

    monkeypatch.setattr(journal, "_account", at_the_historys_clock)
    settings.LEDGER = settings.LEDGER | {"REFUND_LOT_DAYS": NEW_LOT_DAYS}
    services.publish_rate(code=FREE, price=0, per=1000)
    return made


@pytest.mark.parametrize("policy", spread(["new-lot", "gone"], test=(), check=["gone"]))
def test_400_random_steps_match_the_model_and_every_retry_gets_the_first_outcome(ledger_on_database, policy, settings):
    settings.LEDGER = settings.LEDGER | {"REFUND_TO_EXPIRED_LOT": policy}
    history = RandomHistory(ledger_on_database, HOLDERS, opens_new_lots=policy == "new-lot")
    chance = random.Random(policy)
    for _ in range(400):
        history.step(chance)
        if ledger_on_database.outcomes and chance.random() < 0.3:
            assert_replayed(ledger_on_database, *chance.choice(ledger_on_database.outcomes))
    entries = [outcome for _, outcome in ledger_on_database.outcomes if isinstance(outcome, Entry)]
    refusals = [outcome for _, outcome in ledger_on_database.outcomes if isinstance(outcome, Refused)]
    assert len(entries) > 100
    assert len(refusals) > 50

    report = audit([connection.connection])
    assert report.findings == []
    assert report.refusals == len(refusals)
    identity = report.identities["credits"]
    assert identity.totals["granted"] == sum(model.flows["granted"] for model in history.models.values())
    assert identity.totals["spent"] == sum(model.flows["spent"] for model in history.models.values())


def assert_replayed(ledger: ServicesLedger, request: Request, first: Entry | Refused) -> None:
    """Assert that the same request gets the first outcome, another request with its key is refused, and neither writes."""
    before = [ledger.account(holder) for holder in HOLDERS]
    if isinstance(first, Entry):
        assert execute_by_services(request) == first._replace(replayed=True)
    else:
        with pytest.raises(type(first)) as again:
            execute_by_services(request)
        assert (again.value.facts, again.value.replayed) == (first.facts, True)
    other = SpendRequest(holder_id=request.holder_id, idempotency_key=request.idempotency_key, amount=4_711)
    with pytest.raises(IdempotencyKeyReused):
        execute_by_services(other)
    assert [ledger.account(holder) for holder in HOLDERS] == before
