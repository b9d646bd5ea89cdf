"""The types of fields in billing's responses: see `ledger.responses`. Times and decimal numbers are text."""

from collections.abc import Callable, Mapping
from functools import singledispatch
from operator import attrgetter
from typing import Any

from rest_framework import serializers

from billing.nouns import noun_fields
from billing.rating.money import decimal_text
from ledger.json_values import in_key_order, time_text
from ledger.records import Record
from ledger.responses import Read, ResponseSchema, computed
from ledger.values import Boolean, Choice, Integer, Metadata, Text, Value

Make = Callable[[], Any]


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


def response_of(
    declared: type[Record],
    name: str,
    doc: str,
    *,
    instead: Mapping[str, Make],
    after: Mapping[str, Mapping[str, Make]],
) -> Any:
    """Return the response that shows a noun: the fields of the request that makes it, in their order.

    Args:
        name, doc: of the component in the OpenAPI document, and its first line.
        instead: by name, what makes a field that is not shown as the request has it.
        after: by the name of a field, by name, what makes the fields that the response has after it and no request has.
    """
    members: dict[str, Any] = {"__doc__": doc, "__module__": __name__}
    for each in noun_fields(declared):
        make = instead.get(each.name)
        # Made in turn: a serializer has its fields in the order in which they were made.
        members[each.name] = make() if make else response_field(each.declared.value, each.name)
        members |= {name: make() for name, make in after.get(each.name, {}).items()}
    return type(name, (ResponseSchema,), members)


@singledispatch
def response_field(value: Value, name: str) -> Any:
    """Return the field of a response that shows the column of this name, which has values of that type."""
    raise TypeError(f"no field of a response for {type(value).__name__}")


@response_field.register(Text)
@response_field.register(Choice)
def _(value: Value, name: str) -> Any:
    return text()


@response_field.register
def _(value: Integer, name: str) -> Any:
    return whole()


@response_field.register
def _(value: Boolean, name: str) -> Any:
    return serializers.BooleanField()


@response_field.register
def _(value: Metadata, name: str) -> Any:
    read = attrgetter(name)
    return computed(serializers.DictField(), lambda row: in_key_order(read(row)))
