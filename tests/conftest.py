"""What every test may use: the tests' own PostgreSQL, committed history, more connections, threads and web processes."""

import fcntl
import gc
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import psycopg
import pytest
from _pytest.assertion import rewrite
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.template.base import Template
from django.test.utils import setup_databases, teardown_databases
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from billing.orders import plans
from ledger.database.locks import waits_bounded
from ledger.testing import FixedClock, unique
from ledger_project.database import connection_urls
from ledger_project.database.catalogue import record_catalogue
from ledger_project.serving.bootstrap import SETTINGS_OF_ROLE, provision
from ledger_project.serving.postgres.credentials import APPLICATION, OWNER, SUPERUSER
from ledger_project.serving.postgres.server import Server
from ledger_project.serving.static_files import StaticFiles
from ledger_project.serving.web import command
from tests import asgi_client, nodes, parts
from tests.distributed.cluster import RunningCluster, StartedCluster
from tests.ports import free_port
from tests.settings import CITUS, CITUS_IS_RUNNING, LEFT_OUT, PASSWORD, TEST_DATA_DIR, USES_EMBEDDED_SERVER

COMMITTED = "_committed"
SHARED = "test_of_all_workers"
"""The database whose copies are those of pytest-xdist's workers."""
MOST_NEW_OBJECTS = 100_000
"""After this number of new objects Python looks for garbage: 700, its default, cost a tenth of the run, of pages a fifth."""
MOST_DROPS = 100
"""How often dropping a database is tried, a tenth of a second apart."""

# Hypothesis takes a busy machine for a test that is too slow. `make prove` takes the other profile.
for profile, examples in {"test": 50, "prove": 1_000}.items():
    hypothesis_settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
hypothesis_settings.load_profile("test")

_server: Server | StartedCluster | RunningCluster | None = None
_lock: Any = None


# One server for the whole run ------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of the parts, and start the server, in pytest-xdist's controller only, before anything connects."""
    global _server, _lock
    gc.set_threshold(MOST_NEW_OBJECTS, 50, 100)
    parts.selection = config.option.markexpr
    for part in parts.PARTS:
        config.addinivalue_line("markers", f"{part}: what `make prove PART={part}` runs; docs/reference/tests.md")
    is_worker = hasattr(config, "workerinput") or bool(LEFT_OUT)
    if config.option.collectonly or config.option.help:
        return
    nodes.cluster = _cluster()
    if is_worker or not (USES_EMBEDDED_SERVER or nodes.cluster):
        return
    # The workers, which inherit this, would each compile the tests for themselves, and so would each command that is started.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    TEST_DATA_DIR.mkdir(parents=True, exist_ok=True)
    _lock = (TEST_DATA_DIR / "pytest.lock").open("a")
    try:
        fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise pytest.UsageError(f"another test run uses {TEST_DATA_DIR}; wait for it, or set LEDGER_DATA_DIR") from None
    # No autovacuum: whether it has passed decides plans, and tests of plans would pass or fail by its moment.
    # Deadlocks are looked for sooner than after a second, for which the tests of them would wait.
    settings_of_tests = {"shared_buffers": "128MB", "autovacuum": "off", "deadlock_timeout": "200ms"}
    server = nodes.cluster or Server(TEST_DATA_DIR, **settings_of_tests)
    _server = server.start()
    # The port may have changed since the settings were read.
    os.environ["DATABASE_URL"] = _server.owner_url
    connections["default"].settings_dict.update(connection_urls.parse(_server.owner_url))
    if not nodes.cluster:
        with psycopg.connect(_conninfo("owner", dbname="postgres"), autocommit=True) as owner:
            owner.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(SHARED)))


