"""Usage that a price groups by properties of its events: a line for each group, from the measurement to the documents."""

import json
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from billing.auditing import consistency
from billing.documents.printing import invoice_pdf
from billing.errors import BillingSuspended, CreditExceedsInvoice
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.metering.corrections import EventCancellation, take_in_all
from billing.models import Claim, Line, Subscription, UsageEvent
from billing.orders.overrides import PriceOverride
from billing.rating.aggregation import Event, group_of
from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import parse_price
from tests.billing.documents.issued import add_seller
from tests.billing.documents.test_credit_notes import issue_note
from tests.billing.documents.test_names import subscribed as subscribed_in
from tests.billing.documents.test_names import titles
from tests.billing.documents.test_printed import RAM, text_of, xml_of
from tests.billing.factories import PlanFactory, SubscriptionFactory, amend, at, metered, transition, unique, use
from tests.billing.generator.difference.test_limits import why_suspended
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

BY_REGION = metered(unit_amount="1.00", group_by=["region"])


def subscribed(**fields: Any) -> Subscription:
    """A subscription in January whose calls cost 1.00 in each region."""
    made: Subscription = SubscriptionFactory(plan=PlanFactory(prices=[BY_REGION | fields]).code)
    return made


def groups(document: dict[str, Any]) -> list[tuple[str, Any, int]]:
    """Kind, group and amount of each line."""
    return [(line["kind"], line["rating"].get("group"), line["amount_minor"]) for line in document["lines"]]


def region(name: str | None) -> dict[str, str | None]:
    return {"region": name}


def test_each_group_is_a_line_in_the_order_of_its_values_with_its_quantity_and_steps() -> None:
    subscription = subscribed(free_units=1)
    for value, properties in (("3", {"region": "us"}), ("5", {}), ("2", {"region": "eu"}), ("4", {"region": None})):
        use(subscription, value, at(1, 5), **properties)
    [document] = bill(subscription, at(2, 1))
    assert groups(document) == [("usage", region(None), 800), ("usage", region("eu"), 100), ("usage", region("us"), 200)]
    line = document["lines"][2]
    assert (line["quantity"], line["unit_amount"], line["period"]["start"]) == ("3", "1", "2026-01-01T00:00:00.000000Z")
    assert [(step["units"], step["amount"]) for step in line["rating"]["steps"]] == [("1", "0"), ("2", "2")]
    assert consistency.check() == []


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ["Team plan: Calls: region eu, without a", 'Team plan: Calls: region "", a b c']),
        ("de", ["Teamtarif: Anrufe: region eu, ohne a", 'Teamtarif: Anrufe: region "", a b c']),
    ],
)
def test_titles_name_the_group_in_the_customers_language_and_in_the_order_of_the_price(language: str, words: list[str]) -> None:
    calls = metered("calls", unit_amount="1.00", group_by=["region", "a"]) | {"name": "Calls", "names": {"de": "Anrufe"}}
    add_seller()
    subscription = subscribed_in(calls, language=language)
    use(subscription, "1", at(1, 5), region="eu")
    use(subscription, "1", at(1, 5), region="", a="b\n\tc")
    [document] = bill(subscription, at(2, 1))
    assert sorted(title for _, title in titles(document)) == sorted(words)
    pdf = invoice_pdf(document["id"]).content
    assert "region eu" in " ".join(text_of(pdf).split())
    assert sorted(name.text or "" for name in xml_of(pdf).iter(f"{RAM}Name") if "region" in (name.text or "")) == sorted(words)
    assert Line.objects.filter(invoice_id=document["id"], description="calls: region eu, without a").exists()


def test_texts_of_more_than_200_characters_are_one_group_with_those_that_begin_alike() -> None:
    subscription = subscribed()
    use(subscription, "1", at(1, 5), region="x" * 200)
    use(subscription, "2", at(1, 6), region="x" * 201)
    use(subscription, "4", at(1, 7), region="x" * 199)
    [document] = bill(subscription, at(2, 1))
    assert [amount for *_, amount in groups(document)] == [400, 300]
    assert group_of(Event(Decimal(1), at(1, 1), {"region": "x" * 300}), ["region"]) == ("x" * 200,)


@pytest.mark.parametrize("currency", ["JPY", "EUR", "KWD"])
def test_each_group_is_rounded_by_itself_and_the_amount_is_their_sum(currency: str) -> None:
    price = parse_price(metered(unit_amount="0.0005", group_by=["region"]))
    used = price.usage_of([Event(Decimal(10**3), at(1, 5), {"region": name}) for name in "abc"])
    assert rate(price, used, currency).amount_minor == 3 * {"JPY": 1, "EUR": 50, "KWD": 500}[currency]


