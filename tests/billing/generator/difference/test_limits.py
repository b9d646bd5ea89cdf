"""Dates, quantities and amounts out of bounds: refused where they enter; what cannot be billed has its billing suspended."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from django.core.checks import run_checks
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from billing.errors import BillingSuspended
from billing.generator.options import Options, Scope
from billing.generator.run.generate import generate
from billing.generator.run.outcomes import RunOutcome, bill_one
from billing.metering import measuring
from billing.models import Claim, Customer, Invoice, ItemVersion, Plan, Subscription, SuspendedBilling, UsageEvent
from billing.orders import plans, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.subscriptions import Wish
from billing.rating import limits
from billing.rating.aggregation import MICROSECOND
from billing.rating.periods import Interval, IntervalUnit, Schedule
from ledger import values
from ledger.database.locks import sqlstate
from ledger.errors import Invalid
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

YEAR_1, YEAR_9999 = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


def faults_of(response: Any) -> list[tuple[str, str]]:
    """Where a 400 says that the body is wrong, and by which rule."""
    assert response.status_code == 400, response.content
    return [(one["pointer"], one["code"]) for one in response.json()["errors"]]


def daily_plan() -> str:
    """The code of a plan that is billed by the day."""
    return PlanFactory(interval=Interval(IntervalUnit.DAY), prices=[recurring(), metered()]).code


def why_suspended(subscription: Subscription) -> tuple[str, dict[str, Any]]:
    """Why billing is suspended; asserts that nothing was billed."""
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()
    assert not Claim.objects.filter(subscription_id=subscription.pk).exists()
    row = SuspendedBilling.objects.get(subscription_id=subscription.pk, resumed_at=None)
    return row.reason, row.facts


# Where values enter ----------------------------------------------------------------------------------


def test_the_fields_of_the_api_have_the_bounds_of_the_rules() -> None:
    years = limits.EARLIEST.year, limits.LATEST.year - 1
    assert (values.EARLIEST_YEAR, values.LATEST_YEAR) == years == (2000, 2200)
    assert values.MAX_AMOUNT == limits.MAX_MINOR
    assert limits.MAX_MONEY * 1000 <= limits.MAX_MINOR
    assert limits.MAX_QUANTITY < 2**63


@pytest.mark.parametrize("instant", [YEAR_1, datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), limits.LATEST, YEAR_9999])
@pytest.mark.parametrize("field", ["started_at", "anchor_at", "trial_end", "ends_at"])
def test_an_order_outside_the_years_is_refused(api: ApiClient, field: str, instant: datetime) -> None:
    ref, plan, customer = unique("SUB"), PlanFactory().code, CustomerFactory().ref
    body = {"ref": ref, "customer": customer, "plan": plan, "started_at": "2026-01-01T00:00:00Z"}
    name = "trial_ends_at" if field == "trial_end" else field
    assert faults_of(api.post("/v1/subscriptions", body | {name: instant.isoformat()})) == [(f"/{name}", "out-of-range")]
    times = {"started_at": at(1, 1)} | {field: instant}
    with pytest.raises(Invalid) as refused:
        subscriptions.create_subscription(ref=ref, customer=customer, plan=plan, **times)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == (f"/{name}", "out-of-range")
    assert not Subscription.objects.filter(ref=ref).exists()


def test_the_first_and_the_last_instant_are_taken(api: ApiClient) -> None:
    body = {"customer": CustomerFactory().ref, "plan": PlanFactory().code, "started_at": "2000-01-01T00:00:00Z"}
    response = api.post("/v1/subscriptions", body | {"ref": unique("SUB"), "ends_at": "2200-12-31T23:59:59.999999Z"})
    assert response.status_code == 201, response.content


@pytest.mark.parametrize("wish", [{"ends_at": YEAR_9999}, {"effective_at": YEAR_9999, "paused": True}])
def test_an_amendment_outside_the_years_is_refused(wish: dict[str, Any]) -> None:
    subscription = SubscriptionFactory()
    effective_at = wish.pop("effective_at", at(2, 1))
    before = ItemVersion.objects.filter(subscription_id=subscription.pk).count()
    with pytest.raises(Invalid, match="out-of-range"):
        subscriptions.amend_subscription(
            ref=subscription.ref, effective_at=effective_at, wish=Wish(**wish, sets_end="ends_at" in wish)
        )
    assert ItemVersion.objects.filter(subscription_id=subscription.pk).count() == before


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"prices": [recurring(unit_amount="1000000000000.01")]}, "/prices/0/unit_amount", "too-large"),
        ({"prices": [recurring(minimum="1e30")]}, "/prices/0/minimum", "format"),
        ({"prices": [metered(free_units=10**18 + 1)]}, "/prices/0/free_units", "too-large"),
        ({"minimum": "1000000000000.01"}, "/minimum", "too-large"),
        ({"maximum": "1000000000001"}, "/maximum", "too-large"),
    ],
)
def test_a_plan_with_larger_numbers_is_refused(api: ApiClient, change: dict[str, Any], pointer: str, code: str) -> None:
    plan = unique("plan")
    body = {"ref": plan, "name": "Basic", "currency": "EUR", "interval": {"unit": "month"}, "prices": [recurring()]}
    assert faults_of(api.post("/v1/plans", body | change)) == [(pointer, code)]
    assert not Plan.objects.filter(code=plan).exists()


@pytest.mark.parametrize("value", [10**18 + 1, -(10**18) - 1, "10000000000000000000000000"])
def test_a_usage_event_with_a_larger_value_is_invalid_and_does_not_use_up_its_key(api: ApiClient, value: Any) -> None:
    subscription, key = SubscriptionFactory(), unique("event")
    event = {"idempotency_key": key, "subscription": subscription.ref, "meter": "calls", "occurred_at": "2026-01-05T00:00:00Z"}
    [result] = api.post("/v1/usage-events", {"events": [event | {"value": value}]}).json()["results"]
    assert (result["result"], result["detail"].split(":")[0]) == ("invalid", "/value")
    assert not UsageEvent.objects.filter(subscription=subscription.pk).exists()
    [taken] = api.post("/v1/usage-events", {"events": [event | {"value": 10**18}]}).json()["results"]
    assert taken["result"] == "accepted"


@pytest.mark.parametrize(("unit_value", "rule"), [("0", "too-small"), ("-1", "too-small"), ("1000000000001", "too-large")])
def test_a_credit_is_worth_more_than_nothing_and_no_fortune(api: ApiClient, unit_value: str, rule: str) -> None:
    ref = unique("CUST")
    body = {"ref": ref, "name": "Ada", "currency": "EUR", "holder_id": "ada", "credits": {"unit_value": unit_value}}
    assert faults_of(api.post("/v1/customers", body)) == [("/credits/unit_value", rule)]
    with pytest.raises(Invalid, match=rule):
        CustomerFactory(ref=ref, holder_id="ada", credits=NewCredits(credit_type="credits", unit_value=Decimal(unit_value)))
    assert not Customer.objects.filter(ref=ref).exists()


# The database ----------------------------------------------------------------------------------------

DATED = {
    "billing_subscription": ["started_at", "anchor_at", "trial_end"],
    "billing_itemversion": ["starts_at", "ends_at", "anchor_at"],
    "billing_amendment": ["effective_at"],
    "billing_usageevent": ["occurred_at"],
    "billing_invoice": ["as_of"],
}


@pytest.mark.parametrize(("table", "column"), [(table, column) for table, columns in DATED.items() for column in columns])
def test_the_database_has_the_years_of_the_rules(table: str, column: str) -> None:
    """Rows of nothing but this time, in a table with no other constraint than that of the years."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND conname = %s",
            [table, f"{table}_years"],
        )
        (check,) = cursor.fetchone()
        cursor.execute(f"CREATE TEMPORARY TABLE dated ON COMMIT DROP AS SELECT {', '.join(DATED[table])} FROM {table} LIMIT 0")
        cursor.execute(f"ALTER TABLE dated ADD {check}")
        insert = f"INSERT INTO dated ({column}) VALUES (%s)"
        for instant in (limits.EARLIEST, limits.LATEST - MICROSECOND, None):
            cursor.execute(insert, [instant])
        for instant in (limits.EARLIEST - MICROSECOND, limits.LATEST, YEAR_1, YEAR_9999):
            with pytest.raises(IntegrityError) as refused, transaction.atomic():
                cursor.execute(insert, [instant])
            assert sqlstate(refused.value) == "23514"


