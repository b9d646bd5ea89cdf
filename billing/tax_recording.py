"""Records the taxes that a provider finds as versions of taxes, so that documents refer to them as to declared ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from billing.models import Tax
from billing.rating.tax_sales import FoundTax, LineTaxes, in_order
from ledger.database.lock_names import TAX
from ledger.database.transactions import locked_transaction


@dataclass(frozen=True, slots=True)
class _Found:
    """A tax of an answer, without the amounts."""

    provider: str
    tax: FoundTax

    @property
    def terms(self) -> dict[str, Any]:
        """What a version of it has."""
        one = self.tax
        return {
            "provider": self.provider, "code": one.code, "name": one.name, "rate": one.rate, "category": one.category,
            "country": one.country, "subdivision": one.subdivision,
        }  # fmt: skip


def recorded(provider: str, day: date, found: Sequence[LineTaxes]) -> tuple[LineTaxes, ...]:
    """Return an answer with the recorded version of each of its taxes; those that are new are recorded."""
    ids: dict[_Found, int] = {}

    def with_id(tax: FoundTax) -> FoundTax:
        one = _Found(provider, tax._replace(amount_minor=None))
        if one not in ids:
            ids[one] = _id_of(one, day)
        return tax._replace(tax_id=ids[one])

    return tuple(
        line._replace(provider=provider, taxes=tuple(with_id(tax) for tax in line.taxes)) for line in map(in_order, found)
    )


def _id_of(found: _Found, day: date) -> int:
    known = Tax.objects.filter(**found.terms).order_by("pk").values_list("pk", flat=True)
    pk = known.first()
    if pk is not None:
        return pk
    with locked_transaction(TAX(found.tax.code)):
        pk = known.first()
        if pk is None:
            pk = Tax.objects.create(**found.terms, classes=[], valid_from=day, recorded_by=found.provider).pk
    return pk
