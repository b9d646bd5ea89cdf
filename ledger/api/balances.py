"""What an account has, now or at an earlier time; and all accounts of all holders."""

from functools import partial
from itertools import takewhile
from typing import Any

from django.http import HttpRequest

from ledger import reads
from ledger.api import examples, request_schemas, response_schemas
from ledger.api.kit.authentication import LEDGER_READ
from ledger.api.kit.endpoint import Endpoint, InThread, QueuedRequest
from ledger.api.kit.reading import cursors
from ledger.api.kit.reading.etags import etag, is_known
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import (
    ETAG_HEADER,
    HOLDER_PATH,
    IF_NONE_MATCH_HEADER,
    ResponseBody,
    operation,
    page_example,
    page_of,
)
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.reads import Balance

HISTORY = "History"


class HolderBalance(Endpoint):
    """An account's state, now or at an instant."""

    in_loop = frozenset({"get"})
    reads_quickly = True

    @operation(
        "readBalance",
        "Read a balance",
        "The credits you can spend now, or at an instant, with the open lots in burn order. An unknown holder has zeros. The "
        "call takes no lock: another request may spend the credits before you do. Without `at` the response has an ETag; a write "
        "with this ETag as If-Match needs an account without a later entry.",
        tag=HISTORY,
        scope=LEDGER_READ,
        parameters=[HOLDER_PATH, IF_NONE_MATCH_HEADER, ETAG_HEADER],
        query=request_schemas.BalanceQuery,
        responses={
            200: ResponseBody(response_schemas.AccountBalanceSerializer, examples.BALANCE, "The account."),
            304: ResponseBody(None, None, "The account is still as If-None-Match says. No body."),
        },
    )
    def get(self, request: HttpRequest, holder: str) -> QueuedRequest | InThread:
        """Read the holder's balance: one as it is now together with those that are read beside it."""
        query = read_query(request_schemas.BalanceQuery, request)
        credit_type, at = query["credit_type"], query.get("at")
        if query["by"] == "effective":
            look = partial(reads.balance_by_effective_time, holder, credit_type, at=at)
            return lambda: json_response(response_schemas.AccountBalanceSerializer.body(look()))
        if at is not None:
            return lambda: json_response(
                response_schemas.AccountBalanceSerializer.body(reads.balance(holder, credit_type, at=at))
            )
        return QueuedRequest(reads.BALANCES, (holder, credit_type), partial(self._current, request))

    def _current(self, request: HttpRequest, found: Balance) -> Response:
        headers = {"ETag": etag(found.sequence)}
        if found.is_as_written and is_known(request, found.sequence):
            return Response(b"", status_code=304, headers=headers)
        return json_response(response_schemas.AccountBalanceSerializer.body(found), headers=headers)


class Holders(Endpoint):
    """Holders with their balances."""

    @operation(
        "listHolders",
        "List holders",
        "Accounts with their balances, by holder and credit type. A key of one holder sees only that holder.",
        tag=HISTORY,
        scope=LEDGER_READ,
        query=request_schemas.HoldersQuery,
        responses={
            200: ResponseBody(
                page_of(response_schemas.AccountBalanceSerializer),
                page_example(examples.BALANCE, path="/v1/holders"),
                "A page of accounts.",
            )
        },
    )
    def get(self, request: HttpRequest) -> Response:
        """List the holders that the key may see."""
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
        # Of all holders whose id begins so, the one that is nothing but the prefix comes first.
        accounts = reads.holders(prefix=only, **filters, **page.ascending(), limit=page.rows_wanted)
        return list(takewhile(lambda account: account.holder_id == only, accounts))


def _account_keyset(account: Balance) -> cursors.Keyset:
    return account.holder_id, account.credit_type
