"""Consolidated invoices: one document for the subscriptions of a customer that share a day and a currency."""

import json
from datetime import datetime
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db import transaction as db_transaction

from billing import reads
from billing.auditing import consistency
from billing.documents import transitions
from billing.documents.credit_notes import CreditLine, issue_in
from billing.documents.printing import invoice_pdf, invoice_source, page_of
from billing.documents.sellers import record_seller
from billing.dunning.reminding import remind_due
from billing.errors import InvoiceGenerationBusy
from billing.generator.options import Options
from billing.generator.run import gathering, generate, runs, workers
from billing.generator.run.preview import next_invoices, subscriptions_of
from billing.models import (
    Charge,
    Claim,
    CouponUse,
    CreditNote,
    Customer,
    Invoice,
    InvoicedSubscription,
    ItemVersion,
    Line,
    NumberSeries,
    Run,
    Subscription,
    SuspendedBilling,
    Transition,
)
from billing.orders import coupons, customers, suspension
from ledger import services
from ledger.audit.auditing import audit
from ledger.services import preview
from tests.billing.documents.issued import SELLER
from tests.billing.documents.test_chain import invoice_form
from tests.billing.dunning.test_reminding import today
from tests.billing.factories import (
    CustomerFactory,
    PlanFactory,
    SubscriptionFactory,
    amend,
    at,
    metered,
    recurring,
    transition,
    unique,
    use,
)
from tests.billing.generator.difference.test_usage_in_credits import IN_CREDITS, balance_of
from tests.ledger.rest.conftest import ApiClient

__all__ = ["today"]

pytestmark = pytest.mark.django_db


def run(as_of: datetime, *options: str) -> str:
    """The output of a run."""
    shown = StringIO()
    call_command("generate_invoices", "--as-of", as_of.isoformat(), "--no-progress", *options, stdout=shown, stderr=StringIO())
    return shown.getvalue()


def together(*amounts: str, **terms: Any) -> tuple[Customer, list[Subscription]]:
    """A customer with consolidated invoices, and a subscription with a fee of each amount."""
    customer = CustomerFactory(consolidated_invoicing=True, **terms)
    plans = [PlanFactory(prices=[recurring(unit_amount=amount, tax_rate="20")]).code for amount in amounts]
    return customer, [SubscriptionFactory(customer=customer.ref, plan=plan) for plan in plans]


def findings() -> list[Any]:
    """What the checks of billing and of the chains find."""
    return [*consistency.check(), *audit([connection.connection]).totals]


def of(customer: Customer) -> list[Invoice]:
    """The customer's invoices, the oldest first."""
    return list(Invoice.objects.filter(customer_id=customer.pk).order_by("id"))


def test_subscriptions_of_a_day_share_one_number_total_and_tax() -> None:
    customer, [first, second] = together("10.03", "20.04")
    run(at(1, 1))
    [invoice] = of(customer)
    document = reads.invoice_document(invoice.pk)
    assert (document["subscription"], document["state"], document["total_minor"]) == (None, "open", 3608)
    assert invoice.run_id == Run.objects.get().run_id
    # 20 % of 30.07 is 6.014; of each alone, 2.006 and 4.008, it would be 2.01 and 4.01.
    assert [(tax["base_minor"], tax["amount_minor"]) for tax in document["taxes"]] == [(3007, 601)]
    assert [(line["position"], line["subscription"], line["amount_minor"]) for line in document["lines"]] == [
        (1, first.ref, 1003),
        (2, second.ref, 2004),
    ]
    for subscription in (first, second):
        assert [one["id"] for one in reads.invoices(subscription=subscription.ref, limit=9)] == [invoice.pk]
    assert findings() == []


def lines(invoice: Invoice) -> list[tuple[str, int, int]]:
    """Kind, subscription's id and amount of each line."""
    found = Line.objects.filter(invoice_id=invoice.pk).order_by("position")
    return [(line.kind, line.subscription_id, line.amount_minor - line.discount_minor) for line in found]


