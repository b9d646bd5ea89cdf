"""Prices that include tax: what customers pay is the price, and net and tax follow the rules of every invoice."""

import random
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest

from billing.auditing import consistency
from billing.books.tax_summary import tax_summary
from billing.documents import credit_notes
from billing.documents.credit_note_rules import CashRounding
from billing.documents.credit_notes import CreditLine
from billing.documents.printing import invoice_pdf
from billing.documents.sellers import record_seller
from billing.models import Amendment, Customer, Invoice, InvoiceTax, Line, Plan, PlanMove, Subscription
from billing.orders import coupons, subscriptions
from billing.orders.customers import NewCredits
from billing.orders.item_versions import UnusedTime
from billing.orders.plan_move_orders import NewPlanMove, start_plan_move
from billing.rating.tax_amounts import IncludedGroup, Treatment, rounding_of_included, tax_minor, without_tax
from billing.reads import monthly_minor
from billing.reads.subscriptions import subscriptions as shown
from ledger import reads, services
from ledger.errors import Invalid
from tests.billing.documents.issued import BUYER_ADDRESS, SELLER
from tests.billing.documents.test_printed import amounts, text_of, xml_of
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
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.tampering.owner import as_owner

needs_database = pytest.mark.django_db


def subscribed(*prices: dict[str, Any], plan: dict[str, Any] | None = None, **customer: Any) -> Subscription:
    """A subscription from 1 January 2026 to a plan whose prices include tax."""
    made = PlanFactory(prices=list(prices), tax_behavior="inclusive", **(plan or {}))
    return SubscriptionFactory(plan=made.code, customer=CustomerFactory(**customer).ref)


def figures(invoice: dict[str, Any]) -> tuple[int, int, int, int]:
    """Net, tax, rounding and amount due of an invoice."""
    net = invoice["subtotal_minor"] - invoice["discount_minor"]
    return net, invoice["tax_minor"], invoice["rounding_minor"], invoice["amount_due_minor"]


