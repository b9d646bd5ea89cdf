"""The Helm chart runs the processes of docker-compose.yml, with no more rights, and says by name what is missing."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.release import build
from deploy.release.sources import CHART

FOLDER = Path(__file__).parent / "chart"
ROOT = build.ROOT
VALUES = {"pgbouncer": {"database": {"host": "postgresql.shops.example"}}}

Render = Callable[[dict[str, Any]], list[dict[str, Any]]]


def test_its_values_follow_its_schema_which_refuses_a_name_that_it_does_not_know() -> None:
    schema = json.loads((ROOT / CHART / "values.schema.json").read_text())
    values = yaml.safe_load((ROOT / CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator(schema).validate(values)
    assert values.keys() == schema["properties"].keys() - {"global"}
    for name in ("web", "worker", "prepare", "pgbouncer", "ingress", "image", "secrets"):
        with pytest.raises(jsonschema.ValidationError, match="'replica' was unexpected"):
            jsonschema.Draft7Validator(schema).validate({**values, name: {**values[name], "replica": 3}})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What renders charts as Helm does, and reads the documents as Kubernetes does."""
    if shutil.which("go") is None:
        pytest.skip("Helm is a module of Go, and go is not installed")
    made = tmp_path_factory.mktemp("chart") / "render"
    subprocess.run(["go", "build", "-o", made, "."], cwd=FOLDER, check=True)
    return made


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart of a release."""
    folder = tmp_path_factory.mktemp("release")
    build.build_release(folder, builders=[build.build_chart], may_be_uncommitted=True)
    (file,) = folder.glob("*.tgz")
    return file


@pytest.fixture
def render(program: Path, chart: Path) -> Render:
    """`render(values)` gives the documents of the chart with these values."""

    def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
        done = subprocess.run([program, chart], input=json.dumps(values), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return list(yaml.safe_load_all(done.stdout))

    return rendered


def pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The specifications of the pods, by component."""
    made = (each for each in documents if each["kind"] in {"Deployment", "Job"})
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"] for each in made}


def environment_of(pod: dict[str, Any]) -> dict[str, str | None]:
    """The variables of a pod's container that the chart itself says."""
    return {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}


@pytest.mark.slow
def test_it_has_the_processes_of_compose_with_their_commands_and_settings(render: Render) -> None:
    documents = render({**VALUES, "settings": {"LEDGER_TWO_STEP": "all", "LEDGER_HTTPS": False}})
    found = pods(documents)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    # PostgreSQL is the operator's own, and the ingress is the proxy.
    assert set(found) == set(compose) - {"db", "proxy"}
    for name in ("prepare", "web", "worker"):
        assert found[name]["containers"][0].get("command") == compose[name].get("command")
        said = environment_of(found[name])
        assert set(said) <= set(compose["web"]["environment"])
        assert said | {"DATABASE_BEHIND_PGBOUNCER": "true", "LEDGER_HTTPS": "false", "LEDGER_TWO_STEP": "all"} == said
    assert set(environment_of(found["pgbouncer"])) - {"DB_PORT", "DB_NAME"} == set(compose["pgbouncer"]["environment"])
    secrets = {
        name: [each["secretRef"]["name"] for each in pod["containers"][0].get("envFrom", ())] for name, pod in found.items()
    }
    application, owner = "credit-ledger", "credit-ledger-owner"
    assert secrets == {"prepare": [application, owner], "web": [application], "worker": [application], "pgbouncer": []}
    (hook,) = (each["metadata"]["annotations"] for each in documents if each["kind"] == "Job")
    assert hook["helm.sh/hook"] == "pre-install,pre-upgrade"


@pytest.mark.slow
def test_no_pod_has_more_rights_than_it_needs(render: Render) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for pod in pods(render(VALUES)).values():
        assert (pod["automountServiceAccountToken"], pod["securityContext"]["runAsNonRoot"]) == (False, True)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {"memory"} <= container["resources"]["limits"].keys()
        assert container["image"].endswith(f":{version}")


def routes(documents: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Each path of the ingress with its host and the port that gets it."""
    (ingress,) = (each for each in documents if each["kind"] == "Ingress")
    for rule in ingress["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            yield rule["host"], path["path"], path["backend"]["service"]["port"]["name"]


@pytest.mark.slow
def test_the_ingress_divides_calls_and_pages_as_the_proxy_of_compose_does(render: Render) -> None:
    assert not any(each["kind"] == "Ingress" for each in render(VALUES))
    documents = render({**VALUES, "ingress": {"enabled": True, "hosts": ["a.example", "b.example"], "tlsSecret": "tls"}})
    (divided,) = re.findall(r'"~\^/\((.*)\)" @WEB@', (ROOT / "deploy/nginx/nginx.conf").read_text())
    calls = ["/" + part.strip("/$") for part in divided.split("|")]
    expected = {(host, path, "calls") for host in ("a.example", "b.example") for path in calls}
    assert set(routes(documents)) == expected | {("a.example", "/", "pages"), ("b.example", "/", "pages")}
    assert environment_of(pods(documents)["web"])["ALLOWED_HOSTS"] == "a.example,b.example"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "pgbouncer.database.host names your PostgreSQL"),
        ({**VALUES, "ingress": {"enabled": True}}, "ingress.hosts names at least one host"),
        ({**VALUES, "web": {"replica": 3}}, "replica"),
        (
            {**VALUES, "web": {"resources": {"limit": {"memory": "1Gi"}}}},
            'unknown field "spec.template.spec.containers[0].resources.limit"',
        ),
    ],
)
def test_what_is_missing_or_unknown_is_refused_by_name(values: dict[str, Any], said: str, program: Path, chart: Path) -> None:
    done = subprocess.run([program, chart], input=json.dumps(values), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr
