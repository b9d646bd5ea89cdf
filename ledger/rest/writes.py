"""The parts that writes of one account share: a key, a condition, a body, `?dry_run=true`, and one entry as the response."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from django.http import HttpRequest

from ledger import reads, services
from ledger.errors import (
    AccountMovedOn,
    AmountLimit,
    Answer,
    BalanceLimit,
    BudgetExceeded,
    EntryNotFound,
    HolderFrozen,
    InsufficientCredits,
    LedgerError,
    LotLimit,
    Refused,
    UnknownRate,
)
from ledger.journal import Result
from ledger.records import Record, Shape, UseCase, declared_fields
from ledger.rest.etags import expected_sequence, refuse_condition
from ledger.rest.kit.authentication import Key
from ledger.rest.kit.endpoint import Awaited, Endpoint, InThread, QueuedRequest, Reading, Step
from ledger.rest.kit.parsing import read, read_body
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, write_response
from ledger.rest.kit.request_errors import LabelBound, NotFound
from ledger.rest.kit.requests import dry_run_key, idempotency_key, shown_key
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation
from ledger.rest.schemas import response_schemas
from ledger.rest.schemas.parameters import BUDGET_PATH, HOLDER_PATH, IF_MATCH_HEADER, RECURRING_PATH, SEQUENCE_PATH
from ledger.rest.schemas.request_schemas import BUDGET, HOLD, RECURRING_GRANT, WaitQuery, body_of, names_no_entry
from ledger.rules.entries import Entry
from ledger.rules.requests import BETWEEN_HOLDERS, MAX_RECEIVED, PricedRequest, Request, ReversalRequest
from ledger.scopes import LABELLED_SCOPES
from ledger.values import Credits


class Shortfall(Refused):
    """A dry run asks for more credits than are available, and the key may not read the account."""

    code = InsufficientCredits.code
    title = InsufficientCredits.title
    answer = Answer(402, "The account lacks {shortfall:credit|credits}.")

    stored_as = "shortfall"  # never stored: a dry run records nothing

    shortfall: Annotated[int, Credits("How many credits are missing.")]


LABEL_BOUND = LabelBound(label="member", value="ada")
NO_SUCH_ENTRY = EntryNotFound(sequence=7, credit_type="credits")
FROZEN = HolderFrozen(holder_id="customer-42")
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
    for_other_things=[{"applies_to": {"rates": ["gpt-4o.output"]}, "available": 500}],
    top_up={"id": 7, "state": "requested", "credits": 1000},
    retry_after_seconds=5,
)

BUDGET_PROBLEMS = (
    BudgetExceeded(
        budget="daily", subject="ann", requested=30, resets_at="2026-02-01T00:00:00.000000Z", limit=100, used=80, remaining=20
    ),
)

SHOWN_TO_ALL = ("available", "balance", "requested", "shortfall", "overage", "for_other_things", "top_up", "retry_after_seconds")
"""The facts of InsufficientCredits that every key gets which may make the request."""

RATE_PROBLEMS = (
    UnknownRate(rate="gpt-4o.output", credit_type="credits"),
    AmountLimit(rate="gpt-4o.output", quantity=9007199254740991, limit=9007199254740991),
)


SCOPES: dict[str, str] = {}
"""By operation, the scope that its call needs, also as an operation of a batch."""


class Write(Endpoint):
    """A call that makes one entry of one account."""

    in_loop = frozenset({"post", "put"})
    queues: ClassVar[bool] = True
    """The request is executed with others that arrive beside it."""
    location = "/v1/holders/{holder_id}/entries/{sequence}?credit_type={credit_type}"

    def ask(self, request: HttpRequest, body: Shape[Request], **named: Any) -> QueuedRequest | InThread:
        """Queue a request of one account: it is executed with others that arrive beside it; a dry run or a transfer alone.

        Args:
            named: the fields that the path gives.
        """
        named |= {"actor": self.key.actor, "request_id": self.request_id}
        declared = WaitQuery if issubclass(body.declared, PricedRequest) else DryRunQuery
        query = read_query(declared, request) if request.META["QUERY_STRING"] else {}
        if query.get("wait"):
            named["wait_s"] = query["wait"]
        if query.get("dry_run"):
            named |= {"idempotency_key": dry_run_key(request), "dry_run": True}
        else:
            named["idempotency_key"] = idempotency_key(request)
        if "HTTP_IF_MATCH" in request.META:
            named["expected_sequence"] = expected_sequence(request)
        if services.may_be_asked(body.declared):
            named["is_tried"] = True
        fields = read(body, read_body(request))
        if body.entry_numbers and names_no_entry(body, fields):
            raise NotFound
        if self.key.labels:
            named |= {"metadata": self.key.with_labels(fields.get("metadata", {})), "within_labels": self.key.labels}
        made = body.make(fields | named)
        if isinstance(made, ReversalRequest) and not self.key.sees(made.to):
            raise NotFound
        if made.dry_run or not self.queues or isinstance(made, BETWEEN_HOLDERS):
            return lambda: self.respond(partial(self.execute_alone, made), dry_run=made.dry_run)
        return self._queue_request(made)

    def _respond_or_wait(self, wait: services.Wait | None, request: Any, result: Result) -> Response | Step:
        """Return the response; if the request was tried and lacks credits, ask first what is under way, and wait as it says.

        Args:
            wait: if the request has waited before.
        """
        if not services.lacks_credits(result):
            return self.respond(result.unwrap)
        assert isinstance(result.refusal, InsufficientCredits)
        waiting = wait or services.Wait(request)
        waiting.begin(result.refusal)

        def read() -> Reading:
            following = waiting.look()
            if following is services.Next.TRY:
                return Reading(self._queue_request(request, waiting), is_enough=True)
            return Reading(self._decide_request(request, waiting.found), is_enough=following is services.Next.DECIDE)

        at_once = Awaited(read, 0, reads.feed_marker, otherwise=self._decide_request(request, None))
        return at_once._replace(seconds=waiting.left_s, otherwise=at_once) if waiting.left_s else at_once

    def _queue_request(self, request: Request, wait: services.Wait | None = None) -> QueuedRequest:
        return QueuedRequest(services.GROUP_COMMIT, request, partial(self._respond_or_wait, wait, request))

    def _decide_request(self, request: Request, found: services.UnderWay | None) -> QueuedRequest:
        return self._queue_request(services.decided(request, found))

    def execute_alone(self, request: Any) -> Entry:
        """Execute a request in a transaction of its own."""
        return services.execute_once(request)

    def end(self, request: HttpRequest, use_case: UseCase[..., Any, Entry], declared: type[Record], **named: str) -> Response:
        """Execute a request that ends something and takes no body: its fields come from the path and the query.

        Args:
            declared: the query. named: the fields that the path gives.
        """
        query = read_query(declared, request)
        dry_run = query.pop("dry_run")
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        refuse_condition(request)
        named |= {"idempotency_key": key, "actor": self.key.actor, "request_id": self.request_id}
        return self.respond(partial(use_case, dry_run=dry_run, **named, **query), dry_run=dry_run)

    def respond(self, executed: Callable[[], Entry], *, dry_run: bool = False) -> Response:
        """Return the new entry; of a repeated request the same bytes again; of a dry run the entry that it would make.

        Raises: as `executed`, with the facts that the key may see.
        """
        try:
            entry = executed()
        except (InsufficientCredits, BudgetExceeded) as refusal:
            raise as_shown_to(self.key, refusal, dry_run=dry_run) from None
        if not dry_run:
            body = response_schemas.EntrySerializer.body(entry)
            status = 200 if self.method == "delete" else 201
            return write_response(body, replayed=entry.replayed, status=status, location=self.location)
        shown = entry._replace(idempotency_key=shown_key(entry.idempotency_key))
        return write_response(response_schemas.EntrySerializer.body(shown), replayed=entry.replayed, status=200)


def as_shown_to(key: Key, error: LedgerError, *, dry_run: bool) -> LedgerError:
    """Return the error with the facts that the key may see.

    Without `ledger:read`, or bound to labels, a key learns of an account with too few credits what a spend has to tell, but
    neither its lots nor its holds; and of a dry run, which costs nothing to repeat, only the shortfall, and neither limit nor use
    of a budget.
    """
    if isinstance(error, BudgetExceeded) and dry_run and not key.sees_all_of_holder:
        return BudgetExceeded(**{name: error.facts[name] for name in ("budget", "subject", "requested", "resets_at")})
    if not isinstance(error, InsufficientCredits) or key.sees_all_of_holder:
        return error
    if dry_run:
        return Shortfall(shortfall=error.facts["shortfall"])
    shown = InsufficientCredits(**{name: error.facts[name] for name in SHOWN_TO_ALL if name in error.facts})
    shown.request_id, shown.replayed = error.request_id, error.replayed
    return shown


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
    """Return the `post` or `put` of a write of one account; see `schema.operation`.

    Args:
        declared: the request; one about a hold has the hold's sequence in its path, one about a budget or a recurring grant its
            name.
        examples: bodies that it takes, by name. response: the entry that the first one gets.
    """
    SCOPES[declared.operation] = scope
    body = body_of(declared)
    named = {field.name for field in declared_fields(declared)}
    is_of_hold, is_of_budget, recurs = HOLD in named, BUDGET in named, RECURRING_GRANT in named
    of_name = [BUDGET_PATH] if is_of_budget else [RECURRING_PATH] if recurs else []

    @operation(
        name,
        summary,
        description,
        tag=tag,
        scope=scope,
        parameters=[HOLDER_PATH, *([SEQUENCE_PATH] if is_of_hold else []), *of_name],
        takes=RequestBody(body, examples),
        responses={201: ResponseBody(response_schemas.EntrySerializer, response, "The entry.")},
        problems=[*problems, AccountMovedOn(expected=7, sequence=8), *([LABEL_BOUND] if scope in LABELLED_SCOPES else [])],
        idempotent=True,
        dry_run=True,
        query=WaitQuery if issubclass(declared, PricedRequest) else None,
        conditions=[IF_MATCH_HEADER],
        with_labels=True,
    )
    def post(self: Write, request: HttpRequest, holder: str, sequence: int = 0, **name: str) -> QueuedRequest | InThread:
        if name:
            return self.ask(request, body, holder_id=holder, **name)
        if is_of_hold:
            return self.ask(request, body, holder_id=holder, hold=sequence)
        return self.ask(request, body, holder_id=holder)

    return post