def test_a_subscription_that_stands_aside_has_its_own() -> None:
    customer, [first, second, aside] = together("10", "20", "40")
    amend(aside, at(1, 1), consolidated_invoicing=False)
    run(at(1, 1))
    assert [(one.subscription_id, one.total_minor) for one in of(customer)] == [(aside.pk, 4800), (None, 3600)]
    # Back to the customer's choice, from the next run on.
    amend(aside, at(1, 1), sets_consolidation=True)
    run(at(2, 1))
    assert [(one.subscription_id, one.total_minor) for one in of(customer)][2:] == [(None, 8400)]
    assert findings() == []
    customers.change_customer(ref=customer.ref, consolidated_invoicing=False)
    run(at(3, 1))
    assert [one.subscription_id for one in of(customer)][3:] == [first.pk, second.pk, aside.pk]


@pytest.mark.slow
@pytest.mark.check
def test_it_waits_for_what_is_due_later_on_the_day_of_the_customer() -> None:
    customer = CustomerFactory(consolidated_invoicing=True, time_zone="Europe/Berlin")
    plan = PlanFactory(prices=[recurring(unit_amount="10")]).code
    # 23:30 UTC is the next day in Berlin.
    for start in (at(1, 1, 8), at(1, 1, 18), at(1, 1, 23)):
        SubscriptionFactory(customer=customer.ref, plan=plan, started_at=start)
    run(at(1, 1, 9))
    [waiting] = of(customer)
    assert (waiting.state, str(waiting.consolidates_on)) == ("draft", "2026-01-01")
    assert consistency.check()[0]["finding"] == "draft that no consolidated invoice took"
    run(at(1, 1, 18))
    [made] = of(customer)
    assert (made.state, made.total_minor) == ("open", 2000)
    run(at(1, 2))
    assert [one.total_minor for one in of(customer)] == [2000, 1000]
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_currencies_apart() -> None:
    customer, _ = together("10", "20")
    for amount in ("7", "8"):
        plan = PlanFactory(currency="JPY", prices=[recurring(unit_amount=amount)]).code
        SubscriptionFactory(customer=customer.ref, plan=plan)
    run(at(1, 1))
    assert [(one.currency, one.total_minor) for one in of(customer)] == [("EUR", 3600), ("JPY", 15)]
    assert findings() == []


def test_voided_all_its_periods_are_billed_again() -> None:
    customer, subscriptions = together("10", "20")
    run(at(1, 1))
    [first] = of(customer)
    run(at(2, 1))
    transition(first.pk, "void")
    assert not Claim.objects.filter(released_at=None, starts_at=at(1, 1)).exists()
    run(at(2, 1))
    _, february, again = of(customer)
    assert lines(again) == [("recurring", subscriptions[0].pk, 1000), ("recurring", subscriptions[1].pk, 2000)]
    assert (february.state, again.total_minor) == ("open", 3600)
    assert findings() == []


def test_voided_with_a_shared_invoice_that_came_to_nothing_both_are_billed_again() -> None:
    customer, [ends] = together("31")
    starts = SubscriptionFactory(
        customer=customer.ref, plan=PlanFactory(prices=[recurring(unit_amount="20", tax_rate="20")]).code, started_at=at(2, 1)
    )
    run(at(1, 1))
    amend(ends, at(1, 11), sets_end=True, ends_at=at(1, 11))
    run(at(2, 1))
    first, nothing = of(customer)
    assert (first.subscription_id, nothing.subscription_id, nothing.total_minor, nothing.state) == (ends.pk, None, 0, "paid")
    transition(first.pk, "void")
    assert [one.state for one in of(customer)] == ["void", "void"]
    assert set(Transition.objects.values_list("invoice_id", "kind")) == {(first.pk, "void"), (nothing.pk, "void")}
    run(at(2, 1))
    *_, again = of(customer)
    assert lines(again) == [("recurring", ends.pk, 1000), ("recurring", starts.pk, 2000)]
    assert findings() == []


def test_a_draft_of_all_is_deleted_or_finalised_by_a_person() -> None:
    customer, subscriptions = together("10", "20")
    run(at(1, 1), "--draft")
    [draft] = of(customer)
    assert (draft.state, draft.consolidates_on, draft.total_minor) == ("draft", None, 3600)
    with db_transaction.atomic():
        deleted = transitions.delete_draft_in(invoice_id=draft.pk, actor="test")
    assert deleted.draft["subscriptions"] == [one.ref for one in subscriptions]
    assert not Claim.objects.filter(released_at=None).exists()
    assert not InvoicedSubscription.objects.exists()
    run(at(1, 1), "--draft")
    [draft] = of(customer)
    transition(draft.pk, "finalize")
    [made] = of(customer)
    assert (made.number, made.total_minor) == ("INV-000001", 3600)
    assert findings() == []


