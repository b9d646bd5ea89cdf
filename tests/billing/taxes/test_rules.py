"""Which taxes a line bears, and how much they are: worked examples without a database."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from billing.rating.tax_amounts import (
    AppliedTax,
    IncludedGroup,
    Taxable,
    TaxLine,
    Treatment,
    rounding_of_included,
    taxes,
    without_tax,
)
from billing.rating.tax_rules import DeclaredTax, Place, TaxNotDeclared, TaxPolicy, TaxRules
from billing.rating.tax_sales import Party, Sale, SaleLine, TaxProvider
from billing.rating.vat import VatStatus

GST = AppliedTax("O", Decimal(5), "gst", 1)
QST = AppliedTax("O", Decimal("9.975"), "qst", 2)
DAY = date(2026, 3, 31)


def vat(pk, country, rate, code="", **more):
    """A version of a country's VAT."""
    return DeclaredTax(pk, code or f"{country}-vat".lower(), "S", Decimal(rate), country, **more)


EU_TAXES = (vat(1, "DE", 19), vat(2, "FR", 20), vat(3, "FR", "5.5", "fr-reduced", classes=("books",)), vat(4, "GR", 24))


def eu(country, *, rules=TaxRules.EU_OSS, **more):
    """What decides for a buyer of a German seller."""
    return TaxPolicy(rules=rules, seller_country="DE", buyer=Place.of_address({"country": country}), declared=EU_TAXES, **more)


def shown(taxed):
    """Category, rate, codes, and the rate that prices with tax include."""
    return taxed.treatment.category, taxed.treatment.rate, [tax.code for tax in taxed.treatment.taxes], taxed.included_rate


def test_declared_taxes_are_found_by_the_interface_of_providers():
    policy = eu("FR")
    lines = tuple(SaleLine(10_000, False, category, Decimal(0), "standard") for category in ("S", "Z"))
    found = policy.taxes_of(Sale("EUR", DAY, Party("DE"), Party("FR"), policy.vat_status, lines))
    assert isinstance(policy, TaxProvider)
    assert [line.taxed for line in found] == [policy.taxed(line.category, line.rate, line.tax_class, DAY) for line in lines]
    assert [line.taxed for line in found] == [one.taxed for one in policy.answers("EUR", [(DAY, line) for line in lines])]


# Amounts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "due"),
    [
        # 5 % and 9.975 % of 100.00: 9.975 is half a cent up.
        (10_000, [(10_000, 500), (10_000, 998)]),
        # 9.99: 0.4995 and 0.99650
        (999, [(999, 50), (999, 100)]),
        # 0.01, in yen 1: 0.05 and 0.09975 of a unit
        (1, [(1, 0), (1, 0)]),
        (0, [(0, 0), (0, 0)]),
        (-999, [(-999, -50), (-999, -100)]),
        (10**26, [(10**26, 5 * 10**24), (10**26, 9975 * 10**21)]),
    ],
)
def test_two_taxes_are_both_on_the_net_amount_and_rounded_once_each(net, due):
    both = Treatment.under([GST, QST])
    assert (both.category, both.rate) == ("O", Decimal("14.975"))
    rows = taxes([Taxable(*both[:2], net, both.taxes)])
    assert [(row.base_minor, row.tax_minor) for row in rows] == due
    assert both.tax_minor(net) == sum(tax for _, tax in due)


def test_a_tax_that_lines_have_in_common_is_rounded_once_for_all_of_them():
    both, one = Treatment.under([GST, QST]), Treatment.under([GST])
    rows = taxes([Taxable(*both[:2], 333, both.taxes), Taxable(*one[:2], 337, one.taxes), Taxable("Z", Decimal(0), 100)])
    # 5 % of 6.70 is 0.335: 0.34; each for itself 0.17 and 0.17. 9.975 % of 3.33 is 0.33.
    assert rows == (
        TaxLine("O", Decimal(5), 670, 34, "gst", 1),
        TaxLine("O", Decimal("9.975"), 333, 33, "qst", 2),
        TaxLine("Z", Decimal(0), 100, 0),
    )


