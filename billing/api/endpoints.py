"""The parts that billing's calls share: who may call, a write that takes effect once, a list by pages."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter

from billing.errors import InvoiceGenerationBusy, NotFound, TaxesRefused, TaxesUnavailable
from billing.request_keys import WriteResult, dry_run_once, execute_once, is_used
from ledger.database.locks import waits_bounded
from ledger.errors import LedgerError, Refused
from ledger.json_values import in_key_order
from ledger.records import Record, Shape, shape_of
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import BILLING_READ, Key
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.parsing import is_merge_patch, read, read_body
from ledger.rest.kit.queries import DryRunQuery, query_parameters, read_query
from ledger.rest.kit.rendering import Response, json_response, write_response
from ledger.rest.kit.request_errors import NotFound as NoSuchPath
from ledger.rest.kit.requests import dry_run_key, idempotency_key
from ledger.rest.kit.schema import operation, page_response

Row = TypeVar("Row")

CATALOGUE = "Catalogue"
SUBSCRIPTIONS = "Subscriptions"
USAGE = "Usage"
INVOICES = "Invoices"
PAYMENTS = "Payments"
BOOKS = "Books"

NO_CUSTOMER = NotFound(resource="customer", ref="CUST-7")
NO_SUBSCRIPTION = NotFound(resource="subscription", ref="SUB-1234")
BUSY = InvoiceGenerationBusy(key="invoice_gen/SUB-1234", subscription="SUB-1234")
NO_TAXES = (TaxesUnavailable(why="APIConnectionError"), TaxesRefused(why="The customer's location isn't recognized."))
"""The seller's provider of taxes has no answer."""


class BillingEndpoint(Endpoint):
    """Billing has customers, not holders, so a key confined to one holder cannot read it. On a cluster the coordinator has it."""

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        super().admit(key, path)
        if key.holder_id is not None:
            raise NoSuchPath


class WriteEndpoint(BillingEndpoint):
    """A write: a key, a body, and a result that is stored with the key."""

    collection: ClassVar[str]

    def once(
        self,
        request: HttpRequest,
        shape: type[Record] | Shape[Any],
        act: Callable[..., tuple[int, Any]],
        *,
        before: Callable[[dict[str, Any]], Any] | None = None,
        dry_run: bool | None = None,
        shows_effect: bool = False,
        on_refusal: Callable[[Refused], None] | None = None,
        raw: dict[str, Any] | None = None,
        is_keyed: bool = True,
    ) -> Response:
        """Read the body, execute it at most once, and respond; a dry run is rolled back, and stores neither a result nor a key.

        Args:
            act: from the checked fields to a status and a body; runs inside the transaction that stores the result.
            before: asks others what the act needs to know, from the checked fields; runs before the transaction, unless the key
                has a result already. The act takes what it returns, or None.
            dry_run: from a query with further parameters; None: the query has no others.
            shows_effect: a dry run does not show the response but something else, so it ignores stored responses.
            on_refusal: writes what must stay although the refusal rolls the act back.
            raw: the body, if it was read already.
            is_keyed: False: a request needs no key; without one its response is not stored, because a repetition of the act
                changes nothing.
        """
        if dry_run is None:
            dry_run = read_query(DryRunQuery, request)["dry_run"]
        if dry_run:
            key = dry_run_key(request)
        elif is_keyed or "HTTP_IDEMPOTENCY_KEY" in request.META:
            key = idempotency_key(request)
        else:
            key = ""
        fields = read(shape if isinstance(shape, Shape) else shape_of(shape), self._raw(request) if raw is None else raw)
        arguments: dict[str, Any] = {
            "collection": self.collection,
            "idempotency_key": key,
            "request_digest": _digest(request, fields),
        }

        # Copies, because a request is made of the fields in place: before the transaction, in it, and in it again once the
        # provider of taxes was asked.
        known = [] if before is None else [None if is_used(self.collection, key) else before(dict(fields))]

        def execute() -> WriteResult:
            status, body = act(dict(fields), *known)
            return WriteResult(status, body)

        # Only the body of making invoices has a `dry_run`.
        if dry_run or fields.get("dry_run"):
            shown = dry_run_once(**arguments, act=execute, replays=not shows_effect)
            return write_response(in_key_order(shown.body), replayed=shown.replayed, status=200)
        if not key:
            with waits_bounded():
                done = execute()
            return write_response(in_key_order(done.body), replayed=False, status=done.status, location=self.location)
        result = execute_once(**arguments, act=execute, request_id=self.request_id, on_refusal=on_refusal)
        body = in_key_order(result.body)
        return write_response(body, replayed=result.replayed, status=result.status, location=self.location)

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
    """Return the `get` of a list whose rows have a number: a page of it, the newest first.

    Args:
        path: an example path of the list.
        query: the filters.
        rows: takes the names in the path, the filters, `before` or `after`, and `limit`.
        body: makes the body of a row, from the row and the names in the path; None: `shape.body` does.
    """

    def show(row: Row, *named: Any) -> Any:
        return shape.body(row) if body is None else body(row, *named)

    @operation(
        name, summary, description, tag=tag, scope=BILLING_READ, query=query, parameters=parameters, problems=problems,
        responses=page_response(shape, example, path=path, text="A page of the list."),
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
    """Return SHA-256 over a request: its route and its checked fields, in whatever spelling they came. A dry run has the same."""
    query = {name: value for name, value in query_parameters(request).items() if name != "dry_run"}
    method = f"{request.method} merged" if is_merge_patch(request) else request.method
    route = f"{method} {request.path}?{urlencode(sorted(query.items()))}"
    content = {**fields, "dry_run": False} if "dry_run" in fields else fields
    form = json.dumps([route, content], sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_canonical)
    return hashlib.sha256(form.encode()).digest()


def _canonical(value: Decimal | date) -> str:
    """Return the same text for the same number, instant or day."""
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value.isoformat()
