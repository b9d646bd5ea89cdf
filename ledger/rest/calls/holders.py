"""Calls about what holders have: an account now or at an earlier time, all accounts of a holder, and those of all holders."""

from functools import partial
from itertools import takewhile
from typing import Any

from django.http import HttpRequest
from rest_framework import serializers

from ledger import reads
from ledger.json_values import time_text
from ledger.reads import Balance
from ledger.rest.etags import etag, is_known
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import LEDGER_READ
from ledger.rest.kit.endpoint import Endpoint, InThread, QueuedRequest
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import NotFound
from ledger.rest.kit.schema import ResponseBody, operation, page_response
from ledger.rest.schemas import examples, request_schemas, response_schemas
from ledger.rest.schemas.parameters import ETAG_HEADER, HOLDER_PATH, IF_NONE_MATCH_HEADER
from ledger.rules.purposes import Use

HISTORY = "History"


class HolderBalance(Endpoint):
    """Reads an account's state, now or at an instant."""

    in_loop = frozenset({"get"})
    reads_quickly = True

    @operation(
        "readBalance",
        "Read a balance",
        "The credits you can spend now, or at an instant, with the open lots in burn order. An unknown holder has zeros. "
        "`for_other_things` has the credits that can pay only for certain rates or labels; `available` includes them if `rate` "
        "or `label` names such a use. The call takes no lock: another request may spend the credits before you do. Without `at` "
        "the response has an ETag; a write with this ETag as If-Match needs an account without a later entry.",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[HOLDER_PATH, IF_NONE_MATCH_HEADER, ETAG_HEADER],
        query=request_schemas.BalanceQuery,
        responses={
            200: ResponseBody(response_schemas.AccountBalanceSerializer, examples.BALANCE, "The account."),
            304: ResponseBody(None, None, "The account has not changed since If-None-Match. No body."),
        },
    )
    def get(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Read the holder's balance: a current one together with others that are read at the same time."""
        query = read_query(request_schemas.BalanceQuery, request)
        credit_type, at = query["credit_type"], query.get("at")
        rate, label = query.get("rate"), query.get("label")
        use = None if rate is None and label is None else Use(rate, dict([label] if label else []))
        if query["by"] == "effective":
            look = partial(reads.balance_by_effective_time, holder, credit_type, at=at)
            return lambda: json_response(_body(look(), use))
        if at is not None:
            return lambda: json_response(_body(reads.balance(holder, credit_type, at=at), use))
        return QueuedRequest(reads.BALANCES, (holder, credit_type), partial(self._current, request, use))

    def _current(self, request: HttpRequest, use: Use | None, found: Balance) -> Response:
        headers = {"ETag": etag(found.sequence)}
        if found.is_as_written and is_known(request, found.sequence):
            return Response(b"", status_code=304, headers=headers)
        return json_response(_body(found, use), headers=headers)


def _body(found: Balance, use: Use | None) -> dict[str, Any]:
    return response_schemas.AccountBalanceSerializer.body(found if use is None else found.for_use(use))


class BalancesSerializer(serializers.Serializer):
    """Accounts in the order in which they were named."""

    results = response_schemas.AccountBalanceSerializer(many=True, help_text="The accounts.")


class Balances(Endpoint):
    """Several accounts' states."""

    reads_quickly = True

    @operation(
        "readBalances",
        "Read several balances",
        f"The accounts that `accounts` names, up to {request_schemas.MOST_ACCOUNTS}, in that order, as `/balance` shows each. An "
        "unknown holder has zeros. A key of one holder sees only that holder: 404 if another one is named.",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        query=request_schemas.BalancesQuery,
        responses={200: ResponseBody(BalancesSerializer, {"results": [examples.BALANCE]}, "The accounts.")},
    )
    def get(self, request: HttpRequest) -> Response:
        accounts = read_query(request_schemas.BalancesQuery, request)["accounts"]
        if not all(self.key.sees(holder) for holder, _ in accounts):
            raise NotFound
        found = [response_schemas.AccountBalanceSerializer.body(account) for account in reads.balances(accounts)]
        return json_response({"results": found})


class Lots(Endpoint):
    """An account's open lots."""

    reads_quickly = True

    @operation(
        "listLots",
        "List lots",
        "The open lots of an account, the oldest grant first; they add up to `balance` and what is `owed`. `/balance` has them "
        "in the order in which they are spent. A lot whose credits are all spent, held or gone is not among them.",
        tag=HISTORY,
        scope=LEDGER_READ,
        with_labels=True,
        parameters=[HOLDER_PATH],
        query=request_schemas.HoldsQuery,
        responses=page_response(
            response_schemas.LotSerializer,
            examples.BALANCE["lots"][0],
            path="/v1/holders/customer-42/lots",
            text="A page of lots.",
        ),
    )
    def get(self, request: HttpRequest, holder: str) -> Response:
        query = read_query(request_schemas.HoldsQuery, request)
        page = cursors.requested_page(request, query)
        lots = reads.page_of_lots(reads.balance(holder, query["credit_type"]), **page.ascending(), limit=page.rows_wanted)
        return json_response(page.response_body(lots, keyset=_lot_keyset, body=response_schemas.LotSerializer.body))


class Holders(Endpoint):
    """Lists holders with their balances."""

    @operation(
        "listHolders",
        "List holders",
        "Accounts with their balances, by holder and credit type. A key of one holder sees only that holder.",
        tag=HISTORY,
        scope=LEDGER_READ,
        query=request_schemas.HoldersQuery,
        responses=page_response(
            response_schemas.AccountBalanceSerializer, examples.BALANCE, path="/v1/holders", text="A page of accounts."
        ),
    )
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(request_schemas.HoldersQuery, request)
        page = cursors.requested_page(request, filters)
        accounts = self._accounts(filters, page)
        return json_response(
            page.response_body(accounts, keyset=_account_keyset, body=response_schemas.AccountBalanceSerializer.body)
        )

    def _accounts(self, filters: dict[str, Any], page: cursors.PageRequest) -> list[Balance]:
        only = self.key.holder_id
        if only is None:
            return reads.holders(**filters, **page.ascending(), limit=page.rows_wanted)
        if not only.startswith(filters.pop("prefix")):
            return []
        # The holder whose id equals the prefix comes before all ids that begin with it.
        accounts = reads.holders(prefix=only, **filters, **page.ascending(), limit=page.rows_wanted)
        return list(takewhile(lambda account: account.holder_id == only, accounts))


def _lot_keyset(lot: reads.ShownLot) -> cursors.Keyset:
    return (lot.grant,)


def _account_keyset(account: Balance) -> cursors.Keyset:
    return account.holder_id, account.credit_type


HOLDER: dict[str, Any] = {
    "holder_id": "customer-42",
    "first_seen_at": examples.RECORDED_AT,
    "last_seen_at": "2026-01-31T09:30:45.000000Z",
    "accounts": [examples.BALANCE],
}


class HolderSerializer(serializers.Serializer):
    """Reads a holder with all accounts."""

    holder_id = serializers.CharField(help_text="Who owns the credits.")
    first_seen_at = serializers.DateTimeField(help_text="When the first entry was recorded, in any credit type.")
    last_seen_at = serializers.DateTimeField(help_text="When the last entry was recorded, in any credit type.")
    accounts = response_schemas.AccountBalanceSerializer(many=True, help_text="By credit type.")


class OneHolder(Endpoint):
    """One holder."""

    reads_quickly = True

    @operation(
        "readHolder", "Read a holder",
        "All accounts of the holder with their balances. 404 for a holder who never had credits, even if requests were "
            "refused: this distinguishes a new or mistyped holder from an empty one, which a balance of zeros does not. "
            "`/refusals` has the refused requests.",
        tag="History", scope=LEDGER_READ, with_labels=True, parameters=[HOLDER_PATH],
        responses={200: ResponseBody(HolderSerializer, HOLDER, "The holder.")}, problems=[NotFound()],
    )  # fmt: skip
    def get(self, request: HttpRequest, holder: str) -> Response:
        seen = reads.seen(holder)
        if seen is None:
            raise NotFound
        first, last = seen
        accounts = [response_schemas.AccountBalanceSerializer.body(account) for account in reads.accounts(holder)]
        body = {"holder_id": holder, "first_seen_at": time_text(first), "last_seen_at": time_text(last), "accounts": accounts}
        return json_response(body)
