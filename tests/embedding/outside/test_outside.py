"""Programs of others, in environments that have only the built files of a release: the table in docs/reference/tests.md."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex

import pytest

from tests.deployment.servers import started_version
from tests.embedding.installations import Project, run, start_project
from tests.embedding.outside.postgres import django_settings, project_database, service_environment
from tests.embedding.outside.processes import call, ledger_web, prepare_ledger, programs, service
from tests.embedding.outside.projects import CLEAN, start_shop
from tests.embedding.outside.releases import HERE, Files
from tests.embedding.outside.services import ask

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[(18, ""), (15, "PgBouncer"), (18, "PgBouncer that keeps prepared statements")])
def ledger_url(request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a ledger on this PostgreSQL, directly or through PgBouncer, that serves from the unpacked archive."""
    version, pooler = request.param
    code = files.unpack_image_archive(tmp_path_factory.mktemp("image"))
    with started_version(version) as server, programs() as started:
        # A session that PgBouncer keeps has the settings with which it began.
        prepare_ledger(code, server)
        with service_environment(server, pooler=pooler) as environment:
            started.append(web := ledger_web(code, environment).start())
            yield web.url


@pytest.fixture(params=["fastapi", "node"])
def service_url(request: pytest.FixtureRequest, ledger_url: str, files: Files, python: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a service that charges its customers by the ledger."""
    if request.param == "node" and not files.has_npm_package:
        pytest.skip("npm is not installed, or `npm ci` has not run in clients/typescript")
    with programs() as started:
        started.append(
            made := service(request.param, tmp_path / "service", files=files, python=python, ledger_url=ledger_url).start()
        )
        yield made.url


def test_a_service_charges_once_and_no_more_than_there_is(service_url: str, ledger_url: str) -> None:
    holder = f"customer-{token_hex(4)}"
    at_ledger = f"{ledger_url}/v1/holders/{holder}"
    assert call(f"{at_ledger}/grants", f"grant-{holder}", {"amount": 45})[0] == 201
    first = ask(service_url, holder, "one two three", f"{holder}-q")
    assert first == (200, {"answer": "three two one", "balance": 42})
    assert ask(service_url, holder, "one two three", f"{holder}-q") == first
    assert ask(service_url, holder, "fail", f"{holder}-fail")[0] == 500
    balance = call(f"{at_ledger}/balance")[1]
    assert (balance["balance"], balance["held"]) == (42, 0)

    def ask_of_five(number: int) -> int:
        return ask(service_url, holder, "one two three four five", f"{holder}-{number}")[0]

    with ThreadPoolExecutor(24) as pool:
        statuses = Counter(pool.map(ask_of_five, range(24)))
    assert set(statuses) == {200, 402}
    balance = call(f"{at_ledger}/balance")[1]
    assert (balance["balance"], balance["held"]) == (42 - 5 * statuses[200], 0)


# A Django project -----------------------------------------------------------------------------------------


@pytest.fixture(
    params=[(18, ""), (15, "PgBouncer"), (16, "PgBouncer that keeps prepared statements"), (17, "")],
)
def project(request: pytest.FixtureRequest, python: Path, tmp_path: Path) -> Iterator[Project]:
    """A project with a request's transaction for each view, another database, users with UUIDs, and modules of its own."""
    version, pooler = request.param
    with project_database(version) as database, django_settings(database, pooler=pooler) as settings:
        yield start_shop(python, tmp_path / "project", settings, prepares="keeps" in pooler).project


GRANT = """
from ledger import services
services.grant(holder_id="ada", amount=45, idempotency_key="g")
"""
SEND = """
import django; django.setup()
import orders, tasks
results = [tasks.charge.delay("ada", number) for number in [*range(6), *range(6)]]
print(sorted(each.get(timeout=120) for each in results), orders.available("ada"))
"""


VIEWS = """
from django.contrib.auth.models import Group
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from ledger import reads, services
import views

def order(request, number, succeeds):
    Group.objects.create(name=f"order-{number}")
    services.spend(holder_id="ada", amount=10, idempotency_key=f"view-{number}")
    if not succeeds:
        raise RuntimeError
    return HttpResponse()

views.urlpatterns += [path("paid/<int:number>/<int:succeeds>/", order)]
client = Client(raise_request_exception=False)
print([client.get(f"/paid/{number}/{number % 2}/").status_code for number in range(4)])
print(reads.balance("ada").balance, Group.objects.count())
"""


def test_with_atomic_requests_a_view_that_fails_leaves_neither_its_row_nor_its_entry(project: Project) -> None:
    project.shell(GRANT)
    assert project.shell(VIEWS).splitlines()[:2] == ["[500, 200, 500, 200]", "25 2"]
    assert CLEAN in project.manage("audit_ledger")


def test_workers_of_celery_charge_each_order_once(project: Project) -> None:
    project.shell(GRANT)
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    words = [project.python, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2", "--loglevel", "warning"]
    with (project.folder / "log").open("wb") as log:
        worker = subprocess.Popen(words, cwd=project.folder, env=environment, stdout=log, stderr=log)
    try:
        send = ["env", "DJANGO_SETTINGS_MODULE=site_of_ours.settings", project.python, "-c", SEND]
        assert run(*send, folder=project.folder).strip() == f"{[False] * 4 + [True] * 8} 5"
    finally:
        worker.terminate()
        worker.wait(60)
    assert CLEAN in project.manage("audit_ledger")


def test_the_types_of_the_wheels_are_read_by_mypy_strict(python: Path, tmp_path: Path) -> None:
    project = start_project(python, tmp_path / "project", {}, ["ledger"])
    for file in (HERE / "django_project/orders.py", HERE / "fastapi_service/service.py"):
        shutil.copy(file, project.folder)
    mypy = (python, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache")
    assert "no issues found in 2 source files" in run(*mypy, "orders.py", "service.py", folder=project.folder)
    (project.folder / "wrong.py").write_text(
        'import orders\nfrom ledger import services\nservices.spend(holder_id=7, amount="a")\n'
    )
    said = run(*mypy, "wrong.py", folder=project.folder, succeeds=False)
    assert 'Argument "holder_id"' in said
    assert 'Argument "amount"' in said