# As of -----------------------------------------------------------------------------------------------


def test_over_rest_no_invoice_is_made_as_of_the_future(api: ApiClient) -> None:
    subscription = SubscriptionFactory()
    path = f"/v1/subscriptions/{subscription.ref}/invoices"
    tomorrow = (timezone.now() + timedelta(days=1)).isoformat()
    assert faults_of(api.post(path, {"as_of": tomorrow})) == [("/as_of", "in-the-future")]
    assert faults_of(api.post(path, {"as_of": "2062-01-01T00:00:00Z"})) == [("/as_of", "in-the-future")]
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()
    assert not Claim.objects.filter(subscription_id=subscription.pk).exists()

    dry = api.post(path, {"as_of": tomorrow, "dry_run": True})
    assert (dry.status_code, len(dry.json()["invoices"])) == (200, 1)
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()
    assert api.post(path, {"as_of": "2026-01-01T00:00:00Z"}).status_code == 201


# Ratings ---------------------------------------------------------------------------------------------


def test_a_rating_above_the_largest_line_is_refused_and_the_largest_is_returned(api: ApiClient) -> None:
    def rated(quantity: int | str, **more: Any) -> Any:
        return api.post("/v1/ratings", {"currency": "EUR", "price": metered(unit_amount="0.01"), "quantity": quantity} | more)

    largest = rated(limits.MAX_MINOR)
    assert (largest.status_code, largest.json()["amount_minor"]) == (200, 9007199254740991)
    assert faults_of(rated(limits.MAX_MINOR + 1)) == [("", "amount-too-large")]
    assert faults_of(rated(10**18)) == [("", "amount-too-large")]
    assert faults_of(rated(10**18, price=metered(unit_amount="10000000000"))) == [("", "amount-too-large")]
    assert faults_of(rated(0, already_billed=10**18)) == [("", "amount-too-large")]
    assert faults_of(rated(10**18 + 1)) == [("/quantity", "too-large")]
    in_credits = metered(unit_amount="10000000000", credits={"per_unit": "1"})
    assert faults_of(rated(10**18, price=in_credits, credits_available=1)) == [("", "amount-too-large")]
    events = [{"value": 10**18, "occurred_at": "2026-01-05T00:00:00Z"}] * 1000
    body = {"currency": "EUR", "price": metered(unit_amount="10000000000"), "events": events}
    assert faults_of(api.post("/v1/ratings", body)) == [("", "amount-too-large")]


