"""Credits are granted, spent, refunded, revoked and transferred; an overdraft is agreed."""

from django.http import HttpRequest

from ledger import reads
from ledger.api import examples, request_schemas, response_schemas
from ledger.api.kit.authentication import LEDGER_ADMIN, LEDGER_GRANT, LEDGER_READ, LEDGER_REFUND, LEDGER_SPEND, LEDGER_TRANSFER
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import HOLDER_PATH, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.api.writes import BALANCE_LIMIT, LOT_LIMIT, NO_SUCH_ENTRY, NOT_ENOUGH, RATE_PROBLEMS, Write, write
from ledger.errors import (
    LotLimit,
    NotRefundable,
    NotRevocable,
    RefundExceedsSpend,
    RevocationExceedsGrant,
    TransfersRefused,
)
from ledger.rules import (
    GrantRequest,
    IncomingTransfersRequest,
    OverdraftRequest,
    RefundRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
)

CREDITS = "Credits"


class Grants(Write):
    """Credits are put in."""

    post = write(
        GrantRequest,
        "grantCredits",
        "Grant credits",
        "Adds credits as a new lot, which can expire. The first grant creates the holder. New credits repay the overdraft first.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        examples={"a purchase": examples.GRANT_BODY, "the least": {"amount": 100}},
        response=examples.GRANT,
        problems=[LOT_LIMIT],
    )


class Spends(Write):
    """Credits are taken out."""

    post = write(
        SpendRequest,
        "spendCredits",
        "Spend credits",
        "Takes credits, all or nothing, from the lots by priority, soonest expiry, promotional before purchased, oldest; then "
        "from the overdraft, if the account has one. Give an amount, or a rate and a quantity.",
        tag=CREDITS,
        scope=LEDGER_SPEND,
        examples={
            "a use": examples.SPEND_BODY,
            "the least": {"amount": 1},
            "by a rate": {"rate": "gpt-4o.output", "quantity": 1250},
        },
        response=examples.SPEND,
        problems=[NOT_ENOUGH, *RATE_PROBLEMS],
    )


class Refunds(Write):
    """Credits of a spend are given back."""

    post = write(
        RefundRequest,
        "refundSpend",
        "Refund a spend",
        "Gives credits of a spend or capture back to the lots that they came from: whole, or in parts; never more than was "
        "spent.",
        tag=CREDITS,
        scope=LEDGER_REFUND,
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


class Revocations(Write):
    """The unspent rest of a grant is taken back."""

    post = write(
        RevokeRequest,
        "revokeGrant",
        "Revoke a grant",
        "Takes back what is unspent of a grant: whole, or in part.",
        tag=CREDITS,
        scope=LEDGER_GRANT,
        examples={"all that is unspent": examples.REVOCATION_BODY, "a part": {"grant": 1, "amount": 5}},
        response=examples.REVOCATION,
        problems=[
            NO_SUCH_ENTRY,
            NotRevocable(sequence=2, kind="spend"),
            RevocationExceedsGrant(sequence=1, revocable=98, requested=100),
        ],
    )


class Transfers(Write):
    """Credits move to another holder."""

    post = write(
        TransferRequest,
        "transferCredits",
        "Transfer credits",
        "Moves credits to another holder, lot by lot: they keep expiry, priority and source. At the receiver, credits of equal "
        "terms share a lot. Both sides are written, or neither. An overdraft is not drawn upon. A key that is confined to a "
        "holder may transfer from it, to whomever.",
        tag=CREDITS,
        scope=LEDGER_TRANSFER,
        examples={"to a team": examples.TRANSFER_BODY},
        response=examples.TRANSFER,
        problems=[NOT_ENOUGH, TransfersRefused(to="team-7"), LotLimit(open_lots=100, limit=100), BALANCE_LIMIT],
    )


class IncomingTransfers(Write):
    """Transfers from others are accepted or refused."""

    reads_quickly = True

    post = write(
        IncomingTransfersRequest,
        "setIncomingTransfers",
        "Accept or refuse incoming transfers",
        "Says whether others may transfer credits into the account; they may until it is said. A transfer to an account that "
        "refuses them is a 409 `transfers-refused`. Grants and refunds are not touched, nor is what arrived before.",
        tag=CREDITS,
        scope=LEDGER_TRANSFER,
        examples={
            "refuse": {"accepted": False, "reason": "Gets credits from nobody else"},
            "accept again": {"accepted": True},
        },
        response=examples.INCOMING_TRANSFERS,
    )

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

    post = write(
        OverdraftRequest,
        "setOverdraft",
        "Agree an overdraft",
        "Says how far below zero spends may take the balance from now on; 0 ends it. What is owed stays owed, and later grants "
        "repay it first. Holds and transfers never draw on it.",
        tag=CREDITS,
        scope=LEDGER_ADMIN,
        examples={"trusted": examples.OVERDRAFT_BODY, "none any more": {"limit": 0}},
        response=examples.OVERDRAFT,
    )
