"""Taxes that a provider finds: on documents, in runs, previews and calls. It is asked without a transaction."""

from datetime import date
from decimal import Decimal

import pytest
from django.core.management import call_command

from billing import reads, tax_asking
from billing.auditing import consistency
from billing.auditing.explanation import explain
from billing.configured_tax_provider import check_tax_provider
from billing.documents import credit_notes, transitions
from billing.documents.credit_notes import CreditLine
from billing.documents.e_invoice import e_invoice
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.printed_pages import invoice_page
from billing.documents.printing import invoice_source
from billing.documents.sellers import record_seller
from billing.errors import TaxesRefused, TaxesUnavailable
from billing.generator.activations import order_subscription
from billing.generator.options import Options
from billing.generator.run import runs
from billing.generator.run.generate import generate, generate_in
from billing.models import Claim, Cursor, Invoice, Line, NumberSeries, Run, Subscription, Tax
from billing.orders import customers
from billing.orders.tax_policies import policy_from
from billing.rating.tax_sales import FoundTax, LineTaxes
from billing.reads import invoice_document
from ledger import previews
from ledger.database.transactions import joins, own_or_joined
from ledger.services import preview
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, recurring, unique, use
from tests.billing.generator.run.test_generate import bill
from tests.billing.taxes.stand_in import GST, StandIn
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db
QUEBEC = {"line1": "1 rue X", "city": "Montréal", "postal_code": "H2X 1Y4", "subdivision": "QC", "country": "CA"}
CALLS = {
    "key": "calls", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "1", "meter": "calls",
    "aggregation": "sum",
}  # fmt: skip
STAND_IN = "tests.billing.taxes.stand_in.StandIn"


@pytest.fixture(autouse=True)
def seller(settings):
    """A seller whose provider of taxes is the stand-in."""
    StandIn.reset()
    tax_asking.ask_again_now()
    settings.TAX_PROVIDER = {"class": STAND_IN}
    record_seller({**SELLER, "tax_rules": "provider"}, actor="test")
    yield
    tax_asking.ask_again_now()


def subscribed(*prices, address=QUEBEC, plan=None, **customer):
    """A subscription of a customer at an address."""
    made = PlanFactory(prices=list(prices or [recurring(unit_amount="100.00")]), **(plan or {}))
    return SubscriptionFactory(plan=made.code, customer=CustomerFactory(address=address, **customer).ref)


def rows_of(document):
    """The taxes of a document: name, rate, base, amount."""
    return [(row.get("name"), row["rate"], row["base_minor"], row["amount_minor"]) for row in document["taxes"]]


def nothing_written():
    """Nothing of a document is there, and no number was taken."""
    return not any(model.objects.exists() for model in (Invoice, Line, Claim, Cursor, NumberSeries, Tax))


def problem_of(response):
    """The code of a problem."""
    return response.json()["type"].rsplit("#", 1)[-1].rsplit("/", 1)[-1]


def fails(error):
    """Have the provider raise an error."""

    def on_ask(sale):
        raise error

    StandIn.on_ask = on_ask


# Documents -------------------------------------------------------------------------------------------


def test_a_document_bears_the_taxes_that_the_provider_found_and_keeps_its_answer():
    [made] = bill(subscribed(recurring(unit_amount="33.33"), recurring("more", "10.01", tax_class="books")), at(1, 1))
    assert rows_of(made) == [("CA-GST", "5", 4334, 217), ("CA-QST", "9.975", 4334, 432)]
    assert (made["subtotal_minor"], made["tax_minor"], made["total_minor"]) == (4334, 649, 4983)
    [sale] = StandIn.asked
    assert (sale.currency, sale.day, sale.buyer.postal_code, sale.seller.country) == ("EUR", date(2026, 1, 31), "H2X 1Y4", "DE")
    assert [(line.amount_minor, line.includes_tax, line.tax_class) for line in sale.lines] == [
        (3333, False, "standard"), (1001, False, "books"),
    ]  # fmt: skip
    assert made["lines"][0]["rating"]["tax_answer"] == {
        "provider": "stand-in", "reference": "calc-1", "day": "2026-01-31", "category": "O",
        "taxes": [
            {"code": "ca-gst", "rate": "5", "amount_minor": 167}, {"code": "ca-qst", "rate": "9.975", "amount_minor": 332},
        ],
    }  # fmt: skip
    assert [(tax.provider, tax.code, tax.country, tax.recorded_by) for tax in Tax.objects.order_by("pk")] == [
        ("stand-in", "ca-gst", "CA", "stand-in"), ("stand-in", "ca-qst", "CA", "stand-in"),
    ]  # fmt: skip
    assert consistency.check() == []


