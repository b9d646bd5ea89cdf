"""Rate cards, dry runs and conditional writes."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import (
    AccountMovedOn,
    AmountLimit,
    CaptureExceedsHold,
    HoldClosed,
    HolderFrozen,
    HoldLimit,
    IdempotencyKeyReused,
    InsufficientCredits,
    Invalid,
    RefundExceedsSpend,
    UnknownRate,
)
from ledger.models import Rate
from ledger.rules.decisions import hold_rules
from ledger.rules.refusal_texts import refusal_text
from ledger.rules.requests import RateComponent
from ledger.services.expiration import book_all_expirations
from ledger.units import unit_of
from tests.benchmarks.histories import store
from tests.ledger.random_histories import HOUR_US, RandomHistory, RulesLedger

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
    assert reads.refusals("ada") == []


def test_a_request_that_was_refused_for_an_unknown_rate_succeeds_once_the_rate_is_published():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    with pytest.raises(UnknownRate) as refused:
        services.spend(holder_id="ada", rate="new", quantity=2, idempotency_key="s")
    assert refused.value.passes
    assert reads.balance("ada").sequence == 1
    services.publish_rate(code="new", price=3, per=1)
    entry = services.spend(holder_id="ada", rate="new", quantity=2, idempotency_key="s")
    assert (entry.amount, entry.replayed) == (-6, False)
    assert services.spend(holder_id="ada", rate="new", quantity=2, idempotency_key="s").replayed


@pytest.mark.parametrize(("price", "quantity"), [(3, 0), (0, 1000), (0, 0)])
def test_what_costs_nothing_is_spent_and_held_by_accounts_with_nothing_too(price, quantity):
    services.publish_rate(code="r", price=price, per=1000)
    rating = {"rate": "r", "version": 1, "quantity": quantity}
    assert services.quote(rate="r", quantity=quantity) == (0, rating)
    spent = services.spend(holder_id="ada", rate="r", quantity=quantity, idempotency_key="s")
    held = services.hold(holder_id="ada", rate="r", quantity=quantity, idempotency_key="h")
    assert [(each.kind, each.amount, each.drawn, each.rating) for each in (spent, held)] == [
        ("spend", 0, (), rating),
        ("hold", 0, (), rating),
    ]
    assert [(hold.hold, hold.amount, hold.state) for hold in reads.balance("ada").shown_holds] == [(2, 0, "open")]
    assert [holder.holder_id for holder in reads.holders(prefix="ada")] == ["ada"]
    with pytest.raises(RefundExceedsSpend) as refused:
        services.refund(holder_id="ada", spend=1, idempotency_key="r")
    assert refused.value.facts["refundable"] == 0
    captured = services.capture(holder_id="ada", hold=2, amount=0, idempotency_key="c")
    assert (captured.kind, captured.amount, captured.held, captured.holds) == ("capture", 0, 0, ())
    assert services.capture(holder_id="ada", hold=2, amount=0, idempotency_key="c").replayed
    with pytest.raises(HoldClosed) as closed:
        services.release(holder_id="ada", hold=2, idempotency_key="l")
    assert closed.value.facts["how"] == "captured"
    texts = [reads.explanation("ada", "credits", number)["text"] for number in (1, 2, captured.sequence)]
    assert texts == [
        "The spend cost nothing and took nothing from any lot.",
        "The hold set nothing aside, as what it is for costs nothing.",
        "The capture took nothing of hold 2.",
    ]
    assert audit([connection.connection], holder_id="ada").findings == []
    report = audit([connection.connection], holder_id="ada").identities["credits"]
    assert report.totals["spent"] == 0


def test_an_account_that_began_with_a_refusal_is_listed_once_it_has_spent_nothing():
    services.publish_rate(code="r", price=0, per=1)
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=1, idempotency_key="s")
    assert reads.holders(prefix="ada") == []
    services.spend(holder_id="ada", rate="r", quantity=1, idempotency_key="s2")
    assert [holder.holder_id for holder in reads.holders(prefix="ada")] == ["ada"]


def test_what_costs_nothing_is_refused_a_frozen_holder_and_changes_no_budget():
    services.publish_rate(code="r", price=0, per=1)
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.set_budget(holder_id="ada", budget="b", limit=5, window="day", by="actor", idempotency_key="b")
    services.spend(holder_id="ada", amount=5, actor="key:x", idempotency_key="s")
    services.set_budget(holder_id="ada", budget="b", limit=3, window="day", by="actor", idempotency_key="b2")
    before = reads.entry("ada", "credits", 4).budgets
    for actor in ("key:x", "key:y"):
        free = services.hold(holder_id="ada", rate="r", quantity=1, actor=actor, idempotency_key=f"h-{actor}")
        assert (free.budgets, free.counts) == (before, ())
    services.release(holder_id="ada", hold=5, idempotency_key="l")
    assert audit([connection.connection], holder_id="ada").findings == []
    services.freeze(holder_id="ada", frozen=True, idempotency_key="f")
    with pytest.raises(HolderFrozen):
        services.spend(holder_id="ada", rate="r", quantity=1, idempotency_key="s2")
    assert [each.code for each in reads.refusals("ada")] == ["holder-frozen"]


@pytest.mark.parametrize("final", [True, False])
def test_a_capture_of_0_is_a_capture(final):
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    captured = services.capture(holder_id="ada", hold=2, amount=0, final=final, idempotency_key="c", metadata={"tokens": 0})
    assert (captured.kind, captured.amount, captured.drawn, captured.metadata) == ("capture", 0, (), {"tokens": 0})
    assert (captured.balance, captured.held) == ((100, 0) if final else (70, 30))
    if not final:
        assert services.capture(holder_id="ada", hold=2, amount=10, idempotency_key="c2").balance == 90
    assert audit([connection.connection], holder_id="ada").findings == []


def test_holds_of_0_stay_beside_others_until_they_are_closed_or_expire():
    services.publish_rate(code="r", price=0, per=1)
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", rate="r", quantity=1, idempotency_key="free", expires_at=datetime.now(UTC) + timedelta(days=2))
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    services.capture(holder_id="ada", hold=3, idempotency_key="c")
    assert [hold.hold for hold in reads.balance("ada").shown_holds] == [2]
    # It cost something after all.
    beyond = services.capture(holder_id="ada", hold=2, amount=7, over_capture="if_available", idempotency_key="c2")
    assert (beyond.amount, beyond.balance, beyond.holds) == (-7, 63, ())
    assert audit([connection.connection], holder_id="ada").findings == []


def test_a_hold_of_0_that_has_expired_is_booked_by_the_worker():
    ledger = RulesLedger()
    RandomHistory(ledger, ("ada",)).hold("ada", 0, HOUR_US)
    connection.ensure_connection()
    store(connection.connection, ledger.in_order)
    summary = book_all_expirations(dry_run=True)
    assert summary.due == 1
    [released] = services.book_expirations(holder_id="ada", credit_type="credits")
    assert (released.kind, released.amount, released.refers_to, released.holds) == ("release", 0, 1, ())
    assert audit([connection.connection], holder_id="ada").findings == []


def test_an_account_has_at_most_as_many_holds_of_0_as_it_may_hold_lots(monkeypatch):
    monkeypatch.setattr(hold_rules, "MAX_HOLD_PARTS", 3)
    services.publish_rate(code="r", price=0, per=1)
    for number in range(3):
        services.hold(holder_id="ada", rate="r", quantity=1, idempotency_key=f"h{number}")
    with pytest.raises(HoldLimit):
        services.hold(holder_id="ada", rate="r", quantity=1, idempotency_key="h3")
    assert reads.balance("ada").sequence == 3


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


# Components ------------------------------------------------------------------------------------------

COMPONENTS = {
    "input": {"price": 25, "per": 10_000},
    "cached": {"price": 125, "per": 100_000},
    "output": {"price": 1, "per": 100},
}
USED = {"input": 1200, "cached": 3000, "output": Decimal("350.5")}
KEPT = {"cached": "3000", "input": "1200", "output": "350.5"}


def components(**prices):
    return {name: RateComponent(**each) for name, each in {**COMPONENTS, **prices}.items()}


def test_a_rate_of_components_prices_all_of_them_and_rounds_once():
    services.publish_rate(code="gpt-4o", components=components())
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    # 3 + 3.75 + 3.505 = 10.255
    assert services.quote(rate="gpt-4o", quantities=USED) == (11, {"rate": "gpt-4o", "version": 1, "quantities": KEPT})
    spent = services.spend(holder_id="ada", rate="gpt-4o", quantities=USED, idempotency_key="s")
    assert (spent.amount, spent.rating) == (-11, {"rate": "gpt-4o", "version": 1, "quantities": KEPT})
    partly = services.spend(holder_id="ada", rate="gpt-4o", quantities={"output": 0, "input": 1}, idempotency_key="s2")
    assert (partly.amount, partly.rating["quantities"]) == (-1, {"cached": "0", "input": "1", "output": "0"})
    short = services.spend(holder_id="ada", rate="gpt-4o", quantities={"output": 10_000}, partial=True, idempotency_key="s3")
    assert (short.amount, short.requested) == (-88, 100)
    assert reads.explanation("ada", "credits", 2)["text"].startswith("The spend took 11 credits")
    assert audit([connection.connection], holder_id="ada").findings == []


def test_a_capture_is_priced_by_the_version_of_its_hold():
    services.publish_rate(code="gpt-4o", components=components())
    services.grant(holder_id="ada", amount=1000, idempotency_key="g")
    held = services.hold(holder_id="ada", rate="gpt-4o", quantities={"input": 1200, "output": 10_000}, idempotency_key="h")
    services.publish_rate(code="gpt-4o", components=components(output={"price": 1, "per": 1}))
    services.publish_rate(code="other", price=1, per=1000)
    assert held.amount == -103
    captured = services.capture(holder_id="ada", hold=2, quantities=USED, final=False, idempotency_key="c")
    assert (captured.drawn, captured.rating) == (((1, 11),), {"rate": "gpt-4o", "version": 1, "quantities": KEPT})
    named = services.capture(holder_id="ada", hold=2, rate="gpt-4o", quantities={"output": 1}, final=False, idempotency_key="c2")
    assert (named.drawn, named.rating["version"]) == (((1, 1),), 1)
    newest = services.capture(
        holder_id="ada", hold=2, quantities={"output": 5}, newest_version=True, final=False, idempotency_key="c3"
    )
    assert (newest.drawn, newest.rating["version"]) == (((1, 5),), 2)
    other = services.capture(holder_id="ada", hold=2, rate="other", quantity=1001, final=False, idempotency_key="c4")
    assert (other.drawn, other.rating) == (((1, 2),), {"rate": "other", "version": 1, "quantity": 1001})
    nothing = services.capture(holder_id="ada", hold=2, quantities={"input": 0}, idempotency_key="c5")
    assert (nothing.drawn, nothing.held, nothing.balance) == ((), 0, 1000 - 19)
    again = services.capture(holder_id="ada", hold=2, quantities={"input": 0}, idempotency_key="c5")
    assert (again.sequence, again.replayed) == (nothing.sequence, True)
    assert audit([connection.connection], holder_id="ada").findings == []


def test_a_capture_beyond_its_hold_comes_from_the_balance_or_is_refused():
    services.publish_rate(code="gpt-4o", components=components())
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", rate="gpt-4o", quantities={"output": 1000}, idempotency_key="h")
    with pytest.raises(CaptureExceedsHold) as refused:
        services.capture(holder_id="ada", hold=2, quantities={"output": 5000}, idempotency_key="c")
    assert (refused.value.held, refused.value.requested) == (10, 50)
    captured = services.capture(
        holder_id="ada", hold=2, quantities={"output": 5000}, over_capture="if_available", idempotency_key="c2"
    )
    assert (captured.amount, captured.balance, captured.held) == (-40, 50, 0)
    assert audit([connection.connection], holder_id="ada").findings == []


def test_quantities_that_the_rate_does_not_have_are_invalid_and_write_nothing():
    services.publish_rate(code="gpt-4o", components=components())
    services.publish_rate(code="plain", price=3, per=1000)
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=10, idempotency_key="h")
    hold = {"holder_id": "ada", "hold": 2, "idempotency_key": "c"}
    for pointer, rule, ask in (
        ("/quantities/inptu", "unknown-component", lambda: spend(rate="gpt-4o", quantities={"inptu": 5})),
        ("/quantities/input", "unknown-component", lambda: spend(rate="plain", quantities={"input": 5})),
        ("/quantity", "unknown-component", lambda: spend(rate="gpt-4o", quantity=5)),
        ("/rate", "required", lambda: services.capture(**hold, quantities={"output": 5})),
        ("/quantities", "required", lambda: services.capture(**hold, rate="gpt-4o")),
        ("/quantities", "required", lambda: services.capture(**hold, amount=5, newest_version=True)),
        ("/quantities", "not-both", lambda: services.capture(**hold, amount=5, quantities={"output": 5})),
        ("/quantities", "not-both", lambda: spend(rate="gpt-4o", quantity=5, quantities={"output": 5})),
        ("/quantities/output", "not-a-decimal", lambda: spend(rate="gpt-4o", quantities={"output": Decimal("1e-13")})),
        ("/quantities", "too-few", lambda: spend(rate="gpt-4o", quantities={})),
        ("/components", "not-both", lambda: services.publish_rate(code="x", price=1, per=1, components=components())),
        ("/price", "required", lambda: services.publish_rate(code="x")),
        ("/per", "required", lambda: services.publish_rate(code="x", price=1)),
    ):
        with pytest.raises(Invalid) as refused:
            ask()
        assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (pointer, rule)
    with pytest.raises(UnknownRate):
        services.capture(**hold, rate="nothing", quantities={"output": 5})
    assert reads.balance("ada").sequence == 2
    assert not Rate.objects.filter(code="x").exists()
    # A rate without components has the one called `quantity`.
    plain = spend(rate="plain", quantities={"quantity": Decimal("1000.5")})
    assert (plain.amount, plain.rating["quantities"]) == (-4, {"quantity": "1000.5"})
    assert audit([connection.connection], holder_id="ada").findings == []


def spend(**fields):
    return services.spend(holder_id="ada", idempotency_key="s", **fields)


def test_a_rate_of_components_is_published_once_per_key():
    first = services.publish_rate(code="gpt-4o", components=components(), idempotency_key="k")
    again = services.publish_rate(code="gpt-4o", components=dict(reversed(components().items())), idempotency_key="k")
    assert (first.rate.version, again.rate.version, again.replayed) == (1, 1, True)
    assert list(again.rate.unit_prices.items()) == list(first.rate.unit_prices.items())
    with pytest.raises(IdempotencyKeyReused):
        services.publish_rate(code="gpt-4o", components=components(output={"price": 2, "per": 100}), idempotency_key="k")
    assert str(first.rate) == "gpt-4o v1: cached 125 per 100000, input 25 per 10000, output 1 per 100"


def test_quantities_beyond_one_operation_are_refused_with_a_sentence():
    services.publish_rate(code="dear", components=components(output={"price": 2**53 - 1, "per": 1}))
    with pytest.raises(AmountLimit):
        spend(rate="dear", quantities={"output": 2})
    stored = reads.entry("ada", "credits", 1).refusal
    assert (stored["code"], stored["facts"]["quantity"]) == ("amount-limit", None)
    assert stored["request"]["quantities"] == {"output": "2"}
    words = refusal_text(stored, at=datetime.now(UTC), unit=unit_of("credits"))
    assert words.startswith("Refused: the quantities of dear cost more than 9,007,199,254,740,991 credits")
    services.publish_rate(code="dear", components=components())
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", rate="dear", quantities=USED, idempotency_key="s2")
    stored = reads.entry("ada", "credits", 2).refusal
    words = refusal_text(stored, at=datetime.now(UTC), unit=unit_of("credits"))
    assert words.startswith("Refused: 11 requested for 3,000 cached, 1,200 input, 350.5 output of dear, 0 spendable.")
