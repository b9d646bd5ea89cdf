"""A process loads the application before it becomes the web server, and ends with the one that started it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run_loaded(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a module in a process that has loaded the application."""
    return subprocess.run(
        [sys.executable, "-m", "ledger_project.serving.web", *arguments],
        cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_application_is_there_before_the_server_is_and_the_collector_leaves_it_alone() -> None:
    loaded = "import sys, gc; print(*(name in sys.modules for name in names), gc.get_freeze_count() > 10_000)"
    names = "names = 'ledger.rest.calls.credits', 'opentelemetry'"
    done = run_loaded("timeit", "--number=1", "--repeat=1", f"--setup={names}", loaded)
    # Nothing of OpenTelemetry: traces are switched off.
    assert done.stdout.startswith("True False True\n"), done.stderr


def test_a_web_process_ends_with_the_process_that_started_it() -> None:
    done = run_loaded("timeit", "--number=1", "--repeat=1", "print('goes on')", LEDGER_SERVED_BY="1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "has ended" in done.stderr


PAGES_LOADED = """
import django, sys
from django.core.management import CommandError, call_command
django.setup()
try:
    call_command("generate_invoices", "--as-of", "2026-01-01", skip_checks=False)
except CommandError as error:
    print("does not answer" in str(error))
others = ("ledger.staff.", "billing.admin.", "ledger.rest.calls", "billing.api.", "ledger_project.urls")
print([name for name in sys.modules if name.startswith(others) and name not in ("ledger.staff.apps", "ledger.staff.models")])
"""
"""Runs a command up to its first question to the database, with the checks that it does when it starts."""


@pytest.mark.slow
@pytest.mark.check
def test_a_command_loads_neither_calls_nor_pages() -> None:
    nowhere = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "SECRET_KEY": "only-for-tests"}
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ledger_project.settings"} | nowhere
    done = subprocess.run(
        [sys.executable, "-c", PAGES_LOADED], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True\n[]\n"