def test_in_its_grace_each_subscription_has_a_draft_and_then_all_have_one_invoice() -> None:
    customer = CustomerFactory(consolidated_invoicing=True, grace_days=3)
    plan = PlanFactory(prices=[metered(unit_amount="1")]).code
    first, second = (SubscriptionFactory(customer=customer.ref, plan=plan) for _ in range(2))
    use(first, "10", at(1, 5))
    use(second, "20", at(1, 5))
    run(at(2, 1))
    assert [(one.state, one.subtotal_minor) for one in of(customer)] == [("draft", 1000), ("draft", 2000)]
    use(second, "5", at(1, 6))
    run(at(2, 4))
    [made] = of(customer)
    assert (made.state, lines(made)) == ("open", [("usage", first.pk, 1000), ("usage", second.pk, 2500)])
    assert findings() == []


def test_amendments_and_late_usage_credit_the_right_lines() -> None:
    customer = CustomerFactory(consolidated_invoicing=True)
    plan = PlanFactory(prices=[recurring(unit_amount="31"), metered(unit_amount="1")]).code
    first, second = (SubscriptionFactory(customer=customer.ref, plan=plan) for _ in range(2))
    run(at(1, 1))
    amend(second, at(1, 11), quantities={"base": Decimal(2)})
    run(at(1, 11))
    fee, change = of(customer)
    [credit] = Line.objects.filter(invoice_id=change.pk, kind="credit")
    assert (credit.amount_minor, credit.rating["credits"]) == (-2100, {"invoice": fee.pk, "line": 2})
    # The subscription was alone on that day.
    assert (change.subscription_id, credit.subscription_id) == (second.pk, None)
    use(first, "3", at(1, 20))
    use(second, "4", at(1, 20))
    run(at(2, 1))
    use(first, "5", at(1, 21))
    run(at(3, 1))
    *_, late = of(customer)
    assert ("late_usage", first.pk, 500) in lines(late)
    assert findings() == []


def test_credit_of_one_subscription_pays_for_the_other() -> None:
    customer, [ends, stays] = together("31", "20")
    run(at(1, 1))
    amend(ends, at(1, 11), sets_end=True, ends_at=at(1, 11))
    run(at(1, 11))
    run(at(2, 1))
    *_, last = of(customer)
    credit = Invoice.objects.get(subscription_id=ends.pk)
    assert (credit.total_minor, last.subscription_id, last.amount_due_minor) == (0, stays.pk, 0)
    assert findings() == []


def test_on_one_document_credits_and_charges_are_netted_before_any_is_carried() -> None:
    customer, [ends, stays] = together("31", "20")
    run(at(1, 1))
    amend(ends, at(1, 11), sets_end=True, ends_at=at(1, 11))
    # A run that comes only in February: of -21.00 and 20.00, 1.00 is carried, with tax.
    run(at(2, 1))
    *_, last = of(customer)
    assert lines(last) == [("credit", ends.pk, -2100), ("recurring", stays.pk, 2000), ("carried", None, 100)]
    assert (last.total_minor, CreditNote.objects.get(invoice_id=last.pk).amount_minor) == (0, 120)
    assert findings() == []


def test_a_credit_note_credits_lines_and_later_runs_know() -> None:
    customer, [first, second] = together("31", "31")
    run(at(1, 1))
    [made] = of(customer)
    issue_in(invoice_id=made.pk, reason="a gift", actor="test", lines=[CreditLine(position=2, amount_minor=500)])
    [note] = reads.credit_notes(subscription=second.ref, limit=5)
    assert [(line["subscription"], line["amount_minor"]) for line in note["lines"]] == [(second.ref, 500)]
    for subscription in (first, second):
        amend(subscription, at(1, 2), sets_end=True, ends_at=at(1, 2))
    run(at(1, 2))
    *_, ended = of(customer)
    # 30 of 31 days go back; of the second 5.00 has gone back.
    assert lines(ended)[:2] == [("credit", first.pk, -3000), ("credit", second.pk, -2600)]
    assert findings() == []


