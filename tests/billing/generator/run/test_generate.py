"""Invoices by the generator: what is billed, once, at which amounts."""

import pytest
from django.db import connection

from billing.generator.options import Options, Scope
from billing.generator.run.generate import generate, generate_in
from billing.models import Claim, Invoice, Line, Subscription
from billing.reads import invoice_document
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, use

pytestmark = pytest.mark.django_db


def bill(subscription: Subscription, as_of, **options):
    """The invoices that a run makes up to a time, as documents."""
    generated = generate_in(ref=subscription.ref, options=Options(as_of=as_of, render=invoice_document, **options))
    return generated.documents


def line_amounts(document):
    """Kind, price and amount of each line of a document."""
    return [(line["kind"], line["price_key"], line["amount_minor"]) for line in document["lines"]]


@pytest.mark.parametrize("act", [generate, generate_in])
def test_statements_that_the_server_has_lost_are_prepared_again(act):
    subscription = SubscriptionFactory()
    act(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    [invoice] = act(ref=subscription.ref, options=Options(as_of=at(2, 1))).invoices
    assert (invoice.total_minor, Invoice.objects.filter(subscription_ref=subscription.ref).count()) == (1200, 2)


def test_the_first_period_is_billed_in_advance_and_usage_at_its_end():
    subscription = SubscriptionFactory()
    use(subscription, "150", at(1, 10))
    use(subscription, "50", at(1, 31, 23))
    use(subscription, "7", at(2, 1))

    [january] = bill(subscription, at(1, 1))
    [february] = bill(subscription, at(2, 1))

    assert line_amounts(january) == [("recurring", "base", 1000)]
    assert (january["subtotal_minor"], january["tax_minor"], january["total_minor"]) == (1000, 200, 1200)
    # 200 calls x 0.02 = 4.00; (4.00 + 10.00) x 20 % = 2.80
    assert line_amounts(february) == [("recurring", "base", 1000), ("usage", "calls", 400)]
    assert (february["tax_minor"], february["total_minor"], february["amount_due_minor"]) == (280, 1680, 1680)
    assert february["lines"][1]["period"] == {"start": "2026-01-01T00:00:00.000000Z", "end": "2026-02-01T00:00:00.000000Z"}
    assert february["lines"][1]["quantity"] == "200"


def test_what_is_billed_is_not_billed_again():
    subscription = SubscriptionFactory()
    assert len(bill(subscription, at(2, 1))) == 1
    assert bill(subscription, at(2, 1)) == []
    assert bill(subscription, at(2, 20)) == []
    assert Invoice.objects.filter(subscription_ref=subscription.ref).count() == 1


def test_catching_up_bills_every_missed_period():
    subscription = SubscriptionFactory()
    for month in (1, 2, 3):
        use(subscription, "100", at(month, 5))
    [invoice] = bill(subscription, at(4, 1))
    assert line_amounts(invoice) == [
        ("recurring", "base", 1000),
        ("recurring", "base", 1000),
        ("usage", "calls", 200),
        ("recurring", "base", 1000),
        ("usage", "calls", 200),
        ("recurring", "base", 1000),
        ("usage", "calls", 200),
    ]


def test_max_periods_stops_early_and_the_next_run_goes_on():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    [first] = bill(subscription, at(4, 1), max_periods=2)
    [second] = bill(subscription, at(4, 1))
    assert [line["period"]["start"][:10] for line in first["lines"]] == ["2026-01-01", "2026-02-01"]
    assert [line["period"]["start"][:10] for line in second["lines"]] == ["2026-03-01", "2026-04-01"]


def test_usage_and_recurring_runs_divide_the_work():
    subscription = SubscriptionFactory()
    use(subscription, "100", at(1, 5))
    [usage] = bill(subscription, at(2, 1), only=Scope.USAGE)
    [fees] = bill(subscription, at(2, 1), only=Scope.RECURRING)
    assert line_amounts(usage) == [("usage", "calls", 200)]
    assert line_amounts(fees) == [("recurring", "base", 1000), ("recurring", "base", 1000)]
    assert bill(subscription, at(2, 1)) == []


def test_a_stub_before_the_anchor_is_prorated_by_days():
    # 1 to 15 January are 14 of 31 days of the period from 15 December to 15 January: 10.00 x 14/31 = 4.516…
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code, anchor_at=at(1, 15))
    [invoice] = bill(subscription, at(1, 15))
    assert line_amounts(invoice) == [("recurring", "base", 452), ("recurring", "base", 1000)]


def test_the_end_of_a_long_month_is_kept_after_a_short_one():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code, started_at=at(1, 31))
    [invoice] = bill(subscription, at(3, 31))
    assert [line["period"]["end"][:10] for line in invoice["lines"]] == ["2026-02-28", "2026-03-31", "2026-04-30"]


def test_numbers_are_taken_in_order_and_drafts_have_none():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    [first] = bill(subscription, at(1, 1))
    [draft] = bill(subscription, at(2, 1), finalize=False)
    [second] = bill(subscription, at(3, 1))
    assert draft["number"] is None
    assert draft["state"] == "draft"
    assert int(second["number"][4:]) == int(first["number"][4:]) + 1


def test_a_dry_run_shows_the_same_figures_and_leaves_nothing():
    subscription = SubscriptionFactory()
    use(subscription, "100", at(1, 5))
    [dry] = bill(subscription, at(2, 1), dry_run=True)
    assert not Invoice.objects.filter(subscription_ref=subscription.ref).exists()
    assert not Claim.objects.filter(subscription=subscription.pk).exists()
    [real] = bill(subscription, at(2, 1))
    for name in ("subtotal_minor", "tax_minor", "total_minor", "amount_due_minor", "lines", "taxes", "due_date"):
        assert dry[name] == real[name]


def test_a_period_without_usage_makes_a_claim_but_no_invoice():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    assert bill(subscription, at(2, 1)) == []
    assert Claim.objects.get(subscription=subscription.pk).invoice_id is None
    assert not Line.objects.filter(price_key="calls", invoice__subscription_ref=subscription.ref).exists()


def test_late_usage_is_billed_as_a_difference_whatever_its_age():
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    for month in (1, 2, 3):
        use(subscription, "100", at(month, 5))
    [invoice] = bill(subscription, at(4, 1))
    assert invoice["total_minor"] == 600
    for month in (1, 2, 3):
        use(subscription, "10", at(month, 6))
    [late] = bill(subscription, at(4, 2))
    assert [(line["kind"], line["amount_minor"], line["period"]["start"][:7]) for line in late["lines"]] == [
        ("late_usage", 20, "2026-01"),
        ("late_usage", 20, "2026-02"),
        ("late_usage", 20, "2026-03"),
    ]
    assert bill(subscription, at(4, 3)) == []