def test_documents_name_its_taxes_and_an_explanation_has_its_answer():
    subscription = subscribed(name="Zoe")
    [made] = bill(subscription, at(1, 1))
    text = " ".join((e_invoice(invoice_source(made["id"])) or b"").decode().split())
    assert "<ram:ActualAmount>9.98</ram:ActualAmount> <ram:Reason>CA-QST</ram:Reason>" in text
    labels = [row["label"] for row in invoice_page(invoice_source(made["id"]))["sums"]]
    assert labels[1:3] == ["CA-GST 5 % on 100.00", "CA-QST 9.975 % on 100.00"]
    [claim] = explain(subscription.ref, at(1, 2))["newest_claims"]
    assert claim["tax_answer"]["reference"] == "calc-1"


def test_the_next_document_refers_to_the_same_versions_and_a_new_rate_is_a_new_one():
    subscription = subscribed()
    bill(subscription, at(1, 1))
    bill(subscription, at(2, 1))
    assert Tax.objects.count() == 2
    StandIn.taxes = {"CA": [GST, ("ca-qst", "10", "O")]}
    [march] = bill(subscription, at(3, 1))
    assert rows_of(march) == [("CA-GST", "5", 10_000, 500), ("CA-QST", "10", 10_000, 1000)]
    assert Tax.objects.count() == 3
    assert consistency.check() == []


def test_a_line_that_differs_from_the_answer_is_found():
    [made] = bill(subscribed(), at(1, 1), finalize=False)
    line = Line.objects.get(invoice_id=made["id"])
    answer = line.rating["tax_answer"]
    for changed in (
        {**answer, "category": "S"},
        {**answer, "provider": "other"},
        {**answer, "taxes": answer["taxes"][:1]},
        {**answer, "taxes": [{**one, "amount_minor": one["amount_minor"] + 2} for one in answer["taxes"]]},
    ):
        Line.objects.filter(pk=line.pk).update(rating={**line.rating, "tax_answer": changed})
        assert [one["finding"] for one in consistency.check()] == ["line that does not bear the taxes of its provider's answer"]
    Line.objects.filter(pk=line.pk).update(rating=line.rating)
    assert consistency.check() == []


def test_credits_bear_the_taxes_of_what_they_give_back_and_the_provider_is_not_asked_for_them():
    subscription = subscribed(recurring(unit_amount="31.00"), address={"country": "DE"})
    bill(subscription, at(1, 1))
    StandIn.taxes = {"FR": [("fr-vat", "20", "S")]}
    customers.change_customer(ref=subscription.customer.ref, address={"country": "FR"})
    amend(subscription, at(1, 11), quantities={"base": Decimal(2)})
    [second] = bill(subscription, at(1, 11))
    assert {(line["kind"], line["tax_rate"], line["amount_minor"]) for line in second["lines"]} == {
        ("credit", "19", -2100), ("recurring", "20", 4200), ("carried", "19", 2100),
    }  # fmt: skip
    assert [[line.amount_minor for line in sale.lines] for sale in StandIn.asked] == [[3100], [4200]]
    assert consistency.check() == []


def test_credit_notes_and_voids_follow_the_document_without_asking():
    [made] = bill(subscribed(recurring(unit_amount="33.33")), at(1, 1))
    note = credit_notes.issue_in(
        invoice_id=made["id"], lines=[CreditLine(position=1, amount_minor=1111)], reason="Part", actor="test"
    )
    assert rows_of(reads.credit_note_document(note.pk)) == [("CA-GST", "5", 1111, 56), ("CA-QST", "9.975", 1111, 111)]
    [other] = bill(subscribed(), at(1, 1))
    transitions.apply_in(invoice_id=other["id"], kind="void", actor="test")
    assert len(StandIn.asked) == 2
    assert consistency.check() == []