def test_a_price_without_usage_has_no_group_and_costs_nothing() -> None:
    price = parse_price(
        metered(model="volume", group_by=["region"], tiers=[{"unit_amount": "1", "flat_amount": "9"}]) | {"unit_amount": None}
    )
    assert rate(price, price.usage_of([]), "EUR").amount_minor == 0
    # A group with events of 0 is there, and owes the fixed amount of its tier.
    assert rate(price, price.usage_of([Event(Decimal(0), at(1, 5))]), "EUR").amount_minor == 900


# Limits ----------------------------------------------------------------------------------------------


@override_settings(BILLING_LIMITS={"groups": 3, "lines_per_day": 1})
def test_too_many_groups_suspend_the_billing_and_a_person_can_bill_all_of_them() -> None:
    subscription = subscribed()
    for number in range(3):
        use(subscription, "1", at(1, 5), region=f"r{number}")
    assert len(bill(subscription, at(2, 1))[0]["lines"]) == 3
    other = subscribed(group_by=["region", "model"])
    for number in range(9):
        use(other, "1", at(1, 5), region=f"r{number}", model="a")
    with pytest.raises(BillingSuspended):
        generate(ref=other.ref, options=Options(as_of=at(2, 1)))
    start, end = at(1, 1).isoformat(), at(2, 1).isoformat()
    facts = {"price": "calls", "start": start, "end": end, "group_by": "region, model", "limit": 3}
    assert why_suspended(other) == ("too-many-groups", facts)
    generate(ref=other.ref, options=Options(as_of=at(2, 1), include_suspended=True))
    assert Line.objects.filter(invoice__subscription_ref=other.ref).count() == 9


def test_a_group_whose_events_were_cancelled_is_given_back_by_a_line_without_units() -> None:
    subscription = subscribed()
    for day, value, name in ((5, "5", "eu"), (6, "3", "us")):
        use(subscription, value, at(1, day), region=name)
    bill(subscription, at(2, 1))
    [cancelled] = UsageEvent.objects.filter(subscription=subscription.pk, value=5)
    key = cancelled.idempotency_key
    take_in_all([EventCancellation(idempotency_key=unique("fix"), subscription=subscription.ref, cancels=key)])
    [document] = bill(subscription, at(3, 1))
    line = document["lines"][0]
    assert (line["kind"], line["rating"]["group"]) == ("late_usage", region("eu"))
    assert (line["quantity"], line["amount_minor"]) == ("0", -500)


def test_a_group_of_too_many_units_suspends_the_billing_though_another_one_takes_them_back() -> None:
    subscription = subscribed(aggregation="sum", property="n")
    for sign, name in ((1, "eu"), (-1, "us")):
        use(subscription, "1", at(1, 5), region=name, n=f"{sign}e26")
    with pytest.raises(BillingSuspended):
        generate(ref=subscription.ref, options=Options(as_of=at(2, 1)))
    assert why_suspended(subscription)[0] == "quantity-too-large"


# What changes later ----------------------------------------------------------------------------------


def test_a_voided_invoice_frees_all_of_its_groups_and_what_it_corrected_counts_again() -> None:
    subscription = subscribed()
    use(subscription, "3", at(1, 5), region="eu")
    [first] = bill(subscription, at(2, 1))
    use(subscription, "4", at(1, 6), region="us")
    use(subscription, "1", at(1, 6), region="eu")
    [late] = bill(subscription, at(2, 2))
    assert groups(late) == [("late_usage", region("eu"), 100), ("late_usage", region("us"), 400)]
    transition(late["id"], "void")
    [again] = bill(subscription, at(2, 3))
    assert groups(again) == groups(late)
    for one in (again, first):
        transition(one["id"], "void")
    [whole] = bill(subscription, at(2, 4))
    assert groups(whole) == [("usage", region("eu"), 400), ("usage", region("us"), 400)]
    assert consistency.check() == []


def test_a_change_of_plan_within_the_period_measures_the_groups_of_each_part() -> None:
    subscription = subscribed()
    other = PlanFactory(prices=[BY_REGION | {"unit_amount": "2.00", "group_by": ["region", "model"]}]).code
    use(subscription, "3", at(1, 5), region="eu", model="large")
    use(subscription, "5", at(1, 20), region="eu", model="large")
    use(subscription, "1", at(1, 20), region="eu")
    [first] = bill(subscription, at(2, 1))
    assert groups(first) == [("usage", region("eu"), 900)]
    amend(subscription, at(1, 15), plan=other)
    [changed] = bill(subscription, at(2, 2))
    assert groups(changed) == [
        ("credit", None, -900),
        ("usage", region("eu"), 300),
        ("usage", {"region": "eu", "model": None}, 200),
        ("usage", {"region": "eu", "model": "large"}, 1000),
    ]
    assert consistency.check() == []


