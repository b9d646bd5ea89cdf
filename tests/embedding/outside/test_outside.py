"""Programs of others, in environments that have only the built files of a release: the table in docs/reference/tests.md."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from deploy.release import build
from tests.conftest import wait_for_answer, web_servers
from tests.deployment.servers import KEY, SystemServer, environment_of, programs_of, started, started_pgbouncer
from tests.embedding.conftest import empty_database
from tests.embedding.installations import Project, run, start_project
from tests.ports import free_port

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
UV = Path(sys.executable).parent / "uv"
LEFT_OUT = ("PYTHON", "VIRTUAL_ENV", "CREDIT_", "DATABASE_", "LEDGER_")
LEDGERS = ["18 direct", "18 PgBouncer", "15 direct"]


@dataclass(frozen=True)
class Files:
    """The built files of a release."""

    folder: Path

    def one(self, pattern: str) -> Path:
        """The file of this name."""
        (file,) = self.folder.glob(pattern)
        return file


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("release")
    builders = [build.build_image_context, build.build_python_packages]
    if (build.ROOT / "clients/typescript/node_modules/publint").is_dir():
        builders.append(build.build_npm_package)
    build.build_release(folder, builders=builders, may_be_uncommitted=True)
    return Files(folder)


@pytest.fixture(scope="module")
def python(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheels, and with what they say they require."""
    venv = tmp_path_factory.mktemp("outside") / "venv"
    install = (UV, "pip", "install", "--quiet", "--python", venv / "bin/python")
    # What says where packages are stays.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    for words in (
        (UV, "venv", "--quiet", "--python", sys.executable, venv),
        (*install, "--require-hashes", "-r", HERE / "requirements.txt"),
        (*install, "--no-deps", files.one("credit_ledger-*.whl"), files.one("credit_ledger_client-*.whl")),
        (UV, "pip", "check", "--quiet", "--python", venv / "bin/python"),
    ):
        subprocess.run(words, env=environment, check=True)
    return venv / "bin/python"


@dataclass(frozen=True)
class Ledger:
    """A running ledger, of the archive for the image."""

    url: str

    def call(self, path: str, key: str, body: dict[str, object] | None = None) -> tuple[int, dict[str, object]]:
        """The status and the body of the response to a call."""
        return post(f"{self.url}/v1{path}", key, body)


def post(url: str, key: str, body: dict[str, object] | None) -> tuple[int, dict[str, object]]:
    """The status and the body of the response to a write, or without a body to a read."""
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": key, "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else {}


