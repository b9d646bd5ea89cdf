"""Automatic top-ups against the double of Stripe: once for a need, within the cap, paused after declines."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.auditing import consistency
from billing.orders.erasure import erase_customer
from billing.payments import purchase_recording
from billing.payments.advancing import advance
from billing.payments.due_purchases import settle_due
from billing.payments.errors import TopUpEnded
from billing.payments.models import Pack, PaymentIntent, Purchase, TopUp
from billing.payments.testing import PackFactory
from billing.payments.topup_checks import top_up, top_up_due
from billing.payments.topup_declarations import charge_other_method, end_top_up, resume_top_up, set_top_up
from billing.payments.topups_under_way import top_up_under_way
from billing.testing import CustomerFactory
from ledger import reads as ledger_reads
from ledger import services
from ledger.errors import Invalid
from ledger.services import Lack
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import send_both_steps, text_of_response
from tests.billing.payments.stripe_double import DECLINED, OK, TWICE, StripeDouble
from tests.billing.payments.test_stripe import stripe
from tests.ledger.rest.conftest import ApiClient
from tests.tampering.owner import as_owner

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]
__all__ = ["client", "stripe"]


def declared(method: str = OK, **fields: Any) -> TopUp:
    """A top-up of ada's account with one pack, without a cooldown."""
    given: dict[str, Any] = {"holder_id": "ada", "threshold": 200, "pack": PackFactory().code, "cooldown_seconds": 0}
    given |= {} if "up_to" in fields else {"packs": 1}
    return set_top_up(**given | {"customer": CustomerFactory().ref, "method": method} | fields)


def run() -> int:
    """Let the workers look, ask Stripe and add credits; return how many payments were started."""
    started = top_up_due().started
    for intent in PaymentIntent.objects.filter(due_at__isnull=False):
        advance(intent.pk)
    settle_due()
    return started


def balance() -> int:
    return ledger_reads.balance("ada").balance


def test_an_account_that_runs_low_is_topped_up_once_for_a_need(stripe: StripeDouble) -> None:
    declared()
    assert (run(), balance(), run()) == (1, 1100, 0)
    services.spend(holder_id="ada", amount=901, idempotency_key="1")
    assert (run(), balance(), run(), stripe.taken.total()) == (1, 1299, 0, 2)
    assert consistency.check() == []


def test_several_packs_are_one_payment_and_one_purchase(stripe: StripeDouble) -> None:
    declared(up_to=3000)
    assert (run(), balance(), stripe.taken.total()) == (1, 3300, 1)
    purchase = Purchase.objects.get()
    assert (purchase.quantity, purchase.credits, purchase.bonus, purchase.paid_minor) == (3, 3000, 300, 6000)
    assert consistency.check() == []


def test_while_a_payment_is_under_way_or_its_credits_are_coming_nothing_more_is_bought(stripe: StripeDouble) -> None:
    made = declared()
    first = top_up(made.pk)
    assert first is not None
    assert top_up(made.pk) is None
    advance(first.pk)
    assert (balance(), top_up(made.pk)) == (0, None)
    settle_due()
    assert (balance(), top_up(made.pk), PaymentIntent.objects.count()) == (1100, None, 1)


@pytest.mark.parametrize("is_new_method", [False, True])
def test_new_terms_or_another_card_wait_for_the_payment_that_is_under_way(stripe: StripeDouble, is_new_method: bool) -> None:
    made = declared(cap_minor=3999)
    first = top_up(made.pk)
    assert first is not None
    new = charge_other_method(top_up=made.pk, method=TWICE) if is_new_method else declared(cap_minor=3999)
    told = top_up_under_way(Lack(holder_id="ada", credit_type="credits", available=0, starts=True))
    assert told is not None
    assert (top_up(new.pk), told.top_up["state"], PaymentIntent.objects.count()) == (None, "requested", 1)
    assert (run(), balance(), PaymentIntent.objects.count()) == (0, 1100, 1)


