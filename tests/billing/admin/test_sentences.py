"""Plans, coupons, amendments, runs and documents in sentences. Without a database, but for refunds."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from billing.admin.document_page import invoice_sentences
from billing.admin.order_forms.prices import price_typed, typed_of
from billing.admin.prose import change_words, coupon_words, price_sentence
from billing.admin.run_sentences import run_sentences
from billing.models import Coupon, Invoice, Plan, Run
from billing.rating.prices.reading import parse_price, price_dict
from tests.billing.factories import metered, recurring

PRICES = [
    (recurring("base", "49", tax_rate="19"), "base: 49.00 EUR a month, in advance. 19 % tax."),
    (recurring("base", "0.125", timing="arrears"), "base: 0.125 EUR a month, in arrears. No tax."),
    (
        recurring("seats", "9.9", model="unit", free_units="3", maximum="99.5"),
        "seats: 9.90 EUR per unit and month, in advance, the first 3 free. At most 99.50 EUR a month. No tax.",
    ),
    (
        metered("calls", "0.00002", free_units="1000000", filters={"region": ["eu", "us"]}),
        "calls: 0.00002 EUR per unit of calls, the first 1,000,000 free. Only events whose region is eu or us. No tax.",
    ),
    (
        metered("gb", "5", model="package", package_size="100", credits={"credit_type": "sms", "per_unit": "2.5"}),
        "gb: 5.00 EUR per started package of 100 gb. Paid with 2.5 sms each first; the invoice charges uncovered units. No tax.",
    ),
    (
        metered("gb", "0.1", meter="bytes", conversion={"divide_by": "1000000000", "rounding": "half_up", "decimals": 1}),
        (
            "gb: 0.10 EUR per converted unit of bytes. The quantity of the period is divided by 1,000,000,000 and rounded half "
            "up to 1 decimal first. No tax."
        ),
    ),
    (
        metered("gb", "0.1", meter="mb", conversion={"multiply_by": "0.001"}),
        "gb: 0.10 EUR per converted unit of mb. The quantity of the period is multiplied by 0.001 first. No tax.",
    ),
    (
        {
            "key": "card", "kind": "usage", "model": "percentage", "rate": "2", "event_minimum": "0.5", "event_maximum": "5",
            "meter": "paid", "aggregation": "sum",
        },
        "card: 2 % of paid, at least 0.50 EUR and at most 5.00 EUR an event. No tax.",
    ),
    (
        {
            "key": "c", "kind": "usage", "model": "graduated", "meter": "c", "aggregation": "sum", "flat_fee_at_zero": True,
            "tiers": [{"up_to": "10", "unit_amount": "0", "flat_amount": "5"}, {"unit_amount": "2", "package_size": "100"}],
        },
        (
            "c: per unit of c, each part at its own price: up to 10 at 0.00 EUR plus 5.00 EUR once; beyond at 2.00 EUR per "
            "started package of 100; the amount of the first tier is due without usage too. No tax."
        ),
    ),
    (
        {
            "key": "fee", "kind": "usage", "model": "percentage", "rate": "2.5", "fixed_amount": "0.1", "free_events": 10,
            "meter": "paid", "aggregation": "sum", "tax_category": "AE",
        },
        "fee: 2.5 % of paid plus 0.10 EUR an event, the first 10 events free. Reverse charge: no tax.",
    ),
    (
        {
            "key": "t", "kind": "usage", "model": "volume", "meter": "t", "aggregation": "max", "proration": "second",
            "tiers": [{"up_to": "10", "unit_amount": "1", "flat_amount": "5"}, {"unit_amount": "0.5"}],
        },
        (
            "t: per unit of t at the highest, all at the price of the tier that is reached: up to 10 at 1.00 EUR plus 5.00 EUR "
            "once; beyond at 0.50 EUR. Part of a period is charged by the second. No tax."
        ),
    ),
    (
        {"key": "seats", "kind": "recurring", "model": "unit", "unit_amount": "9", "timing": "advance", "proration": "none"},
        (
            "seats: 9.00 EUR per unit and month, in advance. Part of a period is charged in full. More units within a "
            "period are free until the next one, and fewer give nothing back. No tax."
        ),
    ),
    (
        {
            "key": "s", "kind": "usage", "model": "unit", "unit_amount": "0.02", "meter": "s", "aggregation": "sum",
            "interval": {"unit": "month", "count": 2},
        },
        "s: 0.02 EUR per unit of s, billed every month. No tax.",
    ),
    (
        {
            "key": "p", "kind": "usage", "model": "graduated_percentage", "meter": "p", "aggregation": "sum",
            "tiers": [{"up_to": "1000", "rate": "3"}, {"rate": "1.5"}],
        },
        "p: a percentage of p, each part at its own rate: up to 1,000 at 3 %; beyond at 1.5 %. No tax.",
    ),
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(("definition", "sentence"), PRICES)
def test_a_price_is_a_sentence(definition, sentence):
    assert price_sentence(parse_price(definition), "EUR", "month") == sentence


ODD_TEXTS = [
    "Berlin, DE", "a;b", "a=b", 'say "x"', " x ", "", "a where b", "where", "a\nb", "a\u2028b", "\\", "ü", "5'", "x where  y",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_texts_that_divide_a_line_come_back_from_the_form_as_they_were(text):
    filters = {text: ["plain", text]} if text else {"p": ["plain", text]}
    definition = metered(filters=filters, buckets=[{"key": "b", "unit_amount": "1", "filters": filters | {"q": ["r"]}}])
    typed = typed_of(0, price_dict(parse_price(definition)))
    clean = {name: Decimal(value) if name.endswith("unit_amount") and value else value for name, value in typed.items()}
    assert parse_price(price_typed(0, clean)) == parse_price(definition)


@pytest.mark.parametrize("definition", [definition for definition, _ in PRICES])
def test_a_price_comes_back_from_its_form_as_it_was(definition):
    """What the form is filled in with, sent again, is the same price: so the next version of a plan changes nothing by itself."""
    typed = typed_of(3, price_dict(parse_price(definition)))
    decimals = (
        "unit_amount",
        "rate",
        "fixed_amount",
        "minimum",
        "maximum",
        "tax_rate",
        "free_units",
        "package_size",
        "free_amount",
        "event_minimum",
        "event_maximum",
    )
    numbers = {f"price_3_{name}" for name in (*decimals, "credits_per_unit")}
    clean = {name: Decimal(str(value)) if name in numbers and value else value for name, value in typed.items()}
    assert parse_price(price_typed(3, clean)) == parse_price(definition)


@pytest.mark.parametrize(
    ("change", "is_order", "words"),
    [
        ({"plan": 7, "quantities": {"seats": "5"}, "ends_at": None}, True, "ordered Team (team v2), seats: 5"),
        ({"plan": 7}, False, "plan becomes Team (team v2)"),
        ({"plan": 8}, False, "plan becomes a plan that is missing"),
        ({"ends_at": "2026-02-01T00:00:00+00:00"}, False, "ends 1\u00a0Feb\u00a02026, 00:00\u00a0UTC"),
        ({"ends_at": None}, False, "continues without an end"),
        ({"paused": True}, False, "is paused"),
        ({"paused": False}, False, "continues after the pause"),
        ({"trial_end": "2026-02-01T00:00:00+00:00"}, False, "trial ends 1\u00a0Feb\u00a02026, 00:00\u00a0UTC"),
    ],
)
def test_an_amendment_is_described_without_ids(change, is_order, words):
    plans = {7: Plan(pk=7, code="team", version=2, name="Team")}
    assert change_words(change, zone=UTC, plans=plans, is_order=is_order) == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "percentage", "value": Decimal("10.0"), "duration": "once"}, "10 % off, once"),
        (
            {"kind": "amount", "value": Decimal(5), "currency": "EUR", "duration": "forever"},
            "5.00 EUR off, from every invoice",
        ),
        (
            {
                "kind": "percentage",
                "value": Decimal(5),
                "duration": "recurring",
                "periods": 1,
                "per": "customer",
                "prices": ["a", "b"],
            },
            "5 % off, for 1 period of the customer, only from a and b",
        ),
    ],
)
def test_a_coupon_says_what_it_takes_off_how_often_and_from_what(values, words):
    assert coupon_words(Coupon(**values)) == words


BEGAN = datetime(2026, 2, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "sentences"),
    [
        (
            {
                "finished_at": BEGAN + timedelta(seconds=9),
                "exit_code": 0,
                "host": "worker-1",
                "options": {"workers": 4, "only": "all", "draft": False},
                "summary": {
                    "outcomes": {"finalised": 2998, "nothing_due": 41, "suspended": 1, "failed": 2},
                    "invoices": 2998,
                    "money": {"EUR": {"invoices": 2998, "total_minor": 36_785_460}},
                },
            },
            [
                "The run finished after 9 seconds on worker-1: 2,998 invoices over 367,854.60 EUR.",
                "41 subscriptions had nothing due; billing of 1 subscription is suspended; 2 subscriptions failed.",
                "It billed up to 1\u00a0Feb\u00a02026, 00:00\u00a0UTC, with 4 workers.",
            ],
        ),
        (
            {"finished_at": BEGAN, "exit_code": 3, "options": {"only": "usage", "limit": 5}},
            [
                "The run finished with failures after less than a second: it made no invoice.",
                "It billed up to 1\u00a0Feb\u00a02026, 00:00\u00a0UTC, usage charges only, limit 5.",
            ],
        ),
        (
            {},
            [
                "This run began and has not ended: it is still running, or it was killed.",
                "It billed up to 1\u00a0Feb\u00a02026, 00:00\u00a0UTC.",
            ],
        ),
    ],
)
def test_a_run_says_one_sentence_first(values, sentences):
    run = Run(run_id=uuid.uuid4(), as_of=datetime(2026, 2, 1, tzinfo=UTC), started_at=BEGAN, **values)
    assert run_sentences(run) == sentences


@pytest.mark.parametrize(
    ("values", "beginning"),
    [
        ({"state": "open", "due_date": date(2026, 3, 3)}, "ada owes 12.00 EUR, due on 3\u00a0Mar\u00a02026."),
        ({"state": "open", "due_date": date(2026, 2, 28)}, "ada owes 12.00 EUR, due on 28\u00a0Feb\u00a02026: 1 day overdue."),
        ({"state": "paid", "paid_at": BEGAN}, "Paid on 1\u00a0Feb\u00a02026."),
        ({"state": "paid", "credits_applied_minor": 1200}, "Paid, all of it with credits."),
        ({"state": "uncollectible"}, "12.00 EUR of ada is written off."),
        (
            {"state": "void", "voided_at": BEGAN},
            "Void since 1\u00a0Feb\u00a02026: nobody has to pay it, and a run can bill its periods",
        ),
        ({"state": "draft"}, "A draft of 12.00 EUR for ada, which nobody has to pay."),
    ],
)
@pytest.mark.django_db  # for refunds of a paid invoice
def test_an_invoice_says_its_state_first(values, beginning):
    invoice = Invoice(currency="EUR", customer_ref="ada", total_minor=1200, amount_due_minor=1200, **values)
    assert invoice_sentences(invoice, today=date(2026, 3, 1))[0].startswith(beginning)
