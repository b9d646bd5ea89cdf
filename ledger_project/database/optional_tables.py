"""The tables of applications that can be left out."""

from typing import Final

from django.conf import settings

TABLES: Final[dict[str, frozenset[str]]] = {
    "ledger.keys": frozenset({"ledger_api_key", "ledger_key_request"}),
    "ledger.signals": frozenset({
        "ledger_webhook", "ledger_webhook_change", "ledger_webhook_pace", "ledger_webhook_turn", "ledger_alert",
        "ledger_alert_state", "ledger_alert_look", "ledger_budget_report", "ledger_signal", "ledger_signal_position",
        "ledger_signal_feed", "ledger_delivery", "ledger_delivery_stream", "ledger_delivery_attempt",
    }),
    "ledger.staff": frozenset({"ledger_approval", "ledger_approval_decision", "ledger_operator_stake", "ledger_operator"}),
    "ledger.totals": frozenset({"ledger_daily_total", "ledger_total_state", "ledger_expiring_total", "ledger_month_close"}),
    "billing.dunning": frozenset({"billing_mail", "billing_reminder", "billing_reminderhold"}),
    "billing.payments": frozenset({
        "billing_pack", "billing_purchase", "billing_purchasegrant", "billing_purchasereturn", "billing_returnsettlement",
        "billing_duepurchase", "billing_paymentintent", "billing_providerrefund", "billing_providerevent",
        "billing_providercustomer", "billing_topup",
    }),
    "ledger.shadow": frozenset({"ledger_observation", "ledger_promotion"}),
    "billing.statements_in": frozenset({"billing_bankreceipt"}),
}  # fmt: skip
"""By application."""
TRIGGERS: Final = {("billing_invoice", "mailed"): "billing.dunning"}
"""The applications that add a trigger to a table of another."""


def is_left_out(table: str) -> bool:
    """Return whether a table is of an application that is not installed."""
    return any(table in tables for name, tables in TABLES.items() if name not in settings.INSTALLED_APPS)


def triggers_of(table: str, names: str) -> frozenset[str]:
    """Return the triggers of a table without those of applications that are not installed.

    Args:
        names: of all its triggers, with spaces between.
    """
    return frozenset(name for name in names.split() if TRIGGERS.get((table, name), "ledger") in settings.INSTALLED_APPS)
