"""Files of banks as a Django application."""

from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, register

from ledger import applications

if TYPE_CHECKING:
    from ledger.operators.additions import Attention


class StatementsInConfig(applications.LedgerApplication):
    """The statements that banks send: what they say came in is booked as payments of invoices."""

    name = "billing.statements_in"
    label = "billing_statements_in"
    verbose_name = "Bank statements"
    needs = ("ledger", "billing")
    operators_pages = ("billing.statements_in.receipt_pages",)
    permissions = "billing.statements_in.permissions"

    def ready(self) -> None:
        """Register the check of the formats, the table that the audit compares, the export, and what waits for a person."""
        super().ready()
        from billing.statements_in.exports import RECEIPTS
        from ledger import conf, exports
        from ledger.audit.chains import RegisteredTable, register_table
        from ledger.operators import additions

        register(_check_formats, "billing", conf.CHECKS)
        register_table(RegisteredTable("billing_bankreceipt"))
        exports.register(RECEIPTS)
        additions.register_attention(_attention)


def _check_formats(app_configs: Any, **options: Any) -> list[CheckMessage]:
    from billing.statements_in.formats import check_bank_formats

    return check_bank_formats(app_configs)


def _attention(request: Any) -> "list[Attention]":
    from billing.statements_in.attention import list_left_receipts

    return list_left_receipts(request)