def test_another_card_keeps_the_terms_and_ends_the_pause(stripe: StripeDouble) -> None:
    made = declared(DECLINED, declines=1, cap_minor=5000, cap_period="week", up_to=900)
    run()
    run()
    made.refresh_from_db()
    assert (made.paused_at is not None, balance()) == (True, 0)
    new = charge_other_method(top_up=made.pk, method=OK, actor="ops")
    assert (new.method, new.paused_at, new.actor, new.cap_minor, new.cap_period, new.up_to, new.packs) == (
        OK, None, "ops", 5000, "week", 900, None,
    )  # fmt: skip
    assert (run(), balance()) == (1, 1100)
    with pytest.raises(TopUpEnded):
        charge_other_method(top_up=made.pk, method=OK)
    with pytest.raises(Invalid, match="provider"):
        charge_other_method(top_up=new.pk, method=OK, provider="manual")
    assert TopUp.objects.filter(ended_at=None).get().pk == new.pk


def test_expired_credits_and_credits_of_later_do_not_count(stripe: StripeDouble) -> None:
    declared()
    services.grant(holder_id="ada", amount=900, effective_at=timezone.now() + timedelta(days=1), idempotency_key="later")
    assert run() == 1


def test_the_cap_of_the_period_is_kept_also_by_new_terms(stripe: StripeDouble) -> None:
    made = declared(cap_minor=3999)
    assert run() == 1
    services.spend(holder_id="ada", amount=1100, idempotency_key="1")
    assert run() == 0
    declared(cap_minor=3999)
    assert run() == 0
    PaymentIntent.objects.filter(top_up_id=made.pk).update(recorded_at=timezone.now() - timedelta(days=32))
    assert run() == 1


def test_the_cooldown_is_waited_for(stripe: StripeDouble) -> None:
    declared(cooldown_seconds=300)
    assert run() == 1
    services.spend(holder_id="ada", amount=1100, idempotency_key="1")
    assert run() == 0
    PaymentIntent.objects.update(recorded_at=timezone.now() - timedelta(seconds=300))
    assert run() == 1


def test_declines_pause_it_until_somebody_resumes_it(stripe: StripeDouble) -> None:
    made = declared(DECLINED, declines=2)
    assert [run() for _ in range(4)] == [1, 1, 0, 0]
    made.refresh_from_db()
    assert (made.paused_at is not None, stripe.taken.total(), balance()) == (True, 0, 0)
    resume_top_up(top_up=made.pk)
    assert [run() for _ in range(4)] == [1, 1, 0, 0]
    end_top_up(top_up=made.pk)
    assert run() == 0
    assert consistency.check() == []


def test_an_erased_customer_is_charged_no_more(stripe: StripeDouble) -> None:
    customer = CustomerFactory()
    made = declared(customer=customer.ref)
    erase_customer(ref=customer.ref)
    assert run() == 0
    made.refresh_from_db()
    assert (made.paused_at is not None, PaymentIntent.objects.count()) == (True, 0)


