"""The display of amounts for people, from the rows of credit types. No decision depends on it (docs/explanation/ledger.md)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ledger.models import CreditType
from ledger.rules.credit_units import CreditUnit, currency_unit, plain_unit
from ledger.rules.purpose_texts import purpose_names, purpose_words
from ledger.typesetting.languages import Language

__all__ = [
    "CreditUnit",
    "currency_unit",
    "in_language",
    "in_units",
    "plain_unit",
    "purpose_names",
    "purpose_words",
    "unit_of",
    "units_of",
    "with_units",
]

_DEFAULT: Final = plain_unit("credits")
_DEFAULT_IN: Final = {"en": _DEFAULT, "de": _DEFAULT._replace(name="Guthaben", unit="Guthabeneinheiten")}
"""In every language of `ledger.typesetting.languages`; the words are those of documents."""


def units_of(credit_types: Iterable[str]) -> dict[str, CreditUnit]:
    """Return the unit of each of these types, by one query; a type without a row is shown in whole numbers of itself."""
    codes = sorted(set(credit_types))
    named = {row.code: row for row in CreditType.objects.filter(code__in=codes)} if codes else {}
    return {code: unit_in(named[code]) if code in named else plain_unit(code) for code in codes}


def unit_of(credit_type: str) -> CreditUnit:
    """Return the unit of that type."""
    return units_of([credit_type])[credit_type]


def in_units(amounts: Mapping[str, int]) -> str:
    """Return amounts of several credit types in words, each in its unit; “nothing” without any."""
    units = units_of(amounts)
    return ", ".join(units[name].amount(amounts[name]) for name in sorted(amounts)) or "nothing"


def with_units(rows: Iterable[Any], *, of_all_types: str = "") -> None:
    """Give each row the unit of its amounts, by one query; a row without a credit type that of the type `of_all_types`."""
    rows = list(rows)
    units = units_of(row.credit_type or of_all_types for row in rows)
    for row in rows:
        row.unit = units[row.credit_type or of_all_types]


def unit_in(row: CreditType) -> CreditUnit:
    """Return the unit of this row's type."""
    return CreditUnit(row.code, row.name, row.unit, row.scale)


def in_language(unit: CreditUnit, language: Language) -> CreditUnit:
    """Return the unit as the language names it. Credit types have names in one language; the default type has them here."""
    return _DEFAULT_IN[language.code] if unit == _DEFAULT else unit
