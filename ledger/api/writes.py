"""What the writes of one account have in common: a key, a condition, a body, `?dry_run=true`, and one entry as the answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from drf_spectacular.utils import OpenApiParameter

from ledger import services
from ledger.api import bodies, shapes
from ledger.api.kit.endpoint import Endpoint, InThread, Queued
from ledger.api.kit.etags import expected_sequence
from ledger.api.kit.idempotency import idempotency_key, preview_key, shown_key
from ledger.api.kit.inputs import MAX_SEQUENCE, StrictSerializer, read_query
from ledger.api.kit.rendering import recorded_answer
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.request_ids import request_id
from ledger.api.kit.schema import HOLDER_PATH, Answer, Handler, Taken, operation
from ledger.errors import EntryNotFound, InsufficientCredits, LedgerError, LotLimit
from ledger.rules import Entry, Request

NO_SUCH_ENTRY = EntryNotFound(sequence=7, credit_type="credits")
LOT_LIMIT = LotLimit(open_lots=500, limit=500)
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


class Write(Endpoint):
    """A call that asks for one entry of one account."""

    in_loop = frozenset({"post"})

    def arguments(self, request: HttpRequest, holder: str, shape: type[StrictSerializer]) -> dict[str, Any]:
        """Return what a request is made of, or raise."""
        asked: dict[str, Any] = {"holder_id": holder, "actor": self.key.actor, "request_id": request_id(request)}
        if read_query(bodies.WriteQuery, request)["dry_run"]:
            asked |= {"idempotency_key": preview_key(request), "dry_run": True}
        else:
            asked["idempotency_key"] = idempotency_key(request)
        expected = expected_sequence(request)
        if expected is not None:
            asked["expected_sequence"] = expected
        return {**self.body(request, shape), **asked}

    def ask(self, request_class: type[Request], arguments: dict[str, Any]) -> Queued | InThread:
        """Have a request of one account executed: with those that arrive beside it; a dry run by itself."""
        asked = request_class(**arguments)
        if asked.dry_run:
            return lambda: self.respond(services.answer(asked), dry_run=True)
        return Queued(services.GROUP_COMMIT, asked, lambda recorded: self.respond(recorded.unwrap()))

    def respond(self, entry: Entry, *, dry_run: bool = False) -> HttpResponse:
        """Return the entry that was made; given before, the same bytes again; of a dry run, what it would be."""
        if not dry_run:
            return recorded_answer(shapes.entry_body(entry), replayed=entry.replayed)
        shown = entry._replace(idempotency_key=shown_key(entry.idempotency_key))
        return recorded_answer(shapes.entry_body(shown), replayed=entry.replayed, status=200)


def ensure_possible(sequence: int) -> None:
    """Answer 404 for a number that no entry can have; it does not fit into the record of a refusal."""
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
    answer: Mapping[str, Any],
    problems: Sequence[LedgerError] = (),
    parameters: Sequence[OpenApiParameter] = (),
) -> Callable[[Handler], Handler]:
    """Document a write of one account; see `schema.operation`.

    Args:
        examples: bodies that it takes, by name. answer: the entry that the first one gets.
        parameters: in the path, behind the holder.
    """
    return operation(
        name,
        summary,
        description,
        tag=tag,
        scope=scope,
        parameters=[HOLDER_PATH, *parameters],
        takes=Taken(takes, examples),
        answers={201: Answer(shapes.EntrySerializer, answer, "The entry.")},
        problems=problems,
        keyed=True,
        previewed=True,
        conditional=True,
    )
