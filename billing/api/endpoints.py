"""What billing's calls have in common: who may call, a write that takes effect once, a list by pages."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from billing.errors import InvoiceGenerationBusy, NotFound
from billing.request_keys import WriteResult, dry_run_once, execute_once
from ledger.api.kit.authentication import BILLING_READ, Key
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.reading import cursors
from ledger.api.kit.reading.idempotency import dry_run_key, idempotency_key
from ledger.api.kit.reading.parsing import read, read_body
from ledger.api.kit.reading.queries import DryRunQuery, query_parameters, read_query
from ledger.api.kit.request_errors import NotFound as NoSuchPath
from ledger.api.kit.schema import ResponseBody, operation, page_example, page_of
from ledger.api.kit.writing.rendering import Response, in_key_order, json_response, write_response
from ledger.errors import LedgerError, Refused
from ledger.records import Record, Shape, shape_of
from ledger.values import HOLDER_ID

Row = TypeVar("Row")

CATALOGUE = "Catalogue"
SUBSCRIPTIONS = "Subscriptions"
USAGE = "Usage"
INVOICES = "Invoices"

REF_PATH = OpenApiParameter(
    "ref",
    {"type": "string", "pattern": f"^{HOLDER_ID.pattern}$", "minLength": 1, "maxLength": 64},
    OpenApiParameter.PATH,
    description="Your name for it.",
    examples=[OpenApiExample("ref", "SUB-1234")],
)
INVOICE_PATH = OpenApiParameter(
    "invoice_id",
    {"type": "integer", "format": "int64", "minimum": 1},
    OpenApiParameter.PATH,
    description="The id of the invoice; not its number, which only a finalised one has.",
    examples=[OpenApiExample("invoice", 1)],
)
CREDIT_NOTE_PATH = OpenApiParameter(
    "credit_note_id",
    {"type": "integer", "format": "int64", "minimum": 1},
    OpenApiParameter.PATH,
    description="The id of the credit note; not its number.",
    examples=[OpenApiExample("credit note", 1)],
)
COUPON_PATH = OpenApiParameter(
    "code", REF_PATH.type, OpenApiParameter.PATH, description="The coupon.", examples=[OpenApiExample("code", "WELCOME")]
)
EVENT_PATH = OpenApiParameter(
    "key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    OpenApiParameter.PATH,
    description="The event's idempotency key; a slash in it is written %2F.",
    examples=[OpenApiExample("key", "call-8812")],
)
NO_CUSTOMER = NotFound(resource="customer", ref="CUST-7")
NO_SUBSCRIPTION = NotFound(resource="subscription", ref="SUB-1234")
NO_INVOICE = NotFound(resource="invoice", ref=1)
NO_CREDIT_NOTE = NotFound(resource="credit note", ref=1)
BUSY = InvoiceGenerationBusy(key="invoice_gen/SUB-1234", subscription="SUB-1234")


class BillingEndpoint(Endpoint):
    """Billing has customers, not holders: a key for one holder cannot read any of it. On a cluster the coordinator has it."""

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        super().admit(key, path)
        if key.holder_id is not None:
            raise NoSuchPath


class WriteEndpoint(BillingEndpoint):
    """What the writes have in common: a key, a body, and a result that is stored with the key."""

    collection: ClassVar[str]

    def once(
        self,
        request: HttpRequest,
        shape: type[Record] | Shape[Any],
        act: Callable[[dict[str, Any]], tuple[int, Any]],
        *,
        dry_run: bool | None = None,
        shows_effect: bool = False,
        on_refusal: Callable[[Refused], None] | None = None,
    ) -> Response:
        """Read the body, execute it at most once, and respond; a dry run is undone, and stores neither a result nor a key.

        Args:
            act: from the clean fields to a status and a body; runs inside the transaction that stores the result.
            dry_run: as the call has read it from a query with further parameters; None: the query has no others.
            shows_effect: a dry run shows something else than the response, so it does not look for a stored one.
            on_refusal: writes what must stay although the refusal undoes the act.
        """
        if dry_run is None:
            dry_run = read_query(DryRunQuery, request)["dry_run"]
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        fields = read(shape if isinstance(shape, Shape) else shape_of(shape), self._raw(request))
        asked: dict[str, Any] = {
            "collection": self.collection,
            "idempotency_key": key,
            "request_digest": _digest(request, fields),
        }

        def execute() -> WriteResult:
            status, body = act(fields)
            return WriteResult(status, body)

        # Of all bodies only that of making invoices has a `dry_run`.
        if dry_run or fields.get("dry_run"):
            shown = dry_run_once(**asked, act=execute, replays=not shows_effect)
            return write_response(in_key_order(shown.body), replayed=shown.replayed, status=200)
        result = execute_once(**asked, act=execute, request_id=self.request_id, on_refusal=on_refusal)
        return write_response(in_key_order(result.body), replayed=result.replayed, status=result.status)

    def _raw(self, request: HttpRequest) -> dict[str, Any]:
        if self.takes_nothing and request.META.get("CONTENT_LENGTH") in (None, "", "0"):
            return {}
        return read_body(request)


def list_operation(
    name: str,
    summary: str,
    description: str,
    *,
    tag: str,
    path: str,
    query: type[Record],
    shape: Any,
    example: Any,
    rows: Callable[..., Sequence[Row]],
    body: Callable[..., Any] | None = None,
    row_id: Callable[[Row], int] = attrgetter("pk"),
    parameters: Sequence[OpenApiParameter] = (),
    problems: Sequence[LedgerError] = (),
) -> Callable[..., Response]:
    """The `get` of a list whose rows have a number: a page of it, newest first.

    Args:
        path: of the list, as an example.
        query: the filters.
        rows: takes what the path names, the filters, `before` or `after`, and `limit`.
        body: makes the body of a row, from the row and what the path names; None: `shape.body` does.
    """

    def show(row: Row, *named: Any) -> Any:
        return shape.body(row) if body is None else body(row, *named)

    @operation(
        name, summary, description, tag=tag, scope=BILLING_READ, query=query, parameters=parameters, problems=problems,
        responses={200: ResponseBody(page_of(shape), page_example(example, path=path), "A page of the list.")},
    )  # fmt: skip
    def get(self: BillingEndpoint, request: HttpRequest, **named: Any) -> Response:
        filters = read_query(query, request)
        page = cursors.requested_page(request, filters)
        bounds = {bound: keyset[0] for bound, keyset in page.newest_first().items()}
        found = rows(*named.values(), **filters, **bounds, limit=page.rows_wanted)
        return json_response(
            page.response_body(
                found,
                keyset=lambda row: (row_id(row),),
                body=lambda row: show(row, *named.values()),
            )
        )

    return get


def _digest(request: HttpRequest, fields: dict[str, Any]) -> bytes:
    """SHA-256 over what a request asks for: its route and its clean fields, however they were spelled. A dry run has the same."""
    query = {name: value for name, value in query_parameters(request).items() if name != "dry_run"}
    route = f"{request.method} {request.path}?{urlencode(sorted(query.items()))}"
    asked = {**fields, "dry_run": False} if "dry_run" in fields else fields
    form = json.dumps([route, asked], sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_canonical)
    return hashlib.sha256(form.encode()).digest()


def _canonical(value: Decimal | datetime) -> str:
    """The same text for the same number or instant."""
    return f"{value.normalize():f}" if isinstance(value, Decimal) else value.astimezone(UTC).isoformat()
