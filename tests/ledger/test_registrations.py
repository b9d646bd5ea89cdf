"""What applications register when they are ready, which may happen more than once, as in a test that installs others."""

import pytest
from django.apps import apps

from billing import additions as billing_additions
from billing.documents import pay_links
from billing.orders import vat_lookups
from ledger import exports
from ledger.audit import chains
from ledger.operators import additions
from ledger.portal import parts
from ledger.services import coming_credits
from ledger.signals import types
from ledger.totals import figures, ties
from ledger.typesetting import letterheads

OURS = [config.label for config in apps.get_app_configs() if config.name.partition(".")[0] in ("ledger", "billing")]


def registered_parts() -> list[list[object]]:
    """Return what is registered, list by list."""
    lists = (
        additions._holder_sections, additions._attention, additions._overviews, list(additions._groups.items()),
        additions._searches, additions._account_forms, additions._account_pages, additions._time_line_parts,
        coming_credits._sources, parts._registered, parts._account_parts,
        letterheads._registered, figures._sources, ties._registered, exports.EXPORTS, types._types, chains._CHAINS,
        chains._TABLES, pay_links._registered, list(billing_additions._laws), billing_additions.INVOICE_PAGE._parts,
        list(billing_additions.INVOICE_PAGE.operations), vat_lookups._services,
        list(billing_additions.SALES), billing_additions._find_payment, billing_additions._customer_payments,
        billing_additions._named_entries, billing_additions._transfer_orders, list(additions._references),
    )  # fmt: skip
    return [list(each) for each in lists]


@pytest.mark.parametrize("app", OURS)
def test_an_application_that_is_made_ready_again_registers_nothing_twice(app: str) -> None:
    before = registered_parts()
    assert all(before), "an empty list shows nothing"

    apps.get_app_config(app).ready()

    assert registered_parts() == before