def _cluster() -> StartedCluster | RunningCluster | None:
    """The cluster that the tests run on, if LEDGER_TEST_CITUS names one."""
    if CITUS_IS_RUNNING:
        return RunningCluster(CITUS, {OWNER: PASSWORD, APPLICATION: PASSWORD})
    return StartedCluster(TEST_DATA_DIR, Path(CITUS)) if CITUS else None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server that this process started."""
    if _server is not None:
        _server.stop()
    if _lock is not None:
        _lock.close()


# The longest files of `make check` and `make prove`, by `pytest --junitxml`. With `--no-loadscope-reorder` they are
# the first that workers get, so that none is left alone with a long one at the end.
LONGEST_FIRST = (
    "clients/test_guides.py",
    "billing/random_subscriptions/test_worked_examples.py",
    "browser/test_pages.py",
    "left_out/test_left_out.py",
    "deployment/test_nginx.py",
    "billing/admin/test_admin.py",
    "billing/admin/test_lists.py",
    "concurrency/test_spend_races.py",
    "browser/test_jobs.py",
    "billing/admin/test_order_forms.py",
    "clients/test_python_client.py",
    "ledger/audit/test_laws.py",
    "faults/test_faults.py",
    "schema/upgrades/test_upgrade.py",
    "browser/test_every_page.py",
    "concurrency/test_story_spends_over_http.py",
    "ledger/services/test_recurring_grants.py",
    "ledger/rest/test_conformance.py",
    "embedding/test_upgrade.py",
    "embedding/test_databases.py",
    "schema/test_models_and_file.py",
    "deployment/serving/test_serve.py",
    "deployment/test_parts.py",
    "ledger/rest/kit/test_schema.py",
    "deployment/test_hardening.py",
    "billing/random_subscriptions/test_runs_in_steps.py",
    "schema/test_append_only.py",
    "deployment/test_headers_on_the_wire.py",
    "ledger/rules/test_any_order.py",
    "deployment/serving/test_waiting_calls.py",
    "billing/generator/state/test_allowance_changes.py",
    "concurrency/test_invoice_scale.py",
    "billing/generator/run/consolidation/test_consolidated_invoices.py",
    "ledger/audit/test_command.py",
    "billing/auditing/test_allowances.py",
    "ledger/staff/entries/test_holds_and_transfers.py",
    "ledger/reads/test_usage_sums.py",
    "ledger/database/test_lock_names.py",
    "billing/documents/test_printed.py",
    "billing/random_subscriptions/test_lives.py",
    "billing/taxes/test_providers.py",
    "billing/auditing/test_tampering.py",
    "billing/documents/test_credit_notes.py",
    "deployment/test_project.py",
    "deployment/operators/test_roles.py",
    "billing/payments/test_stripe.py",
    "deployment/test_processes.py",
    "ledger/rest/test_idempotency.py",
    "concurrency/test_invoices_races.py",
    "ledger/audit/test_overage.py",
    "ledger/audit/test_usage.py",
    "concurrency/test_previews.py",
    "ledger/audit/test_purposes.py",
    "ledger/audit/test_claims.py",
    "ledger/audit/test_budgets.py",
    "concurrency/test_reminder_races.py",
    "ledger/rules/test_database.py",
    "concurrency/test_story_holds_over_http.py",
    "ledger/services/test_group_commit_stuck_holders.py",
    "billing/documents/test_e_invoices.py",
    "billing/books/test_months.py",
    "billing/orders/test_amendments.py",
    "ledger/rules/decisions/test_settlement.py",
    "deployment/test_slow_clients.py",
    "ledger/staff/forms/test_rates_and_batches.py",
    "ledger/audit/test_freezes_and_voids.py",
    "ledger/staff/forms/test_operations.py",
    "billing/admin/test_home.py",
    "billing/random_subscriptions/test_customers.py",
    "concurrency/test_spend_crowds.py",
    "billing/test_customer_plans.py",
    "billing/generator/state/test_allowance_parts.py",
    "convince/test_models.py",
    "billing/random_subscriptions/test_previews.py",
    "ledger/rules/test_kinds.py",
    "schema/test_catalogue.py",
    "billing/documents/test_brand.py",
    "ledger/rules/budgets/test_budgets.py",
    "billing/dunning/test_mailing.py",
    "billing/random_subscriptions/test_worked_customers.py",
    "ledger/audit/test_costs.py",
    "ledger/staff/forms/test_approvals.py",
    "ledger/rest/calls/test_all_entries.py",
    "ledger/audit/test_recurring_grants.py",
    "concurrency/test_consolidation_races.py",
    "ledger/staff/test_pages.py",
    "ledger/staff/forms/test_credit_amounts.py",
    "deployment/serving/test_postgres.py",
    "ledger/staff/home/test_search.py",
    "deployment/operators/test_two_step.py",
    "deployment/operators/test_links.py",
    "embedding/test_new_project.py",
    "embedding/test_shop.py",
    "embedding/test_wheel.py",
    "embedding/test_testing.py",
    "test_query_parameters.py",
    "concurrency/test_joined_billing.py",
    "benchmarks/replay/test_replay.py",
    "schema/test_entry_size.py",
    "deployment/test_postgres_versions.py",
    "ledger/rest/test_ways.py",
    "deployment/test_docs.py",
    "ledger/database/test_checks.py",
    "deployment/serving/test_web.py",
    "deployment/serving/test_start_guard.py",
    "deployment/test_standby.py",
    "deployment/test_admin_checks.py",
    "concurrency/test_webhooks.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark parts, put the longest files first, skip what a cluster cannot have, refuse what would TRUNCATE between tests.

    The ledger's tables do not allow a TRUNCATE.
    """
    parts.mark_parts(items)
    ranks = {str(Path(__file__).parent / name): rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(str(item.path), len(ranks)))
    for item in items:
        if CITUS and (one_node := item.get_closest_marker("one_node")):
            item.add_marker(pytest.mark.skip(reason=f"on one node only: {one_node.args[0]}"))
        marker = item.get_closest_marker("django_db")
        flushes = marker is not None and (marker.kwargs.get("transaction") or (marker.args and marker.args[0]))
        if flushes or {"transactional_db", "live_server", "django_db_reset_sequences"} & set(getattr(item, "fixturenames", ())):
            raise pytest.UsageError(f"{item.nodeid}: append-only tables cannot be flushed; use the fixture `committed_db`")


