"""The lock alone: spends that differ in what protects them, and in nothing else.

One view on the same threads, one transaction for each spend, the ledger's rules, digest and table. The opening is prepared as
the ledger's own is, and made from it (opening.sql); the INSERT is the ledger's. Advisory lock, row lock and LOCK TABLE are taken
by the opening; SERIALIZABLE is said by BEGIN, which each of them sends. None of them shares transactions, as the ledger does.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from django.db import Error, connection, transaction
from django.http import HttpRequest

from ledger import entry_rows, journal
from ledger.database import statements
from ledger.database.locks import holder_key, lock_number, sqlstate
from ledger.database.statements import Statement, array
from ledger.rest.kit.authentication import LEDGER_SPEND
from ledger.rest.kit.endpoint import Endpoint, requires
from ledger.rest.kit.rendering import Response, write_response
from ledger.rest.kit.requests import idempotency_key
from ledger.rest.schemas import request_schemas, response_schemas
from ledger.rules.decisions import credit_rules
from ledger.rules.entries import Entry
from ledger.rules.requests import SpendRequest

BEGIN_SERIALIZABLE: Final = b"BEGIN ISOLATION LEVEL SERIALIZABLE"
CONFLICTS = {"40001", "40P01", "23505", "LG002"}


def _opening(name: str) -> Statement:
    """The journal's statement `open` with another function."""
    sql = journal.OPEN.sql.replace("ledger_open", f"competitors.open_by_{name}")
    return Statement(f"open_by_{name}", sql, journal.OPEN.loaders)


def _spend_once(request: SpendRequest, opening: Statement, begin: bytes | None = None) -> Entry:
    """Spend in one transaction, opened by this statement."""
    with transaction.atomic(durable=True):
        if begin is not None:  # in place of the BEGIN that the opening sends first
            statements._check_result(connection.connection.pgconn.exec_(begin))
        number = str(lock_number(holder_key(request.holder_id)))
        key = request.idempotency_key
        row = opening.execute(
            [b"t", array([number]), array([request.holder_id]), array([request.credit_type]), array([key]), b"f"]
        )
        assert row is not None
        _, *columns, is_used = row
        assert not is_used
        state = journal._account(request.holder_id, request.credit_type, columns)
        [entry] = credit_rules.spend(state, request)
        journal.APPEND_ONE.execute(entry_rows.parameters(entry))
    return entry


def _spend_until_done(request: SpendRequest, opening: Statement) -> Entry:
    """Under SERIALIZABLE, tried until it goes through."""
    while True:
        try:
            return _spend_once(request, opening, BEGIN_SERIALIZABLE)
        except Error as error:
            if sqlstate(error) not in CONFLICTS:
                raise


SPENDS: dict[str, Callable[[SpendRequest], Entry]] = {
    "advisory": partial(_spend_once, opening=journal.OPEN),
    "row-lock": partial(_spend_once, opening=_opening("row_lock")),
    "table-lock": partial(_spend_once, opening=_opening("table_lock")),
    "serializable": partial(_spend_until_done, opening=_opening("serializable")),
}
"""How a spend is protected -> what executes it."""


SPEND_BODY: Final = request_schemas.body_of(SpendRequest)


class LockedSpends(Endpoint):
    """A spend by one of them.

    The path's parameter is not called `holder`: the front would refuse what is too much for one holder, and none may be refused.
    """

    spend: Callable[[SpendRequest], Entry] | None = None

    @requires(LEDGER_SPEND)
    def post(self, request: HttpRequest, spender: str) -> Response:
        """Spend credits of the holder."""
        assert self.spend is not None
        named = {"holder_id": spender, "idempotency_key": idempotency_key(request), "actor": self.key.actor}
        entry = self.spend(SPEND_BODY.make(self.body(request, SPEND_BODY) | named))
        return write_response(response_schemas.EntrySerializer.body(entry), replayed=False)
