"""The types of fields in billing's responses: see `ledger.api.kit.writing.responses`. Times and decimal numbers are text."""

from rest_framework import serializers

from billing.rating.money import decimal_text
from ledger.api.kit.writing.rendering import time_text
from ledger.api.kit.writing.responses import Read, computed


def text(value: Read | str | None = None, *, null: bool = False, help_text: str | None = None) -> serializers.CharField:
    """A text."""
    return computed(serializers.CharField(allow_null=null, help_text=help_text), value)


def time(value: Read | str | None = None, *, null: bool = False, help_text: str | None = None) -> serializers.CharField:
    """An instant, as RFC 3339 text in UTC."""
    return computed(serializers.CharField(allow_null=null, help_text=help_text), value, as_text=time_text)


def decimal(value: Read | None = None, *, null: bool = False, help_text: str | None = None) -> serializers.CharField:
    """A number as a decimal string."""
    return computed(serializers.CharField(allow_null=null, help_text=help_text), value, as_text=decimal_text)


def whole(value: Read | str | None = None, *, null: bool = False, help_text: str | None = None) -> serializers.IntegerField:
    """A whole number."""
    return computed(serializers.IntegerField(allow_null=null, help_text=help_text), value)


def minor(value: Read | None = None, *, help_text: str = "In minor units.") -> serializers.IntegerField:
    """Money in minor units."""
    return computed(serializers.IntegerField(help_text=help_text), value)


def sum_of_minor() -> serializers.IntegerField:
    """Money of many documents in minor units."""
    return serializers.IntegerField(max_value=2**63 - 1, help_text="In minor units.")
