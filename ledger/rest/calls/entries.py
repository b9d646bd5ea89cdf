"""Calls about a holder's entries, the explanation of one, and refused requests."""

from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from django.http import HttpRequest

from ledger import reads
from ledger.errors import (
    REFUSALS,
    FeedPositionLost,
    FeedUnavailable,
)
from ledger.reads import EntryFilter, FeedEntry, FeedPosition, Refusal, ShownEntry
from ledger.rest.kit import cursors, problems
from ledger.rest.kit.authentication import LEDGER_READ, Key
from ledger.rest.kit.endpoint import Awaited, Endpoint, InThread, Reading
from ledger.rest.kit.queries import query_parameters, read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import NotFound, NotWithLabels
from ledger.rest.kit.schema import ResponseBody, operation, page_response
from ledger.rest.schemas import examples, request_schemas, response_schemas
from ledger.rest.schemas.parameters import CREDIT_TYPE_PATH, HOLDER_PATH, SEQUENCE_PATH
from ledger.values import EARLIEST_YEAR, LATEST_YEAR

HISTORY = "History"
EARLIEST: Final = datetime(EARLIEST_YEAR, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(LATEST_YEAR + 1, 1, 1, tzinfo=UTC)
LOST: Final = FeedPositionLost(holder_id="customer-42", credit_type="credits", sequence=7, recorded_at=examples.RECORDED_AT)


class HolderEntries(Endpoint):
    """Lists a holder's entries."""

    reads_quickly = True

    @operation(
        "listEntries",
        "List entries",
        "A holder's entries, newest first. For a key that is bound to labels, those that carry them; a page reads at most "
        f"{reads.SCANNED_ROWS:,} entries, so it may have few results, or no results, and still have a `next`.",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[HOLDER_PATH],
        query=request_schemas.EntriesQuery,
        responses=page_response(
            response_schemas.EntrySerializer, examples.SPEND, path="/v1/holders/customer-42/entries", text="A page of entries."
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        filters = read_query(request_schemas.EntriesQuery, request)
        page = cursors.requested_page(request, filters)
        if self.key.labels:
            return _search_page(page, filters, _filter_of(self.key, holder, filters), newest=True)
        entries = reads.entries(holder, **filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(entries, keyset=_position, body=response_schemas.EntrySerializer.body))


class AllEntries(Endpoint):
    """The entries of all holders: searched, or followed."""

    in_loop = frozenset({"get"})

    @operation(
        "listAllEntries",
        "Find or follow entries",
        "Searches the entries of all holders, or with `after` follows all entries from a position, in an order that skips no "
        "entry that is stored late.\n\n"
        "Without `after`: newest or oldest first. Indexes find a holder and a reference. With other filters, a page reads at "
        f"most {reads.SCANNED_ROWS:,} entries, so it may have few results, or no results, and still have a `next`.\n\n"
        "With `after`: `next` is always present and leads to the entries after this page, now or later; store its `after` to "
        "continue at any time. With `wait`, the response comes as soon as there is an entry. Entries of one account come in the "
        "order of their sequence. If the server's clock is set back, some entries come again, with the same `id`.\n\n"
        "A key that is confined to one holder sees only that holder, and one that is bound to labels only the entries that carry "
        "them, without `after`.",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        query=request_schemas.AllEntriesQuery,
        responses=page_response(response_schemas.EntrySerializer, examples.SPEND, path="/v1/entries", text="A page of entries."),
        problems=[LOST, FeedUnavailable(reason="standby")],
    )
    def get(self, request: HttpRequest) -> Awaited | InThread:
        query = read_query(request_schemas.AllEntriesQuery, request)
        request_schemas.ensure_fits(query_parameters(request))
        wanted = self._read_filter(query)
        if "after" in query:
            return self._feed(request, query, wanted)
        return partial(self._search, request, query, wanted)

    def _read_filter(self, query: dict[str, Any]) -> EntryFilter:
        """Return the filter, within the confines of the key; or raise `NotFound` for a holder that the key does not see."""
        holder = query.pop("holder", None)
        if holder is not None and not self.key.sees(holder):
            raise NotFound
        if self.key.labels and "after" in query:
            raise NotWithLabels
        return _filter_of(self.key, holder, query, with_refusals=query.pop("refusals"))

    # The search --------------------------------------------------------------------------------------

    def _search(self, request: HttpRequest, query: dict[str, Any], wanted: EntryFilter) -> Response:
        page = cursors.requested_page(request, query)
        return _search_page(page, query, wanted, newest=query["order"] == "newest")

    # The feed ----------------------------------------------------------------------------------------

    def _feed(self, request: HttpRequest, query: dict[str, Any], wanted: EntryFilter) -> Awaited:
        return Awaited(partial(self._read_on, request, query["after"], wanted, query["limit"]), query["wait"], reads.feed_marker)

    def _read_on(self, request: HttpRequest, after: FeedPosition | str, wanted: EntryFilter, limit: int) -> Reading:
        if after == request_schemas.FEED_END:
            after = reads.feed_end()
        page = reads.feed(after if isinstance(after, FeedPosition) else reads.START, wanted, limit=limit)
        body = {
            "results": [_feed_item(found) for found in page.entries],
            "next": cursors.link(request, after=page.next.text),
            "previous": None,
        }
        return Reading(json_response(body), is_enough=bool(page.entries), is_unsettled=page.is_held_up)


class OneEntry(Endpoint):
    """One entry by its id."""

    reads_quickly = True

    @operation(
        "readEntryById",
        "Read an entry by its id",
        "The path is `/v1/entries/` and the `id` of the entry: holder, credit type and sequence.",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[HOLDER_PATH, CREDIT_TYPE_PATH, SEQUENCE_PATH],
        responses={200: ResponseBody(response_schemas.EntrySerializer, examples.GRANT, "The entry.")},
    )
    def get(self, request: HttpRequest, holder: str, credit_type: str, sequence: int) -> Response:
        return _show_entry(self.key, holder, credit_type, sequence)


class HolderEntry(Endpoint):
    """One entry."""

    reads_quickly = True

    @operation(
        "readEntry",
        "Read an entry",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[HOLDER_PATH, SEQUENCE_PATH],
        query=request_schemas.EntryQuery,
        responses={200: ResponseBody(response_schemas.EntrySerializer, examples.GRANT, "The entry.")},
    )
    def get(self, request: HttpRequest, holder: str, sequence: int) -> Response:
        query = read_query(request_schemas.EntryQuery, request)
        return _show_entry(self.key, holder, query["credit_type"], sequence)


class EntryExplanation(Endpoint):
    """Explains an entry."""

    reads_quickly = True

    @operation(
        "explainEntry",
        "Explain an entry",
        "The account before and after the entry; each used or skipped lot, and why; the due changes that the same write booked; "
        "the rest of the spend, hold or grant that it refers to. It comes from the entries alone, which never change.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, SEQUENCE_PATH],
        query=request_schemas.EntryQuery,
        responses={200: ResponseBody(response_schemas.ExplanationSerializer, examples.EXPLANATION, "The explanation.")},
    )
    def get(self, request: HttpRequest, holder: str, sequence: int) -> Response:
        query = read_query(request_schemas.EntryQuery, request)
        explanation = reads.explanation(holder, query["credit_type"], sequence)
        if explanation is None:
            raise NotFound
        return json_response(explanation)


class HolderRefusals(Endpoint):
    """Lists the refused requests of a holder."""

    reads_quickly = True

    @operation(
        "listRefusals",
        "List refusals",
        "The refused requests of a holder, newest first, each with its problem.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.RefusalsQuery,
        responses=page_response(
            response_schemas.RefusalSerializer,
            examples.REFUSAL,
            path="/v1/holders/customer-42/refusals",
            text="A page of refusals.",
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        page = cursors.requested_page(request, read_query(request_schemas.RefusalsQuery, request))
        refusals = reads.refusals(holder, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(refusals, keyset=_position, body=self._body))

    def _body(self, refusal: Refusal) -> dict[str, Any]:
        """Return a refusal in the form of the response; `problems` makes its problem."""
        error = REFUSALS[refusal.code](**refusal.facts)
        error.request_id = refusal.request_id
        return response_schemas.RefusalSerializer.body(refusal, problem=problems.problem_response(error, self.request).problem)


FILTERS: Final = ("credit_type", "kind", "reference", "idempotency_key", "actor", "metadata")


def _filter_of(key: Key, holder: str | None, query: dict[str, Any], *, with_refusals: bool = False) -> EntryFilter:
    """Take the filters out of a query, and return them within the confines and labels of the key."""
    filters = {name: query.pop(name) for name in FILTERS if name in query}
    return EntryFilter(holder_id=holder or key.holder_id, with_refusals=with_refusals, labels=key.labels, **filters)


def _search_page(page: cursors.PageRequest, query: dict[str, Any], wanted: EntryFilter, *, newest: bool) -> Response:
    """Return a page of the entries that are wanted, in either order."""
    place: Any = page.keyset
    newest = newest != page.backwards
    earliest, latest = query.get("since", EARLIEST), query.get("until", LATEST)
    at, bound = (latest, earliest) if newest else (earliest, latest)
    scan = reads.search_entries(wanted, at=at, place=place, bound=bound, newest=newest, limit=page.rows_wanted)
    found = scan.found[::-1] if page.backwards else scan.found
    goes_on = None if scan.ended or len(found) == page.rows_wanted else scan.last
    searched_to = None if goes_on is None else goes_on.place
    return json_response(page.response_body(found, keyset=_place, body=_feed_item, searched_to=searched_to))


def _show_entry(key: Key, holder: str, credit_type: str, sequence: int) -> Response:
    """Return an entry, or raise `NotFound` if it does not exist or lacks a label of the key."""
    entry = reads.shown_entry(holder, credit_type, sequence)
    if entry is None or not key.labels.items() <= entry.metadata.items():
        raise NotFound
    return json_response(response_schemas.EntrySerializer.body(entry))


def _place(found: FeedEntry) -> cursors.Keyset:
    return found.place


def _feed_item(found: FeedEntry) -> dict[str, Any]:
    return response_schemas.EntrySerializer.body(found.entry)


def _position(shown: ShownEntry | Refusal) -> cursors.Keyset:
    return shown.position
