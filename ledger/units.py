"""How amounts of credit types are written for people, read from the types' rows. Nothing is decided by it (ADR 0036)."""

from collections.abc import Iterable
from typing import Any

from ledger.models import CreditType
from ledger.rules.texts.credit_units import CreditUnit, plain_unit

__all__ = ["CreditUnit", "plain_unit", "unit_of", "units_of", "with_units"]


def units_of(credit_types: Iterable[str]) -> dict[str, CreditUnit]:
    """How each of these types is shown, by one query; a type that nobody has named is shown in whole numbers of itself."""
    wanted = sorted(set(credit_types))
    named = {row.code: row for row in CreditType.objects.filter(code__in=wanted)} if wanted else {}
    return {code: unit_in(named[code]) if code in named else plain_unit(code) for code in wanted}


def unit_of(credit_type: str) -> CreditUnit:
    """How that type is shown."""
    return units_of([credit_type])[credit_type]


def with_units(rows: Iterable[Any]) -> None:
    """Have each row know how its amounts are written, by one query."""
    rows = list(rows)
    units = units_of(row.credit_type for row in rows)
    for row in rows:
        row.unit = units[row.credit_type]


def unit_in(row: CreditType) -> CreditUnit:
    """How the type of this row is shown."""
    return CreditUnit(row.code, row.name, row.unit, row.scale)