# What cannot be billed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "instant"),
    [("started_at", YEAR_1), ("anchor_at", YEAR_1), ("anchor_at", YEAR_9999), ("started_at", YEAR_9999)],
)
def test_dates_that_came_in_some_other_way_suspend_billing_at_once(column: str, instant: datetime) -> None:
    subscription = SubscriptionFactory(plan=daily_plan())
    with connection.cursor() as cursor:
        for table in ("subscription", "itemversion"):
            cursor.execute(f"ALTER TABLE billing_{table} DROP CONSTRAINT billing_{table}_years")
    Subscription.objects.filter(pk=subscription.pk).update(**{column: instant})
    if column == "started_at":
        ItemVersion.objects.filter(subscription_id=subscription.pk).update(starts_at=instant)
    with boundaries_computed() as count:
        done = bill_one(subscription.ref, Options(as_of=at(3, 1)))
    assert (done.outcome, done.detail, count() < 20) == (RunOutcome.SUSPENDED, "date-out-of-range", True)
    assert why_suspended(subscription)[0] == "date-out-of-range"
    assert bill_one(subscription.ref, Options(as_of=at(3, 1))).outcome == RunOutcome.SUSPENDED


def boundaries_computed() -> Any:
    """A block, and how many boundaries of periods were worked out in it."""
    computed = mock.patch.object(Schedule, "boundary", autospec=True, side_effect=Schedule.boundary)

    class _Counting:
        def __enter__(self) -> Callable[[], int]:
            called = computed.__enter__()
            return lambda: called.call_count

        def __exit__(self, *error: Any) -> None:
            computed.__exit__(*error)

    return _Counting()


