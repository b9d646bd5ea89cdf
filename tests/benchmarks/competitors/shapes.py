"""The shapes of other ledgers, each in one call of a server function: without lots and digests, which is to their advantage."""

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest

from ledger.database.locks import holder_key, lock_number
from ledger.database.statements import fetch_value
from ledger.rest.kit.authentication import LEDGER_SPEND
from ledger.rest.kit.endpoint import Endpoint, requires
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.requests import idempotency_key
from ledger.rest.schemas import request_schemas
from ledger.rules.requests import SpendRequest


def double_entry(holder: str, amount: int, key: str, reason: str) -> int:
    """Two legs, one of them on an account that all share."""
    return fetch_value(int, "SELECT competitors.double_entry(%s, %s, %s, %s)", (holder, amount, key, reason))


def sum_at_read(holder: str, amount: int, key: str, reason: str) -> int:
    """The balance added up every time."""
    parameters = (lock_number(holder_key(holder)), holder, amount, key, reason)
    return fetch_value(int, "SELECT competitors.sum_at_read(%s, %s, %s, %s, %s)", parameters)


SPEND_BODY: Final = request_schemas.body_of(SpendRequest)


class _Spends(Endpoint):
    spend: Callable[[str, int, str, str], int]

    @requires(LEDGER_SPEND)
    def post(self, request: HttpRequest, holder: str) -> Response:
        """Spend credits of the holder."""
        given = self.body(request, SPEND_BODY)
        balance = type(self).spend(holder, given["amount"], idempotency_key(request), given.get("reason", ""))
        return json_response({"holder_id": holder, "balance": balance}, status=201)


class DoubleEntrySpends(_Spends):
    """By a counterpart."""

    spend = staticmethod(double_entry)


class SumAtReadSpends(_Spends):
    """By a sum."""

    spend = staticmethod(sum_at_read)