def test_a_coupon_lowers_each_subscription_and_is_named_once() -> None:
    customer, [first, second] = together("10", "20")
    coupon = coupons.create_coupon(
        code=unique("C"), name="Welcome", kind="percentage", value=Decimal(50), duration="recurring", periods=2
    )
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=coupon.code)
    for month in (1, 2, 3):
        run(at(month, 1))
    assert [[line[2] for line in lines(one)] for one in of(customer)] == [[500, 1000], [500, 1000], [1000, 2000]]
    document = reads.invoice_document(of(customer)[0].pk)
    assert [(one["name"], one["amount_minor"]) for one in document["discounts"]] == [("Welcome", 1500)]
    assert {one.subscription_id for one in CouponUse.objects.all()} == {first.pk, second.pk}
    assert findings() == []


def test_tax_that_prices_include_is_taken_out_of_the_whole_document() -> None:
    customer = CustomerFactory(consolidated_invoicing=True)
    plan = PlanFactory(tax_behavior="inclusive", prices=[recurring(unit_amount="9.99", tax_rate="19")]).code
    for _ in range(3):
        SubscriptionFactory(customer=customer.ref, plan=plan)
    run(at(1, 1))
    [made] = of(customer)
    # 29.97 / 1.19 is 25.1849: 25.18 and 4.78 of tax are 29.96, and 0.01 is the rounding. Each alone would have 8.39 and 1.59.
    assert (made.subtotal_minor, made.tax_minor, made.rounding_minor, made.amount_due_minor) == (2518, 478, 1, 2997)
    assert findings() == []


def test_an_allowance_that_pays_invoices_keeps_its_subscription_apart() -> None:
    paying = customers.NewCredits(unit_value=Decimal("0.01"))
    customer = CustomerFactory(consolidated_invoicing=True, holder_id=unique("h"), credits=paying)
    granting = PlanFactory(
        prices=[recurring(unit_amount="10")], allowance={"amount": 100, "credit_type": "credits", "rollover_cap": 100}
    ).code
    apart = SubscriptionFactory(customer=customer.ref, plan=granting)
    plan = PlanFactory(prices=[recurring(unit_amount="10")]).code
    shared = [SubscriptionFactory(customer=customer.ref, plan=plan) for _ in range(2)]
    run(at(1, 1))
    own, both = of(customer)
    # The allowance comes after the invoice of its subscription; then it pays the other one, as it did before.
    assert (own.subscription_id, own.credits_applied_minor) == (apart.pk, 0)
    assert (both.subscription_id, both.credits_applied_minor, both.amount_due_minor) == (None, 100, 1900)
    assert InvoicedSubscription.objects.count() == len(shared)
    assert findings() == []


def test_a_suspended_or_failed_subscription_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    customer, subscriptions = together("10", "20", "30", "40")
    suspension.suspend(ref=subscriptions[0].ref, reason="to be checked", facts={})
    billed = generate.generate_under

    def fails(lock: Any, *, ref: str, options: Any) -> Any:
        if ref == subscriptions[1].ref:
            raise RuntimeError("broken")
        return billed(lock, ref=ref, options=options)

    monkeypatch.setattr(generate, "generate_under", fails)
    with pytest.raises(SystemExit):
        run(at(1, 1))
    [made] = of(customer)
    assert [line[1] for line in lines(made)] == [one.pk for one in subscriptions[2:]]
    monkeypatch.undo()
    suspension.resume(ref=subscriptions[0].ref, actor="test", reason="checked")
    run(at(1, 1))
    assert [line[1] for line in lines(of(customer)[1])] == [one.pk for one in subscriptions[:2]]
    assert findings() == []


def test_a_run_of_some_subscriptions_leaves_the_others_their_turn() -> None:
    customer, [first, second] = together("10", "20")
    run(at(1, 1), "--subscription", first.ref)
    [waiting] = of(customer)
    assert (waiting.state, waiting.subscription_id) == ("draft", first.pk)
    run(at(1, 1), "--subscription", second.ref)
    [made] = of(customer)
    assert (made.state, made.total_minor) == ("open", 3600)
    assert findings() == []


