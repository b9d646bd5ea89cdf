"""The ledger's calls: one class per path, each a reading of the request, one use-case or one look, and an answer."""

from itertools import takewhile
from typing import Any

from django.http import HttpRequest, HttpResponse

from ledger import selectors, services
from ledger.api import bodies, cursors, examples, shapes
from ledger.api.authentication import LEDGER_GRANT, LEDGER_READ, LEDGER_SPEND
from ledger.api.endpoint import Endpoint, exception_handler
from ledger.api.idempotency import idempotency_key
from ledger.api.inputs import MAX_SEQUENCE, StrictSerializer, read_query
from ledger.api.rejections import NotFound
from ledger.api.rendering import json_answer, recorded_answer, time_text
from ledger.api.request_ids import request_id
from ledger.api.schema import HOLDER_PATH, SEQUENCE_PATH, Answer, Taken, operation, page_example, page_of
from ledger.errors import (
    REFUSALS,
    BalanceLimit,
    EntryNotFound,
    InsufficientCredits,
    LotLimit,
    NotRefundable,
    NotRevocable,
    RefundExceedsSpend,
    RevocationExceedsGrant,
)
from ledger.rules import Entry
from ledger.selectors import Balance, Refusal

CREDITS = "Credits"
HISTORY = "History"

NO_SUCH_ENTRY = EntryNotFound(sequence=7, credit_type="credits")
BALANCE_LIMIT = BalanceLimit(balance=9223372036854775800, requested=100, limit=9223372036854775807)
LOT_LIMIT = LotLimit(open_lots=500, limit=500)


# Writes ----------------------------------------------------------------------------------------------


class _Writes(Endpoint):
    """What the writes have in common: a key, a body, one entry as the answer."""

    def arguments(self, request: HttpRequest, holder: str, shape: type[StrictSerializer]) -> dict[str, Any]:
        """Return what the use-case is called with, or raise."""
        key = idempotency_key(request)
        return {
            **self.body(request, shape),
            "holder_id": holder,
            "idempotency_key": key,
            "actor": self.key.actor,
            "request_id": request_id(request),
        }

    @staticmethod
    def answer(entry: Entry) -> HttpResponse:
        """Return the entry; given before, the same bytes again."""
        return recorded_answer(shapes.entry_body(entry), replayed=entry.replayed)


class Grants(_Writes):
    """Credits are put in."""

    scopes = {"post": LEDGER_GRANT}

    @operation(
        "grantCredits",
        "Grant credits",
        "Puts credits in, as a lot of its own that can expire. A holder comes into being with its first grant.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        parameters=[HOLDER_PATH],
        takes=Taken(bodies.GrantSerializer, {"a purchase": examples.GRANT_BODY, "the least": {"amount": 100}}),
        answers={201: Answer(shapes.EntrySerializer, examples.GRANT, "The entry.")},
        problems=[BALANCE_LIMIT, LOT_LIMIT],
        keyed=True,
    )
    def post(self, request: HttpRequest, holder: str) -> HttpResponse:
        """Grant credits to the holder."""
        return self.answer(services.grant(**self.arguments(request, holder, bodies.GrantSerializer)))


class Spends(_Writes):
    """Credits are taken out."""

    scopes = {"post": LEDGER_SPEND}

    @operation(
        "spendCredits",
        "Spend credits",
        "Takes credits out, all or nothing, from the lots by priority, soonest expiry, promotional before purchased, oldest.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        parameters=[HOLDER_PATH],
        takes=Taken(bodies.SpendSerializer, {"a use": examples.SPEND_BODY, "the least": {"amount": 1}}),
        answers={201: Answer(shapes.EntrySerializer, examples.SPEND, "The entry.")},
        problems=[InsufficientCredits(available=98, balance=98, requested=5000, shortfall=4902)],
        keyed=True,
    )
    def post(self, request: HttpRequest, holder: str) -> HttpResponse:
        """Spend credits of the holder."""
        return self.answer(services.spend(**self.arguments(request, holder, bodies.SpendSerializer)))


class Refunds(_Writes):
    """Credits of a spend are given back."""

    scopes = {"post": LEDGER_SPEND}

    @operation(
        "refundSpend",
        "Refund a spend",
        "Gives credits of a spend back to the lots that they came from: whole, or in parts; never more than was spent.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        parameters=[HOLDER_PATH],
        takes=Taken(bodies.RefundSerializer, {"a part": examples.REFUND_BODY, "all that is left": {"spend": 2}}),
        answers={201: Answer(shapes.EntrySerializer, examples.REFUND, "The entry.")},
        problems=[
            NO_SUCH_ENTRY,
            NotRefundable(sequence=1, kind="grant"),
            RefundExceedsSpend(sequence=2, refundable=2, requested=3),
            BALANCE_LIMIT,
            LOT_LIMIT,
        ],
        keyed=True,
    )
    def post(self, request: HttpRequest, holder: str) -> HttpResponse:
        """Refund a spend of the holder."""
        arguments = self.arguments(request, holder, bodies.RefundSerializer)
        _ensure_possible(arguments["spend"], arguments["credit_type"])
        return self.answer(services.refund(**arguments))


class Revocations(_Writes):
    """The unspent rest of a grant is taken back."""

    scopes = {"post": LEDGER_GRANT}

    @operation(
        "revokeGrant",
        "Revoke a grant",
        "Takes back what is unspent of a grant: whole, or in part.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        parameters=[HOLDER_PATH],
        takes=Taken(
            bodies.RevocationSerializer, {"all that is unspent": examples.REVOCATION_BODY, "a part": {"grant": 1, "amount": 5}}
        ),
        answers={201: Answer(shapes.EntrySerializer, examples.REVOCATION, "The entry.")},
        problems=[
            NO_SUCH_ENTRY,
            NotRevocable(sequence=2, kind="spend"),
            RevocationExceedsGrant(sequence=1, revocable=98, requested=100),
        ],
        keyed=True,
    )
    def post(self, request: HttpRequest, holder: str) -> HttpResponse:
        """Revoke a grant of the holder."""
        arguments = self.arguments(request, holder, bodies.RevocationSerializer)
        _ensure_possible(arguments["grant"], arguments["credit_type"])
        return self.answer(services.revoke(**arguments))


