"""What the writes of one account have in common: a key, a condition, a body, `?dry_run=true`, and one entry as the response."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from django.http import HttpRequest

from ledger import services
from ledger.api import response_schemas
from ledger.api.kit.authentication import LEDGER_READ, Key
from ledger.api.kit.endpoint import Endpoint, InThread, QueuedRequest
from ledger.api.kit.reading.etags import expected_sequence
from ledger.api.kit.reading.idempotency import dry_run_key, idempotency_key, shown_key
from ledger.api.kit.reading.parsing import read, read_body
from ledger.api.kit.reading.queries import DryRunQuery, read_query
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import HOLDER_PATH, SEQUENCE_PATH, RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, write_response
from ledger.api.request_schemas import HOLD, body_of, names_no_entry
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
from ledger.records import Shape, declared_fields
from ledger.rules import Entry, Request, TransferRequest
from ledger.rules.requests import MAX_RECEIVED

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

    def ask(self, request: HttpRequest, body: Shape[Request], **named: Any) -> QueuedRequest | InThread:
        """Have a request of one account executed: with those that arrive beside it; a dry run or a transfer by itself.

        Args:
            named: the fields that the path gives.
        """
        named |= {"actor": self.key.actor, "request_id": self.request_id}
        if request.META["QUERY_STRING"] and read_query(DryRunQuery, request)["dry_run"]:
            named |= {"idempotency_key": dry_run_key(request), "dry_run": True}
        else:
            named["idempotency_key"] = idempotency_key(request)
        if "HTTP_IF_MATCH" in request.META:
            named["expected_sequence"] = expected_sequence(request)
        fields = read(body, read_body(request))
        if body.entry_numbers and names_no_entry(body, fields):
            raise NotFound
        asked = body.make(fields | named)
        if asked.dry_run or isinstance(asked, TransferRequest):
            return lambda: self.respond(partial(services.execute_once, asked), dry_run=asked.dry_run)
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


def write(
    declared: type[Request],
    name: str,
    summary: str,
    description: str,
    *,
    tag: str,
    scope: str,
    examples: Mapping[str, Any],
    response: Mapping[str, Any],
    problems: Sequence[LedgerError] = (),
) -> Callable[..., QueuedRequest | InThread]:
    """Return the `post` of a write of one account; see `schema.operation`.

    Args:
        declared: the request; one about a hold has the hold's sequence in its path.
        examples: bodies that it takes, by name. response: the entry that the first one gets.
    """
    body = body_of(declared)
    is_of_hold = any(field.name == HOLD for field in declared_fields(declared))

    @operation(
        name,
        summary,
        description,
        tag=tag,
        scope=scope,
        parameters=[HOLDER_PATH, SEQUENCE_PATH] if is_of_hold else [HOLDER_PATH],
        takes=RequestBody(body, examples),
        responses={201: ResponseBody(response_schemas.EntrySerializer, response, "The entry.")},
        problems=problems,
        idempotent=True,
        dry_run=True,
        conditional=True,
    )
    def post(self: Write, request: HttpRequest, holder: str, sequence: int = 0) -> QueuedRequest | InThread:
        if is_of_hold:
            return self.ask(request, body, holder_id=holder, hold=sequence)
        return self.ask(request, body, holder_id=holder)

    return post