@pytest.mark.parametrize("option", ["--plan", "--currency"])
def test_a_run_of_other_plans_makes_no_invoice_of_drafts_that_wait(option: str) -> None:
    customer, subscriptions = together("10", "20")
    other = SubscriptionFactory(plan=PlanFactory(currency="USD", prices=[recurring()]).code)
    for subscription in subscriptions:
        generate.generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    plans = [ItemVersion.objects.filter(subscription=one.pk)[0].plan for one in (other, subscriptions[1])]
    others, one_of_them = [plan.code if option == "--plan" else plan.currency for plan in plans]
    run(at(1, 1), option, others)
    assert Invoice.objects.filter(subscription_id=other.pk, state="open").count() == 1
    assert [invoice.state for invoice in of(customer)] == ["draft", "draft"]
    run(at(1, 1), option, one_of_them)
    assert [(invoice.state, invoice.total_minor) for invoice in of(customer)] == [("open", 3600)]
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_steps_make_the_lines_of_a_run_in_time() -> None:
    found = []
    for steps in (0, 1, 2):
        customer, subscriptions = together("10", "20")
        amend(subscriptions[1], at(2, 10), quantities={"base": Decimal(2)})
        if steps == 0:
            for month in (1, 2):
                run(at(month, 1))
            run(at(2, 10))
            run(at(3, 1))
        elif steps == 1:
            for _ in range(5):
                run(at(3, 1), "--max-periods", "1")
        else:
            run(at(3, 1))
        places = {one.pk: place for place, one in enumerate(subscriptions)}
        found.append(
            sorted(
                (line.starts_at, places[line.subscription_id or one.subscription_id], line.kind, line.amount_minor)
                for one in of(customer)
                for line in Line.objects.filter(invoice_id=one.pk)
            )
        )
    assert found[0] == found[1] == found[2]
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_a_dry_run_and_a_preview_show_what_a_run_makes() -> None:
    customer, _ = together("10", "20")
    shown = json.loads(run(at(1, 1), "--dry-run", "--format", "json"))
    assert (shown["invoices"], shown["money"]) == (1, {"EUR": {"invoices": 1, "total_minor": 3600, "credits_applied_minor": 0}})
    assert of(customer) == []
    with preview():
        upcoming = next_invoices(subscriptions_of(customer), as_of=at(1, 1), most=2)
    assert [(one.as_of, one.document["subscription"], one.document["total_minor"], one.is_first) for one in upcoming] == [
        (at(1, 1), None, 3600, True),
        (at(2, 1), None, 3600, False),
    ]
    assert upcoming[1].different == ()
    assert of(customer) == []


@pytest.mark.slow
@pytest.mark.check
def test_a_dry_run_sets_the_credit_of_one_invoice_against_the_next_one_once() -> None:
    customer, [ends] = together("31")
    plan = PlanFactory(prices=[recurring(unit_amount="40", tax_rate="20")]).code
    SubscriptionFactory(customer=customer.ref, plan=plan, started_at=at(1, 11))
    run(at(1, 1))
    amend(ends, at(1, 11), sets_end=True, ends_at=at(1, 11))
    # The other subscription is due on that day, so the draft with the credit waits for it until the next day.
    run(at(1, 11), "--subscription", ends.ref)
    dry, real = (json.loads(run(at(1, 12), "--format", "json", *more)) for more in (["--dry-run"], []))
    assert (dry["outcomes"], dry["money"], dry["lines"]) == (real["outcomes"], real["money"], real["lines"])
    _, credit, fee = of(customer)
    # 21.00 of credit with 20 % of tax pays 25.20 of the 48.00.
    assert (credit.total_minor, fee.total_minor, fee.amount_due_minor) == (0, 4800, 2280)
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_a_dry_run_shows_the_invoice_of_drafts_that_wait_for_nobody_any_more() -> None:
    customer, [first, second] = together("10", "20")
    run(at(1, 1), "--subscription", first.ref)
    amend(second, at(1, 1), sets_end=True, ends_at=at(1, 1))
    # As a call for this subscription does: nothing is due, so it makes nobody's invoice.
    generate.generate(ref=second.ref, options=Options(as_of=at(1, 1)))
    for options in ([], ["--subscription", first.ref]):
        shown = json.loads(run(at(1, 2), "--format", "json", "--dry-run", *options))
        assert (shown["invoices"], shown["money"]["EUR"]["total_minor"]) == (1, 1200)
    assert [one.state for one in of(customer)] == ["draft"]
    assert json.loads(run(at(1, 2), "--format", "json"))["money"] == shown["money"]
    assert findings() == []


