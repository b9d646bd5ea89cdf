"""What operators may do with webhooks and alerts."""

from typing import Final

from ledger.operators.permissions import EVERYONE, Permission, table_of

VIEW_WEBHOOK: Final = Permission("ledger_signals.view_webhook", ("support",))
SWITCH_WEBHOOK: Final = Permission("ledger_signals.switch_webhook", (), "webhook", "Can enable and disable a webhook")
RESEND_SIGNAL: Final = Permission("ledger_signals.resend_signal", ("support",), "webhook", "Can send a signal again")
VIEW_ALERT: Final = Permission("ledger_signals.view_alert", EVERYONE)
SET_ALERT: Final = Permission("ledger_signals.set_alert", ("support",), "alert", "Can declare and end an alert")

PERMISSIONS: Final = table_of(dict(globals()))
