"""A spend or hold that lacks credits is refused with the top-up that is under way, and starts the payment that is due."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.payments import topups_under_way
from billing.payments.advancing import advance
from billing.payments.due_intents import advance_due
from billing.payments.due_purchases import settle_due
from billing.payments.models import PaymentIntent, Purchase, PurchaseGrant
from billing.payments.topup_declarations import end_top_up
from ledger import services
from ledger.errors import HolderBusy, InsufficientCredits, ServerBusy
from ledger.models import Entry
from ledger.rest.kit.endpoint import CallersThread
from ledger.rest.kit.front import application
from ledger.rules.requests import SpendRequest
from ledger.services import coming_credits
from tests.billing.payments.stripe_double import DECLINED, StripeDouble
from tests.billing.payments.test_stripe import stripe
from tests.billing.payments.topups.test_topups import declared, run
from tests.ledger.rest.conftest import ALL_SCOPES, ApiClient

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]
__all__ = ["stripe"]


def refused(key: str = "1", **fields: Any) -> dict[str, Any]:
    """The facts of the refusal of a spend of ada's."""
    with pytest.raises(InsufficientCredits) as error:
        services.spend(**{"holder_id": "ada", "amount": 50, "idempotency_key": key} | fields)
    return error.value.facts


def top_up(**fields: Any) -> dict[str, Any]:
    return refused(**fields).get("top_up", {})


def test_a_refusal_starts_the_payment_asks_nobody_and_names_it(stripe: StripeDouble) -> None:
    made = declared()
    facts = refused()
    assert facts["top_up"] == {"id": made.pk, "state": "requested", "credits": 1100}
    assert (facts["retry_after_seconds"], facts["shortfall"]) == (5, 50)
    intent = PaymentIntent.objects.get()
    assert (intent.top_up_id, intent.state, intent.asked_at, stripe.taken.total()) == (made.pk, "requested", None, 0)
    assert intent.due_at is not None
    assert intent.due_at <= timezone.now()


def test_a_second_refusal_starts_no_second_payment_and_a_retry_gets_the_first_facts(stripe: StripeDouble) -> None:
    declared()
    first = refused()
    PaymentIntent.objects.update(state="processing")
    assert refused("2")["top_up"]["state"] == "processing"
    with pytest.raises(InsufficientCredits) as again:
        services.spend(holder_id="ada", amount=50, idempotency_key="1")
    assert (again.value.facts, again.value.replayed) == (first, True)
    assert (PaymentIntent.objects.count(), Entry.objects.filter(kind="refusal").count()) == (1, 2)


@pytest.mark.parametrize("state", ["waiting", "processing"])
def test_the_payments_state_is_named(stripe: StripeDouble, state: str) -> None:
    declared()
    refused()
    PaymentIntent.objects.update(state=state)
    facts = refused("2")
    assert (facts["top_up"]["state"], "retry_after_seconds" in facts) == (state, state != "waiting")


def test_money_that_is_in_is_named_until_its_credits_are_added(stripe: StripeDouble) -> None:
    declared()
    refused()
    advance(PaymentIntent.objects.get().pk)
    assert (Purchase.objects.count(), PurchaseGrant.objects.count()) == (1, 0)
    assert top_up(key="2")["state"] == "granting"
    run()
    assert services.spend(holder_id="ada", amount=50, idempotency_key="3").amount == -50
    assert top_up(key="4", amount=10_000) == {}


def test_a_pause_after_declines_is_named_and_nothing_more_is_asked_for(stripe: StripeDouble) -> None:
    made = declared(DECLINED, declines=1)
    assert run() == 1
    assert refused()["top_up"] == {"id": made.pk, "state": "paused", "credits": 0}
    assert "retry_after_seconds" not in refused("2")
    assert PaymentIntent.objects.count() == 1


def test_the_cooldown_is_named_with_its_rest(stripe: StripeDouble) -> None:
    declared(DECLINED, cooldown_seconds=300)
    assert run() == 1
    PaymentIntent.objects.update(recorded_at=timezone.now() - timedelta(seconds=100))
    facts = refused()
    assert (facts["top_up"]["state"], facts["top_up"]["credits"]) == ("due", 1100)
    assert 200 <= facts["retry_after_seconds"] <= 206
    assert PaymentIntent.objects.count() == 1


def test_without_a_top_up_or_room_under_the_cap_or_need_the_refusal_is_plain(stripe: StripeDouble) -> None:
    assert top_up(key="none") == {}
    services.grant(holder_id="ada", amount=40, idempotency_key="g")
    enough = declared(threshold=30)
    assert top_up(key="not low") == {}
    end_top_up(top_up=enough.pk)
    declared(cap_minor=1)
    assert top_up(key="cap") == {}
    declared(credit_type="credits").delete()
    assert PaymentIntent.objects.count() == 0