@pytest.mark.parametrize(
    ("currency", "price", "net", "tax", "total"),
    [("JPY", "999", 999, 150, 1149), ("KWD", "1.234", 1234, 185, 1419)],
)
def test_currencies_without_and_with_three_decimals(currency, price, net, tax, total):
    [made] = bill(subscribed(recurring(unit_amount=price), plan={"currency": currency}, currency=currency), at(1, 1))
    assert (made["subtotal_minor"], made["tax_minor"], made["total_minor"]) == (net, tax, total)
    assert consistency.check() == []


def test_an_invoice_of_nothing_is_asked_about_too():
    [made] = bill(subscribed(recurring(unit_amount="0")), at(1, 1))
    assert rows_of(made) == [("CA-GST", "5", 0, 0), ("CA-QST", "9.975", 0, 0)]
    assert (made["total_minor"], [line.amount_minor for line in StandIn.asked[0].lines]) == (0, [0])
    assert consistency.check() == []


@pytest.mark.parametrize(("price", "net"), [("114.98", 10_000), ("9.99", 869), ("0.01", 1)])
def test_prices_that_include_tax_cost_what_they_say(price, net):
    [made] = bill(subscribed(recurring(unit_amount=price), plan={"tax_behavior": "inclusive"}), at(1, 1))
    assert (made["subtotal_minor"], made["amount_due_minor"]) == (net, int(Decimal(price) * 100))
    assert StandIn.asked[0].lines[0].includes_tax
    assert consistency.check() == []


@pytest.mark.parametrize(("status", "vat_id", "category"), [("exempt", "", "E"), ("reverse_charge", "ATU12345675", "AE")])
def test_a_customer_without_tax(status, vat_id, category):
    [made] = bill(subscribed(address={"country": "DE"}, vat_status=status, vat_id=vat_id), at(1, 1))
    assert {line["tax_category"] for line in made["lines"]} == {category}
    assert made["lines"][0]["rating"]["tax_answer"]["category"] == category
    assert consistency.check() == []


def test_a_place_without_a_tax_is_not_taxed():
    [made] = bill(subscribed(address={"country": "AQ"}), at(1, 1))
    assert (made["lines"][0]["tax_category"], made["tax_minor"]) == ("O", 0)


def test_other_categories_stay_as_their_price_says():
    free = recurring("free", "5.00", tax_category="Z", tax_rate="0")
    [made] = bill(subscribed(recurring(unit_amount="1.00"), free, address={"country": "DE"}), at(1, 1))
    assert {(line["price_key"], line["tax_category"]) for line in made["lines"]} == {("base", "S"), ("free", "Z")}
    assert [[line.amount_minor for line in sale.lines] for sale in StandIn.asked] == [[100]]


def test_a_run_that_catches_up_asks_for_each_day_at_once():
    subscription = subscribed(recurring(), CALLS)
    use(subscription, "3", at(1, 5))
    [made] = bill(subscription, at(3, 1))
    assert sorted(sale.day for sale in StandIn.asked) == [date(2026, 1, 31), date(2026, 2, 28), date(2026, 3, 31)]
    assert made["tax_minor"] == sum(row["amount_minor"] for row in made["taxes"])
    assert consistency.check() == []


def test_a_draft_in_its_grace_is_asked_about_again_with_its_late_usage():
    subscription = subscribed(CALLS, grace_days=3)
    use(subscription, "10", at(1, 5))
    [draft] = bill(subscription, at(2, 1))
    use(subscription, "5", at(1, 6))
    [made] = bill(subscription, at(2, 5))
    assert (draft["number"], [[line.amount_minor for line in sale.lines] for sale in StandIn.asked]) == (None, [[1000], [1500]])
    assert rows_of(made) == [("CA-GST", "5", 1500, 75), ("CA-QST", "9.975", 1500, 150)]


def test_a_draft_keeps_its_answer_until_a_person_finalises_it():
    [draft] = bill(subscribed(), at(1, 1), finalize=False)
    fails(TaxesUnavailable(why="down"))
    made = transitions.apply_in(invoice_id=draft["id"], kind="finalize", actor="test")
    assert (made.number, made.tax_minor, len(StandIn.asked)) == ("INV-000001", 1498, 1)
    assert consistency.check() == []


