"""Meters: the quantity of a usage event is the value that was sent, or what the expression of its meter computes.

It is computed when the event is recorded, and stays; a new version of a meter computes the events that are recorded after it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

from django.db.models import Max

from billing.metering.expressions import MAX_CHARACTERS, ExpressionWrong, NotComputable, parse_expression
from billing.models import Meter
from billing.rating.values import Ref
from ledger.database.lock_names import METER
from ledger.database.transactions import locked_transaction
from ledger.records import Record, UseCase
from ledger.values import InvalidValue, Text


class Measured(Protocol):
    """What has a quantity: a usage event, or a correction of one.

    Args:
        value: the quantity that was sent; None: none was sent.
        default_value: the quantity of an event without a value whose meter has no expression; None: such an event is refused.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    default_value: ClassVar[Decimal | None]

    @property
    def value(self) -> Decimal | None: ...

    @property
    def properties(self) -> dict[str, Any]: ...


EventT = TypeVar("EventT", bound=Measured)


class ExpressionText(Text):
    """An expression over the properties of an event; empty for none."""

    def read(self, value: Any) -> str:
        text = super().read(value).strip()
        if text:
            try:
                parse_expression(text)
            except ExpressionWrong as wrong:
                raise InvalidValue(wrong.rule, f"The expression {wrong.detail}.") from None
        return text


@dataclass(frozen=True, kw_only=True)
class NewMeter(Record):
    """How a meter makes the quantity of an event, or the next version of that."""

    code: Annotated[str, Ref("The meter, as events and prices name it; an existing one gets a new version.", named="ref")]
    expression: Annotated[
        str,
        ExpressionText(
            "What computes the quantity from the properties, such as `round(properties.input_tokens * 1.5, 2)`; empty: events "
            "send their value.",
            most=MAX_CHARACTERS,
        ),
    ]


def _create(request: NewMeter) -> Meter:
    """Write a version of a meter, or raise and write nothing. Events that were recorded before keep their quantity."""
    with locked_transaction(METER(request.code)):
        meter = Meter.objects.create(code=request.code, version=last_version(request.code) + 1, expression=request.expression)
        meter.refresh_from_db()
    return meter


def last_version(code: str) -> int:
    """Return the version that a meter has; 0 before the first."""
    return Meter.objects.filter(code=code).aggregate(last=Max("version"))["last"] or 0


create_meter = UseCase(NewMeter, _create)


@dataclass(frozen=True, slots=True)
class CountedEvent(Generic[EventT]):
    """An event with its quantity.

    Args:
        meter_version: the version of its meter that computed the quantity; None: it was sent.
    """

    event: EventT
    quantity: Decimal
    meter_version: int | None = None


class CurrentMeters:
    """The newest versions of some meters, read once."""

    def __init__(self, codes: Collection[str]) -> None:
        newest = Meter.objects.filter(code__in=codes).order_by("code", "-version").distinct("code")
        self._newest = {meter.code: meter for meter in newest}

    def counted(self, event: EventT, code: str) -> CountedEvent[EventT]:
        """Return the event with its quantity.

        Raises:
            NotComputable: it lacks a value or a property, or has a value that the meter computes.
        """
        meter = self._newest.get(code)
        if meter is not None and meter.expression:
            if event.value is not None:
                raise NotComputable("/value", "computed", "the meter computes the value from the properties; leave it out")
            return CountedEvent(event, parse_expression(meter.expression).quantity_of(event.properties), meter.version)
        sent = with_default(event)
        if sent.value is None:
            raise NotComputable("/value", "required", "this is required, because the meter has no expression")
        return CountedEvent(sent, sent.value)


def with_default(event: EventT) -> EventT:
    """Return the event as it counts without an expression: with the value of its form if none was sent."""
    return replace(event, value=event.default_value) if event.value is None else event