@pytest.mark.products(most=2)
@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"pack": "none"}, "/pack"),
        ({"customer": "none"}, "/customer"),
        ({"provider": "none"}, "/provider"),
        ({"up_to": 199}, "/up_to"),
        ({"credit_type": "sms"}, "/pack"),
    ],
)
def test_bad_terms_are_refused_and_nothing_is_written(stripe: StripeDouble, fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        declared(**fields)
    assert (refused.value.facts["pointer"], TopUp.objects.count()) == (pointer, 0)


PURPOSE = {"rates": ["image.small"]}


def test_a_pack_for_some_things_only_is_no_top_up_now_or_later(stripe: StripeDouble) -> None:
    now, later = PackFactory(applies_to=PURPOSE), PackFactory()
    PackFactory(code=later.code, applies_to=PURPOSE, valid_from=timezone.now() + timedelta(days=9))
    for pack in (now, later):
        with pytest.raises(Invalid) as refused:
            declared(pack=pack.code)
        assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/pack", "not-for-everything")
    assert not TopUp.objects.exists()
    PackFactory(code=now.code)
    assert declared(pack=now.code).ended_at is None, "the version on sale pays for everything again"


def test_a_pack_that_a_top_up_buys_gets_no_version_for_some_things_only(api: ApiClient, stripe: StripeDouble) -> None:
    made = declared()
    body = {
        "ref": made.pack_ref, "name": "S", "credits": 1, "currency": "EUR", "price_minor": 1, "applies_to": PURPOSE,
        "valid_from": "2100-01-01T00:00:00Z",
    }  # fmt: skip
    response = api.post("/v1/packs", body)
    [error] = response.json()["errors"]
    assert (response.status_code, error["pointer"]) == (400, "/applies_to")
    assert f"top-up {made.pk} of ada" in error["detail"]
    assert Pack.objects.filter(code=made.pack_ref).count() == 1
    end_top_up(top_up=made.pk)
    assert api.post("/v1/packs", body).status_code == 201


def test_credits_for_some_things_only_that_are_coming_do_not_put_a_payment_off(
    stripe: StripeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = declared()
    monkeypatch.setattr(purchase_recording, "attempt", lambda purchase_id: None)
    purchase_recording.record_purchase(pack=PackFactory(applies_to=PURPOSE).code, holder_id="ada", payment="p-1")
    assert run() == 1
    assert top_up(made.pk) is None
    assert ledger_reads.balance("ada").available == 1100


def test_the_check_tells_a_top_up_that_would_buy_credits_for_some_things_only(stripe: StripeDouble) -> None:
    made = declared()
    as_owner(f"""UPDATE billing_pack SET applies_to = '{{"rates": ["a"]}}' WHERE code = '{made.pack_ref}'""")
    found = [one for one in consistency.check() if one["finding"].startswith("top-up buys")]
    assert [one["what"] for one in found] == [f"top-up {made.pk}"]


def test_over_rest_it_is_declared_replaced_read_resumed_and_ended(api: ApiClient, stripe: StripeDouble) -> None:
    customer = CustomerFactory()
    body = {
        "holder_id": "ada", "threshold": 200, "pack": PackFactory().code, "packs": 1, "customer": customer.ref, "method": OK,
    }  # fmt: skip
    made = api.post("/v1/top-ups", body)
    assert (made.status_code, made["Location"], made.json()["state"]) == (201, f"/v1/top-ups/{made.json()['id']}", "active")
    intent = top_up(made.json()["id"])
    assert intent is not None
    assert api.get(made["Location"]).json()["under_way"] == intent.pk
    second = api.post("/v1/top-ups", body | {"threshold": 300}).json()
    assert api.get(made["Location"]).json()["state"] == "ended"
    url = f"/v1/top-ups/{second['id']}"
    assert api.post(f"{url}/resume", {}).json()["state"] == "active"
    assert api.post(f"{url}/end", {}).json()["state"] == "ended"
    assert (api.post(f"{url}/end", {}).status_code, api.post(f"{url}/resume", {}).status_code) == (409, 409)
    for query, count in (("holder_id=ada", 2), (f"customer={customer.ref}", 2), ("holder_id=bob", 0), ("ended=false", 0)):
        assert len(api.get(f"/v1/top-ups?{query}").json()["results"]) == count, query
    assert api.get("/v1/top-ups/999999").status_code == 404
    assert api.post("/v1/top-ups", body | {"up_to": 500}).status_code == 400
    assert TopUp.objects.count() == 2


def test_its_page_shows_it_and_resumes_and_ends_it(client: Any, stripe: StripeDouble) -> None:
    made = declared()
    TopUp.objects.update(paused_at=timezone.now())
    url = f"/admin/billing_payments/topup/{made.pk}"
    assert "It is paused after 3 declines" in text_of_response(client.get(f"{url}/change/"))
    assert send_both_steps(client, f"{url}/resume/", {}).status_code == 302
    assert "When fewer than 200 credits are available" in text_of_response(client.get(f"{url}/change/"))
    assert send_both_steps(client, f"{url}/end/", {}).status_code == 302
    for query, count in (("", 1), ("state=ended", 1), ("state=active", 0), ("holder=ada", 1)):
        assert len(client.get(f"/admin/billing_payments/topup/?{query}").context_data["cl"].result_list) == count, query
