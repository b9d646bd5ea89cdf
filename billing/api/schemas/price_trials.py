"""The response and the examples of the call about another price."""

from typing import Any

from rest_framework import serializers

from billing.generator.run.price_trials import MOST_PERIODS, PriceTrial
from billing.models import Customer
from billing.reads.response_fields import sum_of_minor, text, time, whole
from ledger.responses import ResponseSchema


class TrialSumSerializer(ResponseSchema):
    """Periods added up, in minor units, before discounts and tax."""

    periods = whole()
    before_minor = sum_of_minor()
    after_minor = sum_of_minor()
    difference_minor = sum_of_minor()


class TrialOfPlanSerializer(TrialSumSerializer):
    """The periods of a version of a plan."""

    plan = text()
    version = whole()


class TrialOfCustomerSerializer(TrialSumSerializer):
    """The periods of a customer."""

    customer = text()


class PriceTrialSerializer(ResponseSchema):
    """What another price would have brought: `before_minor` was charged, `after_minor` would have been."""

    currency = text()
    since = time(help_text="Periods that ended after this, and not after `until`.")
    until = time()
    total = TrialSumSerializer()
    plans = TrialOfPlanSerializer(many=True)
    customers = TrialOfCustomerSerializer(many=True, help_text="At most 10, those first for whom most would change.")
    subscriptions = whole(help_text="How many subscriptions have such a period.")
    negotiated_periods = whole("negotiated", help_text="Periods at negotiated prices. They stay, and count in no sum.")
    is_whole = serializers.BooleanField(help_text=f"False: there are more than {MOST_PERIODS:,} periods; others are left out.")


def price_trial(trial: PriceTrial) -> dict[str, Any]:
    """Return what another price would have brought."""
    by_plan = sorted(trial.by_plan.items())
    affected = trial.most_affected()
    refs = dict(Customer.objects.filter(pk__in=[customer for customer, _ in affected]).values_list("pk", "ref"))
    return PriceTrialSerializer.body(
        trial,
        total=TrialSumSerializer.body(trial.total),
        plans=[TrialOfPlanSerializer.body(each, plan=code, version=version) for (code, version), each in by_plan],
        customers=[TrialOfCustomerSerializer.body(each, customer=refs[customer]) for customer, each in affected],
        subscriptions=len(trial.subscriptions),
    )


PRICE_TRIAL_BODY: dict[str, Any] = {
    "plans": ["basic"], "price": "calls", "months": 3,
    "replaced_by": {"model": "unit", "unit_amount": "0.03", "free_units": "100"},
}  # fmt: skip
_SUM: dict[str, Any] = {"periods": 354, "before_minor": 118000, "after_minor": 177000, "difference_minor": 59000}
_OF_CUSTOMER: dict[str, Any] = {"periods": 3, "before_minor": 3000, "after_minor": 4500, "difference_minor": 1500}
PRICE_TRIAL: dict[str, Any] = {
    "currency": "EUR", "since": "2026-01-01T00:00:00.000000Z", "until": "2026-04-01T00:00:00.000000Z", "total": _SUM,
    "plans": [{**_SUM, "plan": "basic", "version": 1}], "customers": [{**_OF_CUSTOMER, "customer": "CUST-7"}],
    "subscriptions": 118, "negotiated_periods": 0, "is_whole": True,
}  # fmt: skip
