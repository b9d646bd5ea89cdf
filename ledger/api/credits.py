"""Credits are granted, spent, refunded, revoked and transferred; an overdraft is agreed."""

from functools import partial

from django.http import HttpRequest

from ledger import reads, services
from ledger.api import examples, request_schemas, response_schemas
from ledger.api.kit.authentication import LEDGER_ADMIN, LEDGER_GRANT, LEDGER_READ, LEDGER_REFUND, LEDGER_SPEND, LEDGER_TRANSFER
from ledger.api.kit.endpoint import InThread, QueuedRequest
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import HOLDER_PATH, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.api.writes import BALANCE_LIMIT, LOT_LIMIT, NO_SUCH_ENTRY, NOT_ENOUGH, RATE_PROBLEMS, Write, ensure_possible, write
from ledger.errors import (
    LotLimit,
    NotRefundable,
    NotRevocable,
    RefundExceedsSpend,
    RevocationExceedsGrant,
    TransfersRefused,
)
from ledger.rules import GrantRequest, IncomingTransfersRequest, OverdraftRequest, RefundRequest, RevokeRequest, SpendRequest

CREDITS = "Credits"


class Grants(Write):
    """Credits are put in."""

    @write(
        "grantCredits",
        "Grant credits",
        "Adds credits as a new lot, which can expire. The first grant creates the holder. New credits repay the overdraft first.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        takes=request_schemas.GrantSerializer,
        examples={"a purchase": examples.GRANT_BODY, "the least": {"amount": 100}},
        response=examples.GRANT,
        problems=[LOT_LIMIT],
    )
    def post(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Grant credits to the holder."""
        return self.ask(GrantRequest, self.arguments(request, holder, request_schemas.GrantSerializer))


class Spends(Write):
    """Credits are taken out."""

    @write(
        "spendCredits",
        "Spend credits",
        "Takes credits, all or nothing, from the lots by priority, soonest expiry, promotional before purchased, oldest; then "
        "from the overdraft, if the account has one. Give an amount, or a rate and a quantity.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        takes=request_schemas.SpendSerializer,
        examples={
            "a use": examples.SPEND_BODY,
            "the least": {"amount": 1},
            "by a rate": {"rate": "gpt-4o.output", "quantity": 1250},
        },
        response=examples.SPEND,
        problems=[NOT_ENOUGH, *RATE_PROBLEMS],
    )
    def post(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Spend credits of the holder."""
        return self.ask(SpendRequest, self.arguments(request, holder, request_schemas.SpendSerializer))


class Refunds(Write):
    """Credits of a spend are given back."""

    @write(
        "refundSpend",
        "Refund a spend",
        "Gives credits of a spend or capture back to the lots that they came from: whole, or in parts; never more than was "
        "spent.",
        tag=CREDITS,
        scope=LEDGER_REFUND,
        takes=request_schemas.RefundSerializer,
        examples={"a part": examples.REFUND_BODY, "all that is left": {"spend": 2}},
        response=examples.REFUND,
        problems=[
            NO_SUCH_ENTRY,
            NotRefundable(sequence=1, kind="grant"),
            RefundExceedsSpend(sequence=2, refundable=2, requested=3),
            LOT_LIMIT,
            BALANCE_LIMIT,
        ],
    )
    def post(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Refund a spend of the holder."""
        arguments = self.arguments(request, holder, request_schemas.RefundSerializer)
        ensure_possible(arguments["spend"])
        return self.ask(RefundRequest, arguments)


class Revocations(Write):
    """The unspent rest of a grant is taken back."""

    @write(
        "revokeGrant",
        "Revoke a grant",
        "Takes back what is unspent of a grant: whole, or in part.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        takes=request_schemas.RevocationSerializer,
        examples={"all that is unspent": examples.REVOCATION_BODY, "a part": {"grant": 1, "amount": 5}},
        response=examples.REVOCATION,
        problems=[
            NO_SUCH_ENTRY,
            NotRevocable(sequence=2, kind="spend"),
            RevocationExceedsGrant(sequence=1, revocable=98, requested=100),
        ],
    )
    def post(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Revoke a grant of the holder."""
        arguments = self.arguments(request, holder, request_schemas.RevocationSerializer)
        ensure_possible(arguments["grant"])
        return self.ask(RevokeRequest, arguments)


class Transfers(Write):
    """Credits move to another holder."""

    @write(
        "transferCredits",
        "Transfer credits",
        "Moves credits to another holder, lot by lot: they keep expiry, priority and source. At the receiver, credits of equal "
        "terms share a lot. Both sides are written, or neither. An overdraft is not drawn upon. A key that is confined to a "
        "holder may transfer from it, to whomever.",
        tag=CREDITS,
        scope=LEDGER_TRANSFER,
        takes=request_schemas.TransferSerializer,
        examples={"to a team": examples.TRANSFER_BODY},
        response=examples.TRANSFER,
        problems=[NOT_ENOUGH, TransfersRefused(to="team-7"), LotLimit(open_lots=100, limit=100), BALANCE_LIMIT],
    )
    def post(self, request: HttpRequest, holder: str) -> InThread:
        """Transfer credits of the holder."""
        arguments = self.arguments(request, holder, request_schemas.TransferSerializer)
        return lambda: self.respond(partial(services.transfer, **arguments), dry_run="dry_run" in arguments)


class IncomingTransfers(Write):
    """Transfers from others are accepted or refused."""

    reads_quickly = True

    @write(
        "setIncomingTransfers",
        "Accept or refuse incoming transfers",
        "Says whether others may transfer credits into the account; they may until it is said. A transfer to an account that "
        "refuses them is a 409 `transfers-refused`. Grants and refunds are not touched, nor is what arrived before.",
        tag=CREDITS,
        scope=LEDGER_TRANSFER,
        takes=request_schemas.IncomingTransfersSerializer,
        examples={
            "refuse": {"accepted": False, "reason": "Gets credits from nobody else"},
            "accept again": {"accepted": True},
        },
        response=examples.INCOMING_TRANSFERS,
    )
    def post(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Accept or refuse transfers into the holder's account."""
        return self.ask(IncomingTransfersRequest, self.arguments(request, holder, request_schemas.IncomingTransfersSerializer))

    @operation(
        "readIncomingTransfers",
        "Read whether transfers are accepted",
        "Whether others may transfer credits into the account, and by which entry that is so; null where nothing was ever said.",
        tag=CREDITS,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH],
        query=request_schemas.EntryQuery,
        responses={
            200: ResponseBody(
                response_schemas.IncomingTransfersBodySerializer,
                {
                    "holder_id": "customer-42",
                    "credit_type": "credits",
                    "accepted": False,
                    "changed_by": 4,
                    "changed_at": "2026-01-31T09:30:45.000000Z",
                },
                "Whether they are accepted.",
            )
        },
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        """Read whether others may transfer credits into the holder's account."""
        query = read_query(request_schemas.EntryQuery, request)
        found = reads.incoming_transfers(holder, query["credit_type"])
        return json_response(response_schemas.IncomingTransfersBodySerializer.body(found))


class Overdraft(Write):
    """An overdraft is agreed."""

    @write(
        "setOverdraft",
        "Agree an overdraft",
        "Says how far below zero spends may take the balance from now on; 0 ends it. What is owed stays owed, and later grants "
        "repay it first. Holds and transfers never draw on it.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        takes=request_schemas.OverdraftSerializer,
        examples={"trusted": examples.OVERDRAFT_BODY, "none any more": {"limit": 0}},
        response=examples.OVERDRAFT,
    )
    def post(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Agree the holder's overdraft."""
        return self.ask(OverdraftRequest, self.arguments(request, holder, request_schemas.OverdraftSerializer))