@pytest.mark.parametrize(("outcome", "told"), [("valid", "FR40303265045"), ("invalid", ""), ("", "")])
def test_a_vat_id_that_vies_has_not_confirmed_is_not_told_where_the_seller_needs_that(outcome, told):
    seller = {"tax_rules": "provider", "country": "DE", "needs_confirmed_vat_id": True}
    buyer = {"address": {"country": "FR"}, "vat_id": "FR40303265045", "vat_status": "reverse_charge"}
    policy = policy_from(seller, {**buyer, "vat_lookup": {"outcome": outcome}}, "UTC")
    assert (policy.bill_to.vat_id, policy.vat_status) == (told, "reverse_charge" if told else "taxable")


def test_a_consolidated_invoice_rounds_the_taxes_of_its_drafts_together():
    customer = CustomerFactory(address=QUEBEC, consolidated_invoicing=True)
    plan = PlanFactory(prices=[recurring(unit_amount="33.33")])
    refs = [SubscriptionFactory(plan=plan.code, customer=customer.ref).ref for _ in range(2)]
    for ref in refs:
        generate_in(ref=ref, options=Options(as_of=at(1, 1)))
    made = invoice_document(Invoice.objects.get(customer_ref=customer.ref).pk)
    assert rows_of(made) == [("CA-GST", "5", 6666, 333), ("CA-QST", "9.975", 6666, 665)]
    assert [line["rating"]["tax_answer"]["reference"] for line in made["lines"]] == ["calc-1", "calc-2"]
    assert consistency.check() == []


def test_a_first_invoice_that_starts_a_subscription_is_asked_about_before_it_is_written():
    plan = PlanFactory(prices=[recurring(unit_amount="30.00")])
    order = {"plan": plan.code, "customer": CustomerFactory(address=QUEBEC).ref, "starts_when_paid": True}
    StandIn.on_ask = lambda sale: (_ for _ in ()).throw(AssertionError) if Subscription.objects.exists() else None
    made = order_subscription(ref=unique("SUB"), started_at=at(1), **order)
    assert Invoice.objects.get(subscription_ref=made.ref).tax_minor == 150 + 299
    fails(TaxesUnavailable(why="down"))
    with pytest.raises(TaxesUnavailable):
        order_subscription(ref="SUB-down", started_at=at(2), **order)
    assert not Subscription.objects.filter(ref="SUB-down").exists()


# When it is asked ------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [generate, generate_in])
def test_it_is_asked_without_a_transaction_and_outside_of_previews(act):
    seen = []
    StandIn.on_ask = lambda sale: seen.append((joins(), previews.current(), Invoice.objects.exists()))
    for dry_run in (True, False):
        act(ref=subscribed().ref, options=Options(as_of=at(1, 1), dry_run=dry_run))
    assert seen == [(False, None, False)] * 2


def test_in_a_transaction_of_the_caller_it_is_not_asked():
    subscription = subscribed()
    with pytest.raises(tax_asking.TaxesToAsk), own_or_joined():
        generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    assert StandIn.asked == []
    assert nothing_written()

    @tax_asking.asks_taxes
    def own():
        with own_or_joined():
            return generate_in(ref=subscription.ref, options=Options(as_of=at(1, 1)))

    assert len(own().invoices) == 1


def test_a_preview_in_a_transaction_that_writes_is_no_reason_to_do_it_twice():
    shown, made = subscribed(), subscribed(recurring(unit_amount="1.00"))

    @tax_asking.asks_taxes
    def act():
        with own_or_joined():
            written = generate_in(ref=made.ref, options=Options(as_of=at(1, 1)))
            with preview():
                generate_in(ref=shown.ref, options=Options(as_of=at(1, 1), dry_run=True))
        return written

    assert [one.number for one in act().invoices] == ["INV-000001"]
    assert len(StandIn.asked) == 2


