"""Three gateways with leases of one holder, 100 ms away: what they decided is what the ledger has, also when they are killed."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from credit_ledger import AccountBalance, Client
from tests.clients.conftest import Package, RunningServer
from tests.clients.distant_proxy import DistantProxy
from tests.nodes import pause

ROUND_TRIP_S = 0.1


class Gateway:
    """A process of lease_gateway.py, or of lease_gateway.mjs with the package of the client in TypeScript."""

    def __init__(self, package: Package | None, api_key: str, log: Path, *words: str) -> None:
        self.log = log
        python = [sys.executable, "-m", "tests.clients.lease_gateway"]
        program = python if package is None else ["node", str(Path(__file__).with_name("lease_gateway.mjs"))]
        environment = {**os.environ, "API_KEY": api_key, "PYTHONPATH": "clients/python/src"}
        folder = settings.BASE_DIR if package is None else package.folder
        self.process = subprocess.Popen(
            [*program, *words], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, line: str) -> None:
        """Tell it what to do, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, *beginnings: str) -> list[str]:
        """The words of its next line that begins with one of these."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.split()[0] in beginnings:
                return line.split()
        raise AssertionError(f"the gateway ended with {self.process.wait(30)}")

    def kill(self) -> None:
        """As kill -9."""
        self.process.kill()
        self.process.wait(30)

    def close(self) -> None:
        """Let it close its lease and end."""
        self.tell("close")
        self.hear("closed")
        assert self.process.wait(30) == 0

    def decided(self) -> list[int]:
        """The credits of its decisions, in sum; if it was killed within a decision, also without that one."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        sums = sum(int(amount) for kind, amount in lines if kind == "d")
        is_open = lines and lines[-1][0] == "a" and self.process.returncode != 0
        return [sums, sums + int(lines[-1][1])] if is_open else [sums]


class World:
    """A holder with credits, and the gateways that use them."""

    def __init__(self, server: RunningServer, proxy: DistantProxy, client: Client, holder: str, folder: Path) -> None:
        self.server, self.proxy, self.client, self.holder, self.folder = server, proxy, client, holder, folder
        self.gateways: list[Gateway] = []

    def start(self, package: Package | None = None, **terms: Any) -> Gateway:
        """A gateway that has opened its lease."""
        log = self.folder / f"gateway-{len(self.gateways)}"
        words = (self.proxy.url, self.holder, str(log), json.dumps(terms))
        gateway = Gateway(package, self.server.api_key, log, *words)
        self.gateways.append(gateway)
        gateway.hear("open")
        return gateway

    def balance(self) -> AccountBalance:
        """The balance of the holder."""
        return self.client.balance(self.holder)

    def captured(self, gateway: Gateway) -> int:
        """What the ledger has on record for a gateway, by captures and by spends instead of them."""
        entries = [*self.client.entries(self.holder, kind="capture"), *self.client.entries(self.holder, kind="spend")]
        mine = [entry for entry in entries if entry["reference"] == gateway.log.name]
        return sum(each["amount"] for entry in mine for each in entry["drawn"])


@pytest.fixture
def world(running_server: RunningServer, new_holder: Callable[[], str], tmp_path: Path) -> Iterator[World]:
    """The holder has no credits yet."""
    proxy = DistantProxy(urlsplit(running_server.url).port or 0, round_trip_s=ROUND_TRIP_S)
    with Client(running_server.url, running_server.api_key) as client:
        world = World(running_server, proxy, client, new_holder(), tmp_path)
        yield world
    for gateway in world.gateways:
        with suppress(ProcessLookupError):
            gateway.kill()
        for pipe in (gateway.process.stdin, gateway.process.stdout):
            if pipe is not None:
                pipe.close()
    proxy.close()


