"""Tax is worked out per category on its rounded base, rounded once, and never per line."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.tax_amounts import Taxable, TaxLine, tax_minor, taxes
from billing.rating.vat import VatIdWrong, checked_vat_id, suggested_status
from tests.billing.rating.builders import PROPERTY


def standard_rated(*amounts: int, rate: str = "19") -> list[Taxable]:
    """Amounts with the standard rate of tax."""
    return [Taxable("S", Decimal(rate), amount) for amount in amounts]


@pytest.mark.parametrize(
    ("amounts", "rate", "base", "tax"),
    [
        # Three lines of 0.03: 0.09 × 19 % = 0.0171. By line it would be 3 × 0.01.
        ([3, 3, 3], "19", 9, 2),
        # 0.10 + 0.10: 0.20 × 7.7 % = 0.0154. By line 0.0077 each: 0.02 as well.
        ([10, 10], "7.7", 20, 2),
        # Ten lines of 0.02: 0.20 × 20 % = 0.04. By line nothing: 0.004 each.
        ([2] * 10, "20", 20, 4),
        ([9999], "19", 9999, 1900),  # 1899.81
        ([50], "1", 50, 1),  # half a cent goes up
        ([49], "1", 49, 0),
        ([10000, -2500], "19", 7500, 1425),
        ([0], "19", 0, 0),
    ],
)
def test_tax_is_rounded_once_per_category(amounts: list[int], rate: str, base: int, tax: int) -> None:
    assert taxes(standard_rated(*amounts, rate=rate)) == (TaxLine("S", Decimal(rate), base, tax),)


def test_each_category_and_rate_is_a_separate_line() -> None:
    found = taxes([
        *standard_rated(10000),
        Taxable("S", Decimal(7), 2000),
        Taxable("AE", Decimal(0), 500),
        *standard_rated(50, rate="19.0"),
    ])  # fmt: skip
    assert [(line.category, line.rate, line.base_minor, line.tax_minor) for line in found] == [
        ("AE", Decimal(0), 500, 0),
        ("S", Decimal(7), 2000, 140),
        ("S", Decimal(19), 10050, 1910),  # 19 and 19.0 are one rate: 1909.5
    ]


def test_the_tax_of_a_credit_mirrors_that_of_its_charge() -> None:
    assert (tax_minor(50, Decimal(1)), tax_minor(-50, Decimal(1))) == (1, -1)


def test_nothing_taxable_has_no_tax_lines() -> None:
    assert taxes([]) == ()


@PROPERTY
@given(st.lists(st.tuples(st.sampled_from("SZE"), st.sampled_from([0, 7, 19]), st.integers(-(10**9), 10**9)), max_size=20))
def test_bases_add_up_to_the_lines_whatever_their_order(amounts: list[tuple[str, int, int]]) -> None:
    found = taxes(Taxable(category, Decimal(rate), amount) for category, rate, amount in amounts)
    assert sum(line.base_minor for line in found) == sum(amount for _, _, amount in amounts)
    assert taxes(Taxable(c, Decimal(r), a) for c, r, a in reversed(amounts)) == found
    for line in found:
        assert 2 * abs(line.tax_minor * 100 - line.base_minor * int(line.rate)) <= 100


# VAT ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("de 123 456 788", "DE123456788"),
        ("BE 0123.456.749", "BE0123456749"),
        ("ATU12345675", "ATU12345675"),
        ("EL094259216", "EL094259216"),
        ("GR094259216", "EL094259216"),
        ("GB999999973", "GB999999973"),
        ("12-3456789", "12-3456789"),
        ("", ""),
    ],
)
def test_a_vat_id_of_the_eu_is_stored_in_one_spelling_and_others_as_they_are(given: str, stored: str) -> None:
    assert checked_vat_id(given) == stored


@pytest.mark.parametrize(
    ("given", "rule"),
    [("DE123456789", "wrong-check-digits"), ("DE12345", "wrong-form"), ("ATX12345675", "wrong-form"), ("XI1", "wrong-form")],
)
def test_a_vat_id_of_the_eu_with_another_form_or_other_check_digits_is_refused(given: str, rule: str) -> None:
    with pytest.raises(VatIdWrong) as refused:
        checked_vat_id(given)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    ("status", "vat_id", "seller", "suggested"),
    [
        ("taxable", "BE0123456749", "DE", "reverse_charge"),
        ("taxable", "EL094259216", "DE", "reverse_charge"),
        ("taxable", "BE0123456749", "GR", "reverse_charge"),
        ("taxable", "EL094259216", "GR", None),
        ("reverse_charge", "BE0123456749", "DE", None),
        ("exempt", "BE0123456749", "DE", None),
        ("taxable", "DE123456788", "DE", None),
        ("taxable", "XI110305878", "DE", None),
        ("taxable", "GB999999973", "DE", None),
        ("taxable", "", "DE", None),
        ("taxable", "BE0123456749", "CH", None),
        ("taxable", "BE0123456749", "", None),
    ],
)
def test_reverse_charge_is_suggested_for_a_business_in_another_member_state(
    status: str, vat_id: str, seller: str, suggested: str | None
) -> None:
    assert suggested_status(status, vat_id, seller) == suggested