@pytest.mark.parametrize("compares", [True, False])
def test_a_draft_that_changes_after_it_was_asked_about_is_asked_about_again(monkeypatch, compares):
    subscription = subscribed(CALLS)
    use(subscription, "10", at(1, 5))
    more = ["5"]
    StandIn.on_ask = lambda sale: use(subscription, more.pop(), at(1, 6)) and None if more else None
    if not compares:
        # The control: an answer is taken for any sale.
        def any_answer(sales):
            known = tax_asking._current.get().known
            if not known:
                raise tax_asking.TaxesToAsk(list(sales))
            return [next(iter(known.values()))]

        monkeypatch.setattr("billing.orders.tax_policies.answers_to", any_answer)
    [made] = bill(subscription, at(2, 1))
    asked = [sale.lines[0].amount_minor for sale in StandIn.asked]
    assert made["subtotal_minor"] == 1500
    assert (asked, bool(consistency.check())) == (([1000, 1500], False) if compares else ([1000], True))


def test_a_draft_that_changes_each_time_is_given_up_and_leaves_nothing(monkeypatch):
    monkeypatch.setattr(tax_asking, "MOST_TRIES", 4)
    subscription = subscribed(CALLS)
    use(subscription, "10", at(1, 5))
    StandIn.on_ask = lambda sale: use(subscription, "1", at(1, 6)) and None
    with pytest.raises(TaxesUnavailable, match="changed each time"):
        bill(subscription, at(2, 1))
    assert len(StandIn.asked) == 4
    assert not Invoice.objects.exists()


def test_who_is_interrupted_while_it_asks_leaves_nothing_and_the_next_run_asks_again():
    subscription = subscribed()
    fails(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        generate(ref=subscription.ref, options=Options(as_of=at(1, 1)))
    assert nothing_written()
    StandIn.on_ask = lambda sale: None
    assert len(bill(subscription, at(1, 1))) == 1
    assert len(StandIn.asked) == 2


# Without an answer -----------------------------------------------------------------------------------

FAULTS = [
    (TaxesUnavailable(why="APIConnectionError"), "The provider of taxes does not answer: APIConnectionError"),
    (TaxesRefused(why="No such place"), "The provider of taxes refuses the sale: No such place"),
    (ZeroDivisionError(), "The provider of taxes does not answer: it failed with ZeroDivisionError"),
]


@pytest.mark.parametrize(("error", "detail"), FAULTS)
def test_without_an_answer_a_run_goes_on_and_the_next_one_bills(error, detail):
    waits, other = subscribed(), subscribed(recurring(unit_amount="1.00", tax_category="Z", tax_rate="0"))
    fails(error)
    results = []
    job = runs.job_for(Options(as_of=at(1, 1)), subscriptions=(waits.ref, other.ref), retry_wait_s=0.0)
    summary = runs.run(job, on_done=results.append, on_tick=lambda _: None, stop=lambda: False)
    assert [(one.subscription, one.outcome, one.detail) for one in results] == [
        (waits.ref, "waits_for_taxes", detail), (other.ref, "finalised", ""),
    ]  # fmt: skip
    assert (summary.waiting, summary.failures, summary.outcomes["waits_for_taxes"], len(StandIn.asked)) == (1, 0, 1, 1)
    assert [invoice.subscription_ref for invoice in Invoice.objects.all()] == [other.ref]
    assert not Claim.objects.filter(subscription_id=waits.pk).exists()
    tax_asking.ask_again_now()
    StandIn.on_ask = lambda sale: None
    assert [one.number for one in generate(ref=waits.ref, options=Options(as_of=at(1, 1))).invoices] == ["INV-000002"]


def test_a_consolidated_invoice_waits_for_the_subscription_that_waits_for_its_taxes():
    customer = CustomerFactory(address=QUEBEC, consolidated_invoicing=True)
    refs = [
        SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount=price)]).code, customer=customer.ref).ref
        for price in ("33.33", "10.00")
    ]

    def run():
        job = runs.job_for(Options(as_of=at(1, 1)), subscriptions=tuple(refs), retry_wait_s=0.0)
        runs.run(job, on_done=lambda _: None, on_tick=lambda _: None, stop=lambda: False)
        return [(one.number, one.subtotal_minor) for one in Invoice.objects.filter(customer_ref=customer.ref)]

    StandIn.on_ask = lambda sale: [] if sale.lines[0].amount_minor == 1000 else None
    assert run() == [(None, 3333)]
    StandIn.on_ask = lambda sale: None
    assert run() == [("INV-000001", 4333)]
    assert consistency.check() == []