def _ensure_possible(sequence: int, credit_type: str) -> None:
    """Answer 404 for a number that no entry can have; it does not fit into the record of a refusal."""
    if sequence > MAX_SEQUENCE:
        raise NotFound


# Reads -----------------------------------------------------------------------------------------------


class HolderBalance(Endpoint):
    """An account's state, now or at an instant."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "readBalance",
        "Read a balance",
        "What can be spent now, or could be at an instant, with the open lots in the order in which they are spent. "
        "For a holder never seen: zeros. Nothing is locked: what is read here may be spent by another request meanwhile.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=bodies.BalanceQuery,
        answers={200: Answer(shapes.BalanceSerializer, examples.BALANCE, "The account.")},
    )
    def get(self, request: HttpRequest, holder: str) -> HttpResponse:
        """Read the holder's balance."""
        query = read_query(bodies.BalanceQuery, request)
        return json_answer(shapes.balance_body(selectors.balance(holder, query["credit_type"], at=query.get("at"))))


class HolderEntries(Endpoint):
    """A holder's history."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "listEntries",
        "List entries",
        "A holder's entries, newest first.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=bodies.EntriesQuery,
        answers={
            200: Answer(
                page_of(shapes.EntrySerializer),
                page_example(examples.SPEND, path="/v1/holders/customer-42/entries"),
                "A page of entries.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> HttpResponse:
        """List the holder's entries."""
        filters = read_query(bodies.EntriesQuery, request)
        window = cursors.open_window(request, filters)
        entries = selectors.entries(holder, **filters, **window.newest_first(), limit=window.rows_wanted)
        return json_answer(window.page(entries, keyset=_entry_keyset, body=shapes.entry_body))


def _entry_keyset(entry: Entry) -> cursors.Keyset:
    return entry.recorded_at, entry.credit_type, entry.sequence


class HolderEntry(Endpoint):
    """One entry."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "readEntry",
        "Read an entry",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, SEQUENCE_PATH],
        query=bodies.EntryQuery,
        answers={200: Answer(shapes.EntrySerializer, examples.GRANT, "The entry.")},
    )
    def get(self, request: HttpRequest, holder: str, sequence: int) -> HttpResponse:
        """Read one entry of the holder."""
        query = read_query(bodies.EntryQuery, request)
        entry = selectors.entry(holder, query["credit_type"], sequence)
        if entry is None:
            raise NotFound
        return json_answer(shapes.entry_body(entry))


class HolderRefusals(Endpoint):
    """What a holder was answered no."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "listRefusals",
        "List refusals",
        "Requests of a holder that were answered no, newest first, each with the problem that was answered.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=bodies.RefusalsQuery,
        answers={
            200: Answer(
                page_of(shapes.RefusalSerializer),
                page_example(examples.REFUSAL, path="/v1/holders/customer-42/refusals"),
                "A page of refusals.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> HttpResponse:
        """List the holder's refusals."""
        window = cursors.open_window(request, read_query(bodies.RefusalsQuery, request))
        refusals = selectors.refusals(holder, **window.newest_first(), limit=window.rows_wanted)
        return json_answer(window.page(refusals, keyset=_refusal_keyset, body=self._body))

    def _body(self, refusal: Refusal) -> dict[str, Any]:
        """Return a refusal as it is shown; its problem is made where all problems are made."""
        error = REFUSALS[refusal.code](**refusal.facts)
        error.request_id = refusal.request_id
        return {
            "idempotency_key": refusal.idempotency_key,
            "operation": refusal.operation,
            "problem": exception_handler()(error, {"view": self, "request": self.request}).problem,
            "recorded_at": time_text(refusal.recorded_at),
            "actor": refusal.actor,
        }


def _refusal_keyset(refusal: Refusal) -> cursors.Keyset:
    return refusal.recorded_at, refusal.idempotency_key


class Holders(Endpoint):
    """Holders with their balances."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "listHolders",
        "List holders",
        "Accounts with their balances, by holder and credit type. A key that is confined to a holder sees that one.",
        tag=HISTORY,
        scope=LEDGER_READ,
        query=bodies.HoldersQuery,
        answers={
            200: Answer(
                page_of(shapes.BalanceSerializer), page_example(examples.BALANCE, path="/v1/holders"), "A page of accounts."
            )
        },
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List the holders that the key may see."""
        filters = read_query(bodies.HoldersQuery, request)
        window = cursors.open_window(request, filters)
        accounts = self._accounts(filters, window)
        return json_answer(window.page(accounts, keyset=_account_keyset, body=shapes.balance_body))

    def _accounts(self, filters: dict[str, Any], window: cursors.Window) -> list[Balance]:
        only = self.key.holder_id
        if only is None:
            return selectors.holders(**filters, **window.ascending(), limit=window.rows_wanted)
        if not only.startswith(filters.pop("prefix")):
            return []
        # Of all holders whose id begins so, the one that is nothing but the prefix comes first.
        accounts = selectors.holders(prefix=only, **filters, **window.ascending(), limit=window.rows_wanted)
        return list(takewhile(lambda account: account.holder_id == only, accounts))


def _account_keyset(account: Balance) -> cursors.Keyset:
    return account.holder_id, account.credit_type
