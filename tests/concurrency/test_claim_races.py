"""A refund of claimed credits beside the claim, and beside a spend: what is claimed is never spendable."""

from collections.abc import Callable
from functools import partial

import pytest

from ledger import services
from ledger.errors import InsufficientCredits
from ledger.journal import Result
from ledger.rules import pending
from ledger.rules.decisions import settlement
from ledger.rules.entries import Entry
from ledger.rules.requests import ClaimRequest, RefundRequest, SpendRequest
from ledger.services.execute import execute_group
from tests.concurrency.race_harness import NO_LOCK, RaceSchema


def give_and_take(holder: str) -> None:
    """Grant 500 credits, 450 of which entry 2 spends, and revoke the rest."""
    services.grant(holder_id=holder, amount=500, idempotency_key="g")
    services.spend(holder_id=holder, amount=450, idempotency_key="s")
    services.revoke(holder_id=holder, grant=1, idempotency_key="r")


def claim(holder: str) -> Entry:
    return services.execute_once(ClaimRequest(holder_id=holder, lots=[1], amount=450, idempotency_key="c"))


def settle_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what comes back where it is, as if a worker settled the claim."""
    for module in (settlement, pending):
        monkeypatch.setattr(module, "settled_claims", lambda *state: iter(()))


@pytest.mark.parametrize(
    ("broken", "constrained"),
    [(None, True), (None, False), (NO_LOCK, True), (NO_LOCK, False)],
    ids=["as it is", "the lock alone", "the constraints alone", "control: neither"],
)
def test_a_refund_that_meets_the_claim_settles_it(
    make_race_schema: Callable[..., RaceSchema], new_holder: Callable[[], str], broken: str | None, constrained: bool
) -> None:
    schema, holder = make_race_schema(broken, constrained=constrained), new_holder()
    give_and_take(holder)
    _, refund = schema.race(partial(claim, holder), partial(services.refund, holder_id=holder, spend=2, idempotency_key="back"))
    assert isinstance(refund, Entry)
    assert bool(refund.claims) != bool(broken and not constrained), "the refund saw the claim"
    if not broken:
        assert (schema.sum_of_amounts(holder), schema.entries(holder)[-1][1:3]) == (0, ("revoke", -450))


@pytest.mark.parametrize("is_settled_later", [False, True], ids=["as it is", "control: settled later"])
def test_a_spend_at_the_same_moment_gets_nothing_of_it(
    make_race_schema: Callable[..., RaceSchema],
    new_holder: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    is_settled_later: bool,
) -> None:
    schema, holder = make_race_schema(None), new_holder()
    give_and_take(holder)
    claim(holder)
    if is_settled_later:
        settle_later(monkeypatch)
    _, spend = schema.race(
        partial(services.refund, holder_id=holder, spend=2, idempotency_key="back"),
        partial(services.spend, holder_id=holder, amount=1, idempotency_key="again"),
    )
    assert isinstance(spend, Entry if is_settled_later else InsufficientCredits)


@pytest.mark.parametrize("is_settled_later", [False, True], ids=["as it is", "control: settled later"])
def test_a_spend_of_the_same_group_gets_nothing_of_it(
    committed_db: None, new_holder: Callable[[], str], monkeypatch: pytest.MonkeyPatch, is_settled_later: bool
) -> None:
    holder = new_holder()
    give_and_take(holder)
    claim(holder)
    if is_settled_later:
        settle_later(monkeypatch)
    _, spend = execute_group(
        [
            RefundRequest(holder_id=holder, spend=2, idempotency_key="back"),
            SpendRequest(holder_id=holder, amount=1, idempotency_key="again"),
        ]
    )
    assert isinstance(spend, Result)
    assert isinstance(spend.entry or spend.refusal, Entry if is_settled_later else InsufficientCredits)