def test_a_dry_run_of_a_command_waits_too_and_counts_nothing():
    waits = subscribed()
    fails(TaxesUnavailable(why="down"))
    results = []
    job = runs.job_for(Options(as_of=at(1, 1), dry_run=True), subscriptions=(waits.ref,), retry_wait_s=0.0, limit=1)
    runs.run(job, on_done=results.append, on_tick=lambda _: None, stop=lambda: False)
    assert [(one.subscription, one.outcome) for one in results] == [(waits.ref, "waits_for_taxes")]
    tax_asking.ask_again_now()
    StandIn.on_ask = lambda sale: None
    results.clear()
    summary = runs.run(job, on_done=results.append, on_tick=lambda _: None, stop=lambda: False)
    assert [(one.outcome, one.invoices[0].total_minor) for one in results] == [("finalised", 11_498)]
    assert (summary.limit_reached, nothing_written()) == (False, False)
    assert not Invoice.objects.exists()


def test_after_no_answer_the_process_does_not_ask_for_a_while():
    fails(TaxesUnavailable(why="down"))
    for _ in range(3):
        with pytest.raises(TaxesUnavailable, match="down"):
            bill(subscribed(), at(1, 1))
    assert len(StandIn.asked) == 1


def found(**changed):
    """One line with one tax of 5 % of 100.00."""
    tax = {"code": "x", "name": "X", "rate": Decimal(5), "category": "O", "amount_minor": 500} | changed
    return [LineTaxes(taxes=(FoundTax(**tax),))]


