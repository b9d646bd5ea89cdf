"""The units of amounts on the page, in its language. Credit types have names in one language; the default type has them here."""

from collections.abc import Iterable
from typing import Final

from ledger.typesetting.languages import Language
from ledger.units import CreditUnit, plain_unit, units_of

_DEFAULT: Final = plain_unit("credits")
_DEFAULT_IN: Final = {"en": _DEFAULT, "de": _DEFAULT._replace(name="Guthaben", unit="Guthabeneinheiten")}
"""In every language of `ledger.typesetting.languages`; the words are those of documents."""


def page_units(credit_types: Iterable[str], language: Language) -> dict[str, CreditUnit]:
    """Return the unit of each of these types, as the language names it: the default type, if it has no name of its own."""
    return {code: in_language(unit, language) for code, unit in units_of(credit_types).items()}


def in_language(unit: CreditUnit, language: Language) -> CreditUnit:
    """Return the unit as the language names it."""
    return _DEFAULT_IN[language.code] if unit == _DEFAULT else unit
