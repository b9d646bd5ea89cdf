"""The notes under a line say how its amount came about, in figures that can be checked by hand."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from billing.documents.printed_arithmetic import Notation, calculation, rates_of
from billing.documents.printed_texts import COUNTRIES, TEXTS
from billing.rating.aggregation import Event, RatingInput
from billing.rating.prices.pricing import rate
from billing.rating.prices.reading import parse_price
from ledger.typesetting.languages import ENGLISH, GERMAN, LANGUAGES

METERED = {"key": "calls", "kind": "usage", "timing": "arrears", "meter": "calls", "aggregation": "sum"}
TIERS = [{"up_to": "1000", "unit_amount": "0.10"}, {"up_to": None, "unit_amount": "0.05", "flat_amount": "5"}]


def line(price: dict[str, Any], quantity: str, *, currency: str = "EUR", **more: Any) -> dict[str, Any]:
    """A line as the REST contract has it, rated by the price."""
    parsed = parse_price({**METERED, **price})
    rating = rate(parsed, Decimal(quantity), currency)
    return {
        "quantity": quantity,
        "unit_amount": None if parsed.amount_on_line() is None else str(parsed.amount_on_line()),
        "amount_minor": rating.amount_minor,
        "discount_minor": 0,
        "rating": {**rating.as_dict(), **more.pop("rating", {})},
        **more,
    }


def calculation_notes(found: dict[str, Any], *, currency: str = "EUR", language: Any = ENGLISH) -> list[str]:
    """The lines of text that explain this calculation."""
    return calculation(Notation(language, TEXTS[language.code], currency), found)


@pytest.mark.parametrize(
    ("price", "quantity", "expected"),
    [
        ({"model": "unit", "unit_amount": "0.02"}, "150", []),
        ({"model": "flat", "unit_amount": "49"}, "150", ["1 × 49.00 = 49.00"]),
        (
            {"model": "unit", "unit_amount": "0.00002", "free_units": "1000000"},
            "5390000",
            ["5,390,000 − 1,000,000 free = 4,390,000 × 0.00002 = 87.80"],
        ),
        ({"model": "unit", "unit_amount": "0.02", "free_units": "1000"}, "400", ["400 free"]),
        (
            {"model": "package", "unit_amount": "5", "package_size": "1000", "free_units": "100"},
            "2600.5",
            ["2,600.5 − 100 free = 2,500.5; 3 × 5.00 = 15.00"],
        ),
        (
            {"model": "graduated", "tiers": TIERS},
            "1500",
            ["0 to 1,000: 1,000 × 0.10 = 100.00", "1,000 to 1,500: 500 × 0.05 + 5.00 = 30.00"],
        ),
        ({"model": "volume", "tiers": TIERS}, "1500", ["1,500 × 0.05 + 5.00 = 80.00"]),
        ({"model": "percentage", "rate": "2.9", "fixed_amount": "0.30"}, "1000", ["1,000 × 0.029 + 0.30 = 29.30"]),
        (
            {"model": "percentage", "rate": "2.9", "event_maximum": "20"},
            "1000",
            ["0 to 1,000: 1,000 × 0.029 = 29.00", "Maximum per event: −9.00"],
        ),
        (
            {"model": "graduated", "tiers": [{"up_to": 10, "unit_amount": "1"}, {"unit_amount": "5", "package_size": 100}]},
            "111",
            ["0 to 10: 10 × 1.00 = 10.00", "10 to 111: 2 × 5.00 = 10.00"],
        ),
        ({"model": "graduated", "tiers": TIERS[1:], "flat_fee_at_zero": True}, "0", ["5.00"]),
    ],
)
def test_each_price_model_in_figures(price, quantity, expected):
    assert calculation_notes(line(price, quantity)) == expected


def test_each_bucket_has_its_own_calculation():
    price = {"model": "unit", "unit_amount": "1", "buckets": [{"key": "EU", "filters": {"r": "eu"}, "unit_amount": "0.02"}]}
    parsed = parse_price({**METERED, **price})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    usage = parsed.usage_of([Event(Decimal(100), now, {"r": "eu"}), Event(Decimal(8), now)])
    rating = rate(parsed, usage, "EUR")
    assert rating.amount_minor == 1000
    found = line(price, "108") | {"rating": rating.as_dict()}
    assert calculation_notes(found) == ["EU: 0 to 100: 100 × 0.02 = 2.00", "other: 0 to 8: 8 × 1.00 = 8.00"]
    assert calculation_notes(found, language=GERMAN)[1].startswith("übrige: ")


def test_a_conversion_comes_before_the_steps():
    price = {"model": "unit", "unit_amount": "0.10", "conversion": {"divide_by": "1000000000", "rounding": "up"}}
    parsed = parse_price({**METERED, **price})
    usage = parsed.converted(RatingInput(Fraction(2_000_000_001)))
    found = line(price, "3", rating=parsed.conversion_facts(usage))
    assert calculation_notes(found) == ["2,000,000,001 ÷ 1,000,000,000 = 3, rounded up"]
    assert calculation_notes(found, language=GERMAN) == ["2.000.000.001 ÷ 1.000.000.000 = 3, aufgerundet"]
    times = parse_price({**METERED, "model": "unit", "unit_amount": "1", "conversion": {"multiply_by": "1.2"}})
    facts = times.conversion_facts(times.converted(RatingInput(Fraction(7))))
    assert calculation_notes(found | {"rating": found["rating"] | facts})[0] == "7 × 1.2 = 8.4"


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        (None, ["By the rate answers", "Nach dem Tarif answers"]),
        ("output", ["By the rate answers, component output", "Nach dem Tarif answers, Komponente output"]),
    ],
)
def test_what_is_billed_by_entries_names_its_rate_before_the_steps(component: str | None, expected: list[str]) -> None:
    entries = {"rate": "answers"} | ({} if component is None else {"component": component})
    price = {"model": "unit", "unit_amount": "0.02", "free_units": "10", "billed_by": "entries", "entries": entries}
    found = line(price, "30", rating=parse_price({**METERED, **price}).entries_facts())
    assert [calculation_notes(found, language=language)[0] for language in (ENGLISH, GERMAN)] == expected
    assert calculation_notes(found)[1:] == ["30 − 10 free = 20 × 0.02 = 0.40"]


def test_an_overage_says_by_which_rates_it_was_used_the_least_together() -> None:
    by_rate = (("answers", 4000), (None, 900), *((f"image.{number}", 80 - number) for number in range(5)))
    price = {"model": "unit", "unit_amount": "0.02"}
    facts = parse_price({**METERED, **price}).by_rate_facts(RatingInput(Fraction(5_290), by_rate=by_rate))
    found = line(price, "5290", rating=facts)
    said = "Used by rate: answers 4,000, without a rate 900, image.0 80, image.1 79, image.2 78, other 153"
    assert calculation_notes(found) == [said]
    german = "Verbraucht nach Tarif: answers 4.000, ohne Tarif 900, image.0 80, image.1 79, image.2 78, übrige 153"
    assert calculation_notes(found, language=GERMAN) == [german]
    assert rates_of(found) == ["answers", "image.0", "image.1", "image.2", "image.3"]
    assert parse_price({**METERED, **price}).by_rate_facts(RatingInput(Fraction(1), by_rate=((None, 1),))) == {}


def test_a_part_of_a_period_a_discount_and_credits_each_have_their_note():
    share = {"share": {"used": 21, "of": 31}}
    found = line({"model": "unit", "unit_amount": "31"}, "2", rating=share) | {"amount_minor": 4200, "discount_minor": 420}
    assert calculation_notes(found) == ["62.00 × 21 of 31 days = 42.00", "Discount −4.20"]
    assert calculation_notes(found, language=GERMAN) == ["62,00 × 21 von 31 Tagen = 42,00", "Rabatt −4,20"]
    microseconds = {"share": {"used": 1_800_000_000, "of": 3_600_000_000}}
    found = line({"model": "unit", "unit_amount": "31"}, "2", rating=microseconds) | {"amount_minor": 3100}
    assert calculation_notes(found) == ["62.00 × 1,800 of 3,600 seconds = 31.00"]
    covered = {"covered": {"units": "100", "credits": 250, "credit_type": "credits", "entries": [7], "holder_id": "ada"}}
    assert (
        calculation_notes(line({"model": "unit", "unit_amount": "0.02"}, "150", rating=covered))[-1]
        == "100 units paid with 250 credits"
    )
    assert (
        calculation_notes(line({"model": "unit", "unit_amount": "0.02"}, "150", rating=covered), language=GERMAN)[-1]
        == "100 Einheiten bezahlt mit 250 Guthabeneinheiten"
    )
    one = {"covered": {"units": "1", "credits": 1, "credit_type": "credits"}}
    assert calculation_notes(line({"model": "unit", "unit_amount": "0.02"}, "150", rating=one))[-1] == "1 unit paid with 1 credit"
    covered["covered"] |= {"units": "-100", "credits": -250}
    assert (
        calculation_notes(line({"model": "unit", "unit_amount": "0.02"}, "150", rating=covered))[-1]
        == "100 units: 250 credits returned"
    )


def test_currencies_without_and_with_three_decimals():
    assert calculation_notes(line({"model": "flat", "unit_amount": "4900"}, "1", currency="JPY"), currency="JPY") == []
    price = {"model": "unit", "unit_amount": "0.5", "free_units": "1"}
    assert calculation_notes(line(price, "3", currency="JPY"), currency="JPY") == ["3 − 1 free = 2 × 0.5 = 1"]
    assert calculation_notes(line(price, "3", currency="KWD"), currency="KWD") == ["3 − 1 free = 2 × 0.500 = 1.000"]


def test_every_language_has_every_text():
    assert {language.code for language in LANGUAGES} == set(TEXTS) == set(COUNTRIES)
    assert {frozenset(texts) for texts in TEXTS.values()} == {frozenset(TEXTS["en"])}
    assert {frozenset(names) for names in COUNTRIES.values()} == {frozenset(COUNTRIES["en"])}
    assert all(text for texts in TEXTS.values() for text in texts.values())
