"""The TypeScript client: of this document, strictly typed, and against a running server whose answers are lost."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from clients.typescript import generate
from credit_ledger import Client
from ledger_project.api.documents import openapi_document
from tests.clients.conftest import Package, RunningServer
from tests.clients.lease_world import CASES
from tests.clients.losing_proxy import Do, LosingProxy
from tests.ports import free_port

EXECUTED = (Do.LOSE, Do.HALVE, Do.UNKNOWN, Do.GATEWAY, Do.STALL)


def test_the_generated_files_are_of_this_document() -> None:
    for name, text in generate.generated(json.loads(openapi_document())).items():
        assert (generate.TARGET / name).read_text() == text, f"{name} is of another document: make client-types"


def test_the_document_of_types_says_each_thing_once() -> None:
    types = generate.document_of_types(json.loads(openapi_document()))
    given = [each for path in types["paths"].values() for call in path.values() for each in call["parameters"]]
    parameters = [json.dumps(each) for each in types["components"]["parameters"].values()]
    assert all(each.keys() == {"$ref"} for each in given)
    assert len(set(parameters)) == len(parameters) < len(given) / 2
    assert "problem+json" not in json.dumps(types["paths"])


@pytest.mark.slow
def test_the_client_verifies_signals(package: Package) -> None:
    """As the Python client does: tests/clients/test_signals.py."""
    assert package.test("signals.test.mjs") == 10


@dataclass(frozen=True)
class Scenario:
    """Runs one scenario of tests/server.test.mjs as a holder, and sees what it left."""

    package: Package
    server: RunningServer
    proxy: LosingProxy
    holder: str

    def run(self, name: str, plan: tuple[Do, ...] = (), *, url: str = "") -> None:
        self.proxy.plan.extend(plan)
        variables = {"URL_OF_SERVER": url or self.proxy.url, "API_KEY": self.server.api_key, "HOLDER": self.holder}
        assert self.package.test("server.test.mjs", SCENARIO=name, **variables) == 1

    def spends(self) -> list[int]:
        """The spends on record."""
        with Client(self.server.url, self.server.api_key) as client:
            return [each["amount"] for each in client.entries(self.holder, kind="spend")]

    def keys(self, path: str) -> list[str | None]:
        """The keys of all requests of a path."""
        return [each.key for each in self.proxy.seen if each.path == f"/v1/holders/{self.holder}{path}"]


@pytest.fixture
def scenario(
    package: Package, running_server: RunningServer, losing_proxy: LosingProxy, new_holder: Callable[[], str]
) -> Scenario:
    return Scenario(package, running_server, losing_proxy, new_holder())


@pytest.mark.slow
def test_the_types_are_of_this_document(package: Package) -> None:
    (package.folder / "types.json").write_text(json.dumps(generate.document_of_types(json.loads(openapi_document()))))
    package.run("openapi-typescript", "types.json", "--default-non-nullable=false", "--output", "schema.ts")
    made = (package.folder / "schema.ts").read_text()
    assert made == (generate.TARGET / "schema.ts").read_text(), "schema.ts is of another document: make client-types"


@pytest.mark.slow
def test_it_compiles_strictly_and_packs_what_it_needs(package: Package) -> None:
    assert package.run("tsc", "--strict", "--noEmit") == ""
    (packed,) = json.loads(package.run("npm", "pack", "--dry-run", "--json", "--ignore-scripts"))
    files = {each["path"] for each in packed["files"]}
    assert {
        "LICENSE",
        "README.md",
        "package.json",
        "dist/src/index.js",
        "dist/src/index.d.ts",
        "dist/src/generated/schema.d.ts",
    } <= files
    assert all(each.startswith("dist/src/") for each in files - {"LICENSE", "README.md", "package.json"})
    assert "dependencies" not in json.loads((package.folder / "package.json").read_text())


@pytest.mark.slow
def test_what_follows_each_answer(package: Package) -> None:
    assert package.test("attempts.test.mjs") == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "calls",
        "pages",
        "hold",
        "follow",
        "large",
        "lease",
        "lease_by_a_rate",
        "lease_by_a_rate_that_is_free",
        "lease_whose_hold_is_ended",
    ],
)
def test_calls_lists_holds_and_leases(scenario: Scenario, name: str) -> None:
    scenario.run(name)


@pytest.mark.slow
def test_lists_and_holds_through_lost_answers(scenario: Scenario) -> None:
    scenario.run("hold", (Do.LOSE, Do.PASS, Do.HALVE, Do.PASS, Do.GATEWAY) * 4)
    assert len(set(scenario.keys("/holds"))) == 4


@pytest.mark.slow
def test_a_lease_lives_as_in_python(package: Package) -> None:
    assert package.test("lease.test.mjs", CASES=str(CASES)) == 13


@pytest.mark.slow
def test_a_lease_charges_nothing_twice_through_lost_answers(scenario: Scenario) -> None:
    plan = (Do.PASS, Do.PASS, Do.LOSE, Do.PASS, Do.HALVE, Do.GATEWAY, Do.PASS, Do.UNKNOWN, Do.BUSY, Do.CUT)
    scenario.run("lease_through_lost_answers", plan * 3)


PLANS = [
    *((each,) for each in Do if each is not Do.PASS),
    (Do.LOSE, Do.GATEWAY, Do.BUSY, Do.UNKNOWN, Do.CUT, Do.HALVE, Do.STALL),
]


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(each.name for each in plan))
def test_a_spend_takes_effect_once(scenario: Scenario, plan: tuple[Do, ...]) -> None:
    scenario.run("spend", (Do.PASS, *plan))
    assert scenario.spends() == [-10]
    keys = scenario.keys("/spends")
    assert len(keys) == len(plan) + 1
    assert len(set(keys)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(each.name for each in plan))
def test_with_a_new_key_per_attempt_it_takes_effect_again(scenario: Scenario, plan: tuple[Do, ...]) -> None:
    """The control of the test above."""
    scenario.run("spend_with_a_new_key_per_attempt", (Do.PASS, *plan))
    assert len(scenario.spends()) == 1 + sum(each in EXECUTED for each in plan)


@pytest.mark.slow
def test_a_refusal_settles_a_lost_answer(scenario: Scenario) -> None:
    scenario.run("refusal", (Do.PASS, Do.LOSE))
    assert scenario.spends() == []
    assert len(scenario.keys("/spends")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("lost", [Do.LOSE, Do.STALL])
def test_the_outcome_is_unknown_only_when_the_time_is_over(scenario: Scenario, lost: Do) -> None:
    scenario.run("unknown", (Do.PASS, *[lost] * 100))
    assert set(scenario.keys("/spends")) == {"mine"}
    with Client(scenario.server.url, scenario.server.api_key) as client:
        client.spend(scenario.holder, amount=10, idempotency_key="mine")
    assert scenario.spends() == [-10]


@pytest.mark.slow
def test_a_server_that_cannot_be_reached_wrote_nothing(scenario: Scenario) -> None:
    scenario.run("unreachable", url=f"http://127.0.0.1:{free_port()}")
