"""Each function that a cluster replaces has a replacement that takes the same arguments; one server calls none of them."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils.module_loading import import_string
from pytest_django.fixtures import Settings

import ledger.reads.lock_report
import ledger.services
from ledger.cluster.queries import SQL
from ledger.database.cluster import REPLACED, on_cluster
from tests.conftest import database_url


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("path", sorted(REPLACED))
def test_a_replacement_takes_the_same_arguments(path: str) -> None:
    replacement = import_string(f"ledger.cluster.{path}")
    if inspect.isclass(replacement):
        replacement(*[lambda: None] * 2, most=lambda: 1).close()
    else:
        assert parameters(replacement) == parameters(REPLACED[path])


def test_a_process_of_a_cluster_starts() -> None:
    """A replacement that is called while its caller is imported imports nothing that is not there yet."""
    environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "x", "LEDGER_DISTRIBUTED": "true"}
    environment |= {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "ledger_project.settings"}
    imports = "import django; django.setup(); import ledger.services, ledger.reads"
    done = subprocess.run([sys.executable, "-c", imports], cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def one_server(accounts: int) -> float:
    return -1.0


@pytest.mark.parametrize("distributed", [True, False], ids=["cluster", "control: one server"])
def test_only_a_cluster_calls_the_replacement(monkeypatch: pytest.MonkeyPatch, settings: Settings, distributed: bool) -> None:
    settings.LEDGER = {**settings.LEDGER, "DISTRIBUTED": distributed}
    monkeypatch.setitem(REPLACED, "queries.wait_seconds", REPLACED["queries.wait_seconds"])
    waits = on_cluster("queries.wait_seconds")(one_server)
    assert (waits is one_server) == (not distributed)
    assert waits(100) == (3.5 if distributed else -1.0)


@pytest.mark.parametrize("name", sorted(SQL))
def test_every_statement_that_a_cluster_replaces_exists(name: str) -> None:
    """Under another name it would be sent to a cluster as to one server."""
    elsewhere = [path for path in Path(ledger.__path__[0]).rglob("*.py") if path.parent.name != "cluster"]
    # A statement by the holder's time has a twin under the same name and this ending.
    made_by = "TimedStatement" if name.endswith("_by_clock") else "Statement|sql_of"
    first = rf'({made_by})\(\s*"{name.removesuffix("_by_clock")}",'
    assert [path.name for path in elsewhere if re.search(first, path.read_text())]
