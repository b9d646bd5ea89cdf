"""Out of bounds: billing is suspended with a reason instead of being billed nonsense."""

from contextlib import suppress
from io import StringIO

import pytest
from django.core.management import call_command

from billing.errors import BillingNotSuspended, BillingSuspended, BillingWouldBeSuspended
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.generator.run.outcomes import RunOutcome, bill_one
from billing.models import Amendment, Invoice, SuspendedBilling
from billing.orders import suspension
from ledger.keys import api_keys
from ledger.rest.kit import authentication
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db


def test_too_many_periods_suspend_billing_and_bill_nothing(settings) -> None:
    settings.BILLING_LIMITS = {"periods": 3}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    with pytest.raises(BillingSuspended) as refused:
        generate(ref=subscription.ref, options=Options(as_of=at(4, 1)))
    assert refused.value.facts == {"subscription": subscription.ref, "reason": "too-many-periods", "periods": 4, "limit": 3}
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()
    suspended = SuspendedBilling.objects.get(subscription=subscription.pk)
    assert (suspended.reason, suspended.facts, suspended.resumed_at) == ("too-many-periods", {"periods": 4, "limit": 3}, None)


def test_suspended_billing_stays_suspended_until_an_operator_resumes_it_with_a_reason(settings) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    suspension.suspend(ref=subscription.ref, reason="looks-odd")
    done = bill_one(subscription.ref, Options(as_of=at(1, 1)))
    assert (done.outcome, done.detail) == (RunOutcome.SUSPENDED, "looks-odd")
    suspension.resume(ref=subscription.ref, actor="ada", reason="Checked by hand")
    assert bill_one(subscription.ref, Options(as_of=at(1, 1))).outcome == RunOutcome.FINALISED
    assert SuspendedBilling.objects.get(subscription=subscription.pk).resumed_by == "ada"
    with pytest.raises(BillingNotSuspended):
        suspension.resume(ref=subscription.ref, actor="ada", reason="Again")
    assert SuspendedBilling.objects.get(subscription=subscription.pk).resume_reason == "Checked by hand"


def test_include_suspended_bills_it_all_the_same() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    suspension.suspend(ref=subscription.ref, reason="looks-odd")
    assert bill_one(subscription.ref, Options(as_of=at(1, 1), include_suspended=True)).outcome == RunOutcome.FINALISED


def test_an_amount_far_above_the_usual_suspends_billing(settings) -> None:
    settings.BILLING_LIMITS = {"times_usual": 10}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    use(subscription, "100", at(1, 5))
    use(subscription, "1001", at(2, 5))
    assert bill_one(subscription.ref, Options(as_of=at(2, 1))).outcome == RunOutcome.FINALISED
    done = bill_one(subscription.ref, Options(as_of=at(3, 1)))
    assert (done.outcome, done.detail) == (RunOutcome.SUSPENDED, "unusual-amount")
    assert Invoice.objects.filter(subscription_ref=subscription.ref).count() == 1


def test_many_lines_that_begin_on_one_day_suspend_billing(settings) -> None:
    settings.BILLING_LIMITS = {"lines_per_day": 2}
    three = PlanFactory(prices=[recurring(key) for key in ("a", "b", "c")])
    subscription = SubscriptionFactory(plan=three.code)
    with pytest.raises(BillingSuspended) as refused:
        generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    facts = {"day": "2026-01-01", "lines": 3, "limit": 2}
    assert refused.value.facts == {"subscription": subscription.ref, "reason": "too-many-lines-per-day"} | facts
    assert SuspendedBilling.objects.get(subscription=subscription.pk).facts == facts
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()


def test_as_many_lines_on_each_of_two_days_do_not_suspend_billing(settings) -> None:
    settings.BILLING_LIMITS = {"lines_per_day": 2}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring("a"), recurring("b")]).code)
    assert bill_one(subscription.ref, Options(as_of=at(2, 1))).outcome == RunOutcome.FINALISED