def test_periods_are_counted_before_they_are_rated() -> None:
    subscription = SubscriptionFactory(plan=daily_plan(), started_at=at(1, 1, year=2000))
    with boundaries_computed() as count, pytest.raises(BillingSuspended) as refused:
        generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    # From 2000 to 2026 there are 9,497 days, and this one is due as well.
    facts = {"periods": 9498, "limit": 1000}
    assert refused.value.facts == {"subscription": subscription.ref, "reason": "too-many-periods"} | facts
    assert count() < 50
    assert why_suspended(subscription) == ("too-many-periods", facts)


def test_lines_of_recurring_prices_are_counted_before_they_are_rated() -> None:
    prices = [recurring(f"seat-{number}") for number in range(11)]
    plan = PlanFactory(interval=Interval(IntervalUnit.DAY), prices=prices).code
    subscription = SubscriptionFactory(plan=plan, started_at=at(1, 1, year=2024))
    with boundaries_computed() as count:
        assert bill_one(subscription.ref, Options(as_of=at(8, 1))).detail == "too-many-lines"
    # From 2024-01-01 to 2026-08-01 there are 943 days, and this one is due as well.
    assert why_suspended(subscription) == ("too-many-lines", {"lines": 944 * 11, "limit": 10_000})
    assert count() < 150


def test_periods_of_unused_usage_prices_are_counted_before_they_are_measured() -> None:
    prices = [metered(f"meter-{number}") for number in range(11)]
    plan = PlanFactory(interval=Interval(IntervalUnit.DAY), prices=prices).code
    subscription = SubscriptionFactory(plan=plan, started_at=at(1, 1, year=2024))
    with boundaries_computed() as count, mock.patch.object(measuring, "measure") as measured:
        assert bill_one(subscription.ref, Options(as_of=at(8, 1))).detail == "too-many-usage-periods"
    # From 2024-01-01 to 2026-08-01 there are 943 days, all of them over.
    assert why_suspended(subscription) == ("too-many-usage-periods", {"periods": 943 * 11, "limit": 10_000})
    assert (count() < 150, measured.called) == (True, False)
    # What is chosen to be billed is what is counted.
    assert (
        generate(ref=subscription.ref, options=Options(as_of=at(8, 1), only=Scope.RECURRING, include_suspended=True)).periods == 0
    )


def test_step_by_step_a_long_past_is_billed_all_the_same() -> None:
    subscription = SubscriptionFactory(plan=daily_plan(), started_at=at(1, 1, year=2000))
    with boundaries_computed() as count:
        done = bill_one(subscription.ref, Options(as_of=at(1, 1), max_periods=2))
    assert (done.outcome, done.invoices[0].total_minor, count() < 200) == (RunOutcome.FINALISED, 2000, True)


@pytest.mark.parametrize(
    ("ends_at", "timing", "as_of", "periods"),
    [
        (None, "advance", at(4, 1), 4),
        (None, "arrears", at(4, 1), 3),
        (at(2, 15), "advance", at(4, 1), 2),
        (at(2, 15), "arrears", at(4, 1), 2),
        (at(3, 1), "arrears", at(4, 1), 2),
        (None, "advance", datetime(2025, 12, 31, tzinfo=UTC), 0),
    ],
)
def test_the_count_is_that_of_the_periods(ends_at: Any, timing: str, as_of: datetime, periods: int, settings: Any) -> None:
    plan = PlanFactory(prices=[recurring(timing=timing)]).code
    subscription = SubscriptionFactory(plan=plan, ends_at=ends_at)
    settings.BILLING_LIMITS = {"periods": -1}
    with pytest.raises(BillingSuspended) as refused:
        generate(ref=subscription.ref, options=Options(as_of=as_of))
    assert (refused.value.facts["periods"], refused.value.facts["limit"]) == (periods, -1)


