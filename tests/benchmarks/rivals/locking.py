"""Rivals that differ from the ledger's spend in the protection alone: same view, rules, digest and table.

Each of them writes the ledger's own rows, so that nothing but what protects them is compared.
"""

from collections.abc import Callable
from typing import Any

from django.db import Error, connection, transaction
from django.http import HttpRequest, HttpResponse

from ledger import entry_rows, journal, rules
from ledger.api import bodies, shapes
from ledger.api.kit.authentication import LEDGER_SPEND
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.idempotency import idempotency_key
from ledger.api.kit.rendering import recorded_answer
from ledger.database.locks import sqlstate
from ledger.rules import Entry, SpendRequest
from ledger.rules.instants import to_us

SERIALIZABLE = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; "
OPEN = "SELECT * FROM rivals.open_by(%s, %s, %s, %s)"
CACHE_BALANCE = "UPDATE rivals.holder SET balance = %s WHERE holder_id = %s"
CONFLICTS = {"40001", "40P01", "23505", "LG002"}


def _spend_once(request: SpendRequest, protection: str) -> Entry:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        parameters = (protection, request.holder_id, request.credit_type, request.idempotency_key)
        if protection == "isolation":
            cursor.execute(SERIALIZABLE + OPEN, parameters)  # in one round trip
            cursor.nextset()
        else:
            cursor.execute(OPEN, parameters)
        now, recorded_at, *row = cursor.fetchone()
        state, _ = journal._account(
            request.holder_id, request.credit_type, [to_us(now), recorded_at and to_us(recorded_at), *row]
        )
        entries = rules.spend(state, request)
        journal.APPEND_ONE.execute(entry_rows.parameters(entries[-1]))
        if protection == "row":
            cursor.execute(CACHE_BALANCE, (entries[-1].balance, request.holder_id))
    return entries[-1]


def by_row(request: SpendRequest) -> Entry:
    """SELECT … FOR UPDATE on the holder's row, which caches the balance."""
    return _spend_once(request, "row")


def by_table(request: SpendRequest) -> Entry:
    """LOCK TABLE."""
    return _spend_once(request, "table")


def by_isolation(request: SpendRequest) -> Entry:
    """SERIALIZABLE, tried until it goes through."""
    while True:
        try:
            return _spend_once(request, "isolation")
        except Error as error:
            if sqlstate(error) not in CONFLICTS:
                raise


class _Spends(Endpoint):
    scopes = {"post": LEDGER_SPEND}
    protected: Callable[[SpendRequest], Entry]

    def post(self, request: HttpRequest, holder: str) -> HttpResponse:
        """Spend credits of the holder."""
        given: dict[str, Any] = self.body(request, bodies.SpendSerializer)
        entry = type(self).protected(
            SpendRequest(holder_id=holder, idempotency_key=idempotency_key(request), actor=self.key.actor, **given)
        )
        return recorded_answer(shapes.entry_body(entry), replayed=False)


class RowLockSpends(_Spends):
    """By SELECT FOR UPDATE."""

    protected = staticmethod(by_row)


class TableLockSpends(_Spends):
    """By LOCK TABLE."""

    protected = staticmethod(by_table)


class SerializableSpends(_Spends):
    """By SERIALIZABLE and retries."""

    protected = staticmethod(by_isolation)