def test_a_dry_run_of_an_amendment_beyond_the_limits_does_not_say_that_billing_is_suspended(settings) -> None:
    authentication.forget_keys()
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=["billing:read", "billing:write"])
    api = ApiClient(secret)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    path = f"/v1/subscriptions/{subscription.ref}/amendments?dry_run=true&as_of=2026-04-01T00:00:00Z"
    body = {"effective_at": "2026-04-01T00:00:00Z", "quantities": {"base": "2"}}
    amendments = Amendment.objects.count()

    settings.BILLING_LIMITS = {"periods": 3}
    refused = api.post(path, body)
    problem = refused.json()
    assert (refused.status_code, problem["type"].rsplit("/", 1)[1]) == (409, "billing-would-be-suspended")
    assert (problem["title"], problem["detail"]) == (
        "A run would suspend billing of the subscription",
        "A run would suspend billing of the subscription.",
    )
    assert (problem["reason"], problem["periods"], problem["limit"]) == ("too-many-periods", 4, 3)
    # Nothing is written, and nothing is suspended.
    assert (Amendment.objects.count(), SuspendedBilling.objects.count()) == (amendments, 0)

    # Where billing is suspended, a dry run says so.
    suspension.suspend(ref=subscription.ref, reason="looks-odd")
    problem = api.post(path, body).json()
    assert (problem["type"].rsplit("/", 1)[1], problem["reason"]) == ("billing-suspended", "looks-odd")
    assert problem["detail"] == "Billing of the subscription is suspended."


def test_a_dry_run_of_the_generator_says_that_billing_would_be_suspended(settings) -> None:
    settings.BILLING_LIMITS = {"periods": 3}
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    with pytest.raises(BillingWouldBeSuspended) as refused:
        generate(ref=subscription.ref, options=Options(as_of=at(4, 1), dry_run=True))
    assert refused.value.facts["reason"] == "too-many-periods"
    out = StringIO()
    with suppress(SystemExit):
        asked = ["--subscription", subscription.ref, "--as-of", "2026-04-01", "--no-progress", "--dry-run"]
        call_command("generate_invoices", *asked, stdout=out)
    assert "Subscriptions  1 would be suspended\n" in out.getvalue()
    assert not SuspendedBilling.objects.exists()


def test_over_rest_the_refusal_suspends_billing_as_the_command_does(settings) -> None:
    authentication.forget_keys()
    settings.BILLING_LIMITS = {"periods": 3}
    _, secret = api_keys.create_api_key(name=unique("key"), scopes=["billing:read", "billing:write"])
    api = ApiClient(secret)
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    body = {"as_of": "2026-04-01T00:00:00Z"}

    dry = api.post(path, body | {"dry_run": True})
    assert (dry.status_code, SuspendedBilling.objects.filter(subscription=subscription.pk).count()) == (409, 0)
    assert dry.json()["detail"] == "A run would suspend billing of the subscription."
    key = unique("key")
    refused, again = (api.post(path, body, key=key) for _ in range(2))
    assert [one.status_code for one in (refused, again)] == [409, 409]
    assert refused.json()["type"].endswith("billing-suspended")
    suspended = SuspendedBilling.objects.get(subscription=subscription.pk)
    assert (suspended.reason, suspended.facts) == ("too-many-periods", {"periods": 4, "limit": 3})
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()

    settings.BILLING_LIMITS = {}
    assert api.post(path, body).status_code == 409
    suspension.resume(ref=subscription.ref, actor="ada", reason="Checked by hand")
    assert api.post(path, body).status_code == 201


def test_billing_is_resumed_over_rest(api) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    suspension.suspend(ref=subscription.ref, reason="looks-odd")
    answer = api.post(f"/v1/subscriptions/{subscription.ref}/resume", {"reason": "Checked by hand"})
    assert (answer.status_code, answer.json()["resume_reason"]) == (200, "Checked by hand")
    assert {"suspended_at", "resumed_at", "resumed_by"} <= answer.json().keys()
    again = api.post(f"/v1/subscriptions/{subscription.ref}/resume", {"reason": "Again"})
    assert (again.status_code, again.json()["type"].rsplit("/", 1)[1]) == (409, "billing-not-suspended")
