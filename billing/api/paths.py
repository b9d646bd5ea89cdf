"""The parameters of billing's paths, each declared once: what it matches, what the OpenAPI document says, and its 404.

A value that does not match gets 404, without a query. In a pattern a parameter stands for itself: `f"invoices/{INVOICE_PATH}"`.
"""

from typing import Any, ClassVar

from django.urls import register_converter
from django.urls.converters import IntConverter, StringConverter
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from billing.errors import NotFound
from ledger.values import HOLDER_ID

Schema = dict[str, Any]


class RefConverter(StringConverter):
    """A ref in a path."""

    name: ClassVar = "ref"
    regex = HOLDER_ID.pattern
    schema: ClassVar[Schema] = {"type": "string", "pattern": f"^{HOLDER_ID.pattern}$", "minLength": 1, "maxLength": 64}


class RowIdConverter(IntConverter):
    """The id of an invoice, credit note, purchase, payment or other row in a path, in its one spelling."""

    name: ClassVar = "row_id"
    regex = "[1-9][0-9]{0,17}"
    schema: ClassVar[Schema] = {"type": "integer", "format": "int64", "minimum": 1}


class EventKeyConverter(StringConverter):
    """The idempotency key of a usage event in a path: 1-255 printable ASCII characters."""

    name: ClassVar = "event_key"
    regex = "[!-~](?:[ -~]{0,253}[!-~])?"
    schema: ClassVar[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}


class BooksMonthConverter(StringConverter):
    """A month of the books in a path."""

    name: ClassVar = "book_month"
    regex = "[0-9]{4}-(?:0[1-9]|1[0-2])"
    schema: ClassVar[Schema] = {"type": "string", "pattern": f"^{regex.replace('?:', '')}$"}


class PathParameter(OpenApiParameter):
    """A parameter of a path."""

    def __init__(self, name: str, converter: Any, text: str, example: str | int, *, resource: str = "", titled: str = "") -> None:
        """Declare it.

        Args:
            text: what it means, for the OpenAPI document.
            example: a value; `titled` is the example's name, by default the parameter's.
            resource: what it names, for the 404; empty: that depends on the path.
        """
        title = titled or name.removesuffix("_id").replace("_", " ")
        super().__init__(
            name, converter.schema, OpenApiParameter.PATH, description=text, examples=[OpenApiExample(title, example)]
        )
        self._pattern = f"<{converter.name}:{name}>"
        self.missing = NotFound(resource=resource or title, ref=example)
        """The problem of a value that names nothing."""

    def __str__(self) -> str:
        """It, as a pattern of Django's has it."""
        return self._pattern


for each in (RefConverter, RowIdConverter, EventKeyConverter, BooksMonthConverter):
    register_converter(each, each.name)

REF_PATH = PathParameter("ref", RefConverter, "Your name for the resource.", "SUB-1234")
COUPON_PATH = PathParameter("code", RefConverter, "The coupon.", "WELCOME")
EVENT_PATH = PathParameter("key", EventKeyConverter, "The event's idempotency key, with %2F for each slash.", "call-8812")
MONTH_PATH = PathParameter("month", BooksMonthConverter, "A month (UTC).", "2026-10")
INVOICE_PATH = PathParameter(
    "invoice_id", RowIdConverter, "The id of the invoice, not its number: only a finalised invoice has a number.", 1
)
CREDIT_NOTE_PATH = PathParameter("credit_note_id", RowIdConverter, "The id of the credit note; not its number.", 1)
PAYMENT_PATH = PathParameter("payment_id", RowIdConverter, "The id of the payment, not the provider's.", 1)
LOOKUP_PATH = PathParameter("lookup_id", RowIdConverter, "The id of the VAT lookup.", 1, resource="VAT lookup")
PLAN_MOVE_PATH = PathParameter("move_id", RowIdConverter, "The id of the plan move.", 1, titled="plan move")