def pytest_pycollect_makeitem(obj: Any) -> list[pytest.Item] | None:
    """Make no test of a function of which this run selects none."""
    return [] if parts.is_left_out(obj) else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have each of several workers compile its share of the tests, where each would compile all of them at the same time."""
    work = getattr(session.config, "workerinput", None)
    if work is not None and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        number, workers = int(work["workerid"].removeprefix("gw")), work["workercount"]
        compile_tests(sorted(Path(__file__).parent.rglob("test_*.py"))[number::workers])


def compile_tests(files: list[Path]) -> None:
    """Write what pytest makes of each of these files beside it, unless something is there; execute none."""
    hook = next(each for each in sys.meta_path if isinstance(each, rewrite.AssertionRewritingHook))
    with mock.patch.object(rewrite, "exec", return_value=None, create=True):
        for file in files:
            if not (rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}").exists():
                spec = spec_from_file_location(file.stem, file, loader=hook)
                assert spec is not None
                hook.exec_module(module_from_spec(spec))


LONGEST_TEST_S = 1_800
"""No test takes longer."""
RENDER = Template._render  # type: ignore[attr-defined]
"""How templates are rendered before Django's test environment is set up."""


def pytest_collection_finish() -> None:
    """Leave what was collected, half a million objects, out of all later collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def templates_without_signals(django_test_environment: None) -> None:
    """Render templates as the product does. Django's tests copy every context for `response.context`, which few read."""
    Template._render = RENDER  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def static_files_once() -> Iterator[None]:
    """Look for the static files once, and not again for each of Django's test clients, each of which loads the middleware."""
    files: dict[str, Any] = {}
    look = StaticFiles.add_files_from_finders

    def look_once(self: StaticFiles) -> None:
        if not files:
            look(self)
            files.update(self.files)
        self.files.update(files)

    with mock.patch.object(StaticFiles, "add_files_from_finders", look_once):
        yield


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None,
    django_db_modify_db_settings: None,
    django_db_keepdb: bool,
    django_db_createdb: bool,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[None]:
    """Make the test database, with the roles' rights and the timeouts of production by the same code.

    pytest-django's own makes it only where a test that bears its mark was collected, and `committed_db` bears none: such a
    test, run alone, would work in the database that the settings name.
    """
    with django_db_blocker.unblock():
        if nodes.cluster:
            nodes.cluster.make_database(connection.creation._get_test_db_name())
        is_made = nodes.cluster is not None or (django_db_keepdb and not django_db_createdb)
        shares = USES_EMBEDDED_SERVER and not nodes.cluster and "PYTEST_XDIST_WORKER" in os.environ
        made = _share_database() if shares else setup_databases(verbosity=0, interactive=False, keepdb=is_made)
        if not (USES_EMBEDDED_SERVER or nodes.cluster):
            with suppress(psycopg.Error), psycopg.connect(_conninfo("owner"), autocommit=True) as owner:
                owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(settings.LEDGER_APP_ROLE)))
            with suppress(psycopg.Error), psycopg.connect(_conninfo("owner"), autocommit=True) as owner:
                change = sql.SQL("ALTER ROLE {} PASSWORD {}")
                owner.execute(change.format(sql.Identifier(settings.LEDGER_APP_ROLE), sql.Literal(PASSWORD)))
        _provision()
        connection.close()
        _make_committed_database()
    yield
    if not django_db_keepdb:
        with django_db_blocker.unblock():
            # A backend may still be on its way out; the next run drops what is left.
            with suppress(psycopg.Error):
                _drop_committed_database()
            if nodes.cluster:
                nodes.cluster.drop_database(connection.settings_dict["NAME"])
            else:
                teardown_databases(made, verbosity=0)


