"""A holder's entries, why one is as it is, and the requests that were refused."""

from typing import Any

from django.http import HttpRequest

from ledger import reads
from ledger.api import examples, request_schemas, response_schemas
from ledger.api.kit.authentication import LEDGER_READ
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.reading import cursors
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import (
    HOLDER_PATH,
    SEQUENCE_PATH,
    ResponseBody,
    operation,
    page_example,
    page_of,
)
from ledger.api.kit.writing import problems
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.errors import (
    REFUSALS,
)
from ledger.reads import Refusal, ShownEntry

HISTORY = "History"


class HolderEntries(Endpoint):
    """A holder's history."""

    reads_quickly = True

    @operation(
        "listEntries",
        "List entries",
        "A holder's entries, newest first.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.EntriesQuery,
        responses={
            200: ResponseBody(
                page_of(response_schemas.EntrySerializer),
                page_example(examples.SPEND, path="/v1/holders/customer-42/entries"),
                "A page of entries.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        """List the holder's entries."""
        filters = read_query(request_schemas.EntriesQuery, request)
        page = cursors.requested_page(request, filters)
        entries = reads.entries(holder, **filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(entries, keyset=_position, body=response_schemas.EntrySerializer.body))


class HolderEntry(Endpoint):
    """One entry."""

    reads_quickly = True

    @operation(
        "readEntry",
        "Read an entry",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, SEQUENCE_PATH],
        query=request_schemas.EntryQuery,
        responses={200: ResponseBody(response_schemas.EntrySerializer, examples.GRANT, "The entry.")},
    )
    def get(self, request: HttpRequest, holder: str, sequence: int) -> Response:
        """Read one entry of the holder."""
        query = read_query(request_schemas.EntryQuery, request)
        entry = reads.shown_entry(holder, query["credit_type"], sequence)
        if entry is None:
            raise NotFound
        return json_response(response_schemas.EntrySerializer.body(entry))


class EntryExplanation(Endpoint):
    """Why an entry is as it is."""

    reads_quickly = True

    @operation(
        "explainEntry",
        "Explain an entry",
        "The account before and after the entry; each used or skipped lot, and why; what had come due and was booked with "
        "it; what is left of the spend, hold or grant that it refers to. Everything is read off the entries, which never change.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, SEQUENCE_PATH],
        query=request_schemas.EntryQuery,
        responses={200: ResponseBody(response_schemas.ExplanationSerializer, examples.EXPLANATION, "The explanation.")},
    )
    def get(self, request: HttpRequest, holder: str, sequence: int) -> Response:
        """Explain one entry of the holder."""
        query = read_query(request_schemas.EntryQuery, request)
        explanation = reads.explanation(holder, query["credit_type"], sequence)
        if explanation is None:
            raise NotFound
        return json_response(explanation)


class HolderRefusals(Endpoint):
    """The requests of a holder that were refused."""

    reads_quickly = True

    @operation(
        "listRefusals",
        "List refusals",
        "The refused requests of a holder, newest first, each with its problem.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.RefusalsQuery,
        responses={
            200: ResponseBody(
                page_of(response_schemas.RefusalSerializer),
                page_example(examples.REFUSAL, path="/v1/holders/customer-42/refusals"),
                "A page of refusals.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        """List the holder's refusals."""
        page = cursors.requested_page(request, read_query(request_schemas.RefusalsQuery, request))
        refusals = reads.refusals(holder, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(refusals, keyset=_position, body=self._body))

    def _body(self, refusal: Refusal) -> dict[str, Any]:
        """Return a refusal as it is shown; its problem is made where all problems are made."""
        error = REFUSALS[refusal.code](**refusal.facts)
        error.request_id = refusal.request_id
        return response_schemas.RefusalSerializer.body(refusal, problem=problems.problem_response(error, self.request).problem)


def _position(shown: ShownEntry | Refusal) -> cursors.Keyset:
    return shown.position
