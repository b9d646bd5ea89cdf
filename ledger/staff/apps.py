"""The operators' pages as a Django application."""

from typing import Any, Final

from django.apps import apps
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as CheckWarning

from ledger import applications

HINT: Final = "Put 'unfold' and 'unfold.contrib.filters' before 'django.contrib.admin' in INSTALLED_APPS."


class StaffConfig(applications.LedgerApplication):
    """The pages on which operators see and move credits, what they search, and the forms that wait for a second operator.

    The staff log is the core's: keys, exports and logins are written there with pages and without.
    """

    name = "ledger.staff"
    label = "ledger_staff"
    verbose_name = "Operators' pages"
    needs = ("ledger", "django.contrib.admin", "unfold", "unfold.contrib.filters")
    permissions = "ledger.staff.permissions"

    def ready(self) -> None:
        """Register the tables whose rows the audit compares, and the check of the order of the pages' base."""
        super().ready()
        from ledger.audit.chains import RegisteredTable, register_table

        register_table(RegisteredTable("ledger_approval", is_fixed=True))
        register_table(RegisteredTable("ledger_approval_decision", ("approval_id",), is_fixed=True))
        register_table(RegisteredTable("ledger_operator_stake", ("idempotency_key", "counted_in"), is_fixed=True))
        register_table(RegisteredTable("ledger_operator", ("user_id",)))
        register(check_order, "ledger")


def check_order(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report what keeps the pages out of their design (ledger.W002)."""
    names = [application.name for application in apps.get_app_configs()]
    if names.index("unfold") < names.index("django.contrib.admin"):
        return []
    what = "'unfold' stands behind 'django.contrib.admin', whose templates hide those of unfold."
    return [CheckWarning(what, hint=HINT, id="ledger.W002")]