@pytest.mark.parametrize(
    ("unit_amount", "used", "reason"),
    [
        ("10000000000", ["10000000000"], "amount-too-large"),
        ("0.01", ["9007199254740992"], "amount-too-large"),
        ("10000000000", ["-1", "10000000000"], "amount-too-large"),
    ],
)
def test_an_amount_that_no_line_can_say_suspends_billing(unit_amount: str, used: list[str], reason: str) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount=unit_amount)]).code)
    for value in used:
        use(subscription, value, at(1, 5))
    done = bill_one(subscription.ref, Options(as_of=at(2, 1)))
    assert (done.outcome, done.detail) == (RunOutcome.SUSPENDED, reason)
    assert why_suspended(subscription)[0] == reason
    # No option can write what the database cannot hold.
    assert bill_one(subscription.ref, Options(as_of=at(2, 1), include_suspended=True)).outcome == RunOutcome.SUSPENDED
    assert why_suspended(subscription)[0] == reason


def test_a_line_of_the_largest_amount_is_billed() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="0.01")]).code)
    use(subscription, str(limits.MAX_MINOR), at(1, 5))
    done = bill_one(subscription.ref, Options(as_of=at(2, 1)))
    assert (done.outcome, done.invoices[0].total_minor) == (RunOutcome.FINALISED, 9007199254740991)


def test_tax_counts_too() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="0.01", tax_rate="20")]).code)
    use(subscription, str(limits.MAX_MINOR), at(1, 5))
    assert bill_one(subscription.ref, Options(as_of=at(2, 1))).detail == "amount-too-large"
    _, facts = why_suspended(subscription)
    assert facts == {"currency": "EUR", "amount_minor": "10808639105689189", "limit": 9007199254740991}


def test_a_quantity_that_no_line_can_say_suspends_billing_also_where_it_costs_nothing() -> None:
    price = metered(unit_amount="0", property="tokens", aggregation="sum")
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[price]).code)
    use(subscription, "1", at(1, 5), tokens="1e26")
    assert bill_one(subscription.ref, Options(as_of=at(2, 1))).detail == "quantity-too-large"
    _, facts = why_suspended(subscription)
    assert (facts["price"], facts["quantity"]) == ("calls", "1" + "0" * 26)


def test_over_rest_it_is_a_refusal_and_no_400(api: ApiClient) -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered(unit_amount="10000000000")]).code)
    use(subscription, "10000000000", at(1, 5))
    response = api.post(f"/v1/subscriptions/{subscription.ref}/invoices", {"as_of": "2026-02-01T00:00:00Z"})
    problem = response.json()
    assert (response.status_code, problem["reason"], problem["amount_minor"]) == (409, "amount-too-large", "10" + "0" * 21)
    assert why_suspended(subscription)[0] == "amount-too-large"


def test_a_stored_price_that_is_none_any_more_suspends_billing() -> None:
    plan = PlanFactory(prices=[recurring()])
    subscription = SubscriptionFactory(plan=plan.code)
    plans.terms_of.cache_clear()
    broken = recurring(unit_amount="-1")
    with mock.patch("billing.orders.plans.PriceRow.objects.filter") as rows:
        rows.return_value.order_by.return_value.values_list.return_value = [(1, broken)]
        done = bill_one(subscription.ref, Options(as_of=at(1, 1)))
    assert (done.outcome, done.detail) == (RunOutcome.SUSPENDED, "price-not-valid")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"line": 5},
            (
                "settings.BILLING_LIMITS has no 'line'; known are: groups, lines, lines_per_day, periods, times_usual, "
                "usage_periods."
            ),
        ),
        ({"lines": "5"}, "settings.BILLING_LIMITS['lines'] must be None or a whole number from 0 on, not '5'."),
        ({"lines": True}, "settings.BILLING_LIMITS['lines'] must be None or a whole number from 0 on, not True."),
        ({"lines": -1}, "settings.BILLING_LIMITS['lines'] must be None or a whole number from 0 on, not -1."),
    ],
)
def test_a_limit_that_cannot_be_is_reported_by_the_checks(given: dict[str, Any], message: str, settings: Any) -> None:
    settings.BILLING_LIMITS = given
    assert [(found.id, found.msg) for found in run_checks(tags=["billing"])] == [("billing.E001", message)]


def test_limits_that_can_be_are_not_reported(settings: Any) -> None:
    settings.BILLING_LIMITS = {"lines": 0, "periods": None}
    assert run_checks(tags=["billing"]) == []