def _share_database() -> list[tuple[BaseDatabaseWrapper, str, bool]]:
    """Make this worker's test database: the first worker by all migrations, the others as copies of the first's."""
    with (TEST_DATA_DIR / "template.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with psycopg.connect(_conninfo("owner", dbname="postgres"), autocommit=True) as owner:
            is_first = owner.execute("SELECT FROM pg_database WHERE datname = %s", [SHARED]).fetchone() is None
            before, name = connection.settings_dict["NAME"], connection.creation._get_test_db_name()
            made = setup_databases(verbosity=0, interactive=False) if is_first else [(connection, before, True)]
            connection.close()
            first, shared = sql.Identifier(name), sql.Identifier(SHARED)
            if is_first:
                owner.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(shared, first))
                return made
            owner.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(first))
            owner.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(first, shared))
    _switch_database(name)
    return made


def _provision() -> None:
    """Do what prepare_database does after migrating: on a cluster, distribute the tables; grant rights, and set timeouts."""
    if nodes.cluster:
        from ledger.cluster.distribution import distribute

        distribute(connection)
    provision(connection)
    record_catalogue(connection)
    if nodes.cluster:
        database = connection.settings_dict["NAME"]
        with nodes.cluster.coordinator.connect(database) as superuser:
            for role in (OWNER, APPLICATION):
                for name, value in SETTINGS_OF_ROLE.items():
                    change = sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {}")
                    superuser.execute(change.format(*map(sql.Identifier, (role, database, name)), sql.Literal(value)))


def _make_committed_database() -> None:
    """Copy the test database for the tests that commit, so that the others find theirs as empty as it was made."""
    rolled_back = connection.settings_dict["NAME"]
    if nodes.cluster:
        # A template is of one node.
        nodes.cluster.make_database(rolled_back + COMMITTED)
        with on_committed_database():
            call_command("migrate", interactive=False, verbosity=0)
            _provision()
        return
    _copy_database(COMMITTED)


