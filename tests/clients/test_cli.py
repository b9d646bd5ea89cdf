"""The command `credit-ledger` against a running server."""

import json
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from click.testing import Result
from typer.testing import CliRunner

from credit_ledger import Client, InsufficientCredits, Retries
from credit_ledger.cli import app, followed
from tests.clients.conftest import RunningServer
from tests.clients.losing_proxy import Do, LosingProxy
from tests.ports import free_port

Run = Callable[..., Result]


@pytest.fixture
def run(running_server: RunningServer) -> Run:
    """Runs a command line."""
    environment = {"CREDIT_LEDGER_URL": running_server.url, "CREDIT_LEDGER_API_KEY": running_server.api_key, "COLUMNS": "140"}
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], env=environment)


@pytest.fixture
def client(running_server: RunningServer) -> Iterator[Client]:
    with Client(running_server.url, running_server.api_key) as client:
        yield client


@pytest.mark.slow
def test_grant_spend_balance_history_and_explain(run: Run, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    assert run("grant", holder, 1000, "--reason", "welcome [bold]", "--expires-at", "2027-01-31T00:00:00Z").exit_code == 0
    spent = run("spend", holder, 250)
    assert spent.exit_code == 0
    assert "-250" in spent.output
    balance = run("balance", holder)
    assert f"{holder}: 750 credits available" in balance.output
    assert "2027-01-31 00:00:00" in balance.output
    history = run("history", holder).output
    assert history.index("spend") < history.index("grant")
    assert "+1,000" in history
    assert "welcome [bold]" in history
    assert len(run("history", holder, "--limit", 1).output.splitlines()) == len(history.splitlines()) - 1
    assert "drawn" in run("explain", holder, 2).output


@pytest.mark.slow
@pytest.mark.check
def test_a_hold_is_captured_or_released(run: Run, client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    run("grant", holder, 100)
    assert run("hold", holder, 40).exit_code == 0
    assert run("capture", holder, 2, 30).exit_code == 0
    sequence = json.loads(run("--json", "hold", holder, 20).output)["sequence"]
    assert run("release", holder, sequence).exit_code == 0
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (70, 0)


def test_json_is_what_the_server_answered(run: Run, client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    granted = json.loads(run("--json", "grant", holder, 100, "--idempotency-key", "once").output)
    assert json.loads(run("--json", "grant", holder, 100, "--idempotency-key", "once").output) == granted
    assert json.loads(run("--json", "history", holder).output) == list(client.entries(holder)) == [granted]


def test_a_dry_run_writes_nothing(run: Run, client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    assert run("grant", holder, 100, "--dry-run").exit_code == 0
    assert client.balance(holder)["sequence"] == 0


def test_a_refusal_is_a_sentence_and_an_exit_code(run: Run, client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    run("grant", holder, 10)
    refused = run("spend", holder, 25)
    assert (refused.exit_code, refused.stderr) == (1, "Refused: 10 available, 15 too few.\n")
    wrong = run("grant", holder, 10, "--expires-at", "tomorrow")
    assert wrong.exit_code == 1
    assert "/expires_at" in wrong.stderr
    assert run("spend", holder, 0).exit_code == 2
    assert client.balance(holder)["balance"] == 10


def test_a_command_without_a_key_or_a_server(new_holder: Callable[[], str]) -> None:
    without_key = CliRunner().invoke(app, ["balance", new_holder()], env={"CREDIT_LEDGER_API_KEY": ""})
    assert without_key.exit_code == 2
    assert "CREDIT_LEDGER_API_KEY" in without_key.stderr


def test_without_a_server_nothing_was_written(monkeypatch: pytest.MonkeyPatch, new_holder: Callable[[], str]) -> None:
    monkeypatch.setattr("credit_ledger.client.Retries", lambda: Retries(total_s=0.1))
    url = f"http://127.0.0.1:{free_port()}"
    unreachable = CliRunner().invoke(app, ["--url", url, "--api-key", "k", "spend", new_holder(), "1"])
    assert unreachable.exit_code == 1
    assert "No answer" in unreachable.stderr


def test_an_unknown_outcome_names_the_key(
    monkeypatch: pytest.MonkeyPatch, losing_proxy: LosingProxy, running_server: RunningServer, new_holder: Callable[[], str]
) -> None:
    monkeypatch.setattr("credit_ledger.client.Retries", lambda: Retries(total_s=0.1))
    losing_proxy.plan.extend([Do.LOSE] * 100)
    words = [
        "--url",
        losing_proxy.url,
        "--api-key",
        running_server.api_key,
        "grant",
        new_holder(),
        "1",
        "--idempotency-key",
        "mine",
    ]
    unknown = CliRunner().invoke(app, words)
    assert unknown.exit_code == 3
    assert "--idempotency-key 'mine'" in unknown.stderr


def test_tail_shows_each_entry_once(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    client.spend(holder, amount=1)
    shown = followed(client, holder, lines=1)
    assert next(shown)["sequence"] == 2
    client.spend(holder, amount=1)
    client.grant(new_holder(), amount=1)
    client.spend(holder, amount=1)
    assert [entry["sequence"] for entry in islice(shown, 2)] == [3, 4]


def test_tail_without_a_holder_follows_all_of_them(client: Client, new_holder: Callable[[], str]) -> None:
    holders = [new_holder(), new_holder()]
    shown = followed(client, None, lines=1, refusals=True)
    before = next(shown)
    for holder in holders:
        client.grant(holder, amount=1)
    with pytest.raises(InsufficientCredits):
        client.spend(holders[0], amount=2)
    ids = [entry["id"] for entry in islice(shown, 3)]
    assert ids == [f"{holders[0]}/credits/1", f"{holders[1]}/credits/1", f"{holders[0]}/credits/2"]
    assert before["id"] not in ids
