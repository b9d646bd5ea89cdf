"""What Stripe answers is bounded: an answer without end, and one that comes a byte at a time, are no answers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
import stripe

from billing import stripe_client
from billing.stripe_client import MAX_BYTES, connect

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def stranger(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Listen in Stripe's place and answer each connection like this; the event is set at the end."""
    has_ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    answer(connection, has_ended)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            has_ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def send_without_end(connection: socket.socket, has_ended: threading.Event) -> None:
    connection.sendall(HEAD + b"Connection: close\r\n\r\n")
    while not has_ended.is_set():
        connection.sendall(b"x" * 65_536)


def drip_header(connection: socket.socket, has_ended: threading.Event) -> None:
    connection.sendall(HEAD + b"X-Slow: ")
    while not has_ended.wait(0.02):
        connection.sendall(b"x")


def drip_body(connection: socket.socket, has_ended: threading.Event) -> None:
    connection.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
    while not has_ended.wait(0.02):
        connection.sendall(b" ")


def say_nothing(connection: socket.socket, has_ended: threading.Event) -> None:
    has_ended.wait()


@pytest.mark.parametrize("answer", [send_without_end, drip_header, drip_body, say_nothing])
def test_such_an_answer_is_none(
    answer: Callable[[socket.socket, threading.Event], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripe_client, "MAX_BYTES", MAX_BYTES // 16)
    with stranger(answer) as base:
        connection = connect("sk_test", api_base=base, timeout_s=60 if answer is send_without_end else 0.2)
        began = time.monotonic()
        with pytest.raises(stripe.APIConnectionError):
            connection.client.v1.payment_intents.retrieve("pi_1")
        assert time.monotonic() - began < 30