def test_a_dry_run_names_it_and_writes_nothing(stripe: StripeDouble) -> None:
    made = declared()
    assert top_up(dry_run=True) == {"id": made.pk, "state": "due", "credits": 1100}
    assert (PaymentIntent.objects.count(), Entry.objects.count()) == (0, 0)


def test_a_hold_is_refused_alike_and_a_transfer_asks_nobody(stripe: StripeDouble) -> None:
    declared()
    with pytest.raises(InsufficientCredits) as error:
        services.transfer(holder_id="ada", to="bob", amount=1, idempotency_key="t")
    assert "top_up" not in error.value.facts
    with pytest.raises(InsufficientCredits) as error:
        services.hold(holder_id="ada", amount=1, idempotency_key="h")
    assert error.value.facts["top_up"]["state"] == "requested"


@pytest.mark.parametrize("busy", [HolderBusy, RuntimeError])
def test_if_it_cannot_be_known_the_refusal_is_plain_or_says_due(
    stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch, busy: type[Exception]
) -> None:
    def fail(*given: Any, **options: Any) -> None:
        raise busy

    made = declared()
    monkeypatch.setattr(topups_under_way, "top_up", fail)
    due = {"id": made.pk, "state": "due", "credits": 1100}
    assert top_up() == (due if busy is HolderBusy else {})
    assert (Entry.objects.filter(kind="refusal").count(), PaymentIntent.objects.count()) == (1, 0)


def test_who_spends_with_success_or_inside_a_transaction_or_again_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(coming_credits, "_sources", [lambda lack: asked.append(lack.holder_id)])
    services.grant(holder_id="ada", amount=40, idempotency_key="g")
    services.spend(holder_id="ada", amount=40, idempotency_key="s")
    assert asked == []
    assert top_up() == {}
    assert top_up() == {}
    assert asked == ["ada"]


@pytest.mark.parametrize("mode", ["each", "atomic"])
def test_a_batch_that_lacks_credits_starts_the_payment(stripe: StripeDouble, mode: services.Mode) -> None:
    declared()
    spends = [SpendRequest(holder_id="ada", amount=50, idempotency_key=str(number)) for number in range(3)]
    assert services.batch(spends, mode=mode, idempotency_key="dry", dry_run=True).outcomes[0].error is not None
    assert PaymentIntent.objects.count() == 0
    executed = services.batch(spends, mode=mode, idempotency_key="b")
    assert isinstance(executed.outcomes[0].error, InsufficientCredits)
    assert "top_up" not in executed.outcomes[0].error.facts
    assert PaymentIntent.objects.get().state == "requested"


def test_over_rest_with_retry_after_and_the_same_bytes_again(make_api: Any, stripe: StripeDouble) -> None:
    api: ApiClient = make_api(*ALL_SCOPES)
    made = declared()
    first = api.post("/v1/holders/ada/spends", {"amount": 50}, key="1")
    assert (first.status_code, first["Retry-After"]) == (402, "5")
    assert first.json()["top_up"] == {"id": made.pk, "state": "requested", "credits": 1100}
    PaymentIntent.objects.update(state="waiting")
    again = api.post("/v1/holders/ada/spends", {"amount": 50}, key="1")
    assert (again.content, again["Idempotency-Replayed"]) == (first.content, "true")
    assert api.post("/v1/holders/ada/holds", {"amount": 50}, key="2").json()["top_up"]["state"] == "waiting"
    spender: ApiClient = make_api("ledger:spend")
    confined = spender.post("/v1/holders/ada/spends", {"amount": 50}, key="3").json()
    assert ("lots" in confined, confined["top_up"]["id"]) == (False, made.pk)
    PaymentIntent.objects.update(state="requested")
    run()
    assert api.post("/v1/holders/ada/spends", {"amount": 50}, key="1").content == first.content
    assert api.post("/v1/holders/ada/spends", {"amount": 50}, key="4").status_code == 201


def test_the_payment_that_a_refusal_starts_is_due_for_a_worker_at_once(stripe: StripeDouble) -> None:
    declared()
    refused()
    assert stripe.asked.total() == 0
    assert advance_due().intents == 1
    settle_due()
    assert services.spend(holder_id="ada", amount=50, idempotency_key="later").amount == -50


def test_without_a_thread_to_ask_in_the_refusal_is_plain(
    make_api: Any, stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise ServerBusy

    api: ApiClient = make_api(*ALL_SCOPES)
    declared()
    monkeypatch.setattr(application.Front, "_read", full)
    monkeypatch.setattr(CallersThread, "wait_for", full)
    response = api.post("/v1/holders/ada/spends", {"amount": 50})
    assert (response.status_code, response.json()["shortfall"], "top_up" in response.json()) == (402, 50, False)
    assert (Entry.objects.filter(kind="refusal").count(), PaymentIntent.objects.count()) == (1, 0)
