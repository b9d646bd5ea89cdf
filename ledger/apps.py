"""The ledger as a Django application."""

from typing import Any

from django.apps import AppConfig
from django.core.checks import register


class LedgerConfig(AppConfig):
    """The Django application of credits."""

    name = "ledger"
    verbose_name = "Ledger"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks of settings and applications, which each process makes once; and the credits of a month."""
        from ledger.database import checks
        from ledger.operators import installed
        from ledger.signals import payloads
        from ledger.totals.credit_figures import SOURCE
        from ledger.totals.figures import register_sections

        checks.register()
        register(installed.check_pages, "ledger")
        payloads.register_entry_body(_entry_body)
        register_sections(SOURCE)


def _entry_body(entry: Any) -> dict[str, Any]:
    """Return an entry as the API shows it, or a refusal with its problem. The API is loaded by who sends the first one."""
    from ledger.api.kit.writing import problems
    from ledger.api.schemas.response_schemas import EntrySerializer, RefusalSerializer
    from ledger.journal import refusal_from_record
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
