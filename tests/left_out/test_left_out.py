"""A matrix over INSTALLED_APPS: each application that can be left out is left out, with its folder, and the rest's tests pass.

`make check` leaves out several at once, so that each application is somewhere without each other that it does not need: what it
imports of it, or asks of its tables, is found. `make prove` leaves out each alone.
"""

import os
import subprocess
import sys
from typing import Final

import pytest

from ledger.applications import LedgerApplication
from ledger_project.settings import BASE_DIR, INSTALLED_APPS
from tests.left_out.importing import with_those_that_need
from tests.settings import CITUS

SEVERAL: Final = (
    ("ledger.rest", "ledger.staff", "billing.payments", "billing.statements_in", "billing.tax_services"),
    (
        "ledger.cluster", "ledger.portal", "ledger.shadow", "ledger.staff", "billing.books", "billing.dunning",
        "billing.tax_services",
    ),
    ("ledger.cluster", "ledger.totals", "billing.dunning", "billing.payments", "billing.statements_in", "billing.tax_services"),
    (
        "ledger.exchange", "ledger.portal", "ledger.signals", "ledger.staff", "ledger.statements", "billing.dunning",
        "billing.statements_in",
    ),
    ("ledger.portal", "ledger.rest", "ledger.shadow", "ledger.totals"),
    ("ledger.cluster", "ledger.exchange", "ledger.keys", "ledger.shadow", "billing.payments"),
)  # fmt: skip
"""What is left out at once."""
QUICK: Final = ("tests/left_out/rest.py", "tests/ledger/services/test_credits.py")
"""What runs without each application: what `rest.py` has, and quick tests of the core."""
BILLED: Final = ("tests/billing/documents/test_numbers.py",)
"""What runs too without an application of billing."""
LONGER: Final = ("tests/billing/documents/test_transitions.py", "tests/billing/documents/invoice_payments/test_payments.py")
"""What takes longer, and runs without an application of billing in `make prove`."""
FURTHER: Final = {"billing.payments": ("tests/billing/statements_in/test_booking.py",)}
"""What runs there too without one of them: files of banks pay invoices without providers and packs."""
OPTIONAL: Final = tuple(name for name in INSTALLED_APPS if name.startswith(("ledger.", "billing.")))
OF_BILLING: Final = tuple(name for name in OPTIONAL if name.startswith("billing."))


def optional_applications() -> list[str]:
    """Return the applications of credits and of billing that can be left out."""
    from django.apps import apps

    return [config.name for config in apps.get_app_configs() if isinstance(config, LedgerApplication)]


def run_without(applications: tuple[str, ...], *paths: str) -> None:
    """Run these files in a process without the applications, those that need them, and their folders; every test passes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *paths],
        cwd=BASE_DIR,
        env=environment | {"LEDGER_TEST_WITHOUT": " ".join(applications)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1_800,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.skipif(bool(CITUS), reason="applications are left out on one server")
@pytest.mark.parametrize("applications", SEVERAL, ids=" ".join)
def test_without_several_applications_the_tests_of_the_rest_pass(applications: tuple[str, ...], django_db_setup: None) -> None:
    run_without(applications, *QUICK)


def test_each_application_is_somewhere_without_each_other_that_it_does_not_need() -> None:
    needed_by = {name: with_those_that_need({name}, INSTALLED_APPS) for name in OPTIONAL}
    apart = {(name, other) for name in OPTIONAL for other in OPTIONAL if name not in needed_by[other]}
    groups = [with_those_that_need({*names}, INSTALLED_APPS) for names in SEVERAL]
    assert {(name, other) for group in groups for other in group for name in OPTIONAL if name not in group} == apart


@pytest.mark.slow
@pytest.mark.skipif(bool(CITUS), reason="applications are left out on one server")
@pytest.mark.parametrize("application", OPTIONAL)
def test_without_an_application_the_tests_of_the_rest_pass(application: str, django_db_setup: None) -> None:
    run_without((application,), *QUICK, *(BILLED if application in OF_BILLING else ()))


@pytest.mark.slow
@pytest.mark.skipif(bool(CITUS), reason="applications are left out on one server")
@pytest.mark.parametrize("application", OF_BILLING)
def test_without_an_application_of_billing_invoices_move_and_are_paid(application: str, django_db_setup: None) -> None:
    run_without((application,), *LONGER, *FURTHER.get(application, ()))


def test_each_application_that_can_be_left_out_is_in_the_matrix() -> None:
    assert optional_applications() == list(OPTIONAL)
