"""Signals as a Django application."""

from typing import Any

from ledger import applications


class SignalsConfig(applications.LedgerApplication):
    """What happened in the ledger, sent to webhooks; and alerts."""

    name = "ledger.signals"
    label = "ledger_signals"
    verbose_name = "Signals"
    needs = ("ledger", "ledger.rest")
    calls = "ledger.signals.urls"
    operators_pages = (
        "ledger.signals.alert_pages",
        "ledger.signals.webhook_pages",
    )
    permissions = "ledger.signals.permissions"

    def ready(self) -> None:
        """Register the tables whose rows the audit compares, and the form in which receivers get entries."""
        super().ready()
        from ledger.audit.chains import RegisteredTable, register_table
        from ledger.signals import payloads

        for table in (
            RegisteredTable("ledger_webhook"),
            RegisteredTable("ledger_webhook_change", is_fixed=True),
            RegisteredTable("ledger_alert", is_fixed=True),
        ):
            register_table(table)
        payloads.register_entry_body(_entry_body)


def _entry_body(entry: Any) -> dict[str, Any]:
    """Return an entry as the API shows it, or a refusal with its problem. The API is loaded by who sends the first one."""
    from ledger.journal import refusal_from_record
    from ledger.rest.kit import problems
    from ledger.rest.schemas.response_schemas import EntrySerializer, RefusalSerializer
    from ledger.rules.instants import to_text

    if entry.refusal is None:
        return EntrySerializer.body(entry)
    refusal = refusal_from_record(entry.refusal["code"], entry.refusal["facts"], entry.refusal["request_id"])
    shown = RefusalSerializer.body(
        entry,
        operation=entry.refusal["operation"],
        problem=problems.body(refusal, refusal.request_id),
        recorded_at=to_text(entry.recorded_us),
    )
    return {"holder_id": entry.holder_id, "credit_type": entry.credit_type, "sequence": entry.sequence, **shown}