def test_a_tax_on_tax_has_the_other_taxes_in_its_base():
    # As in Quebec until 2012: 9.5 % of 100.00 and 5.00.
    on_tax = Treatment.under([GST, AppliedTax("O", Decimal("9.5"), "qst", 2, is_compound=True)])
    assert on_tax.rate == Decimal("14.975")
    rows = taxes([Taxable(*on_tax[:2], 10_000, on_tax.taxes)])
    assert [(row.base_minor, row.tax_minor) for row in rows] == [(10_000, 500), (10_500, 998)]


def test_state_county_and_city_add_up():
    parts = [("ca", "6"), ("county", "0.25"), ("city", "2.25")]
    whole = Treatment.under([AppliedTax("O", Decimal(rate), code, n) for n, (code, rate) in enumerate(parts, 1)])
    rows = taxes([Taxable(*whole[:2], 4_999, whole.taxes)])
    # 49.99: 2.9994, 0.124975, 1.124775
    assert {row.code: row.tax_minor for row in rows} == {"ca": 300, "county": 12, "city": 112}
    assert whole.rate == Decimal("8.5")


@pytest.mark.parametrize("price", [*range(1, 400), 9_999, 10**15])
def test_prices_that_include_several_taxes_cost_what_they_say(price):
    both = Treatment.under([GST, QST])
    [net] = without_tax([price], both.rate)
    added = rounding_of_included([IncludedGroup(both, price, net)])
    assert net + both.tax_minor(net) + added == price
    assert abs(added) <= 2


# Regions and days ------------------------------------------------------------------------------------


def test_the_taxes_of_the_buyers_region_apply_by_class_and_postal_code():
    declared = (
        DeclaredTax(1, "us-ca", "O", Decimal(6), "US", subdivision="CA"),
        DeclaredTax(2, "la-county", "O", Decimal("0.25"), "US", subdivision="CA", postal_codes=("900", "901 0")),
        DeclaredTax(3, "la-city", "O", Decimal("2.25"), "US", subdivision="CA", city="Los Angeles"),
        DeclaredTax(4, "us-ny", "O", Decimal(4), "US", subdivision="NY"),
    )
    policy = TaxPolicy(rules=TaxRules.REGION, seller_country="US", declared=declared)

    def codes(tax_class="standard", **address):
        found = replace(policy, buyer=Place.of_address(address, country="US")).taxed("S", Decimal(7), tax_class, DAY)
        return [tax.code for tax in found.treatment.taxes], found.treatment.category

    assert codes(state="US-CA", city="los angeles", postal_code="90012") == (["la-city", "la-county", "us-ca"], "O")
    assert codes(subdivision="CA", city="Fresno", postal_code="9010 7") == (["la-county", "us-ca"], "O")
    assert codes(province="ca", postal_code="93650") == (["us-ca"], "O")
    assert codes(subdivision="OR") == ([], "O")
    assert codes(subdivision="CA", tax_class="groceries") == ([], "O")
    assert codes(country="CA", subdivision="CA") == ([], "O")


@pytest.mark.parametrize(
    ("day", "rate"),
    [
        (date(1999, 12, 31), None), (date(2020, 6, 30), 19), (date(2020, 7, 1), 16), (date(2020, 12, 31), 16),
        (date(2021, 1, 1), 19), (date(2200, 12, 31), 19), (date.max, 19),
    ],
)  # fmt: skip
def test_the_version_that_began_last_applies_and_of_one_day_the_newest(day, rate):
    versions = (
        vat(1, "DE", 19, valid_from=date(2007, 1, 1)), vat(2, "DE", 15, valid_from=date(2020, 7, 1)),
        vat(3, "DE", 16, valid_from=date(2020, 7, 1)), vat(4, "DE", 19, valid_from=date(2021, 1, 1)),
    )  # fmt: skip
    policy = replace(eu("DE"), declared=versions)
    if rate is None:
        with pytest.raises(TaxNotDeclared):
            policy.taxed("S", Decimal(0), "standard", day)
    else:
        assert policy.taxed("S", Decimal(0), "standard", day).treatment.rate == rate


