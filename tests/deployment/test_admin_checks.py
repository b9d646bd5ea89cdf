"""`manage.py check` looks at the admin's pages, although it is the URLs that load them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = """
import django
django.setup()
from django.contrib import admin
from django.core import checks
if {broken}:
    from ledger.staff.accounts import AccountAdmin
    AccountAdmin.list_display = ("no_such_column",)
assert not admin.site._registry or {broken}
print([found.id for found in checks.run_checks(tags=["admin"])], len(admin.site._registry) > 10)
"""


def checks_in_new_process(*, broken: bool) -> str:
    """Run the admin's checks in a process that has loaded no URLs; return what they found and whether pages were loaded."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ledger_project.settings"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(broken=broken)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_sound_pages_pass() -> None:
    assert checks_in_new_process(broken=False) == "[] True\n"


@pytest.mark.slow
@pytest.mark.check
def test_a_wrong_column_is_found() -> None:
    assert checks_in_new_process(broken=True) == "['admin.E108'] True\n"
