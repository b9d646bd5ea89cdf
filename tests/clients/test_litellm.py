"""The callback for LiteLLM, in an environment with LiteLLM, against a running server."""

import json
import os
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from django.core.management import call_command

from credit_ledger.client import Client
from tests.benchmarks.replay.command import TRACE
from tests.benchmarks.replay.traces import Use, read_trace
from tests.clients.conftest import RunningServer

CLIENT = Path(__file__).parents[2] / "clients/python"
UV = Path(sys.executable).parent / "uv"


def run(*words: str | Path, timeout: float = 300, **more: str) -> str:
    """What a program prints, in an environment without this project."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "CREDIT_"))}
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    done = subprocess.run(words, cwd="/", env=environment | more, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the pinned LiteLLM and the client of this tree."""
    venv = tmp_path_factory.mktemp("litellm") / "venv"
    python = venv / "bin/python"
    install = (UV, "pip", "install", "--quiet", "--python", python)
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    run(*install, "--require-hashes", "-r", CLIENT / "requirements-litellm.txt")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", venv / "dist", CLIENT)
    run(*install, "--no-deps", *(venv / "dist").glob("*.whl"))
    return python


@pytest.fixture(autouse=True)
def rates(running_server: RunningServer) -> None:
    """The prices of the models: of an answer's token three times that of the prompt's, and of cached ones half of it."""
    prices = {"input": {"price": 2, "per": 2}, "cached": {"price": 1, "per": 2}, "output": {"price": 3, "per": 1}}
    with Client(running_server.url, running_server.api_key) as client:
        client.publish_rate(ref="gpt-4o", components=prices)
        client.publish_rate(ref="gpt-4o-mini", components={name: {"price": 0, "per": 1} for name in prices})


@pytest.mark.slow
def test_calls_are_charged(python: Path, running_server: RunningServer) -> None:
    suffix = token_hex(4)
    script = Path(__file__).parent / "litellm_calls.py"
    printed = run(python, script, running_server.url, running_server.api_key, suffix)
    seen: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    charged = ["grant", "hold", "release", "capture"]  # what is left of the hold comes back
    stopped = dict.fromkeys(["closed", "reasoned", "tooled", "filtered", "cached"], charged)
    for name, kinds in {
        "plain": charged, "twice": [*charged, *charged[1:]], "streamed": charged, **stopped,
    }.items():  # fmt: skip
        assert seen[name]["kinds"] == kinds, (name, seen[name])
        assert seen[name]["balance"] == 1000 - seen[name]["said"], (name, seen[name])
    assert seen["streamed"]["said"] > 20
    assert seen["closed"]["said"] < 60
    assert (seen["free"]["kinds"], seen["free"]["balance"]) == (["hold", "capture"], 0)
    # 20 tokens of the prompt, 11 of them cached, and 2 of the answer: 9 + 5.5 + 6, rounded up once.
    assert seen["cached"]["said"] == 21
    # The answer took far more than was held, and more than there was: all that was held is captured, and the entry says the rest.
    assert (seen["dear"]["balance"], seen["dear"]["kinds"]) == (5, ["grant", "hold", "capture"])
    with Client(running_server.url, running_server.api_key) as client:
        capture = next(iter(client.entries(f"dear-{suffix}", kind="capture")))
        quantities = {"input": 20, "cached": 0, "output": 5000}
        assert capture["metadata"] == {"quantities": quantities, "uncharged": 15020 - seen["dear"]["said"]}
        priced = next(iter(client.entries(f"cached-{suffix}", kind="capture")))
        assert priced["rating"]["quantities"] == {"cached": "11", "input": "9", "output": "2"}
    assert seen["error"] == {"balance": 1000, "kinds": ["grant", "hold", "release"], "said": 500}
    assert seen["short"] == {"balance": 5, "kinds": ["grant"], "said": 402}
    assert (seen["routed"]["said"], seen["routed"]["kinds"]) == ("yes", charged)
    assert seen["retried"] == {"balance": 1000, "kinds": ["grant", *["hold", "release"] * 3], "said": 500}
    assert seen["shortrouted"] == {"balance": 5, "kinds": ["grant"], "said": 402}
    with Client(running_server.url, running_server.api_key) as client:
        assert len(list(client.refusals(f"shortrouted-{suffix}"))) == 1
        assert client.balance(f"closed-{suffix}")["held"] == 0


@pytest.mark.slow
def test_the_program_of_the_page_charges(python: Path, running_server: RunningServer, tmp_path: Path) -> None:
    page = (CLIENT.parents[1] / "docs/how-to/clients.md").read_text()
    program = page[page.index("# charged.py") :].partition("```")[0]
    (tmp_path / "charged.py").write_text(program.replace('"jane"', f'"jane-{token_hex(4)}"'))
    printed = run(
        python, tmp_path / "charged.py", CREDIT_LEDGER_URL=running_server.url, CREDIT_LEDGER_API_KEY=running_server.api_key
    )
    tokens, balance = map(int, printed.split()[-2:])
    assert tokens == 30
    assert balance == 10000 - 10 - 3 * 20


# The recorded trace ----------------------------------------------------------------------------------

SPARE = 10**6
"""What a holder has beyond what the calls on record cost: holds need more for a while than what is captured."""


def grant_all(client: Client, uses: list[Use], suffix: str) -> Counter[str]:
    """Grant each holder what the calls on record cost, and something to spare; return the costs by holder."""
    costs: Counter[str] = Counter()
    for use in uses:
        costs[f"user-{use.user}-{suffix}"] += use.credits
    for holder, cost in costs.items():
        client.grant(holder, amount=cost + SPARE)
    return costs


def captured(client: Client, holder: str) -> dict[str, int]:
    """Return what was captured for each call of a holder, by LiteLLM's id of the call."""
    entries = list(client.entries(holder))
    calls = {entry["sequence"]: entry["metadata"]["call"] for entry in entries if entry["kind"] == "hold"}
    captures = [entry for entry in entries if entry["kind"] == "capture"]
    found = {calls[entry["refers_to"]]: sum(part["amount"] for part in entry["drawn"]) for entry in captures}
    assert len(found) == len(captures) == len(calls)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not TRACE.exists(), reason=f"no {TRACE}")
def test_each_call_of_the_recorded_trace_is_charged_what_it_used(
    python: Path, running_server: RunningServer, tmp_path: Path
) -> None:
    uses, suffix = read_trace(TRACE), token_hex(4)
    calls = [(f"{suffix}-{use.number}", f"user-{use.user}-{suffix}", use.prompt_tokens, use.generated_tokens) for use in uses]
    file = tmp_path / "calls.json"
    file.write_text(json.dumps(calls))
    with Client(running_server.url, running_server.api_key) as client:
        costs = grant_all(client, uses, suffix)
        script = Path(__file__).parent / "litellm_trace.py"
        printed = run(python, script, running_server.url, running_server.api_key, file, timeout=1_500)
        assert int(printed) == len(uses)
        charged = {call: amount for holder in costs for call, amount in captured(client, holder).items()}
        assert charged == {f"{suffix}-{use.number}": use.credits for use in uses}
        balances = [client.balance(holder) for holder in costs]
        assert {(balance["balance"], balance["held"]) for balance in balances} == {(SPARE, 0)}
    report = StringIO()
    call_command("audit_ledger", no_progress=True, stdout=report)
    assert "Clean: no violations found." in report.getvalue()
