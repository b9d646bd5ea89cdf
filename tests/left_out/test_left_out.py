"""A matrix over INSTALLED_APPS: each application that can be left out is left out, with its folder, and the rest's tests pass."""

import os
import subprocess
import sys
from typing import Final

import pytest

from ledger.applications import LedgerApplication
from ledger_project.settings import BASE_DIR, INSTALLED_APPS
from tests.settings import CITUS

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


def run_without(application: str, *paths: str) -> None:
    """Run these files in a process without the application, those that need it, and their folders; every test passes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *paths],
        cwd=BASE_DIR,
        env=environment | {"LEDGER_TEST_WITHOUT": application},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.skipif(bool(CITUS), reason="applications are left out on one server")
@pytest.mark.parametrize("application", OPTIONAL)
def test_without_an_application_the_tests_of_the_rest_pass(application: str, django_db_setup: None) -> None:
    run_without(application, *QUICK, *(BILLED if application in OF_BILLING else ()))


@pytest.mark.slow
@pytest.mark.skipif(bool(CITUS), reason="applications are left out on one server")
@pytest.mark.parametrize("application", OF_BILLING)
def test_without_an_application_of_billing_invoices_move_and_are_paid(application: str, django_db_setup: None) -> None:
    run_without(application, *LONGER, *FURTHER.get(application, ()))


def test_each_application_that_can_be_left_out_is_in_the_matrix() -> None:
    assert optional_applications() == list(OPTIONAL)
