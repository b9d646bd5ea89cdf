"""What counts as the header Idempotency-Key, as real servers hand headers on: one line of just that name. And chunks."""

import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from ledger import reads
from ledger.keys import api_keys
from tests.conftest import WebProcess
from tests.ledger.rest.conftest import nothing_written

Send = Callable[..., tuple[int, dict[str, Any]]]

TWICE = [
    ["Idempotency-Key: k1", "Idempotency-Key: k2"],
    ["Idempotency-Key: k1", "Idempotency-Key: k1"],
    ["Idempotency-Key: k1", "IDEMPOTENCY-KEY: k2"],
    ["Idempotency-Key: k1", "idempotency-key:"],
]
UNDERSCORES = ["Idempotency_Key: k1", "idempotency_key: k1", "IDEMPOTENCY_KEY: k1"]


@pytest.fixture
def send(committed_db: None, shared_server: WebProcess) -> Send:
    """Sends a grant of 5 with these header lines, byte for byte; returns the status and the body."""
    address = urlsplit(shared_server.url)

    def exchange(holder: str, key: str, lines: list[str]) -> tuple[int, dict[str, Any]]:
        body = b'{"amount": 5}'
        head = [
            f"POST /v1/holders/{holder}/grants HTTP/1.1", f"Host: {address.netloc}", f"Authorization: Bearer {key}",
            "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", *lines,
        ]  # fmt: skip
        with socket.create_connection((str(address.hostname), address.port or 80), timeout=30) as wire:
            wire.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            response = b"".join(iter(lambda: wire.recv(65_536), b""))
        status, _, content = response.partition(b"\r\n\r\n")
        return int(status.split()[1]), json.loads(content)

    return exchange


@pytest.mark.slow
@pytest.mark.check
def test_only_one_line_of_just_that_name_is_the_idempotency_key(send: Send, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    _, key = api_keys.create_api_key(name=holder, scopes=["ledger:grant"])

    for lines in TWICE:
        with nothing_written(holder):
            status, problem = send(holder, key, lines)
        assert (status, [(each["pointer"], each["code"]) for each in problem["errors"]]) == (
            400, [("/Idempotency-Key", "duplicate-header")],
        )  # fmt: skip
    for line in UNDERSCORES:
        with nothing_written(holder):
            status, problem = send(holder, key, [line])
        assert (status, problem["type"].rsplit("/", 1)[1]) == (400, "idempotency-key-missing")

    status, entry = send(holder, key, ["Idempotency_Key: another", "Idempotency-Key: k1", "Idempotency_Key: k2"])
    assert (status, entry["idempotency_key"]) == (201, "k1")
    assert [each.idempotency_key for each in reads.entries(holder)] == ["k1"], "k1 was still free"


@pytest.mark.parametrize("chunks", [b"zz\r\n{}\r\n0\r\n\r\n", b'd\r\n{"amount": 5}XX0\r\n\r\n'])
def test_chunks_that_are_not_well_formed_are_a_400(
    committed_db: None, shared_server: WebProcess, new_holder: Callable[[], str], chunks: bytes
) -> None:
    holder = new_holder()
    _, key = api_keys.create_api_key(name=holder, scopes=["ledger:grant"])
    address = urlsplit(shared_server.url)
    head = [
        f"POST /v1/holders/{holder}/grants HTTP/1.1", f"Host: {address.netloc}", f"Authorization: Bearer {key}",
        "Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close", "Idempotency-Key: k1",
    ]  # fmt: skip
    with nothing_written(holder), socket.create_connection((str(address.hostname), address.port or 80), timeout=30) as wire:
        wire.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + chunks)
        response = b"".join(iter(lambda: wire.recv(65_536), b""))
    status, _, content = response.partition(b"\r\n\r\n")
    assert int(status.split()[1]) == 400
    assert [error["code"] for error in json.loads(content)["errors"]] == ["truncated"]
