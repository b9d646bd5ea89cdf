"""Declares and ends alerts: for a holder, for a credit type, for both, or for all. Each change is a row, once for its key."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from django.db import connection

from ledger.database.lock_names import ALERTS
from ledger.database.locks import waits_bounded
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction
from ledger.errors import IdempotencyKeyReused, Invalid
from ledger.records import Record
from ledger.rules.instants import to_text, to_us
from ledger.rules.requests import Reason
from ledger.signals.alert_states import DeclaredAlert
from ledger.signals.errors import AlertLimit, AlertNotFound
from ledger.signals.models import Alert as AlertRow
from ledger.values import MAX_ACTOR_CHARACTERS, Amount, BudgetName, CreditType, Holder, IdempotencyKey, Integer, Text

MAX_ALERTS: Final = 20
"""How many alerts a holder may have, and how many may be declared for all holders."""
MAX_DAYS: Final = 366
MAX_RATE_DAYS: Final = 31
USUAL_RATE_DAYS: Final = 7


class AlertName(BudgetName):
    """The name of an alert in its scope."""


@dataclass(frozen=True, kw_only=True)
class AlertWrite(Record):
    """Which alert, and the options of every write of an alert.

    Args:
        idempotency_key: None: the request has none, and is executed each time.
        dry_run: everything is decided, and nothing is written.
    """

    action: ClassVar[str]

    alert: Annotated[str, AlertName("Its name. A holder's own alert replaces the default of the same name.")]
    holder_id: Annotated[str | None, Holder("The only holder that it watches; null for all.", null=True)] = None
    credit_type: Annotated[str | None, CreditType("The only credit type that it watches; null for all.", null=True)] = None
    reason: Reason = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""
    idempotency_key: Annotated[str | None, IdempotencyKey()] = None
    request_id: str = ""
    dry_run: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The columns that say when the account is told."""
        return {}

    def digest(self) -> bytes:
        """SHA-256 over what the request asks for."""
        facts = [self.action, self.alert, self.holder_id, self.credit_type, self.reason, self.settings]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()


REQUEST_OPTIONS: Final = frozenset({"actor", "idempotency_key", "request_id", "dry_run"})


@dataclass(frozen=True, kw_only=True)
class AlertRequest(AlertWrite):
    """When to send a signal about an account: at a low balance, or before credits expire."""

    action = "declared"
    either = (("below",), ("below_percent",), ("days_left",), ("expiring_days",))

    below: Annotated[int | None, Amount("The account is low with fewer available credits than this.")] = None
    below_percent: Annotated[
        int | None,
        Integer(
            "The account is low with fewer available credits than this percentage of the most that were available since its "
            "last grant.",
            least=1,
            most=100,
        ),
    ] = None
    days_left: Annotated[
        int | None,
        Integer("The account is low if what is available lasts for fewer days at the present rate.", least=1, most=MAX_DAYS),
    ] = None
    rate_days: Annotated[
        int | None,
        Integer(
            f"With `days_left`: the number of days over which the rate is measured; {USUAL_RATE_DAYS} by default.",
            least=1,
            most=MAX_RATE_DAYS,
        ),
    ] = None
    expiring_days: Annotated[
        int | None, Integer("Credits that expire within this number of days are reported, each lot once.", least=1, most=MAX_DAYS)
    ] = None

    def check_whole(self) -> None:
        """Refuse a window without a rate."""
        if self.rate_days is not None and self.days_left is None:
            raise Invalid(pointer="/rate_days", rule="not-used", detail="only with days_left")

    @property
    def settings(self) -> dict[str, Any]:
        rate_days = None if self.days_left is None else self.rate_days or USUAL_RATE_DAYS
        return {
            "below": self.below,
            "below_percent": self.below_percent,
            "days_left": self.days_left,
            "rate_days": rate_days,
            "expiring_days": self.expiring_days,
        }


@dataclass(frozen=True, kw_only=True)
class EndAlertRequest(AlertWrite):
    """The end of an alert."""

    action = "ended"


