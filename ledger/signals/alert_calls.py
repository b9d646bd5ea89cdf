"""Alerts: when a signal says that a balance is low, or that credits expire soon."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

from ledger.json_values import time_text
from ledger.rest.kit import cursors
from ledger.rest.kit.authentication import SIGNALS_READ, SIGNALS_WRITE
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_response, write_response
from ledger.rest.kit.requests import dry_run_key, idempotency_key
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation, page_response
from ledger.signals import alert_declarations, alert_watching, examples, schemas
from ledger.signals.alert_declarations import EndAlertRequest, WrittenAlert
from ledger.signals.errors import AlertLimit, AlertNotFound
from ledger.signals.schemas import ALERT_PATH, AlertAccountBodySerializer, AlertBodySerializer
from ledger.signals.webhook_calls import SIGNALS, SignalsEndpoint

NO_ALERT = AlertNotFound(alert="low")


class Alerts(SignalsEndpoint):
    """Alerts are listed."""

    @operation(
        "listAlerts",
        "List alerts",
        "The alerts that have not ended, those that were declared last first.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        query=schemas.AlertsQuery,
        responses=page_response(AlertBodySerializer, examples.ALERT, path="/v1/alerts", text="A page of alerts."),
    )
    def get(self, request: HttpRequest) -> Response:
        filters = read_query(schemas.AlertsQuery, request)
        page = cursors.requested_page(request, filters)
        alerts = alert_declarations.alerts(**filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(alerts, keyset=lambda alert: (alert.pk,), body=alert_declarations.shown))


class OneAlert(SignalsEndpoint):
    """An alert is declared, read and ended."""

    @operation(
        "setAlert",
        "Declare an alert",
        "Watches the accounts of a holder, of a credit type, of both, or all accounts. Of several alerts of one name, an account "
        "has the one of its holder and credit type, else of its holder, else of its credit type, else the one of all. "
        "`balance.low` is sent once when an account becomes low, `balance.depleted` when it has nothing left, "
        "`balance.recovered` when it is not low any more, `credits.expiring` once for each lot. An account that is low already "
        "is reported at once. Another alert of the same name and scope is replaced.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[ALERT_PATH],
        takes=RequestBody(
            schemas.ALERT,
            {
                "a holder's balance": examples.ALERT_BODY,
                "a part of the last grant, for all": {"below_percent": 20},
                "days left at the rate of the last week": {"days_left": 3, "rate_days": 7},
                "credits that expire": {"expiring_days": 14, "credit_type": "credits"},
            },
        ),
        responses={200: ResponseBody(AlertBodySerializer, examples.ALERT, "The alert.")},
        problems=[AlertLimit(limit=alert_declarations.MAX_ALERTS)],
        idempotent=True,
        dry_run=True,
    )
    def put(self, request: HttpRequest, alert: str) -> Response:
        dry_run = read_query(DryRunQuery, request)["dry_run"]
        fields = self.body(request, schemas.ALERT)
        made = schemas.ALERT.make(fields | self._options(request, alert, dry_run=dry_run))
        return _write_response(made, alert_declarations.set_alert)

    @operation(
        "readAlert",
        "Read an alert",
        "The alert of this name that is declared for exactly this holder and credit type.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        parameters=[ALERT_PATH],
        query=schemas.AlertQuery,
        responses={200: ResponseBody(AlertBodySerializer, examples.ALERT, "The alert.")},
        problems=[NO_ALERT],
    )
    def get(self, request: HttpRequest, alert: str) -> Response:
        query = read_query(schemas.AlertQuery, request)
        current_alerts = alert_declarations.current(
            alert=alert, holder_id=query.get("holder_id"), credit_type=query.get("credit_type")
        )
        return json_response(alert_declarations.shown(current_alerts))

    @operation(
        "endAlert",
        "End an alert",
        "Ends the alert of exactly this holder and credit type, and forgets what it crossed. Takes no body.",
        tag=SIGNALS,
        scope=SIGNALS_WRITE,
        parameters=[ALERT_PATH],
        query=schemas.EndAlertQuery,
        responses={200: ResponseBody(AlertBodySerializer, examples.ALERT_ENDED, "The alert as it ended.")},
        problems=[NO_ALERT],
        idempotent=True,
        dry_run=True,
    )
    def delete(self, request: HttpRequest, alert: str) -> Response:
        query = read_query(schemas.EndAlertQuery, request)
        options = self._options(request, alert, dry_run=query.pop("dry_run"))
        return _write_response(EndAlertRequest(**query, **options), alert_declarations.end_alert)

    def _options(self, request: HttpRequest, alert: str, *, dry_run: bool) -> dict[str, Any]:
        key = dry_run_key(request) if dry_run else idempotency_key(request)
        who = {"actor": self.key.actor, "request_id": self.request_id}
        return {"alert": alert, "idempotency_key": key, "dry_run": dry_run, **who}


class AlertAccounts(SignalsEndpoint):
    """The accounts that are low by an alert are listed."""

    @operation(
        "listAlertAccounts",
        "List the accounts that are low by an alert",
        "The accounts that have crossed an alert of this name and not recovered, those that crossed it last first; of an alert "
        "with `expiring_days`, the accounts with credits that expire in these days. As of the workers' last look, which comes "
        "every few seconds.",
        tag=SIGNALS,
        scope=SIGNALS_READ,
        parameters=[ALERT_PATH],
        query=schemas.AlertAccountsQuery,
        responses=page_response(
            AlertAccountBodySerializer, examples.ALERT_ACCOUNT, path="/v1/alerts/low/accounts", text="A page of accounts."
        ),
        problems=[NO_ALERT],
    )
    def get(self, request: HttpRequest, alert: str) -> Response:
        filters = read_query(schemas.AlertAccountsQuery, request)
        page = cursors.requested_page(request, filters)
        if not alert_declarations.alerts(alert=alert, limit=1):
            raise AlertNotFound(alert=alert)
        crossed_accounts = alert_watching.crossed(alert, **filters, **page.newest_first(), limit=page.rows_wanted)
        return json_response(page.response_body(crossed_accounts, keyset=lambda account: account.keyset, body=_account))


def _account(row: alert_watching.CrossedAccount) -> dict[str, Any]:
    return {
        "holder_id": row.holder_id,
        "credit_type": row.credit_type,
        "crossed_at": time_text(row.crossed_at),
        "crossing": row.crossings,
        "is_depleted": row.is_depleted,
    }


def _write_response(made: Any, execute: Callable[[Any], WrittenAlert]) -> Response:
    written = execute(made)
    return write_response(alert_declarations.shown(written.alert), replayed=written.replayed, status=200)
