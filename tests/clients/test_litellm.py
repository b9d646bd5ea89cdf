"""The callback for LiteLLM, in an environment with LiteLLM, against a running server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from credit_ledger.client import Client
from tests.clients.conftest import RunningServer

CLIENT = Path(__file__).parents[2] / "clients/python"


def run(*words: str | Path, **more: str) -> str:
    """What a program prints, in an environment without this project."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "CREDIT_"))}
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    done = subprocess.run(words, cwd="/", env=environment | more, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the pinned LiteLLM and the client of this tree."""
    venv = tmp_path_factory.mktemp("litellm") / "venv"
    python = venv / "bin/python"
    run(sys.executable, "-m", "venv", venv)
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", CLIENT / "requirements-litellm.txt")
    run(Path(sys.executable).parent / "uv", "build", "--quiet", "--wheel", "--out-dir", venv / "dist", CLIENT)
    run(*pip, "--no-deps", *(venv / "dist").glob("*.whl"))
    return python


@pytest.mark.slow
def test_calls_are_charged(python: Path, running_server: RunningServer) -> None:
    suffix = token_hex(4)
    script = Path(__file__).parent / "litellm_calls.py"
    printed = run(python, script, running_server.url, running_server.api_key, suffix)
    seen: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    charged = ["grant", "hold", "release", "capture"]  # what is left of the hold comes back
    for name, kinds in {
        "plain": charged, "twice": [*charged, *charged[1:]], "streamed": charged, "closed": charged,
    }.items():  # fmt: skip
        assert seen[name]["kinds"] == kinds, (name, seen[name])
        assert seen[name]["balance"] == 1000 - seen[name]["said"], (name, seen[name])
    assert seen["streamed"]["said"] > 20
    assert seen["closed"]["said"] < 60
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