def test_a_dry_run_counts_a_busy_customer_until_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, [first, second] = together("10", "20")
    run(at(1, 1), "--subscription", first.ref)
    amend(second, at(1, 1), sets_end=True, ends_at=at(1, 1))
    generate.generate(ref=second.ref, options=Options(as_of=at(1, 1)))
    attempts = [InvoiceGenerationBusy(subscription=first.ref)]

    def busy_once(*given: Any) -> Any:
        if attempts:
            raise attempts.pop()
        return gathering.consolidate_next(*given)

    monkeypatch.setattr(workers, "consolidate_next", busy_once)
    waiting: list[int] = []
    job = runs.job_for(Options(as_of=at(1, 2), dry_run=True), retry_wait_s=0.0)
    summary = runs.run(job, on_done=lambda done: None, on_tick=lambda so_far: waiting.append(so_far.waiting), stop=lambda: False)
    assert (max(waiting), waiting[-1], summary.waiting, summary.invoices) == (1, 0, 0, 1)


@pytest.mark.slow
@pytest.mark.check
def test_a_preview_waits_for_nobody_of_whom_a_run_would_find_nothing_due() -> None:
    customer, _ = together("10", "20")
    plan = PlanFactory(prices=[metered(unit_amount="0.01")], usage_threshold=Decimal("50.00")).code
    used = SubscriptionFactory(customer=customer.ref, plan=plan, started_at=at(1, 15))
    run(at(1, 1))
    # A run looks for usage that was recorded since its last look, and here finds too little for the threshold.
    use(used, "1", at(1, 16))
    run(at(1, 17))
    with preview():
        [upcoming] = next_invoices(subscriptions_of(customer), as_of=at(1, 18), most=1)
    assert (upcoming.as_of, upcoming.document["total_minor"]) == (at(2, 1), 3600)
    run(at(2, 1))
    assert [one.total_minor for one in of(customer)] == [3600, 3600]


def test_over_rest_the_last_subscription_makes_the_invoice(api: ApiClient) -> None:
    _, [first, second] = together("10", "20")
    body = {"as_of": "2026-01-01T00:00:00Z"}
    [waiting] = api.post(f"/v1/subscriptions/{first.ref}/invoices", body).json()["invoices"]
    assert (waiting["state"], waiting["consolidates_on"]) == ("draft", "2026-01-01")
    [shown] = api.post(f"/v1/subscriptions/{second.ref}/invoices?dry_run=true", body).json()["invoices"]
    [made] = api.post(f"/v1/subscriptions/{second.ref}/invoices", body).json()["invoices"]
    assert (made["subscription"], made["state"], made["total_minor"], shown["total_minor"]) == (None, "open", 3600, 3600)
    assert [one["id"] for one in api.get(f"/v1/invoices?subscription={first.ref}").json()["results"]] == [made["id"]]


def test_the_printed_invoice_has_a_heading_for_each_subscription() -> None:
    customer, [first, second] = together("10", "20")
    record_seller(details=SELLER, actor="test")
    run(at(1, 1))
    [made] = of(customer)
    page = page_of(invoice_source(made.pk))
    assert [line["heading"] for line in page["lines"]] == [f"Subscription {first.ref}", f"Subscription {second.ref}"]
    assert invoice_pdf(made.pk).content.startswith(b"%PDF")


def test_its_digest_covers_its_subscriptions() -> None:
    customer, _ = together("10", "20")
    run(at(1, 1))
    [made] = of(customer)
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_invoice_form(i) FROM billing_invoice AS i WHERE id = %s", [made.pk])
        [form] = cursor.fetchone()
    assert form == invoice_form(made)
    with pytest.raises(DatabaseError, match="frozen"), db_transaction.atomic():
        InvoicedSubscription.objects.filter(invoice_id=made.pk).update(amendments_seen=7)


