"""The parameters of paths, as Django reads them. A value that does not match gets 404, before any query."""

from django.urls import register_converter
from django.urls.converters import IntConverter, StringConverter

from ledger.values import BUDGET_NAME, CREDIT_TYPE, HOLDER_ID, MAX_SEQUENCE, RATE_CODE


class HolderConverter(StringConverter):
    """A holder in a path."""

    regex = HOLDER_ID.pattern


class SequenceConverter(IntConverter):
    """The number of an entry in a path, in its one spelling."""

    regex = "[1-9][0-9]{0,18}"

    def to_python(self, value: str) -> int:
        """Return the number; ValueError, which is a 404, beyond 2^63 - 1."""
        sequence = int(value)
        if sequence > MAX_SEQUENCE:
            raise ValueError(value)
        return sequence


class CreditTypeConverter(StringConverter):
    """A credit type in a path."""

    regex = CREDIT_TYPE.pattern


class RateConverter(StringConverter):
    """The name of a rate in a path."""

    regex = RATE_CODE.pattern


class BudgetConverter(StringConverter):
    """The name of a budget, a recurring grant or an alert in a path."""

    regex = BUDGET_NAME.pattern


register_converter(CreditTypeConverter, "credit_type")
register_converter(HolderConverter, "holder")
register_converter(BudgetConverter, "budget")
register_converter(SequenceConverter, "sequence")
register_converter(RateConverter, "rate")
