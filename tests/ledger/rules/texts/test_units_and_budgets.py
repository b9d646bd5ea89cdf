"""How amounts are shown in a unit, and what a refusal by a budget says."""

import pytest

from ledger.rules.budget_texts import counted_words
from ledger.rules.credit_units import CreditUnit, currency_unit


@pytest.mark.parametrize(("currency", "scale", "text"), [("EUR", 2, "1,234.56"), ("JPY", 0, "123,456"), ("BHD", 3, "123.456")])
def test_a_currency_is_a_unit_with_its_decimals_and_no_credit_type(currency: str, scale: int, text: str) -> None:
    assert currency_unit(currency) == CreditUnit(credit_type="", name=currency, unit=currency, scale=scale)
    assert currency_unit(currency).number(123456) == text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"resets_at": None}, "The budget daily had 7 of 10 used, and 9 were requested."),
        (
            {"resets_at": "2026-02-01T00:00:00Z", "subject": "team-7"},
            "The budget daily of team-7 had 7 of 10 used, and 9 were requested. It resets at 2026-02-01T00:00:00Z.",
        ),
    ],
)
def test_a_refusal_says_how_far_a_budget_is_used_and_when_it_resets_if_it_does(more: dict[str, str], said: str) -> None:
    assert counted_words(budget="daily", used=7, limit=10, requested=9, **more) == said