@pytest.mark.products(most=8)
@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("nothing", "not-an-answer"), ([], "other-lines"), (found() * 2, "other-lines"), ([None], "not-an-answer"),
        (found(amount_minor=502), "amount-differs"), (found(amount_minor=498), "amount-differs"),
        (found(rate=Decimal(101)), "rate"), (found(rate=Decimal(-1)), "rate"), (found(rate=Decimal("NaN")), "rate"),
        (found(rate=5.0), "rate"), (found(rate=Decimal("5.00001")), "rate"),
        (found(code=""), "tax"), (found(code="x" * 65), "tax"), (found(name=""), "tax"), (found(name="X\n"), "tax"),
        (found(category="AE"), "tax"), (found(category="Z"), "category"), (found(category="S", rate=Decimal(0)), "category"),
        (found(country="Canada"), "place"), ([LineTaxes(category="S")], "category"), ([LineTaxes(category="AE")], "category"),
        ([LineTaxes(rate=Decimal(5))], "category"), ([LineTaxes(reference="a b")], "reference"),
        ([LineTaxes(taxes=found()[0].taxes * 2)], "taxes"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_refused_by_its_rule_and_nothing_is_written(answer, rule):
    StandIn.on_ask = lambda sale: answer
    with pytest.raises(TaxesRefused) as refused:
        generate(ref=subscribed().ref, options=Options(as_of=at(1, 1)))
    assert f"The answer cannot be used: {rule}: " in refused.value.facts["why"]
    assert nothing_written()


@pytest.mark.parametrize("off", [-1, 1])
def test_a_line_may_be_rounded_by_a_unit_otherwise_and_the_document_is_rounded_by_our_rules(off):
    StandIn.off_minor = off
    [made] = bill(subscribed(address={"country": "DE"}), at(1, 1))
    assert made["tax_minor"] == 1900
    assert made["lines"][0]["rating"]["tax_answer"]["taxes"][0]["amount_minor"] == 1900 + off
    assert consistency.check() == []


# Calls and pages -------------------------------------------------------------------------------------


def test_previews_ask_too_and_say_that_the_provider_is_down(api):
    subscription = subscribed()
    path = f"/v1/customers/{subscription.customer.ref}/preview"
    shown = api.get(f"{path}?invoices=2").json()["invoices"]
    # What is due since January, and the next month; each day is asked about once.
    assert [one["invoice"]["total_minor"] - one["invoice"]["tax_minor"] for one in shown][1] == 10_000
    assert shown[1]["invoice"]["tax_minor"] == 1498
    assert len(StandIn.asked) == len(set(StandIn.asked)) == len({sale.day for sale in StandIn.asked})
    fails(TaxesUnavailable(why="APIConnectionError"))
    down = api.get(path)
    assert (down.status_code, problem_of(down), down.json()["why"]) == (503, "taxes-unavailable", "APIConnectionError")
    assert down["Retry-After"] == "10"
    assert not Invoice.objects.exists()


def test_a_call_that_has_no_answer_stores_nothing_under_its_key(api):
    ref = CustomerFactory(address=QUEBEC).ref
    body = {"lines": [{"description": "Set-up", "unit_amount": "10.00"}]}
    path, key = f"/v1/customers/{ref}/invoices", unique("key")
    fails(TaxesRefused(why="The customer's location is not known."))
    refused = api.post(path, body, key=key)
    assert (refused.status_code, problem_of(refused)) == (409, "taxes-refused")
    assert not Invoice.objects.exists()
    StandIn.on_ask = lambda sale: None
    made = api.post(path, body, key=key)
    assert (made.status_code, made.json()["tax_minor"]) == (201, 150)
    assert api.post(path, body, key=key).json() == made.json()
    assert len(StandIn.asked) == 2


def test_a_one_off_invoice_in_python_asks_before_it_is_written():
    line = OneOffLine(description="Set-up", unit_amount=Decimal(10))
    other = OneOffLine(description="Deposit", unit_amount=Decimal(10), tax_category="O")
    made = issue_one_off_in(customer_ref=CustomerFactory(address=QUEBEC).ref, request=NewOneOffInvoice(lines=[other, line]))
    assert made.tax_minor == 150
    assert [[each.amount_minor for each in sale.lines] for sale in StandIn.asked] == [[1000]]


def test_a_seller_needs_a_configured_provider(api, settings):
    settings.TAX_PROVIDER = {}
    body = {"name": "Nimbus Inc", "line1": "1", "city": "X", "country": "US", "invoice_prefix": "US", "credit_note_prefix": "USC"}
    refused = api.put("/v1/sellers/us", body | {"tax_rules": "provider"})
    assert [(one["pointer"], one["code"]) for one in refused.json()["errors"]] == [("/tax_rules", "configured")]
    with pytest.raises(TaxesUnavailable, match="TAX_PROVIDER"):
        generate(ref=subscribed().ref, options=Options(as_of=at(1, 1)))


@pytest.mark.parametrize(
    "given",
    [{"class": "no.such.Class"}, {"class": STAND_IN, "colour": "red"}, {"api_key": "sk_secret"}, {"class": "decimal.Decimal"}],
)
def test_a_provider_that_cannot_be_made_is_reported_without_its_secrets(settings, given):
    settings.TAX_PROVIDER = given
    [message] = check_tax_provider(None)
    assert (message.id, "sk_secret" in str(message)) == ("billing.E005", False)


def test_a_run_names_what_waits_in_its_output_on_its_page_and_on_the_first_page(capsys):
    waits = subscribed()
    fails(TaxesRefused(why="No such place"))
    with pytest.raises(SystemExit) as ended:
        call_command("generate_invoices", "--subscription", waits.ref, "--as-of", "2026-01-01T00:00:00Z", "--retry-busy", "0")
    output = capsys.readouterr()
    reason = "The provider of taxes refuses the sale: No such place"
    assert ended.value.code == 4
    assert "1 waiting for their taxes" in output.out
    assert f"{waits.ref}: waits_for_taxes: {reason}" in output.err
    client, run = operator(), Run.objects.get()
    assert f"1 subscription waits for its taxes, such as {waits.ref}. {reason}" in client.get("/admin/").content.decode()
    page = client.get(f"/admin/billing/run/{run.pk}/change/").content.decode()
    assert reason in page
    assert "waits for its taxes" in page


@pytest.mark.slow
@pytest.mark.check
def test_pages_show_the_next_invoices_with_taxes_or_say_why_not():
    subscription, client = subscribed(), operator()
    bill(subscription, at(1, 1))
    pages = {
        f"/admin/billing/subscription/{subscription.pk}/next-invoices/": "114.98",
        f"/admin/billing/customer/{subscription.customer_id}/preview/": "The next invoice is that of",
    }
    for address, text in pages.items():
        asked = len(StandIn.asked)
        assert text in client.get(address).content.decode()
        assert len(StandIn.asked) > asked
    fails(TaxesRefused(why="No such place"))
    for address in pages:
        assert "The provider of taxes refuses the sale" in client.get(address).content.decode()
    assert Invoice.objects.count() == 1
