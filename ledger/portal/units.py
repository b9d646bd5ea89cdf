"""The units of amounts on the page, in its language."""

from collections.abc import Iterable

from ledger.typesetting.languages import Language
from ledger.units import CreditUnit, in_language, units_of


def page_units(credit_types: Iterable[str], language: Language) -> dict[str, CreditUnit]:
    """Return the unit of each of these types, as the language names it: the default type, if it has no name of its own."""
    return {code: in_language(unit, language) for code, unit in units_of(credit_types).items()}