def test_a_negotiated_price_is_that_of_each_group() -> None:
    subscription = subscribed()
    amend(subscription, at(1, 1), price_override=PriceOverride(prices={"calls": {"unit_amount": "0.50"}}))
    use(subscription, "3", at(1, 5), region="eu")
    use(subscription, "5", at(1, 5), region="us")
    [document] = bill(subscription, at(2, 1))
    assert [amount for *_, amount in groups(document)] == [150, 250]


def test_late_usage_that_the_maximum_of_all_groups_swallows_makes_no_invoice_and_is_known_later() -> None:
    subscription = subscribed(maximum="10.00")
    use(subscription, "12", at(1, 5), region="eu")
    bill(subscription, at(2, 1))
    use(subscription, "5", at(1, 6), region="us")
    assert bill(subscription, at(2, 2)) == []
    use(subscription, "1", at(1, 7), region="us")
    assert bill(subscription, at(2, 3)) == []
    assert Claim.objects.get(subscription_id=subscription.pk, released_at=None).snapshot["gross_minor"] == 1800
    assert consistency.check() == []


def test_usage_so_far_and_the_threshold_count_all_groups() -> None:
    plan = PlanFactory(prices=[BY_REGION], usage_threshold=Decimal("5.00")).code
    subscription = SubscriptionFactory(plan=plan)
    use(subscription, "2", at(1, 5), region="eu")
    use(subscription, "2", at(1, 5), region="us")
    assert bill(subscription, at(1, 10)) == []
    use(subscription, "1", at(1, 11), region="ap")
    [document] = bill(subscription, at(1, 12))
    assert groups(document) == [("usage", region("ap"), 100), ("usage", region("eu"), 200), ("usage", region("us"), 200)]
    use(subscription, "1", at(1, 13), region="us")
    [rest] = bill(subscription, at(2, 1))
    assert groups(rest) == [("usage", region("us"), 100)]
    assert consistency.check() == []


# Documents, reads and checks -------------------------------------------------------------------------


def test_a_credit_note_gives_back_at_most_what_is_left_of_the_group() -> None:
    subscription = subscribed()
    use(subscription, "10", at(1, 5), region="eu")
    use(subscription, "10", at(1, 5), region="us")
    [document] = bill(subscription, at(2, 1))
    use(subscription, "-4", at(1, 6), region="eu")
    use(subscription, "4", at(1, 6), region="us")
    bill(subscription, at(2, 2))
    with pytest.raises(CreditExceedsInvoice) as refused:
        issue_note(document["id"], (1, 601), (2, 1001))
    left = [{"position": 1, "creditable_minor": 600}, {"position": 2, "creditable_minor": 1000}]
    assert refused.value.facts["lines"] == left


def test_the_check_finds_usage_that_was_moved_to_another_group_of_the_same_price() -> None:
    subscription = subscribed()
    use(subscription, "3", at(1, 5), region="eu")
    bill(subscription, at(2, 1))
    claim = Claim.objects.get(subscription_id=subscription.pk)
    claim.snapshot["usage"]["groups"][0][0] = ["us"]
    Claim.objects.filter(pk=claim.pk).update(snapshot=claim.snapshot)
    assert "usage differs from what was billed" in {finding["finding"] for finding in consistency.check()}


def test_explain_lists_the_groups_of_a_claim() -> None:
    subscription = subscribed()
    use(subscription, "3", at(1, 5), region="eu")
    bill(subscription, at(2, 1))
    out = StringIO()
    call_command("generate_invoices", "--explain", subscription.ref, "--format", "json", stdout=out)
    [claim] = json.loads(out.getvalue())["newest_claims"]
    assert claim["groups"] == [{"group": region("eu"), "amount_minor": 300}]


def test_a_rating_of_events_has_the_rating_of_each_group(api: ApiClient) -> None:
    events = [
        {"value": value, "occurred_at": "2026-01-05T00:00:00Z", "properties": properties}
        for value, properties in (("3", {"region": "eu"}), ("1", {}))
    ]
    body = {"currency": "EUR", "price": BY_REGION | {"minimum": "5.00"}, "events": events}
    rated = api.post("/v1/ratings", body).json()
    assert (rated["amount_minor"], [step["reason"] for step in rated["steps"]]) == (500, ["minimum"])
    assert [(one["group"], one["quantity"], one["amount_minor"]) for one in rated["groups"]] == [
        (region(None), "1", 100), (region("eu"), "3", 300),
    ]  # fmt: skip
    refused = api.post("/v1/ratings", body | {"already_billed": "1"})
    assert [(error["pointer"], error["code"]) for error in refused.json()["errors"]] == [("/already_billed", "not-with-groups")]
