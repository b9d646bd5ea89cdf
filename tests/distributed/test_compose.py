"""The services of `deploy/citus/docker-compose.yml` make a cluster that serves, stop when they are told to, and start again."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger_project.work.timetable import TIMETABLE
from tests.concurrency.http_clients import HttpClient
from tests.deployment.serving.test_serve import wait_until
from tests.distributed.composed import FILE, Composed, loopback_has_many_addresses
from tests.settings import CITUS, CITUS_IS_RUNNING

AT_THE_COORDINATOR = (
    "psql", "--host=coordinator", "--username=postgres", "--dbname=ledger", "--tuples-only", "--no-align", "--command",
)  # fmt: skip
SHARDS = """
    SELECT nodename, count(*) FROM citus_shards WHERE table_name = 'ledger_entry'::regclass GROUP BY 1 ORDER BY 1
"""
API_KEY = "an-api-key-that-exists-from-the-start"


@pytest.fixture(scope="module")
def services() -> Iterator[Composed]:
    """The services, all running."""
    if CITUS_IS_RUNNING or not loopback_has_many_addresses():
        pytest.skip("needs servers of the tests' own, and an address on the loopback for each")
    secrets = dict.fromkeys(re.findall(r"\$\{(\w+):\?", FILE.read_text()), "")
    variables = {name: f"secret-of-{name.lower().replace('_', '-')}" for name in secrets}
    with tempfile.TemporaryDirectory(prefix="ledger-compose-") as folder:
        Path(folder).chmod(0o755)
        services = Composed(Path(folder), Path(CITUS), variables | {"LEDGER_BOOTSTRAP_API_KEY": API_KEY})
        try:
            services.up()
            yield services
        finally:
            services.kill()


def client_of(services: Composed) -> HttpClient:
    """A client of the web service."""
    return HttpClient(f"http://{services.address('web')}:8000", API_KEY)


def balance(services: Composed) -> tuple[int, int]:
    """The holder's balance, and the number of the last entry, as the web service shows them."""
    shown = client_of(services).get("/v1/holders/ada/balance").json
    return shown["balance"], shown["sequence"]


def test_the_web_service_serves_the_ledger_and_billing(services: Composed) -> None:
    client = client_of(services)
    assert client.post("/v1/holders/ada/grants", {"amount": 10}, key="grant").status == 201
    assert client.post("/v1/holders/ada/spends", {"amount": 3}, key="spend").status == 201
    assert client.post("/v1/customers", {"ref": "CUST-7", "name": "Ada", "currency": "EUR"}, key="CUST-7").status == 201
    assert balance(services) == (7, 2)


def test_the_shards_are_on_the_two_workers(services: Composed) -> None:
    told = services.run("nodes", *AT_THE_COORDINATOR, SHARDS).stdout
    assert told.split() == [f"{services.address(name)}|16" for name in ("worker1", "worker2")]


def test_the_worker_executes_every_task(services: Composed) -> None:
    wait_until(lambda: {task.name for task in TIMETABLE} <= set(executed(services)), "all tasks were executed", timeout_s=300)
    assert set(executed(services).values()) == {0}


def executed(services: Composed) -> dict[str, int]:
    """The exit code of each task that the worker has executed, by its name, from its log."""
    lines = [json.loads(line) for line in services.log("worker").splitlines()]
    return {line["message"].split(":")[0]: line["exit_code"] for line in lines if "exit_code" in line}


def test_doctor_finds_no_mistake(services: Composed) -> None:
    found = services.run("web", "python", "manage.py", "doctor").stdout
    # Where the anchors are kept is not the file's to say.
    assert re.findall(r"^(?:WARNING|FAILED) +(\w+(?: \w+)*)", found, re.MULTILINE) == ["Anchor"], found


def test_stopped_by_docker_and_started_again_it_goes_on(services: Composed) -> None:
    before = balance(services)
    services.down()
    services.up()
    assert balance(services) == before
    assert services.log("prepare").endswith("applied.\nThe database is ready; 0 migrations applied.\n")
    assert client_of(services).post("/v1/holders/ada/spends", {"amount": 3}, key="later").status == 201
    assert services.run("web", "python", "manage.py", "audit_ledger", "--no-progress").returncode == 0
