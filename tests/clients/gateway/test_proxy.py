"""The callback inside LiteLLM's proxy: a refusal is its 402, an error releases, and who vanishes pays for what was used."""

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import httpx
import pytest

from credit_ledger.client import Client
from tests.clients.conftest import RunningServer
from tests.clients.gateway.halting_provider import PROMPT_TOKENS, HaltingProvider, halting_provider
from tests.ports import free_port

HERE = Path(__file__).parent
CLIENT = HERE.parents[2] / "clients/python"
UV = Path(sys.executable).parent / "uv"
LEFT_OUT = ("PYTHON", "VIRTUAL_ENV", "CREDIT_", "DATABASE_", "LEDGER_")
MODELS = {"answers": "one two three", "fails": "litellm.InternalServerError"}


def environment(**more: str) -> dict[str, str]:
    """The variables of a program in the other environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    return kept | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"} | more


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the pinned proxy and the client of this tree."""
    venv = tmp_path_factory.mktemp("litellm-proxy") / "venv"
    install = (UV, "pip", "install", "--quiet", "--python", venv / "bin/python")
    for words in (
        (UV, "venv", "--quiet", "--python", sys.executable, venv),
        (*install, "--require-hashes", "-r", HERE / "requirements.txt"),
        (UV, "build", "--quiet", "--wheel", "--out-dir", venv / "dist", CLIENT),
    ):
        subprocess.run(words, check=True, timeout=600, env=environment())
    subprocess.run((*install, "--no-deps", *(venv / "dist").glob("*.whl")), check=True, timeout=60, env=environment())
    return venv / "bin"


@dataclass(frozen=True)
class Gateway:
    """A proxy that charges, the ledger behind it, and the provider of the model `halts`."""

    url: str
    ledger: Client
    provider: HaltingProvider

    def request(self, holder: str, model: str, **more: object) -> httpx.Request:
        body = {"model": model, "messages": [{"role": "user", "content": "hello there"}], **more}
        headers = {"Authorization": f"Bearer sk-{holder}"}
        return httpx.Request("POST", f"{self.url}/v1/chat/completions", json=body, headers=headers)

    def post(self, holder: str, model: str, **more: object) -> httpx.Response:
        """Send a call of the holder through the proxy."""
        with httpx.Client(timeout=60) as client:
            return client.send(self.request(holder, model, **more))

    def settled(self, holder: str) -> tuple[int, list[str]]:
        """The balance and the kinds of entries, once nothing is held any more."""
        for entries in self.ledger.follow("start", holder=holder).pages():
            if self.ledger.balance(holder)["held"] == 0 and entries[-1]["kind"] != "grant":
                break
        return self.ledger.balance(holder)["balance"], [entry["kind"] for entry in self.ledger.entries(holder)][::-1]


@pytest.fixture(scope="module")
def provider() -> Iterator[HaltingProvider]:
    with halting_provider() as found:
        yield found


