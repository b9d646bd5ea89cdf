"""The ledger's calls: one class per path, each a reading of the request, one use-case or one look, and an answer."""

from functools import partial
from itertools import takewhile
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified

from ledger import selectors, services
from ledger.api import bodies, examples, shapes
from ledger.api.kit import cursors
from ledger.api.kit.authentication import LEDGER_ADMIN, LEDGER_GRANT, LEDGER_READ, LEDGER_SPEND
from ledger.api.kit.endpoint import Endpoint, InThread, Queued, exception_handler
from ledger.api.kit.etags import is_known, tag
from ledger.api.kit.inputs import read_query
from ledger.api.kit.rendering import json_answer, time_text
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import (
    ETAG_HEADER,
    HOLDER_PATH,
    IF_NONE_MATCH_HEADER,
    SEQUENCE_PATH,
    Answer,
    operation,
    page_example,
    page_of,
)
from ledger.api.writes import LOT_LIMIT, NO_SUCH_ENTRY, NOT_ENOUGH, Write, ensure_possible, write
from ledger.errors import (
    REFUSALS,
    AmountLimit,
    NotRefundable,
    NotRevocable,
    RefundExceedsSpend,
    RevocationExceedsGrant,
    UnknownRate,
)
from ledger.rules import Entry, GrantRequest, OverdraftRequest, RefundRequest, RevokeRequest, SpendRequest
from ledger.selectors import Balance, Refusal

CREDITS = "Credits"
HISTORY = "History"

RATE_PROBLEMS = (
    UnknownRate(rate="gpt-4o.output", credit_type="credits"),
    AmountLimit(rate="gpt-4o.output", quantity=9007199254740991, limit=9007199254740991),
)


# Writes ----------------------------------------------------------------------------------------------