def line_amounts(invoice: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Kind, amount without tax and amount with tax of each line, after discounts."""
    found = []
    for line in invoice["lines"]:
        net, included = line["amount_minor"] - line["discount_minor"], line["rating"].get("included_tax")
        priced = included["amount_minor"] - included["discount_minor"] if included else net
        found.append((line["kind"], net, priced))
    return found


# The rule --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts_minor", "rate", "nets"),
    [
        ([11900], "19", [10000]), ([998], "19", [839]), ([999], "19", [839]), ([1, 1, 1], "19", [1, 1, 1]),
        ([333, 333, 333], "19", [280, 280, 279]), ([11900, -8061], "19", [10000, -6774]), ([500, -500], "7.7", [464, -464]),
        ([0], "19", [0]), ([700], "0", [700]), ([10**26], "100", [5 * 10**25]), ([], "19", []),
    ],
)  # fmt: skip
def test_together_they_are_the_sum_without_tax_rounded_once(amounts_minor, rate, nets):
    assert without_tax(amounts_minor, Decimal(rate)) == nets


@pytest.mark.slow
@pytest.mark.check
def test_net_tax_and_rounding_are_the_price_whatever_it_is():
    pick = random.Random(5)
    beyond = []
    for _ in range(5_000):
        rate = Decimal(pick.choice(("0", "2.6", "5.5", "7", "7.7", "8.1", "19", "20", "21", "25.5", "27", "100")))
        parts = [pick.randrange(0, 10 ** pick.randrange(1, 6)) for _ in range(pick.randrange(1, 6))]
        nets = without_tax(parts, rate)
        whole = (Decimal(sum(parts)) / (1 + rate / 100)).quantize(Decimal(1), ROUND_HALF_UP)
        assert sum(nets) == whole
        assert all(0 <= net <= part for net, part in zip(nets, parts, strict=True))
        added = rounding_of_included([IncludedGroup(Treatment("S", rate), sum(parts), sum(nets))])
        assert sum(nets) + tax_minor(sum(nets), rate) + added == sum(parts)
        beyond.append(added)
    assert set(beyond) == {-1, 0, 1}


@pytest.mark.parametrize(
    ("credited", "with_tax", "expected"),
    [(0, 400, 0), (400, 598, 1), (0, 998, 1), (998, 0, 0)],
)
def test_the_note_that_credits_the_last_cent_credits_the_rounding(credited, with_tax, expected):
    # 9.99 at 19 % is 8.39 and 1.59, and 0.01 beside.
    assert CashRounding(1, 1, 998, credited).of(with_tax) == expected


# Invoices --------------------------------------------------------------------------------------------


@needs_database
@pytest.mark.parametrize(
    ("amount", "rate", "expected"),
    [
        ("119.00", "19", (10000, 1900, 0, 11900)), ("9.98", "19", (839, 159, 0, 998)), ("9.99", "19", (839, 159, 1, 999)),
        ("10.00", "20", (833, 167, 0, 1000)), ("0.01", "19", (1, 0, 0, 1)), ("5.00", "0", (500, 0, 0, 500)),
    ],
)  # fmt: skip
def test_the_price_is_paid_and_tax_follows_from_the_net(amount, rate, expected):
    [invoice] = bill(subscribed(recurring(unit_amount=amount, tax_rate=rate)), at(1, 1))
    assert figures(invoice) == expected
    [tax] = InvoiceTax.objects.filter(invoice_id=invoice["id"])
    assert (tax.base_minor, tax.amount_minor) == expected[:2]
    assert consistency.check() == []


@needs_database
def test_lines_of_a_rate_share_its_net_and_charges_are_without_tax():
    subscription = subscribed(*(recurring(key, "3.33", tax_rate="19") for key in "abc"), recurring("d", "5.00", tax_rate="7"))
    subscriptions.charge_once(ref=subscription.ref, amount_minor=100, description="Setup", tax_rate=Decimal(19))
    [invoice] = bill(subscription, at(1, 1))
    assert line_amounts(invoice) == [
        ("recurring", 280, 333), ("recurring", 280, 333), ("recurring", 279, 333), ("recurring", 467, 500),
        ("charge", 100, 100),
    ]  # fmt: skip
    # 9.99 with tax, and 1.00 with 0.19; 9.39 and 1.78 are 11.17. 4.67 and 0.33 are 5.00.
    assert figures(invoice) == (1406, 211, 1, 1618)


@needs_database
def test_discounts_minimums_and_maximums_are_in_the_amounts_of_the_price():
    subscription = subscribed(recurring(unit_amount="119.00", tax_rate="19"), plan={"minimum": Decimal("150.00")})
    code = unique("ten")
    coupons.create_coupon(code=code, kind="amount", value=Decimal("11.90"), currency="EUR", duration="once")
    customer = Customer.objects.get(pk=subscription.customer_id)
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    [first] = bill(subscription, at(1, 1))
    assert (first["subtotal_minor"], first["discount_minor"], figures(first)) == (10000, 1000, (9000, 1710, 0, 10710))
    [second] = bill(subscription, at(2, 1))
    # The fee of February, and what January lacks to 150.00 after its discount: 42.90.
    assert line_amounts(second) == [("recurring", 10000, 11900), ("minimum", 3605, 4290)]
    assert figures(second) == (13605, 2585, 0, 16190)
    assert consistency.check() == []


@needs_database
def test_a_change_within_a_period_credits_and_charges_with_tax():
    subscription = subscribed(recurring("seats", "119.00", model="unit", tax_rate="19"), plan=None)
    bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), quantities={"seats": Decimal(2)})
    [invoice] = bill(subscription, at(1, 11))
    # 21 of 31 days of 119.00 and 238.00 are 80.61 and 161.23.
    assert [(kind, priced) for kind, _, priced in line_amounts(invoice)] == [("credit", -8061), ("recurring", 16123)]
    assert figures(invoice)[3] == 8062
    assert consistency.check() == []


@needs_database
def test_what_is_carried_is_the_net_and_its_tax():
    subscription = subscribed(recurring(unit_amount="119.00", tax_rate="19"))
    bill(subscription, at(1, 1))
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11))
    [invoice] = bill(subscription, at(1, 11))
    assert line_amounts(invoice) == [("credit", -6774, -8061), ("carried", 6774, 6774)]
    assert figures(invoice) == (0, 0, 0, 0)
    assert invoice["credit_notes_minor"] == 0
    assert consistency.check() == []


@needs_database
def test_late_usage_is_a_difference_of_amounts_with_tax():
    subscription = subscribed(metered(unit_amount="1.19", tax_rate="19"))
    use(subscription, "10", at(1, 5))
    [first] = bill(subscription, at(2, 1))
    use(subscription, "5", at(1, 6))
    [second] = bill(subscription, at(3, 1))
    assert [line_amounts(one)[0] for one in (first, second)] == [("usage", 1000, 1190), ("late_usage", 500, 595)]
    assert consistency.check() == []


@needs_database
@pytest.mark.parametrize(("status", "category"), [("reverse_charge", "AE"), ("exempt", "E")])
def test_who_is_not_charged_the_tax_pays_the_net(status, category):
    [invoice] = bill(subscribed(recurring(unit_amount="9.99", tax_rate="19"), vat_status=status, vat_id="BE0123456749"), at(1, 1))
    assert figures(invoice) == (839, 0, 0, 839)
    assert [tax["category"] for tax in invoice["taxes"]] == [category]
    assert consistency.check() == []


@needs_database
def test_prepaid_credits_and_cash_pay_the_price():
    record_seller({**SELLER, "cash_rounding_minor": {"EUR": 5}}, actor="test")
    holder = unique("holder")
    services.grant(holder_id=holder, amount=200, idempotency_key="k")
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    first, second = (
        bill(subscribed(recurring(unit_amount="9.99", tax_rate="19"), **more), at(1, 1))[0]
        for more in ({"holder_id": holder, "credits": terms}, {})
    )
    # 9.98 and 0.01 less 2.00 are 7.99, which rounds to 8.00.
    assert (figures(first), figures(second)) == ((839, 159, 2, 800), (839, 159, 2, 1000))
    assert reads.balance(holder).available == 0
    assert consistency.check() == []


# Credit notes ----------------------------------------------------------------------------------------


def note_of(invoice: dict[str, Any], *amounts_minor: int) -> Any:
    """A credit note about net amounts of the first lines, or about all that is left."""
    lines = [CreditLine(position=position, amount_minor=minor) for position, minor in enumerate(amounts_minor, 1)]
    return credit_notes.issue_in(invoice_id=invoice["id"], lines=lines or None, reason="agreed", actor="key:shop")


@needs_database
def test_credit_notes_give_back_the_price_to_the_last_cent():
    [invoice] = bill(subscribed(recurring(unit_amount="9.99", tax_rate="19")), at(1, 1))
    first, rest = note_of(invoice, 400), note_of(invoice)
    assert [(n.subtotal_minor, n.tax_minor, n.rounding_minor, n.amount_minor) for n in (first, rest)] == [
        (400, 76, 0, 476), (439, 83, 1, 523),
    ]  # fmt: skip
    assert Invoice.objects.get(pk=invoice["id"]).state == "paid"
    assert consistency.check() == []


@needs_database
def test_a_later_change_does_not_give_back_what_a_note_has_credited():
    subscription = subscribed(recurring(unit_amount="119.00", tax_rate="19"))
    [invoice] = bill(subscription, at(1, 1))
    note_of(invoice, 5000)
    amend(subscription, at(1, 1), sets_end=True, ends_at=at(1, 1))
    [later] = bill(subscription, at(1, 2))
    # 59.50 of 119.00 are credited already.
    assert line_amounts(later)[0] == ("credit", -5000, -5950)
    assert credit_notes.left_of(Invoice.objects.get(pk=invoice["id"]))[0] == 0
    assert consistency.check() == []


# Plans -----------------------------------------------------------------------------------------------


@needs_database
def test_a_subscription_keeps_the_behavior_of_its_plan(api: ApiClient) -> None:
    subscription = subscribed(recurring(unit_amount="9.99", tax_rate="19"))
    other, same = PlanFactory(), PlanFactory(tax_behavior="inclusive")
    before = Amendment.objects.count()
    with pytest.raises(Invalid, match="inclusive of tax") as refused:
        amend(subscription, at(1, 11), plan=other.code)
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/plan", "other-tax-behavior")
    assert Amendment.objects.count() == before
    amend(subscription, at(1, 11), plan=same.code)
    body = {"ref": unique("plan"), "name": "X", "currency": "EUR", "interval": {"unit": "month"}, "prices": [recurring()]}
    rows = Plan.objects.count()
    assert api.post("/v1/plans", body | {"tax_behavior": "gross"}).status_code == 400
    assert Plan.objects.count() == rows
    made = api.post("/v1/plans", body | {"tax_behavior": "inclusive"}).json()
    assert (made["tax_behavior"], api.post("/v1/plans", body).json()["tax_behavior"]) == ("inclusive", "exclusive")


@needs_database
def test_subscribers_of_other_versions_are_not_moved_to_one_with_another_behavior():
    plan = PlanFactory(tax_behavior="inclusive")
    PlanFactory(code=plan.code)
    with pytest.raises(Invalid, match="exclusive of tax") as refused:
        start_plan_move.execute(NewPlanMove(plan=plan.code, effective_at=at(1, 1), actor="test"))
    assert (refused.value.facts["pointer"], refused.value.facts["rule"]) == ("/versions", "other-tax-behavior")
    assert not PlanMove.objects.exists()


@needs_database
def test_unused_time_that_is_paid_out_is_the_net_with_its_tax():
    subscription = subscribed(recurring(unit_amount="119.00", tax_rate="19"))
    [first] = bill(subscription, at(1, 1))
    transition(first["id"], "pay")
    amend(subscription, at(1, 11), sets_end=True, ends_at=at(1, 11), unused_time=UnusedTime.REFUND)
    [last] = bill(subscription, at(1, 11))
    assert last["refunded_minor"] == 8061
    assert consistency.check() == []


@needs_database
def test_a_month_brings_the_net() -> None:
    rows = shown(among=[subscribed(recurring(unit_amount="119.00", tax_rate="19")).pk], limit=1)
    assert list(monthly_minor(rows).values()) == [10000]


# Documents and checks --------------------------------------------------------------------------------


@needs_database
def test_the_documents_show_net_amounts_and_the_price():
    record_seller(SELLER, actor="test")
    customer = {"address": BUYER_ADDRESS, "vat_id": "BE0123456749"}
    [invoice] = bill(subscribed(recurring(unit_amount="9.99", tax_rate="19"), **customer), at(1, 1))
    pdf = invoice_pdf(invoice["id"]).content
    text = text_of(pdf)
    for words in (
        "1 × 9.99 = 9.99",
        "9.99 with 19 % VAT",
        "VAT 19 % on 8.39 1.59 Total EUR 9.98 Rounding 0.01 Amount due EUR 9.99",
    ):
        assert words in text, words
    xml = xml_of(pdf)
    assert amounts(xml, "LineTotalAmount", "TaxBasisTotalAmount", "TaxTotalAmount") == ["8.39", "8.39", "1.59"]
    assert amounts(xml, "GrandTotalAmount", "RoundingAmount", "DuePayableAmount") == ["9.98", "0.01", "9.99"]
    [row] = tax_summary(Invoice.objects.get(pk=invoice["id"]).issue_date)
    assert (row.base_minor, row.tax_minor) == (839, 159)


@needs_database
def test_other_amounts_are_found():
    [invoice] = bill(subscribed(recurring(unit_amount="9.99", tax_rate="19")), at(1, 1))
    line = Line.objects.get(invoice_id=invoice["id"])
    as_owner(
        """UPDATE billing_line SET rating = jsonb_set(rating, '{included_tax,amount_minor}', '1010') WHERE id = %(line)s""",
        line=line.pk,
    )
    [net] = findings_of("net of a line")
    assert net == f"invoice {invoice['id']}, line 1: 839 of 1010 with 19 % of tax, it must be 849"
    assert len(findings_of("rounding does not follow")) == 1
    assert findings_of("claims do not add up") == [f"item {line.item_id}: the lines come to 1010, the claims to 999"]