@pytest.mark.slow
@pytest.mark.check
def test_reminders_suspend_all_its_subscriptions_and_charge_the_first(today: Any) -> None:
    customer, [first, second] = together("10", "20")
    record_seller(
        {**SELLER, "reminder_days": [7, 14], "suspends_at_reminder": 2, "reminder_fee_minor": {"EUR": 500}}, actor="test"
    )
    run(at(1, 1))
    [made] = of(customer)
    for days in (7, 14):
        today(made, days)
        assert remind_due().reminded == 1
    assert set(SuspendedBilling.objects.values_list("subscription_id", flat=True)) == {first.pk, second.pk}
    assert [charge.subscription_id for charge in Charge.objects.all()] == [first.pk]
    transition(made.pk, "pay")
    assert remind_due().resumed == 2
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_usage_that_credits_cover_goes_back_by_voiding_and_is_spent_once() -> None:
    holder = unique("h")
    customer = CustomerFactory(consolidated_invoicing=True, holder_id=holder)
    plan = PlanFactory(prices=[metered(unit_amount="1", credits=IN_CREDITS)]).code
    for units in ("10", "20"):
        use(SubscriptionFactory(customer=customer.ref, plan=plan), units, at(1, 5))
    # 50 credits pay for 20 of the 30 units.
    services.grant(holder_id=holder, amount=50, idempotency_key="bought")
    run(at(2, 1))
    [made] = of(customer)
    assert (made.total_minor, balance_of(holder)) == (1000, 0)
    transition(made.pk, "void")
    assert balance_of(holder) == 50
    run(at(2, 1))
    assert (of(customer)[1].total_minor, balance_of(holder)) == (1000, 0)
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_drafts_of_days_before_and_corrections_of_a_draft_name_the_document() -> None:
    customer, [first, second] = together("31", "31")
    # A run of one subscription leaves it a draft of the first; another day corrects it before its invoice is made.
    run(at(1, 1), "--subscription", first.ref)
    amend(first, at(1, 11), quantities={"base": Decimal(2)})
    run(at(1, 11), "--subscription", first.ref)
    run(at(1, 1), "--subscription", second.ref)
    run(at(1, 11))
    change, fees = of(customer)
    assert (lines(fees), fees.subscription_id) == ([("recurring", first.pk, 3100), ("recurring", second.pk, 3100)], None)
    [credit] = Line.objects.filter(invoice_id=change.pk, kind="credit")
    assert (credit.rating["credits"], change.subscription_id) == ({"invoice": fees.pk, "line": 1}, first.pk)
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_killed_before_or_while_the_invoice_is_made_the_next_run_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    customer, subscriptions = together("10", "20")
    # Killed after the drafts were written.
    for subscription in subscriptions:
        generate.generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    waiting = [(one.pk, lines(one)) for one in of(customer)]

    def killed(lock: Any, settled: Any) -> Any:
        raise RuntimeError("killed")

    # Killed after all drafts were moved, before COMMIT.
    monkeypatch.setattr(gathering, "number_under", killed)
    with pytest.raises(SystemExit):
        run(at(1, 1))
    monkeypatch.undo()
    assert [(one.pk, lines(one)) for one in of(customer)] == waiting
    assert not NumberSeries.objects.filter(last_value__gt=0).exists()
    run(at(1, 1))
    run(at(1, 1))
    assert [(one.number, one.total_minor) for one in of(customer)] == [("INV-000001", 3600)]
    assert findings() == []


@pytest.mark.slow
@pytest.mark.check
def test_the_limits_of_a_document_make_more_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MOST_SUBSCRIPTIONS", 2)
    customer, _ = together("1", "2", "4", "8", "16")
    run(at(1, 1))
    assert [one.subtotal_minor for one in of(customer)][-3:] == [1600, 300, 1200]
    # Of amounts too: lines and totals stay below 2^53.
    monkeypatch.setattr(gathering, "MAX_MINOR", 6_000)
    large, _ = together("20", "20", "20")
    run(at(1, 1))
    assert [len(lines(one)) for one in of(large)] == [1, 1, 1]
    assert findings() == []