class Grants(Write):
    """Credits are put in."""

    scopes = {"post": LEDGER_GRANT}

    @write(
        "grantCredits",
        "Grant credits",
        "Adds credits as a new lot, which can expire. The first grant creates the holder. New credits repay the overdraft first.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        takes=bodies.GrantSerializer,
        examples={"a purchase": examples.GRANT_BODY, "the least": {"amount": 100}},
        answer=examples.GRANT,
        problems=[LOT_LIMIT],
    )
    def post(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Grant credits to the holder."""
        return self.ask(GrantRequest, self.arguments(request, holder, bodies.GrantSerializer))


class Spends(Write):
    """Credits are taken out."""

    scopes = {"post": LEDGER_SPEND}

    @write(
        "spendCredits",
        "Spend credits",
        "Takes credits, all or nothing, from the lots by priority, soonest expiry, promotional before purchased, oldest; then "
        "from the overdraft, if the account has one. Give an amount, or a rate and a quantity.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        takes=bodies.SpendSerializer,
        examples={
            "a use": examples.SPEND_BODY,
            "the least": {"amount": 1},
            "by a rate": {"rate": "gpt-4o.output", "quantity": 1250},
        },
        answer=examples.SPEND,
        problems=[NOT_ENOUGH, *RATE_PROBLEMS],
    )
    def post(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Spend credits of the holder."""
        return self.ask(SpendRequest, self.arguments(request, holder, bodies.SpendSerializer))


class Refunds(Write):
    """Credits of a spend are given back."""

    scopes = {"post": LEDGER_SPEND}

    @write(
        "refundSpend",
        "Refund a spend",
        "Gives credits of a spend or capture back to the lots that they came from: whole, or in parts; never more than was "
        "spent.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        takes=bodies.RefundSerializer,
        examples={"a part": examples.REFUND_BODY, "all that is left": {"spend": 2}},
        answer=examples.REFUND,
        problems=[
            NO_SUCH_ENTRY,
            NotRefundable(sequence=1, kind="grant"),
            RefundExceedsSpend(sequence=2, refundable=2, requested=3),
            LOT_LIMIT,
        ],
    )
    def post(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Refund a spend of the holder."""
        arguments = self.arguments(request, holder, bodies.RefundSerializer)
        ensure_possible(arguments["spend"])
        return self.ask(RefundRequest, arguments)


class Revocations(Write):
    """The unspent rest of a grant is taken back."""

    scopes = {"post": LEDGER_GRANT}

    @write(
        "revokeGrant",
        "Revoke a grant",
        "Takes back what is unspent of a grant: whole, or in part.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        takes=bodies.RevocationSerializer,
        examples={"all that is unspent": examples.REVOCATION_BODY, "a part": {"grant": 1, "amount": 5}},
        answer=examples.REVOCATION,
        problems=[
            NO_SUCH_ENTRY,
            NotRevocable(sequence=2, kind="spend"),
            RevocationExceedsGrant(sequence=1, revocable=98, requested=100),
        ],
    )
    def post(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Revoke a grant of the holder."""
        arguments = self.arguments(request, holder, bodies.RevocationSerializer)
        ensure_possible(arguments["grant"])
        return self.ask(RevokeRequest, arguments)


class Transfers(Write):
    """Credits move to another holder."""

    scopes = {"post": LEDGER_SPEND}

    @write(
        "transferCredits",
        "Transfer credits",
        "Moves credits to another holder, lot by lot: they keep expiry, priority and source. Both sides are written, or "
        "neither. An overdraft is not drawn upon. A key that is confined to a holder may transfer from it, to whomever.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        takes=bodies.TransferSerializer,
        examples={"to a team": examples.TRANSFER_BODY},
        answer=examples.TRANSFER,
        problems=[NOT_ENOUGH, LOT_LIMIT],
    )
    def post(self, request: HttpRequest, holder: str) -> InThread:
        """Transfer credits of the holder."""
        arguments = self.arguments(request, holder, bodies.TransferSerializer)
        return lambda: self.respond(services.transfer(**arguments), dry_run="dry_run" in arguments)


class Overdraft(Write):
    """An overdraft is agreed."""

    scopes = {"post": LEDGER_ADMIN}

    @write(
        "setOverdraft",
        "Agree an overdraft",
        "Says how far below zero spends may take the balance from now on; 0 ends it. What is owed stays owed, and later grants "
        "repay it first. Holds and transfers never draw on it.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        takes=bodies.OverdraftSerializer,
        examples={"trusted": examples.OVERDRAFT_BODY, "none any more": {"limit": 0}},
        answer=examples.OVERDRAFT,
    )
    def post(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Agree the holder's overdraft."""
        return self.ask(OverdraftRequest, self.arguments(request, holder, bodies.OverdraftSerializer))


# Reads -----------------------------------------------------------------------------------------------


class HolderBalance(Endpoint):
    """An account's state, now or at an instant."""

    in_loop = frozenset({"get"})
    scopes = {"get": LEDGER_READ}

    @operation(
        "readBalance",
        "Read a balance",
        "The credits you can spend now, or at an instant, with the open lots in burn order. An unknown holder has zeros. The "
        "call takes no lock: another request may spend the credits before you do. Without `at` the answer has an ETag; a write "
        "with this ETag as If-Match needs an account without a later entry.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, IF_NONE_MATCH_HEADER, ETAG_HEADER],
        query=bodies.BalanceQuery,
        answers={
            200: Answer(shapes.BalanceSerializer, examples.BALANCE, "The account."),
            304: Answer(None, None, "The account is still as If-None-Match says. No body."),
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Queued | InThread:
        """Read the holder's balance: one as it is now together with those that are read beside it."""
        query = read_query(bodies.BalanceQuery, request)
        credit_type, at = query["credit_type"], query.get("at")
        if query["by"] == "effective":
            look = partial(selectors.balance_by_effective_time, holder, credit_type, at=at)
            return lambda: json_answer(shapes.balance_body(look()))
        if at is not None:
            return lambda: json_answer(shapes.balance_body(selectors.balance(holder, credit_type, at=at)))
        return Queued(selectors.BALANCES, (holder, credit_type), partial(self._current, request))

    def _current(self, request: HttpRequest, found: Balance) -> HttpResponse:
        headers = {"ETag": tag(found.sequence)}
        if found.is_as_written and is_known(request, found.sequence):
            return HttpResponseNotModified(headers=headers)
        return json_answer(shapes.balance_body(found), headers=headers)


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


class EntryExplanation(Endpoint):
    """Why an entry is as it is."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "explainEntry",
        "Explain an entry",
        "The account before and after the entry; each used or skipped lot, and why; what had come due and was booked with "
        "it; what is left of the spend, hold or grant that it refers to. Everything is read off the entries, which never change.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, SEQUENCE_PATH],
        query=bodies.EntryQuery,
        answers={200: Answer(shapes.ExplanationSerializer, examples.EXPLANATION, "The explanation.")},
    )
    def get(self, request: HttpRequest, holder: str, sequence: int) -> HttpResponse:
        """Explain one entry of the holder."""
        query = read_query(bodies.EntryQuery, request)
        explanation = selectors.explanation(holder, query["credit_type"], sequence)
        if explanation is None:
            raise NotFound
        return json_answer(explanation)


class HolderRefusals(Endpoint):
    """What a holder was answered no."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "listRefusals",
        "List refusals",
        "The refused requests of a holder, newest first, each with its problem.",
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
    return refusal.recorded_at, refusal.credit_type, refusal.sequence


class Holders(Endpoint):
    """Holders with their balances."""

    scopes = {"get": LEDGER_READ}

    @operation(
        "listHolders",
        "List holders",
        "Accounts with their balances, by holder and credit type. A key of one holder sees only that holder.",
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
