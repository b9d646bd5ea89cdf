"""Why an invoice differs from the one before it: the differences add up, and each says why."""

import pytest

from billing.generator.run.differences import differences

WHOLE = {"share": {"used": 31, "of": 31}}


def line(**fields):
    known = {
        "kind": "recurring", "subscription": "SUB-1",
        "price_key": "base", "title": "Team: base", "amount_minor": 3100, "discount_minor": 0,
        "quantity": "1", "unit_amount": "31", "tax_category": "S", "tax_rate": "20", "rating": WHOLE,
    }  # fmt: skip
    return known | fields


def invoice(*lines):
    return {"lines": list(lines)}


@pytest.mark.parametrize(
    ("later", "because"),
    [
        ({"quantity": "2", "amount_minor": 6200}, ["quantity"]),
        ({"unit_amount": "35", "amount_minor": 3500}, ["price"]),
        ({"title": "Large: base", "unit_amount": "50", "amount_minor": 5000}, ["plan", "price"]),
        ({"amount_minor": 1600, "rating": {"share": {"used": 16, "of": 31}}}, ["proration"]),
        ({"discount_minor": 310}, ["coupon"]),
        ({"tax_category": "AE", "tax_rate": "0"}, ["tax"]),
        ({"kind": "usage", "quantity": "5"}, ["new", "gone"]),
        # A month of another length is as whole as the one before.
        ({"rating": {"share": {"used": 28, "of": 28}}}, []),
    ],
)
def test_each_cause_is_named(later, because):
    found = differences(invoice(line()), invoice(line(**later)))
    assert [reason.value for one in found for reason in one.because] == because


def test_each_group_of_usage_is_compared_with_itself():
    groups = [{"group": {"region": region}} for region in ("eu", "us", None)]
    calls = {"kind": "usage", "price_key": "calls"}
    before = invoice(*(line(**calls, rating=rating, amount_minor=100) for rating in groups[:2]))
    after = invoice(
        *(line(**calls, rating=rating, amount_minor=amount) for rating, amount in zip(groups, (100, 300, 5), strict=True))
    )
    assert [(one.before_minor, one.after_minor) for one in differences(before, after)] == [(100, 300), (0, 5)]


def test_usage_one_off_charges_and_corrections_are_told_apart_and_add_up():
    before = invoice(
        line(kind="usage", price_key="calls", quantity="100", amount_minor=200),
        line(kind="charge", price_key=None, title="Set-up", amount_minor=5000),
    )
    after = invoice(
        line(kind="usage", price_key="calls", quantity="50", amount_minor=100),
        line(kind="credit", title="Unused: base", amount_minor=-700),
        line(),
    )
    found = {(one.kind, one.because[0].value): one.after_minor - one.before_minor for one in differences(before, after)}
    assert found == {
        ("usage", "usage"): -100, ("credit", "correction"): -700, ("recurring", "new"): 3100, ("charge", "one_off"): -5000,
    }  # fmt: skip
    assert sum(found.values()) == (100 - 700 + 3100) - (200 + 5000)
