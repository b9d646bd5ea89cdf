"""What the writes of one account have in common: a key, a condition, a body, `?dry_run=true`, and one entry as the response."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.http import HttpRequest
from drf_spectacular.utils import OpenApiParameter

from ledger import services
from ledger.api import response_schemas
from ledger.api.kit.authentication import LEDGER_READ, Key
from ledger.api.kit.endpoint import Endpoint, Handler, InThread, QueuedRequest
from ledger.api.kit.reading.etags import expected_sequence
from ledger.api.kit.reading.idempotency import dry_run_key, idempotency_key, shown_key
from ledger.api.kit.reading.parsing import read_body
from ledger.api.kit.reading.queries import DryRunQuery, read_query
from ledger.api.kit.reading.strict_serializers import StrictSerializer, read
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import HOLDER_PATH, RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, write_response
from ledger.errors import (
    AmountLimit,
    BalanceLimit,
    EntryNotFound,
    InsufficientCredits,
    LedgerError,
    LotLimit,
    Shortfall,
    UnknownRate,
)
from ledger.rules import Entry, Request
from ledger.rules.requests import MAX_RECEIVED, MAX_SEQUENCE

NO_SUCH_ENTRY = EntryNotFound(sequence=7, credit_type="credits")
LOT_LIMIT = LotLimit(open_lots=500, limit=500)
BALANCE_LIMIT = BalanceLimit(limit=MAX_RECEIVED)
NOT_ENOUGH = InsufficientCredits(
    available=98,
    balance=398,
    requested=250,
    shortfall=152,
    held=0,
    expired=0,
    not_yet_effective=300,
    lots=[
        {
            "grant": 4,
            "remaining": 300,
            "state": "not_yet_effective",
            "effective_at": "2026-02-01T00:00:00.000000Z",
            "expires_at": None,
        },
        {
            "grant": 1,
            "remaining": 98,
            "state": "spendable",
            "effective_at": "2026-01-31T09:30:00.123456Z",
            "expires_at": "2027-01-31T00:00:00.000000Z",
        },
    ],
    holds=[],
    earliest_sufficient_at="2026-02-01T00:00:00.000000Z",
)

TOLD_TO_ALL = ("available", "balance", "requested", "shortfall")
"""The facts of InsufficientCredits that every key learns which may make the request."""

RATE_PROBLEMS = (
    UnknownRate(rate="gpt-4o.output", credit_type="credits"),
    AmountLimit(rate="gpt-4o.output", quantity=9007199254740991, limit=9007199254740991),
)


class Write(Endpoint):
    """A call that asks for one entry of one account."""

    in_loop = frozenset({"post"})

    def arguments(self, request: HttpRequest, holder: str, shape: type[StrictSerializer]) -> dict[str, Any]:
        """Return what a request is made of, or raise."""
        asked: dict[str, Any] = {"holder_id": holder, "actor": self.key.actor, "request_id": self.request_id}
        if request.META["QUERY_STRING"] and read_query(DryRunQuery, request)["dry_run"]:
            asked |= {"idempotency_key": dry_run_key(request), "dry_run": True}
        else:
            asked["idempotency_key"] = idempotency_key(request)
        if "HTTP_IF_MATCH" in request.META:
            asked["expected_sequence"] = expected_sequence(request)
        return {**read(shape, read_body(request)), **asked}

    def ask(self, request_class: type[Request], arguments: dict[str, Any]) -> QueuedRequest | InThread:
        """Have a request of one account executed: with those that arrive beside it; a dry run by itself."""
        asked = request_class(**arguments)
        if asked.dry_run:
            return lambda: self.respond(partial(services.execute_once, asked), dry_run=True)
        return QueuedRequest(services.GROUP_COMMIT, asked, lambda recorded: self.respond(recorded.unwrap))

    def respond(self, executed: Callable[[], Entry], *, dry_run: bool = False) -> Response:
        """Return the entry that was made; given before, the same bytes again; of a dry run, what it would be.

        Raises: what `executed` raises, with the facts that the key may learn.
        """
        try:
            entry = executed()
        except InsufficientCredits as refusal:
            raise as_told_to(self.key, refusal, dry_run=dry_run) from None
        if not dry_run:
            return write_response(response_schemas.EntrySerializer.body(entry), replayed=entry.replayed)
        shown = entry._replace(idempotency_key=shown_key(entry.idempotency_key))
        return write_response(response_schemas.EntrySerializer.body(shown), replayed=entry.replayed, status=200)


def as_told_to(key: Key, error: LedgerError, *, dry_run: bool) -> LedgerError:
    """Return the error with the facts that the key may learn.

    Without `ledger:read`, a key learns of an account with too few credits what a spend has to tell, but neither its lots nor its
    holds; and of a dry run, which costs nothing to repeat, only the shortfall.
    """
    if not isinstance(error, InsufficientCredits) or key.may(LEDGER_READ):
        return error
    if dry_run:
        return Shortfall(shortfall=error.facts["shortfall"])
    told = InsufficientCredits(**{name: error.facts[name] for name in TOLD_TO_ALL})
    told.request_id, told.replayed = error.request_id, error.replayed
    return told


def ensure_possible(sequence: int) -> None:
    """Return, or raise `NotFound` for a number that no entry can have; it does not fit into the record of a refusal."""
    if sequence > MAX_SEQUENCE:
        raise NotFound


def write(
    name: str,
    summary: str,
    description: str,
    *,
    tag: str,
    scope: str,
    takes: type[StrictSerializer],
    examples: Mapping[str, Any],
    response: Mapping[str, Any],
    problems: Sequence[LedgerError] = (),
    parameters: Sequence[OpenApiParameter] = (),
) -> Callable[[Handler], Handler]:
    """Document a write of one account; see `schema.operation`.

    Args:
        examples: bodies that it takes, by name. response: the entry that the first one gets.
        parameters: in the path, behind the holder.
    """
    return operation(
        name,
        summary,
        description,
        tag=tag,
        scope=scope,
        parameters=[HOLDER_PATH, *parameters],
        takes=RequestBody(takes, examples),
        responses={201: ResponseBody(response_schemas.EntrySerializer, response, "The entry.")},
        problems=problems,
        idempotent=True,
        dry_run=True,
        conditional=True,
    )