@pytest.fixture
def package_of(request: pytest.FixtureRequest) -> Callable[[str], Package | None]:
    """The package of the client of a language; None for Python."""
    return lambda language: request.getfixturevalue("package") if language == "typescript" else None


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_a_hundred_decisions_for_each_call(
    world: World, package_of: Callable[[str], Package | None], language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.client.grant(world.holder, amount=100_000)
    gateways = [world.start(package_of(language), amount=1_000, most=10_000) for _ in range(3)]
    for gateway in gateways:
        gateway.tell("decide 5000")
    answers = [gateway.hear("did") for gateway in gateways]
    assert [answer[1:3] for answer in answers] == [["5000", "all"]] * 3
    for gateway in gateways:
        gateway.close()
    decisions, decided = 3 * 5_000, sum(gateway.decided()[0] for gateway in gateways)
    with capsys.disabled():
        calls = f"{decisions} decisions in {world.proxy.requests} calls"
        print(f"\n{language}: {calls}, half of the decisions within {answers[0][3]} µs")
    assert [[world.captured(gateway)] for gateway in gateways] == [gateway.decided() for gateway in gateways]
    assert world.balance()["available"] == 100_000 - decided
    assert decisions >= 100 * world.proxy.requests


@pytest.mark.slow
def test_when_the_credits_end_the_gateways_stop(world: World) -> None:
    world.client.grant(world.holder, amount=5_000)
    gateways = [world.start(amount=500) for _ in range(3)]
    for gateway in gateways:
        gateway.tell("decide 5000")
    assert {gateway.hear("did")[2] for gateway in gateways} == {"LeaseExhausted"}
    for gateway in gateways:
        gateway.close()
    decided = sum(gateway.decided()[0] for gateway in gateways)
    assert [[world.captured(gateway)] for gateway in gateways] == [gateway.decided() for gateway in gateways]
    assert (world.balance()["available"], world.balance()["held"]) == (5_000 - decided, 0)
    assert 4_990 < decided <= 5_000


@pytest.mark.slow
@pytest.mark.parametrize("language", ["python", "typescript"])
@pytest.mark.parametrize("seed", range(4))
def test_killed_and_cut_gateways_spend_nothing_beyond(
    world: World, package_of: Callable[[str], Package | None], seed: int, language: str
) -> None:
    """One is killed and comes back with its journal, one is killed without, one is cut off while it decides."""
    chance = random.Random(seed)
    world.client.grant(world.holder, amount=20_000)
    journal = str(world.folder / "journal")
    with_journal = world.start(amount=300, most=900, journal=journal)
    without, cut_off = (world.start(package_of(language), amount=300, most=900) for _ in range(2))
    for gateway in (with_journal, without, cut_off):
        gateway.tell("decide 100000")
        for _ in range(chance.randint(1, 30)):
            gateway.hear("at")
    if chance.random() < 0.5:
        world.proxy.cut()
    with_journal.kill()
    without.kill()
    world.proxy.cut()
    assert cut_off.hear("did")[2] in ("LeaseExhausted", "OutcomeUnknown", "Unreachable")
    world.proxy.mend()
    cut_off.tell("decide 200")
    assert cut_off.hear("did")[1:3] == ["200", "all"]
    cut_off.close()

    assert world.balance()["held"] <= 2 * 900, "at most a lease of each that was killed"
    world.start(amount=300, most=900, journal=journal).close()
    assert [world.captured(cut_off)] == cut_off.decided()
    assert world.captured(with_journal) in with_journal.decided(), "the journal brings each decision back"
    assert max(without.decided()) - world.captured(without) >= 0
    assert min(without.decided()) - world.captured(without) <= 900, "at most a lease is not charged"

    captured = sum(world.captured(gateway) for gateway in world.gateways)
    balance = world.balance()
    assert (balance["balance"] + balance["held"], balance["held"] <= 900) == (20_000 - captured, True)
    for hold in balance["holds"]:
        world.client.extend(world.holder, hold["hold"], expires_at=datetime.now(UTC) + timedelta(seconds=0.2))
    while world.balance()["available"] != 20_000 - captured:
        pause()