def _drop_committed_database() -> None:
    """Drop the database of the tests that commit."""
    if nodes.cluster:
        nodes.cluster.drop_database(connection.settings_dict["NAME"] + COMMITTED)
        return
    _drop_copy(COMMITTED)


def _copy_database(suffix: str) -> None:
    """Copy the test database, which is as empty as it was made, under its name with this suffix."""
    _drop_copy(suffix)
    rolled_back = connection.settings_dict["NAME"]
    with psycopg.connect(_conninfo("owner", dbname="postgres"), autocommit=True) as owner:
        names = sql.Identifier(rolled_back + suffix), sql.Identifier(rolled_back)
        owner.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    with _on_copy(suffix):
        # What is set on a database is not copied with it.
        provision(connection)


def _drop_copy(suffix: str) -> None:
    with psycopg.connect(_conninfo("owner", dbname="postgres"), autocommit=True) as owner:
        name = sql.Identifier(connection.settings_dict["NAME"] + suffix)
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
        # The owner may not end sessions of other roles, such as those of a server that has just ended, or autovacuum's.
        for _ in range(MOST_DROPS):
            with suppress(psycopg.errors.InsufficientPrivilege):
                owner.execute(drop)
                return
            owner.execute("SELECT pg_sleep(0.1)")
        owner.execute(drop)


@contextmanager
def _on_copy(suffix: str) -> Iterator[None]:
    rolled_back = connection.settings_dict["NAME"]
    _switch_database(rolled_back + suffix)
    try:
        yield
    finally:
        _switch_database(rolled_back)


@contextmanager
def on_committed_database() -> Iterator[None]:
    """Lead Django's connections of all threads, and processes started in that time, to the database of the tests that commit."""
    with _on_copy(COMMITTED):
        yield


@contextmanager
def on_fresh_database(suffix: str) -> Iterator[None]:
    """As `on_committed_database`, but to a database that only this block uses, so that all of it can be audited."""
    connections.close_all()
    _copy_database(suffix)
    try:
        with _on_copy(suffix):
            yield
    finally:
        _drop_copy(suffix)


def _switch_database(name: str) -> None:
    """Switch Django's connections to the database, and forget what is cached of the other."""
    asgi_client.close()
    connections.close_all()
    connections.settings["default"]["NAME"] = connection.settings_dict["NAME"] = name
    # What a process keeps in memory by id is of one database.
    plans.terms_of.cache_clear()
    plans.price_of.cache_clear()
    plans.list_price_of.cache_clear()


# Committed history -----------------------------------------------------------------------------------


