"""docker-compose.yml is what Compose expects, pinned, and says what docs/how-to/operations/deploy.md promises."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ledger import conf
from ledger_project.serving.postgres.server import SETTINGS, Server
from tests.distributed.cluster import SETTINGS as CLUSTER_SETTINGS

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTER_SCRIPTS = ("deploy/citus/20-node.sh", "deploy/citus/build.sh")
FOR_OTHER_DEPLOYMENTS = {
    "DEBUG", "LEDGER_APP_ROLE", "LEDGER_BOOTSTRAP_API_KEY",
    "LEDGER_OWNER_DATABASE_URL", "LEDGER_DOCS_DIR", "LEDGER_ANCHOR_DIR", "LEDGER_PAGES_URL",
    "LEDGER_PAGES_PORT", "LEDGER_DISTRIBUTED", "LEDGER_SHARDS",
}  # fmt: skip
"""Settings of which Compose's own services decide, or that it has no use for."""
PINNED = re.compile(r"^[a-z0-9./-]+:[a-z0-9.-]*\d+\.\d+[a-z0-9.-]*$")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """docker-compose.yml with its anchors resolved."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def validate(document: dict[str, Any]) -> None:
    """Raise what is wrong with it by the Compose Specification."""
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(document)


def test_it_follows_the_compose_specification(compose: dict[str, Any]) -> None:
    validate(compose)


def test_that_of_a_cluster_follows_it_and_has_what_start_checks_ask_for() -> None:
    cluster = yaml.safe_load((ROOT / "deploy/citus/docker-compose.yml").read_text())
    validate(cluster)
    nodes = {name: service for name, service in cluster["services"].items() if "shared_preload_libraries=citus" in str(service)}
    assert list(nodes) == ["coordinator", "worker1", "worker2"]
    for node in nodes.values():
        assert PINNED.match(node["image"])
        given = dict(part.split("=") for part in node["command"] if "=" in part)
        assert set(CLUSTER_SETTINGS) - {"citus.node_connection_timeout"} <= set(given)
        assert {"log_lock_waits", "log_min_duration_statement", "max_locks_per_transaction"} <= set(given)
        # Those that any server has, as the embedded one has them.
        assert {name: SETTINGS[name] for name in set(given) & set(SETTINGS)}.items() <= given.items()
    for name in ("prepare", "web", "worker"):
        assert cluster["services"][name]["environment"]["LEDGER_DISTRIBUTED"] == "true"
    named = {volume.split(":")[0] for node in nodes.values() for volume in node["volumes"] if volume.startswith(".")}
    assert all((ROOT / "deploy/citus" / path).exists() for path in named)


def test_the_specification_would_find_a_mistake(compose: dict[str, Any]) -> None:
    broken = {**compose, "services": {**compose["services"], "web": {**compose["services"]["web"], "comand": ["x"]}}}
    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_its_services_are_the_six(compose: dict[str, Any]) -> None:
    assert list(compose["services"]) == ["db", "pgbouncer", "prepare", "web", "proxy", "worker"]


def test_every_image_is_pinned(compose: dict[str, Any]) -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    bases = [base for base, _ in stages if base not in {name for _, name in stages}]
    assert len(bases) == 3
    images = [service["image"] for service in compose["services"].values()] + bases
    assert [image for image in images if not PINNED.match(image)] == []


def test_postgresql_is_the_version_that_comes_with_pip(compose: dict[str, Any]) -> None:
    said = subprocess.run(
        [Server(ROOT / ".data").binaries / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout
    version = re.search(r"\d+\.\d+", said)
    assert version is not None
    assert compose["services"]["db"]["image"] == f"postgres:{version[0]}-bookworm"


def test_only_the_preparation_goes_past_pgbouncer_and_as_the_owner(compose: dict[str, Any]) -> None:
    urls = {
        name: {value for value in service.get("environment", {}).values() if str(value).startswith("postgresql://")}
        for name, service in compose["services"].items()
    }
    through = "postgresql://ledger_app:${LEDGER_APP_PASSWORD:?put it into .env}@pgbouncer:6432/ledger"
    owner = "postgresql://ledger_owner:${LEDGER_OWNER_PASSWORD:?put it into .env}@db:5432/ledger"
    expected: dict[str, set[str]] = {name: set() for name in compose["services"]}
    assert urls == expected | {"prepare": {through, owner}, "web": {through}, "worker": {through}}


def test_whose_login_must_take_a_code_is_said_to_the_web_application(compose: dict[str, Any]) -> None:
    assert compose["services"]["web"]["environment"]["LEDGER_TWO_STEP"] == "${LEDGER_TWO_STEP:-}"


def test_web_and_worker_wait_for_the_preparation(compose: dict[str, Any]) -> None:
    for name in ("web", "worker"):
        assert compose["services"][name]["depends_on"]["prepare"] == {"condition": "service_completed_successfully"}


def test_every_variable_without_a_default_is_in_the_example() -> None:
    wanted = set(re.findall(r"\$\{([A-Z_]+):\?", (ROOT / "docker-compose.yml").read_text()))
    offered = set(re.findall(r"^([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert {"SECRET_KEY", "LEDGER_APP_PASSWORD"} <= wanted <= offered


def test_every_declared_setting_is_passed_on_and_in_the_example(compose: dict[str, Any]) -> None:
    offered = set(re.findall(r"^(?:# )?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    declared = {f"LEDGER_{setting.name}" for setting in conf.SETTINGS}
    declared |= set(re.findall(r"env\.\w+\(\s*\"([A-Z_]+)\"", (ROOT / "ledger_project/settings.py").read_text()))
    for service in ("prepare", "web", "worker"):
        environment = compose["services"][service]["environment"]
        assert declared - set(environment) - FOR_OTHER_DEPLOYMENTS == set(), service
        passed_on = {name for name, value in environment.items() if value is None}
        assert passed_on <= offered, service


@pytest.mark.parametrize("service", ["db", "pgbouncer", "prepare", "web", "proxy", "worker"])
def test_each_service_has_no_more_than_it_needs(service: str, compose: dict[str, Any]) -> None:
    found = compose["services"][service]
    assert (found["read_only"], found["security_opt"], found["cap_drop"]) == (True, ["no-new-privileges:true"], ["ALL"])
    assert bool(found.get("cap_add")) is (service == "db")


def test_what_the_images_copy_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
        for path in source.split():
            assert (ROOT / path).exists(), path
            assert f"!{path.split('/')[0]}" in ignored, path


@pytest.mark.parametrize(
    "script", ["deploy/pgbouncer/start", "deploy/nginx/start", "deploy/postgres/10-roles.sh", ".ci/run", *CLUSTER_SCRIPTS]
)
def test_the_scripts_are_runnable_and_parse(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    shell = path.read_text().split("\n", 1)[0].rsplit("/", 1)[1].split()[-1]
    subprocess.run([shell, "-n", path], check=True)


def test_the_application_may_read_what_sessions_do() -> None:
    assert "GRANT pg_read_all_stats TO ledger_app;" in (ROOT / "deploy/postgres/10-roles.sh").read_text()


def test_only_the_proxy_is_reached_from_outside(compose: dict[str, Any]) -> None:
    ports = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert ports == {
        "proxy": ["${PROXY_ADDRESS:-127.0.0.1}:${HTTPS_PORT:-8443}:8443", "${PROXY_ADDRESS:-127.0.0.1}:${HTTP_PORT:-8080}:8080"]
    }


def test_both_servers_have_the_same_room_for_locks_and_log_the_same(compose: dict[str, Any]) -> None:
    given = dict(part.split("=") for part in compose["services"]["db"]["command"] if "=" in part)
    assert given == {name: SETTINGS[name] for name in given}
    assert given["log_lock_waits"] == "on"
    assert {"max_connections", "max_locks_per_transaction", "log_min_duration_statement"} <= given.keys()
