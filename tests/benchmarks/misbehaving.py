"""Clients that misbehave, in a separate process: `python -m tests.benchmarks.misbehaving guess URL`, until it is ended.

They take the place of other machines: they have the lowest priority, and share no interpreter with the clients that are measured.
"""

import http.client
import os
import re
import socket
import sys
import threading
import time
import urllib.parse
from contextlib import suppress

from tests.benchmarks.beside import KEY, SPEND
from tests.benchmarks.clients import TRUSTING, Load, send_load

DRIBBLERS, GUESSERS, WAITERS = 1_000, 12, 1_000
STUCK = "besieged-stuck"
FORM = re.compile(rb'name="csrfmiddlewaretoken" value="([^"]+)"')


def guess(url: urllib.parse.SplitResult) -> None:
    """Passwords of an operator, each of twelve clients one after the other and without a pause."""

    def once() -> None:
        connection = (
            http.client.HTTPSConnection(str(url.hostname), url.port, context=TRUSTING, timeout=10)
            if url.scheme == "https"
            else http.client.HTTPConnection(str(url.hostname), url.port, timeout=10)
        )
        connection.request("GET", "/admin/login/")
        page = connection.getresponse()
        cookies = "; ".join(each.split(";")[0] for each in page.headers.get_all("Set-Cookie") or [])
        token = FORM.search(page.read())
        form = {"username": "admin", "password": os.urandom(8).hex(), "csrfmiddlewaretoken": token[1].decode() if token else ""}
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded", "Referer": url.geturl()}
        connection.request("POST", "/admin/login/", urllib.parse.urlencode(form), headers)
        connection.getresponse().read()
        connection.close()

    def one() -> None:
        while True:
            with suppress(OSError, http.client.HTTPException):
                once()

    threads = [threading.Thread(target=one) for _ in range(GUESSERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def dribble(url: urllib.parse.SplitResult) -> None:
    """Promise bodies and send a byte of each a second: half of them to the login page, half to the API."""

    def connect(number: int) -> socket.socket:
        path = "/admin/login/" if number % 2 else "/v1/holders/slow/spends"
        kind = "application/x-www-form-urlencoded" if number % 2 else "application/json"
        connection = socket.create_connection((str(url.hostname), url.port))
        if url.scheme == "https":
            connection = TRUSTING.wrap_socket(connection)
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nCookie: csrftoken=made-up\r\n"
            f"Content-Type: {kind}\r\nIdempotency-Key: {number}\r\nContent-Length: 9000\r\n\r\n".encode()
        )
        return connection

    connections = [connect(number) for number in range(DRIBBLERS)]
    while True:
        time.sleep(1)
        for number, connection in enumerate(connections):
            try:
                connection.sendall(b" ")
            except OSError:
                connections[number] = connect(number)


def wait(url: urllib.parse.SplitResult) -> None:
    """Spend credits of one holder whose lock another session keeps; come back when the 503 says so."""
    stuck = {**SPEND, "prefix": STUCK, "holders": 1}
    load = Load(port=url.port or 80, tls=url.scheme == "https", key=KEY, clients=WAITERS, is_patient=True, seconds=3600, **stuck)
    while True:
        with suppress(OSError):
            send_load(load)


KINDS = {"guess": guess, "dribble": dribble, "wait": wait}

if __name__ == "__main__":
    os.nice(19)
    KINDS[sys.argv[1]](urllib.parse.urlsplit(sys.argv[2]))
