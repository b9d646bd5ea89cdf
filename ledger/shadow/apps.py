"""Shadow as a Django application."""

from ledger import applications


class ShadowConfig(applications.LedgerApplication):
    """What the ledger would decide beside another system of balances, recorded and enforced by nobody."""

    name = "ledger.shadow"
    label = "ledger_shadow"
    verbose_name = "Shadow"
    calls = "ledger.shadow.urls"
    operators_pages = ("ledger.shadow.account_pages",)
    permissions = "ledger.shadow.permissions"

    def ready(self) -> None:
        """Register the table whose rows the audit compares."""
        super().ready()
        from ledger.audit.chains import RegisteredTable, register_table

        register_table(RegisteredTable("ledger_promotion", is_fixed=True))