@pytest.fixture(scope="module")
def gateway(
    programs: Path, running_server: RunningServer, provider: HaltingProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """The proxy with a model that answers, one that fails, and one that halts."""
    folder = tmp_path_factory.mktemp("proxy")
    shutil.copy(HERE / "ledger_callback.py", folder)
    model_list = [
        {"model_name": name, "litellm_params": {"model": "gpt-4o", "api_key": "x", "mock_response": answer}}
        for name, answer in MODELS.items()
    ]
    halting = {"model": "gpt-4o", "api_key": "x", "api_base": provider.url}
    model_list.append({"model_name": "halts", "litellm_params": halting})
    settings = {
        "model_list": model_list,
        "litellm_settings": {"callbacks": ["ledger_callback.ledger"]},
        "general_settings": {"master_key": f"sk-{token_hex(24)}", "custom_auth": "ledger_callback.authenticate"},
        "router_settings": {"num_retries": 1, "retry_after": 0},
    }
    # JSON is YAML.
    (folder / "config.yaml").write_text(json.dumps(settings))
    port = free_port()
    variables = environment(CREDIT_LEDGER_URL=running_server.url, CREDIT_LEDGER_API_KEY=running_server.api_key)
    command = (programs / "litellm", "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port", str(port))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    transport = httpx.HTTPTransport(retries=0)
    try:
        with httpx.Client(transport=transport) as client, Client(running_server.url, running_server.api_key) as ledger:
            ledger.publish_rate(ref="gpt-4o", components={"input": {"price": 1, "per": 1}, "output": {"price": 3, "per": 1}})
            while not _is_up(client, url):
                assert process.poll() is None, (folder / "log").read_text()[-5000:]
            yield Gateway(url, ledger, provider)
    finally:
        process.terminate()
        process.wait(60)


def _is_up(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health/liveliness", timeout=1).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.slow
def test_a_call_is_charged_by_its_usage(gateway: Gateway, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    gateway.ledger.grant(jane, amount=1000)
    answered = gateway.post(jane, "answers")
    assert answered.status_code == 200, answered.text
    usage = answered.json()["usage"]
    balance, kinds = gateway.settled(jane)
    assert balance == 1000 - usage["prompt_tokens"] - 3 * usage["completion_tokens"]
    assert kinds == ["grant", "hold", "release", "capture"]


@pytest.mark.slow
def test_who_has_too_few_credits_gets_402_and_the_model_is_not_called(gateway: Gateway, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    gateway.ledger.grant(jane, amount=5)
    refused = gateway.post(jane, "answers")
    assert refused.status_code == 402, refused.text
    assert "too few credits" in refused.json()["error"]["message"]
    assert len(list(gateway.ledger.refusals(jane))) == 1
    assert [entry["kind"] for entry in gateway.ledger.entries(jane)] == ["grant"]
    # Of a stream too, before anything is streamed.
    assert gateway.post(jane, "answers", stream=True).status_code == 402
    assert gateway.ledger.balance(jane)["balance"] == 5


@pytest.mark.slow
def test_a_stream_is_charged_at_its_end(gateway: Gateway, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    gateway.ledger.grant(jane, amount=1000)
    streamed = gateway.post(jane, "answers", stream=True)
    assert streamed.status_code == 200, streamed.text
    assert streamed.text.rstrip().endswith("data: [DONE]")
    balance, kinds = gateway.settled(jane)
    assert kinds == ["grant", "hold", "release", "capture"]
    assert 1000 - 100 < balance < 1000


@pytest.mark.slow
def test_an_error_of_the_model_releases_each_hold(gateway: Gateway, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    gateway.ledger.grant(jane, amount=1000)
    failed = gateway.post(jane, "fails")
    assert failed.status_code == 500, failed.text
    balance, kinds = gateway.settled(jane)
    assert balance == 1000
    assert kinds == ["grant", *["hold", "release"] * (len(kinds) // 2)]
    assert len(kinds) >= 3


# Callers who vanish ----------------------------------------------------------------------------------


def used(gateway: Gateway, holder: str) -> dict[str, str]:
    """The tokens that the only capture of a holder was priced by."""
    (capture,) = gateway.ledger.entries(holder, kind="capture")
    return capture["rating"]["quantities"]


@pytest.mark.slow
def test_who_vanishes_in_the_middle_of_a_stream_pays_for_what_was_streamed(
    gateway: Gateway, new_holder: Callable[[], str]
) -> None:
    jane = new_holder()
    gateway.ledger.grant(jane, amount=1000)
    gateway.provider.halt()
    with httpx.Client(timeout=60) as client:
        streamed = client.send(gateway.request(jane, "halts", stream=True, max_tokens=6), stream=True)
        assert streamed.status_code == 200
        heard = next(number for number, line in enumerate(filter(None, streamed.iter_lines()), 1) if "five" in line)
        assert heard == 5
        assert gateway.ledger.balance(jane)["held"] == PROMPT_TOKENS + 3 * 6
        streamed.close()
    # The provider still halts: nothing but the closed connection ends the call.
    balance, kinds = gateway.settled(jane)
    assert not gateway.provider.may_go_on.is_set()
    assert balance == 1000 - PROMPT_TOKENS - 3 * 5
    assert kinds == ["grant", "hold", "release", "capture"]
    assert used(gateway, jane) == {"input": str(PROMPT_TOKENS), "output": "5"}


@pytest.mark.slow
def test_who_vanishes_without_a_stream_pays_for_the_whole_answer(gateway: Gateway, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    gateway.ledger.grant(jane, amount=1000)
    gateway.provider.halt()
    request = gateway.request(jane, "halts", max_tokens=6)
    connection = http.client.HTTPConnection("127.0.0.1", request.url.port, timeout=60)
    connection.request("POST", request.url.path, request.content, dict(request.headers))
    assert gateway.provider.halts.wait(60)
    connection.close()
    # What comes after the end of the connection is answered, so the proxy has seen that end.
    assert httpx.get(f"{gateway.url}/health/liveliness", timeout=60).status_code == 200
    assert gateway.ledger.balance(jane)["held"] == PROMPT_TOKENS + 3 * 6
    gateway.provider.may_go_on.set()
    balance, kinds = gateway.settled(jane)
    assert balance == 1000 - PROMPT_TOKENS - 3 * 6
    assert kinds == ["grant", "hold", "capture"]
    assert used(gateway, jane) == {"input": str(PROMPT_TOKENS), "output": "6"}
