"""A web process for the tests of clients, and a proxy before it that loses answers."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from psycopg.conninfo import conninfo_to_dict
from pytest_django.plugin import DjangoDbBlocker

from ledger.keys import api_keys
from ledger.models import SCOPES
from tests.clients.losing_proxy import LosingProxy
from tests.conftest import database_url, on_committed_database, web_servers
from tests.faults.proxy import FaultProxy, Rates, connecting_to


@dataclass(frozen=True)
class RunningServer:
    """A web process, a key with all scopes, and what can break its connections to PostgreSQL."""

    url: str
    api_key: str
    faults: FaultProxy


@pytest.fixture(scope="module")
def running_server(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """One web process for a file of tests, on the database of the tests that commit."""
    with django_db_blocker.unblock(), on_committed_database():
        _, api_key = api_keys.create_api_key(name=f"clients-{secrets.token_hex(4)}", scopes=SCOPES)
        with fault_proxy() as faults, web_servers(tmp_path_factory.mktemp("web")) as start:
            dsn = database_url("application", host="127.0.0.1", port=faults.port)
            yield RunningServer(start(1, dsn=dsn)[0].url, api_key, faults)


@contextmanager
def fault_proxy() -> Iterator[FaultProxy]:
    """A proxy before PostgreSQL that breaks half of the COMMITs while `is_breaking`, and nothing else."""
    found = conninfo_to_dict(database_url("application"))
    rates = Rates(commit=0.5, garbage=0, blind=0, refusal=0)
    connect = connecting_to(str(found["host"]), int(str(found["port"])))
    proxy = FaultProxy(connect, key=re.compile(rb"never"), seed=7, rates=rates).start()
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def losing_proxy(running_server: RunningServer) -> Iterator[LosingProxy]:
    """A proxy before the web process."""
    proxy = LosingProxy(running_server.url)
    yield proxy
    proxy.end()