@dataclass(frozen=True, slots=True)
class WrittenAlert:
    """An alert as it was written; `replayed` is True if an earlier request with the key wrote it."""

    alert: AlertRow
    replayed: bool = False


RECORD: Final = """
    INSERT INTO ledger_alert (
        name, holder_id, credit_type, is_ended, below, below_percent, days_left, rate_days, expiring_days,
        idempotency_key, request_digest, reason, actor, request_id
    )
    VALUES (
        %(name)s, %(holder_id)s, %(credit_type)s, %(is_ended)s, %(below)s, %(below_percent)s, %(days_left)s, %(rate_days)s,
        %(expiring_days)s, %(key)s, %(digest)s, %(reason)s, %(actor)s, %(request_id)s
    )
    RETURNING id
"""
LOOK: Final = "INSERT INTO ledger_alert_look (alert, holder_id) VALUES (%s, %s)"

COLUMNS: Final = "id, name, holder_id, credit_type, below, below_percent, days_left, rate_days, expiring_days, recorded_at"
CURRENT: Final = f"""
    SELECT {COLUMNS} FROM (
        SELECT DISTINCT ON (holder_id, name, credit_type) * FROM ledger_alert
        WHERE {{whose}} ORDER BY holder_id, name, credit_type, id DESC
    ) AS latest
    WHERE NOT is_ended
"""
# More than one query, because no index serves IS NOT DISTINCT FROM.
CURRENT_OF_HOLDER: Final = CURRENT.format(whose="holder_id = %s")
CURRENT_OF_HOLDERS: Final = CURRENT.format(whose="holder_id = ANY(%s)")
CURRENT_OF_ALL: Final = CURRENT.format(whose="holder_id IS NULL")


def set_alert(request: AlertRequest) -> WrittenAlert:
    """Declare an alert, or replace the one of its name and scope; an account that is low by both is not reported again.

    Raises:
        AlertLimit: the holder has too many alerts, or there are too many for all holders.
        IdempotencyKeyReused: the key belongs to another request.
        HolderBusy: other changes of alerts take longer than lock_timeout.
    """
    return _once(request)


def end_alert(request: EndAlertRequest) -> WrittenAlert:
    """End an alert, and forget what it crossed; the default of its name watches the accounts from then on, if there is one.

    Raises: as `set_alert`; AlertNotFound.
    """
    return _once(request)


def _once(request: AlertWrite) -> WrittenAlert:
    with waits_bounded(), locked_transaction(ALERTS()):
        key = request.idempotency_key
        known = None if key is None else AlertRow.objects.filter(idempotency_key=key).first()
        if known is not None:
            if bytes(known.request_digest or b"") != request.digest():
                raise IdempotencyKeyReused(idempotency_key=known.idempotency_key or "")
            return WrittenAlert(known, replayed=True)
        _ensure_possible(request)
        return WrittenAlert(_would_be(request) if request.dry_run else _record_alert(request))


def _ensure_possible(request: AlertWrite) -> None:
    present = alerts_of(request.holder_id)
    others = [alert for alert in present if (alert.name, alert.credit_type) != (request.alert, request.credit_type)]
    if isinstance(request, EndAlertRequest) and len(others) == len(present):
        raise AlertNotFound(alert=request.alert)
    if isinstance(request, AlertRequest) and len(others) >= MAX_ALERTS:
        raise AlertLimit(limit=MAX_ALERTS)


def _columns(request: AlertWrite) -> dict[str, Any]:
    settings = dict.fromkeys(("below", "below_percent", "days_left", "rate_days", "expiring_days"))
    return settings | request.settings | {
        "name": request.alert,
        "holder_id": request.holder_id,
        "credit_type": request.credit_type,
        "is_ended": isinstance(request, EndAlertRequest),
        "reason": request.reason,
        "actor": request.actor,
        "request_id": request.request_id,
    }  # fmt: skip


