"""Partial spends: they take what is there, and their entry says how many credits the request asked for."""

import pytest

from ledger import reads, services
from ledger.errors import IdempotencyKeyReused, InsufficientCredits
from ledger.rules.credit_units import plain_unit
from ledger.rules.entry_texts import entry_text
from ledger.rules.requests import SpendRequest

pytestmark = pytest.mark.django_db


def grant() -> None:
    services.grant(holder_id="ada", amount=60, idempotency_key="grant")


@pytest.mark.parametrize(("asked", "spent"), [(100, 60), (60, 60), (10, 10)])
def test_a_partial_spend_takes_what_it_asks_for_or_what_is_there(asked: int, spent: int) -> None:
    grant()
    entry = services.spend(holder_id="ada", amount=asked, partial=True, idempotency_key="s")
    assert (entry.amount, entry.requested, entry.balance) == (-spent, asked, 60 - spent)


def test_another_spend_says_nothing_of_what_it_asked_for() -> None:
    grant()
    assert services.spend(holder_id="ada", amount=10, idempotency_key="s").requested is None


def test_a_partial_spend_of_nothing_is_refused_with_the_facts_of_the_whole_request() -> None:
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="s")
    assert [refused.value.facts[name] for name in ("available", "requested", "shortfall")] == [0, 100, 100]
    grant()
    with pytest.raises(InsufficientCredits) as again:
        services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="s")
    assert again.value.replayed
    assert reads.balance("ada", "credits").available == 60


def test_a_retry_gets_the_same_entry_after_a_top_up() -> None:
    grant()
    first = services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="s")
    services.grant(holder_id="ada", amount=500, idempotency_key="more")
    again = services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="s")
    assert again == first._replace(replayed=True)
    with pytest.raises(IdempotencyKeyReused):
        services.spend(holder_id="ada", amount=100, idempotency_key="s")


def test_held_credits_are_not_there_and_an_overdraft_is() -> None:
    grant()
    services.hold(holder_id="ada", amount=25, idempotency_key="h")
    assert services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="s").amount == -35
    services.set_overdraft(holder_id="ada", limit=7, idempotency_key="o")
    entry = services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="t")
    assert (entry.amount, entry.balance, entry.requested) == (-7, -7, 100)


def test_a_rate_gives_what_is_requested_and_a_refund_gives_back_what_was_taken() -> None:
    grant()
    services.publish_rate(code="tokens", price=3, per=10)
    entry = services.spend(holder_id="ada", rate="tokens", quantity=1_000, partial=True, idempotency_key="s")
    assert (entry.amount, entry.requested, entry.rating) == (-60, 300, {"rate": "tokens", "version": 1, "quantity": 1_000})
    assert services.refund(holder_id="ada", spend=entry.sequence, idempotency_key="r").amount == 60


def test_a_batch_spends_what_earlier_operations_left() -> None:
    grant()
    asked = [SpendRequest(holder_id="ada", amount=40, partial=True, idempotency_key=key) for key in "abc"]
    first, second, third = services.batch(asked, mode="each", idempotency_key="batch").outcomes
    assert [(each.entry.amount, each.entry.requested) for each in (first, second) if each.entry] == [(-40, 40), (-20, 40)]
    assert isinstance(third.error, InsufficientCredits)


def test_the_sentences_say_how_much_of_it_was_spent() -> None:
    grant()
    entry = services.spend(holder_id="ada", amount=100, partial=True, idempotency_key="s")
    explanation = reads.explanation("ada", "credits", entry.sequence)
    assert explanation is not None
    assert explanation["text"].startswith("The spend took 60 credits of the 100 requested from 1 lot, ")
    assert entry_text(entry, at=entry.recorded_at, unit=plain_unit("credits")).text == "60 of 100 requested spent"
