"""The clients' verification of signals, by what the ledger signs; and the receiver of `credit-ledger listen`."""

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from typer.testing import CliRunner

from credit_ledger import Client, Signal, SignalRejected, cli, verify_signal
from ledger.signals.sending import signed_headers
from tests.clients.conftest import RunningServer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = '{"data":{"sequence":2},"timestamp":"2026-01-31T09:30:00.123456Z","type":"entry.recorded"}'
SIGNAL = Signal("one", "entry.recorded", "2026-01-31T09:30:00.123456Z", {"sequence": 2})


def headers(*secrets: str, minutes_ago: float = 0, **changes: str) -> dict[str, str]:
    """What the ledger sends."""
    made = signed_headers(list(secrets or (SECRET,)), "one", BODY, datetime.now(UTC) - timedelta(minutes=minutes_ago))
    return made | {name.replace("_", "-"): value for name, value in changes.items()}


def test_a_signal_is_what_the_ledger_signed_by_any_secret() -> None:
    assert verify_signal(BODY, headers(), SECRET) == SIGNAL
    assert verify_signal(BODY.encode(), {name.title(): value for name, value in headers().items()}, OTHER, SECRET) == SIGNAL
    assert verify_signal(BODY, headers(OTHER, SECRET), SECRET) == SIGNAL


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (BODY.replace("2}", "3}"), headers()),
        (BODY, headers(OTHER)),
        (BODY, headers(webhook_id="two")),
        (BODY, headers(minutes_ago=60)),
        (BODY, headers(minutes_ago=-60)),
        (BODY, headers(webhook_timestamp="now")),
        (BODY, headers(webhook_signature="v1")),
        (BODY, headers(webhook_signature="v1,!!!")),
        (BODY, headers(webhook_signature="v1,ä")),
        (BODY, {}),
        (b"\xff", headers()),
    ],
)
def test_what_the_ledger_did_not_send_is_rejected(body: Any, sent: dict[str, str]) -> None:
    with pytest.raises(SignalRejected):
        verify_signal(body, sent, SECRET)


def test_without_a_secret_everything_is_rejected() -> None:
    for secrets in ((), ("",), ("whsec_",)):
        with pytest.raises(SignalRejected):
            verify_signal(BODY, headers(), *secrets)


def post(port: int, body: bytes, sent: dict[str, str]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, sent, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_the_receiver_takes_signed_signals_once_and_refuses_all_else() -> None:
    with cli.Receiver(0) as receiver:
        receiver.secret = SECRET
        again = signed_headers([SECRET], "two", BODY, datetime.now(UTC))
        statuses = [post(receiver.port, BODY.encode(), each) for each in (headers(), headers(OTHER), headers(), again)]
        assert statuses == [204, 400, 204, 204]
        assert [signal.id for signal in islice(receiver.signals(), 2)] == ["one", "two"]


@pytest.mark.slow
def test_listen_makes_a_webhook_prints_its_signals_and_removes_it(
    running_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_signal(self: cli.Receiver) -> Any:
        with Client(running_server.url, running_server.api_key) as client:
            [webhook] = [each for each in client.webhooks() if each["url"] == "https://tunnel.example/"]
        seen.append((webhook["url"], webhook["types"], self.secret.startswith("whsec_")))
        yield SIGNAL

    seen: list[Any] = []
    monkeypatch.setattr(cli.Receiver, "signals", one_signal)
    environment = {"CREDIT_LEDGER_URL": running_server.url, "CREDIT_LEDGER_API_KEY": running_server.api_key}
    words = ["--json", "listen", "--port", "0", "--url", "https://tunnel.example/", "--signal", "entry.recorded"]
    done = CliRunner().invoke(cli.app, words, env=environment)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["data"] == {"sequence": 2}
    assert seen == [("https://tunnel.example/", ["entry.recorded"], True)]
    with Client(running_server.url, running_server.api_key) as client:
        assert [each for each in client.webhooks() if each["url"] == "https://tunnel.example/"] == []
