"""Services about taxes as a Django application."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, register

from ledger import applications

if TYPE_CHECKING:
    from billing.orders.vat_lookups import VatAnswer


class TaxServicesConfig(applications.LedgerApplication):
    """VIES, which says whether a VAT id is valid, and Stripe Tax, which finds the taxes of sales."""

    name = "billing.tax_services"
    label = "billing_tax_services"
    verbose_name = "Services about taxes"
    needs = ("ledger", "billing")

    def ready(self) -> None:
        """Register who looks VAT ids up, and the check of the package that does it."""
        super().ready()
        from billing.orders.vat_lookups import register_service
        from ledger import conf

        register(check_package, "billing", conf.CHECKS)
        register_service(_look_up)


def check_package(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Report that VAT ids are to be looked up, and the package that does it is not installed (billing.E004)."""
    from ledger import conf

    if not conf.VIES_URL.value or find_spec("httpx") is not None:
        return []
    hint = 'pip install "credit-ledger[vies]" installs it.'
    return [Error("LEDGER_VIES_URL needs the package 'httpx'.", hint=hint, id="billing.E004")]


def _look_up(vat_id: str, requester: str) -> "VatAnswer":
    from billing.tax_services import vies

    return vies.look_up(vat_id, requester=requester)