@pytest.fixture(scope="module", params=LEDGERS)
def ledger(request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger on this PostgreSQL, directly or through PgBouncer, that serves from the unpacked archive."""
    version, way = request.param.split()
    if version != "18" and not programs_of(int(version)).exists():
        pytest.skip(f"there is no PostgreSQL {version}")
    if way == "PgBouncer" and shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("there is no pgbouncer")
    folder = tmp_path_factory.mktemp("image")
    with tarfile.open(files.one("*-image.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    (code,) = folder.iterdir()
    with ExitStack() as stack:
        server = stack.enter_context(started() if version == "18" else started(SystemServer, programs_of(int(version))))
        environment = environment_of(server, LEDGER_BOOTSTRAP_API_KEY=KEY)
        prepare = [sys.executable, "manage.py", "prepare_database"]
        subprocess.run(prepare, cwd=code, env=environment, check=True, capture_output=True)
        url, more = server.application_url, {}
        if way == "PgBouncer":
            at = {name: str(value) for name, value in conninfo_to_dict(url).items() if name != "host"}
            port = stack.enter_context(started_pgbouncer(**at))
            url = f"postgresql://{at['user']}:{at['password']}@127.0.0.1:{port}/{at['dbname']}"
            more = {"DATABASE_BEHIND_PGBOUNCER": "true"}
        start = stack.enter_context(web_servers(tmp_path_factory.mktemp("web")))
        (web,) = start(1, dsn=url, env=more, folder=code)
        yield Ledger(web.url)


@contextmanager
def running(*words: str | Path, port: int, folder: Path, ledger: Ledger, log: Path) -> Iterator[str]:
    """For the block, a service runs that has nothing of this project in its environment; gives its URL."""
    environment = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    environment |= {"LEDGER_URL": ledger.url, "LEDGER_API_KEY": KEY, "PORT": str(port)}
    with log.open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        wait_for_answer(f"http://127.0.0.1:{port}/healthz", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(params=["fastapi", "node"])
def service(request: pytest.FixtureRequest, ledger: Ledger, files: Files, python: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of a service that charges its customers by the ledger."""
    port, folder = free_port(), tmp_path / "service"
    if request.param == "fastapi":
        shutil.copytree(HERE / "fastapi_service", folder, ignore=shutil.ignore_patterns("__pycache__"))
        words = [python, "-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "warning"]
    else:
        if not list(files.folder.glob("credit-ledger-client-*.tgz")):
            pytest.skip("npm is not installed, or `npm ci` has not run in clients/typescript")
        shutil.copytree(HERE / "node_service", folder)
        package = files.one("credit-ledger-client-*.tgz")
        run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", package, folder=folder)
        words = ["node", "service.mjs"]
    with running(*words, port=port, folder=folder, ledger=ledger, log=tmp_path / "log") as url:
        yield url


def test_a_service_charges_once_and_no_more_than_there_is(service: str, ledger: Ledger) -> None:
    holder = f"customer-{token_hex(4)}"

    def ask(question: str, key: str) -> tuple[int, dict[str, object]]:
        return post(f"{service}/holders/{holder}/answers", key, {"question": question})

    assert ledger.call(f"/holders/{holder}/grants", f"grant-{holder}", {"amount": 45})[0] == 201
    first = ask("one two three", f"{holder}-q")
    assert first == (200, {"answer": "three two one", "balance": 42})
    assert ask("one two three", f"{holder}-q") == first
    assert ask("fail", f"{holder}-fail")[0] == 500
    balance = ledger.call(f"/holders/{holder}/balance", "")[1]
    assert (balance["balance"], balance["held"]) == (42, 0)
    with ThreadPoolExecutor(24) as pool:
        statuses = Counter(pool.map(lambda number: ask("one two three four five", f"{holder}-{number}")[0], range(24)))
    assert set(statuses) == {200, 402}
    balance = ledger.call(f"/holders/{holder}/balance", "")[1]
    assert (balance["balance"], balance["held"]) == (42 - 5 * statuses[200], 0)


# A Django project -----------------------------------------------------------------------------------------


@contextmanager
def database_of(version: int) -> Iterator[dict[str, object]]:
    """Gives an empty database of a server of this PostgreSQL, of a role that owns it; 18 is the tests' own."""
    if version == 18:
        with empty_database() as database:
            yield database
        return
    if not programs_of(version).exists():
        pytest.skip(f"there is no PostgreSQL {version}")
    with started(SystemServer, programs_of(version)) as server:
        at = conninfo_to_dict(server.superuser_url)
        with psycopg.connect(server.superuser_url, autocommit=True) as superuser:
            superuser.execute("CREATE ROLE plain LOGIN CREATEDB PASSWORD 'plain'")
            superuser.execute("CREATE DATABASE plain OWNER plain")
        yield {"NAME": "plain", "USER": "plain", "PASSWORD": "plain", "HOST": at["host"], "PORT": at["port"]}


@pytest.fixture(params=[18, 15])
def project(request: pytest.FixtureRequest, python: Path, django_db_setup: None, tmp_path: Path) -> Iterator[Project]:
    """A project with a request's transaction for each view, another database, and modules of its own."""
    with database_of(request.param) as database:
        project = start_project(python, tmp_path / "project", {**database, "ATOMIC_REQUESTS": True}, ["ledger"])
        for file in (HERE / "django_project").glob("*.py"):
            shutil.copy(file, project.folder)
        project.add("DATABASES['analytics'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'analytics.sqlite3'}")
        project.manage("migrate")
        project.manage("migrate", "--database", "analytics")
        yield project


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
import site_of_ours.urls

def order(request, number, succeeds):
    Group.objects.create(name=f"order-{number}")
    services.spend(holder_id="ada", amount=10, idempotency_key=f"view-{number}")
    if not succeeds:
        raise RuntimeError
    return HttpResponse()

site_of_ours.urls.urlpatterns += [path("orders/<int:number>/<int:succeeds>/", order)]
client = Client(raise_request_exception=False)
print([client.get(f"/orders/{number}/{number % 2}/").status_code for number in range(4)])
print(reads.balance("ada").balance, Group.objects.count())
"""


def test_with_atomic_requests_a_view_that_fails_leaves_neither_its_row_nor_its_entry(project: Project) -> None:
    project.shell(GRANT)
    assert project.shell(VIEWS).splitlines()[:2] == ["[500, 200, 500, 200]", "25 2"]
    assert "Clean: no violations found." in project.manage("audit_ledger")


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
    assert "Clean: no violations found." in project.manage("audit_ledger")


@pytest.mark.parametrize("project", [18], indirect=True)
def test_the_types_of_the_wheels_are_read_by_mypy_strict(project: Project, python: Path, tmp_path: Path) -> None:
    shutil.copy(HERE / "fastapi_service/service.py", project.folder)
    mypy = (python, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache")
    assert "no issues found in 2 source files" in run(*mypy, "orders.py", "service.py", folder=project.folder)
    (project.folder / "wrong.py").write_text(
        'import orders\nfrom ledger import services\nservices.spend(holder_id=7, amount="a")\n'
    )
    said = run(*mypy, "wrong.py", folder=project.folder, succeeds=False)
    assert 'Argument "holder_id"' in said
    assert 'Argument "amount"' in said