def test_a_tax_ends_on_its_day():
    policy = replace(eu("DE"), declared=(vat(1, "DE", 19, valid_until=date(2026, 4, 1)),))
    assert policy.taxed("S", Decimal(0), "standard", DAY).treatment.rate == 19
    with pytest.raises(TaxNotDeclared):
        policy.taxed("S", Decimal(0), "standard", date(2026, 4, 1))


def test_the_last_day_of_a_period_decides_in_the_customers_zone():
    berlin = TaxPolicy(zone=ZoneInfo("Europe/Berlin"))
    ends = datetime(2026, 6, 30, 22, tzinfo=UTC)
    assert berlin.day_of(ends, otherwise=ends) == date(2026, 6, 30)
    assert berlin.day_of(None, otherwise=ends) == date(2026, 7, 1)
    assert TaxPolicy().day_of(None, otherwise=ends) == date(2026, 6, 30)


# The EU ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "tax_class", "taxed"),
    [
        # At home, for every buyer.
        (eu("DE"), "standard", ("S", 19, ["de-vat"], 19)),
        (eu("DE", vat_id="FR40303265045"), "standard", ("S", 19, ["de-vat"], 19)),
        # A consumer abroad: the rate there by OSS, or the seller's.
        (eu("FR"), "standard", ("S", 20, ["fr-vat"], 20)),
        (eu("FR"), "books", ("S", Decimal("5.5"), ["fr-reduced"], Decimal("5.5"))),
        (eu("FR", rules=TaxRules.EU_ORIGIN), "standard", ("S", 19, ["de-vat"], 19)),
        (eu("EL"), "standard", ("S", 24, ["gr-vat"], 24)),
        # A business abroad owes the tax; a German id or one of Northern Ireland does not say so.
        (eu("FR", vat_id="FR40303265045"), "standard", ("AE", 0, [], 20)),
        (eu("FR", vat_id="DE123456788"), "standard", ("S", 20, ["fr-vat"], 20)),
        (eu("FR", vat_id="XI110305878"), "standard", ("S", 20, ["fr-vat"], 20)),
        # Outside the EU nothing is due; a price with tax includes the seller's.
        (eu("CH"), "standard", ("O", 0, [], 19)),
        (eu(""), "standard", ("O", 0, [], 19)),
        # What an operator says of the customer comes first.
        (eu("FR", vat_status=VatStatus.EXEMPT), "standard", ("E", 0, [], 20)),
        (eu("CH", vat_status=VatStatus.REVERSE_CHARGE), "standard", ("AE", 0, [], 19)),
    ],
)
def test_rules_of_the_eu(policy, tax_class, taxed):
    assert shown(policy.taxed("S", Decimal(7), tax_class, DAY)) == taxed


def test_other_categories_stay_and_without_rules_so_does_the_price():
    assert shown(eu("FR").taxed("Z", Decimal(0), "standard", DAY)) == ("Z", 0, [], 0)
    assert shown(TaxPolicy().taxed("S", Decimal(7), "standard", DAY)) == ("S", 7, [], 7)


def test_a_sale_outside_the_eu_needs_a_tax_at_home_only_for_prices_that_include_it():
    policy = TaxPolicy(rules=TaxRules.EU_OSS, seller_country="DE", buyer=Place("US"))
    found = policy.taxed("S", Decimal(0), "standard", DAY, includes_tax=False)
    assert (found.treatment, found.included_rate) == (Treatment("O", Decimal(0)), 0)
    with pytest.raises(TaxNotDeclared) as refused:
        policy.taxed("S", Decimal(0), "standard", DAY)
    assert refused.value.facts["country"] == "DE"


def test_a_country_without_a_tax_is_named_and_not_taken_for_untaxed():
    with pytest.raises(TaxNotDeclared) as refused:
        eu("IT").taxed("S", Decimal(0), "standard", DAY)
    assert refused.value.facts == {"country": "IT", "tax_class": "standard", "day": "2026-03-31"}