@pytest.fixture
def committed_db(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Let the test commit, in a database of such tests. Nothing is cleaned up: use fresh holders, see `new_holder`."""
    with django_db_blocker.unblock(), on_committed_database():
        yield


@pytest.fixture
def new_holder() -> Callable[[], str]:
    """Makes a holder that no other test has."""
    return partial(unique, "holder")


@pytest.fixture
def stopped_clock(db: None) -> Iterator[FixedClock]:
    """Time stands still at half past the present hour: no hour, day or month ends in the middle of the test."""
    with FixedClock(datetime.now(UTC).replace(minute=30, second=0, microsecond=0)) as clock:
        yield clock


# More connections ------------------------------------------------------------------------------------


def _conninfo(role: str, **changes: str) -> str:
    """How to reach this worker's test database as `owner`, `application` or (embedded server only) `superuser`."""
    params = {
        key: value
        for key, value in connection.get_connection_params().items()
        if key in {"dbname", "user", "password", "host", "port"}
    }
    if role != "owner" and nodes.cluster:
        coordinator = nodes.cluster.coordinator
        user = {"application": APPLICATION, "superuser": coordinator.superuser}[role]
        params |= {"user": user, "password": coordinator.passwords[user]}
    elif role != "owner":
        kept = Server(TEST_DATA_DIR).credentials if USES_EMBEDDED_SERVER else None
        if role == "application":
            params |= {"user": settings.LEDGER_APP_ROLE, "password": kept.application_password if kept else PASSWORD}
        elif role == "superuser" and kept:
            params |= {"user": SUPERUSER, "password": kept.superuser_password}
        else:
            pytest.skip(f"this server gives no {role}")
    return psycopg.conninfo.make_conninfo("", **(params | changes))


@pytest.fixture
def raw_connection(request: pytest.FixtureRequest, django_db_setup: None) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Makes connections without Django to the test database: `raw_connection(role="owner", autocommit=False)`; closed at the end.

    Roles: `owner`, `application` (what production runs under), `superuser`. With `as_dsn=True` it gives the conninfo instead.
    """
    if "committed_db" in request.fixturenames:
        # First of all, so that these connections lead to the same database as Django's.
        request.getfixturevalue("committed_db")
    opened: list[psycopg.Connection[Any]] = []

    def connect(role: str = "owner", **options: Any) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(_conninfo(role), **options))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


@pytest.fixture
def app_role_connection(raw_connection: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    """A connection, in autocommit, under the role that production uses."""
    return raw_connection("application", autocommit=True)


@pytest.fixture
def as_application(committed_db: None) -> Iterator[None]:
    """Run Django's own connection under the role that production uses, for one test."""
    before = dict(connection.settings_dict)
    connection.close()
    found = psycopg.conninfo.conninfo_to_dict(_conninfo("application"))
    connection.settings_dict.update(USER=found["user"], PASSWORD=found["password"])
    yield
    connections.close_all()
    connection.settings_dict.update(before)


def wait_until_waiting(observer: psycopg.Connection[Any], session: int, timeout_s: float = 60) -> None:
    """Return as soon as a session is seen to wait for a lock, on any node; fail when it never does.

    Args:
        observer: must be in autocommit: inside a transaction it would look at one moment for ever.
        session: as `nodes.session_id` returned it.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if nodes.is_waiting(observer, session):
            return
    pytest.fail(f"session {session} never waited")


# Threads ---------------------------------------------------------------------------------------------


@pytest.fixture
def run_threads(committed_db: None) -> Callable[..., list[Any]]:
    """`run_threads(work, count)` calls `work(index)` in `count` threads, let go at the same moment.

    Returns what each gave back, or the exception it raised, in the order of the index. Each thread closes its connections, and
    waits for a lock as long as no test lasts, so that on a busy machine a thread that is slow makes no other give up.
    """

    def run(work: Callable[[int], Any], count: int) -> list[Any]:
        start = threading.Barrier(count)

        def one(index: int) -> Any:
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SET lock_timeout = '60s'")
                start.wait(timeout=60)
                # One deadline for all waits of the thread: what ends a wait is lock_timeout, for each wait anew.
                with waits_bounded(LONGEST_TEST_S):
                    return work(index)
            except Exception as error:
                return error
            finally:
                connections.close_all()

        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(one, range(count)))

    return run


# Processes -------------------------------------------------------------------------------------------


@dataclass
class WebProcess:
    """A web server in its own process group, as production runs it."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End it and its workers at once, as the machine would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()


def wait_for_answer(url: str, process: subprocess.Popen[bytes], timeout_s: float = 120) -> None:
    """Return when `url` answers with anything, or fail when the process ended or the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=20):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"no answer from {url}; the process {'is alive' if process.poll() is None else 'ended'}")


Way = Callable[..., list[str]]
"""Gives the command of a web server: of the front, or of one that serves Django's own views."""


def wsgi_command(*, port: int, workers: int, target: str = "ledger_project.wsgi:application") -> list[str]:
    """Return the command of a WSGI server with eight threads in each process, for Django as it is."""
    return [
        sys.executable, "-m", "granian", "--interface", "wsgi", target,
        "--host", "127.0.0.1", "--port", str(port), "--workers", str(workers), "--blocking-threads", "8", "--no-ws",
        "--http", "1", "--log-level", "error",
    ]  # fmt: skip


def asgi_command(*, port: int, workers: int) -> list[str]:
    """Return the command of an ASGI server for Django as it is, without the front."""
    return [
        sys.executable, "-m", "granian", "--interface", "asgi", "--factory", "django.core.asgi:get_asgi_application",
        "--host", "127.0.0.1", "--port", str(port), "--workers", str(workers), "--no-ws", "--http", "1", "--log-level", "error",
    ]  # fmt: skip


def runserver_command(*, port: int, workers: int) -> list[str]:
    """Return the command of Django's development server."""
    assert workers == 1
    return [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]


@contextmanager
def web_servers(log_dir: Path) -> Iterator[Callable[..., list[WebProcess]]]:
    """Gives what `server_processes` gives; for a fixture of another scope. The servers are killed at the end of the block."""
    started: list[WebProcess] = []

    def start(
        count: int,
        *,
        way: Way = command,
        dsn: str | None = None,
        env: dict[str, str] | None = None,
        folder: Path = settings.BASE_DIR,
        **options: Any,
    ) -> list[WebProcess]:
        first = len(started)
        for _ in range(count):
            port = free_port()
            log = log_dir / f"web-{port}.log"
            environment = {
                "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8",
                "SECRET_KEY": "only-for-tests",
                "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
                "DATABASE_URL": dsn or database_url("application"),
                "LEDGER_DISTRIBUTED": str(bool(CITUS)),
                **(env or {}),
            }
            with log.open("wb") as output:
                process = subprocess.Popen(
                    way(port=port, **({"workers": 1} | options)),
                    cwd=folder, env=environment, process_group=0,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                )  # fmt: skip
            started.append(WebProcess(f"http://127.0.0.1:{port}", process, log))
        for web in started[first:]:
            try:
                wait_for_answer(f"{web.url}/healthz", web.process)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{web.log.read_text()}") from None
        return started[first:]

    try:
        yield start
    finally:
        for web in started:
            web.kill()


@pytest.fixture
def server_processes(committed_db: None, tmp_path: Path) -> Iterator[Callable[..., list[WebProcess]]]:
    """`server_processes(n)` starts n web servers on free ports against the test database, under production's role.

    Keyword arguments: `way` (`wsgi_command`, `asgi_command` or `runserver_command` instead of the front), `dsn` (another way to
    the database, such as PgBouncer's), `workers`, `env`. What the test wants the servers to see must be committed. They are
    killed at the end.
    """
    with web_servers(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def shared_server(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebProcess]:
    """One web server for all tests of a file that leave it as it is, on the database of the tests that commit."""
    with django_db_blocker.unblock(), web_servers(tmp_path_factory.mktemp("web")) as start:
        with on_committed_database():
            (web,) = start(1)
        yield web


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; a `tests.browser.chromium.Chromium`. The tests that use it are skipped where there is none."""
    from tests.browser.chromium import CHROMIUM, Chromium

    if CHROMIUM is None:
        pytest.skip("no chromium; .ci/run installs it")
    browser = Chromium()
    yield browser
    browser.close()


def database_url(role: str = "owner", *, host: str | None = None, port: int | None = None) -> str:
    """The URL of this worker's test database, for separate processes; with another host and port for a pooler before it."""
    found = psycopg.conninfo.conninfo_to_dict(_conninfo(role))
    user, password, database = (quote(str(found.get(name, "")), safe="") for name in ("user", "password", "dbname"))
    address = quote(host or str(found.get("host", "")), safe="")
    return f"postgresql://{user}:{password}@{address}:{port or found.get('port', 5432)}/{database}"
