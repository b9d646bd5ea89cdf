"""Rate cards, dry runs and conditional writes."""

import pytest

from ledger import reads, services
from ledger.errors import AccountMovedOn, InsufficientCredits, Invalid, UnknownRate

pytestmark = pytest.mark.django_db


def test_a_spend_keeps_the_rate_that_it_was_priced_by():
    services.publish_rate(code="gpt-4o.output", price=3, per=1000)
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    entry = services.spend(holder_id="ada", rate="gpt-4o.output", quantity=1001, idempotency_key="s")
    assert (entry.amount, entry.rating) == (-4, {"rate": "gpt-4o.output", "version": 1, "quantity": 1001})
    services.publish_rate(code="gpt-4o.output", price=5, per=1000)
    assert services.quote(rate="gpt-4o.output", quantity=1000)[0] == 5
    again = services.spend(holder_id="ada", rate="gpt-4o.output", quantity=1001, idempotency_key="s")
    assert (again.amount, again.replayed) == (-4, True)


def test_an_unknown_rate_is_refused_and_half_a_price_is_invalid():
    with pytest.raises(UnknownRate):
        services.spend(holder_id="ada", rate="nothing", quantity=1, idempotency_key="s")
    with pytest.raises(Invalid):
        services.spend(holder_id="ada", rate="nothing", idempotency_key="s2")
    with pytest.raises(Invalid):
        services.spend(holder_id="ada", amount=1, rate="nothing", quantity=1, idempotency_key="s3")
    assert reads.entries("ada") == []
    assert [each.code for each in reads.refusals("ada")] == ["unknown-rate"]


def test_a_dry_run_returns_the_entry_and_writes_nothing():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    entry = services.spend(holder_id="ada", amount=30, idempotency_key="s", dry_run=True)
    assert (entry.sequence, entry.balance, entry.drawn) == (2, 70, ((1, 30),))
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=130, idempotency_key="s2", dry_run=True)
    assert reads.balance("ada").sequence == 1


def test_a_write_can_ask_for_the_account_as_it_was_seen():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s", expected_sequence=1).sequence == 2
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s", expected_sequence=1).replayed
    with pytest.raises(AccountMovedOn) as moved:
        services.spend(holder_id="ada", amount=1, idempotency_key="s2", expected_sequence=1)
    assert moved.value.facts == {"expected": 1, "sequence": 2}
    assert reads.balance("ada").sequence == 2
