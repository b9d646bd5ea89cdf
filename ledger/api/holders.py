"""One holder: all accounts, and when the holder was first and last seen."""

from typing import Any

from django.http import HttpRequest
from rest_framework import serializers

from ledger import reads
from ledger.api import examples, response_schemas
from ledger.api.kit.authentication import LEDGER_READ
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.request_errors import NotFound
from ledger.api.kit.schema import HOLDER_PATH, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response, time_text

HOLDER: dict[str, Any] = {
    "holder_id": "customer-42",
    "first_seen_at": examples.RECORDED_AT,
    "last_seen_at": "2026-01-31T09:30:45.000000Z",
    "accounts": [examples.BALANCE],
}


class HolderSerializer(serializers.Serializer):
    """A holder with all accounts."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    first_seen_at = serializers.DateTimeField(help_text="When the first entry was recorded, in whatever credit type.")
    last_seen_at = serializers.DateTimeField(help_text="When the last entry was recorded, in whatever credit type.")
    accounts = response_schemas.AccountBalanceSerializer(many=True, help_text="By credit type.")


class OneHolder(Endpoint):
    """One holder."""

    reads_quickly = True

    @operation(
        "readHolder", "Read a holder",
        "All accounts with their balances. 404 for a holder who never had credits, even if requests were refused: so a new or "
        "mistyped holder can be told from an empty one, which a balance of zeros cannot. `/refusals` has the refused requests.",
        tag="History", scope=LEDGER_READ, parameters=[HOLDER_PATH],
        responses={200: ResponseBody(HolderSerializer, HOLDER, "The holder.")}, problems=[NotFound()],
    )  # fmt: skip
    def get(self, request: HttpRequest, holder: str) -> Response:
        """Read a holder."""
        seen = reads.seen(holder)
        if seen is None:
            raise NotFound
        first, last = seen
        accounts = [response_schemas.AccountBalanceSerializer.body(account) for account in reads.accounts(holder)]
        body = {"holder_id": holder, "first_seen_at": time_text(first), "last_seen_at": time_text(last), "accounts": accounts}
        return json_response(body)