def _record_alert(request: AlertWrite) -> AlertRow:
    key = request.idempotency_key
    with connection.cursor() as cursor:
        cursor.execute(RECORD, _columns(request) | {"key": key, "digest": None if key is None else request.digest()})
        [number] = cursor.fetchone()
        cursor.execute(LOOK, [number, request.holder_id])
    return AlertRow.objects.get(pk=number)


def _would_be(request: AlertWrite) -> AlertRow:
    return AlertRow(**_columns(request))


def alerts_of(holder_id: str | None) -> list[DeclaredAlert]:
    """Return the alerts that are declared for a holder alone, or without a holder for all holders."""
    return fetch_rows(_alert, CURRENT_OF_ALL) if holder_id is None else fetch_rows(_alert, CURRENT_OF_HOLDER, [holder_id])


def alerts_of_holders(holder_ids: Sequence[str]) -> list[DeclaredAlert]:
    """Return the alerts that are declared for each of these holders alone."""
    return fetch_rows(_alert, CURRENT_OF_HOLDERS, [list(holder_ids)])


def _alert(*columns: Any) -> DeclaredAlert:
    return DeclaredAlert._make((*columns[:-1], to_us(columns[-1])))


def current(*, alert: str, holder_id: str | None, credit_type: str | None) -> AlertRow:
    """Return the alert of this name and scope, or raise AlertNotFound."""
    for found in alerts_of(holder_id):
        if (found.name, found.credit_type) == (alert, credit_type):
            return AlertRow.objects.get(pk=found.id)
    raise AlertNotFound(alert=alert)


LISTED: Final = """
    SELECT id FROM (
        SELECT DISTINCT ON (holder_id, name, credit_type) id, is_ended, holder_id FROM ledger_alert
        WHERE (%(holder)s::text IS NULL OR holder_id = %(holder)s) AND (%(alert)s::text IS NULL OR name = %(alert)s)
        ORDER BY holder_id, name, credit_type, id DESC
    ) AS latest
    WHERE NOT is_ended AND id < COALESCE(%(before)s, 9223372036854775807) AND id > COALESCE(%(after)s, 0)
    ORDER BY id {order} LIMIT %(limit)s
"""


def alerts(
    *,
    holder: str | None = None,
    alert: str | None = None,
    before: tuple[int] | None = None,
    after: tuple[int] | None = None,
    limit: int = 50,
) -> list[AlertRow]:
    """Return a page of the alerts that have not ended, those that were declared last first.

    Args:
        holder, alert: only those of this holder or name.
        before: only those with a smaller id; `after`: only those with a larger one, those next to it.
    """
    given = {"holder": holder, "alert": alert, "before": before and before[0], "after": after and after[0], "limit": limit}
    found = fetch_rows(int, LISTED.format(order="DESC" if after is None else "ASC"), given)
    rows = AlertRow.objects.in_bulk(found)
    return [rows[number] for number in sorted(found, reverse=True)]


def shown(row: AlertRow) -> dict[str, Any]:
    """Return an alert as the API shows it; a dry run's has neither id nor time."""
    return {
        "id": row.pk,
        "alert": row.name,
        "holder_id": row.holder_id,
        "credit_type": row.credit_type,
        "state": "ended" if row.is_ended else "declared",
        "below": row.below,
        "below_percent": row.below_percent,
        "days_left": row.days_left,
        "rate_days": row.rate_days,
        "expiring_days": row.expiring_days,
        "reason": row.reason,
        "declared_at": None if row.recorded_at is None else to_text(to_us(row.recorded_at)),
        "declared_by": row.actor,
    }


def watching(alerts: Iterable[DeclaredAlert], holder_id: str, credit_type: str) -> Mapping[str, DeclaredAlert]:
    """Return the alerts that watch an account, by name: of each name the one that is declared most closely."""
    chosen: dict[str, DeclaredAlert] = {}
    for alert in alerts:
        known = chosen.get(alert.name)
        if alert.watches(holder_id, credit_type) and (known is None or known.rank < alert.rank):
            chosen[alert.name] = alert
    return chosen
