"""Out of bounds: the subscription is parked with a reason instead of being billed nonsense."""

import pytest

from billing.errors import NotParked, Parked
from billing.generator.generate import Options, generate
from billing.generator.workers import OutcomeKind, bill_one
from billing.models import Invoice, Parking
from billing.orders import suspension
from ledger import services
from ledger.api.kit import authentication
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.ledger.api.conftest import ApiClient

pytestmark = pytest.mark.django_db


def test_too_many_periods_park_and_bill_nothing(settings) -> None:
    settings.BILLING_LIMITS = {"periods": 3}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    with pytest.raises(Parked) as parked:
        generate(ref=subscription.ref, options=Options(as_of=at(4, 1)))
    assert parked.value.facts == {"subscription": subscription.ref, "reason": "too-many-periods", "periods": 4, "limit": 3}
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()
    standing = Parking.objects.get(subscription=subscription.pk)
    assert (standing.reason, standing.facts, standing.unparked_at) == ("too-many-periods", {"periods": 4, "limit": 3}, None)


def test_what_is_parked_is_left_alone_until_somebody_says_why_not(settings) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    suspension.park(ref=subscription.ref, reason="looks-odd")
    done = bill_one(subscription.ref, Options(as_of=at(1, 1)))
    assert (done.outcome, done.detail) == (OutcomeKind.PARKED, "looks-odd")
    suspension.unpark(ref=subscription.ref, actor="ada", reason="Checked by hand")
    assert bill_one(subscription.ref, Options(as_of=at(1, 1))).outcome == OutcomeKind.FINALISED
    assert Parking.objects.get(subscription=subscription.pk).unparked_by == "ada"
    with pytest.raises(NotParked):
        suspension.unpark(ref=subscription.ref, actor="ada", reason="Again")


def test_include_parked_bills_it_all_the_same() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    suspension.park(ref=subscription.ref, reason="looks-odd")
    assert bill_one(subscription.ref, Options(as_of=at(1, 1), include_parked=True)).outcome == OutcomeKind.FINALISED


def test_an_amount_far_above_the_usual_parks(settings) -> None:
    settings.BILLING_LIMITS = {"times_usual": 10}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    use(subscription, "100", at(1, 5))
    use(subscription, "1001", at(2, 5))
    assert bill_one(subscription.ref, Options(as_of=at(2, 1))).outcome == OutcomeKind.FINALISED
    done = bill_one(subscription.ref, Options(as_of=at(3, 1)))
    assert (done.outcome, done.detail) == (OutcomeKind.PARKED, "unusual-amount")
    assert Invoice.objects.filter(subscription_ref=subscription.ref).count() == 1


def test_many_lines_that_begin_on_one_day_park(settings) -> None:
    settings.BILLING_LIMITS = {"lines_per_day": 2}
    three = PlanFactory(prices=[recurring(key) for key in ("a", "b", "c")])
    subscription = SubscriptionFactory(plan=three.code)
    with pytest.raises(Parked) as parked:
        generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    facts = {"day": "2026-01-01", "lines": 3, "limit": 2}
    assert parked.value.facts == {"subscription": subscription.ref, "reason": "too-many-lines-per-day"} | facts
    assert Parking.objects.get(subscription=subscription.pk).facts == facts
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()


def test_as_many_lines_on_each_of_two_days_do_not_park(settings) -> None:
    settings.BILLING_LIMITS = {"lines_per_day": 2}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring("a"), recurring("b")]).code)
    assert bill_one(subscription.ref, Options(as_of=at(2, 1))).outcome == OutcomeKind.FINALISED


def test_over_rest_the_refusal_parks_as_the_command_does(settings) -> None:
    authentication.forget_keys()
    settings.BILLING_LIMITS = {"periods": 3}
    _, secret = services.create_api_key(name=unique("key"), scopes=["billing:read", "billing:write"])
    api = ApiClient(secret)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    body = {"as_of": "2026-04-01T00:00:00Z"}

    dry = api.post(path, body | {"dry_run": True})
    assert (dry.status_code, Parking.objects.filter(subscription=subscription.pk).count()) == (409, 0)
    key = unique("key")
    refused, again = (api.post(path, body, key=key) for _ in range(2))
    assert [one.status_code for one in (refused, again)] == [409, 409]
    assert refused.json()["type"].endswith("subscription-parked")
    standing = Parking.objects.get(subscription=subscription.pk)
    assert (standing.reason, standing.facts) == ("too-many-periods", {"periods": 4, "limit": 3})
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()

    settings.BILLING_LIMITS = {}
    assert api.post(path, body).status_code == 409
    suspension.unpark(ref=subscription.ref, actor="ada", reason="Checked by hand")
    assert api.post(path, body).status_code == 201
