"""One request to a receiver: signed, to an address that was checked, without redirects, bounded in time and size."""

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from django.core.mail import EmailMessage
from standardwebhooks.webhooks import Webhook as Signer

from ledger import conf
from ledger.signals import mail
from ledger.signals.addresses import Network, may_be_sent_to, networks, url_fault
from ledger.signals.mail import NotMailed

READ_BYTES: Final = 4096
"""How much of an answer is read; the rest is left unread."""
KEPT_CHARACTERS: Final = 500
GONE: Final = 410
USER_AGENT: Final = "credit-ledger"
PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What came of a request.

    Args:
        status: None without an answer.
        error: why it failed, for people; empty if the receiver accepted the signal.
        response: the beginning of the answer.
        retry_after: how long the receiver asks to be left alone.
    """

    url: str
    started_at: datetime
    took_ms: int
    status: int | None = None
    error: str = ""
    response: str = ""
    retry_after: timedelta | None = None


class NotSent(Exception):
    """Nothing was sent; says why."""


def signed_headers(secrets: list[str], signal_id: str, body: str, at: datetime) -> dict[str, str]:
    """Return the headers of Standard Webhooks, with a signature by each secret. Source: standard-webhooks spec 1.0.0."""
    return {
        "webhook-id": signal_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Signer(secret).sign(signal_id, at, body) for secret in secrets),
        "content-type": "application/json",
        "user-agent": USER_AGENT,
    }


async def send(client: httpx.AsyncClient, url: str, body: str, *, signal_id: str, secrets: list[str]) -> Attempt:
    """Send a signal once; never raises. What the receiver says other than 2xx is a failure."""
    at, began = datetime.now(UTC), time.monotonic()
    facts: dict[str, Any]
    try:
        async with asyncio.timeout(conf.SIGNAL_TIMEOUT_SECONDS.value):
            facts = await _exchange(client, url, body, signed_headers(secrets, signal_id, body, at))
    except TimeoutError:
        facts = {"error": f"no whole answer within {conf.SIGNAL_TIMEOUT_SECONDS.value} s"}
    except (NotSent, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        facts = {"error": _text(f"{type(error).__name__}: {error}" if not isinstance(error, NotSent) else str(error))}
    return Attempt(url=url, started_at=at, took_ms=round((time.monotonic() - began) * 1000), **facts)


async def send_mail(url: str, content: EmailMessage) -> Attempt:
    """Hand a signal to the mail server once; never raises. The server's timeout bounds it."""
    at, began = datetime.now(UTC), time.monotonic()
    facts: dict[str, Any] = {"response": "The mail server has accepted it."}
    try:
        await asyncio.to_thread(mail.send, content)
    except (NotMailed, OSError, ValueError) as error:
        facts = {"error": _text(str(error) if isinstance(error, NotMailed) else f"{type(error).__name__}: {error}")}
    return Attempt(url=url, started_at=at, took_ms=round((time.monotonic() - began) * 1000), **facts)


def new_client() -> httpx.AsyncClient:
    """Return a client that follows no redirect, and takes neither a proxy nor a certificate from the environment."""
    return httpx.AsyncClient(
        verify=_trusted_context(),
        follow_redirects=False,
        trust_env=False,
        timeout=conf.SIGNAL_TIMEOUT_SECONDS.value,
        limits=httpx.Limits(max_keepalive_connections=0),
    )


@cache
def _trusted_context() -> ssl.SSLContext:
    """The authorities whose certificates are trusted; reading them takes 20 ms."""
    return httpx.create_ssl_context(trust_env=False)


async def _exchange(client: httpx.AsyncClient, url: str, body: str, headers: dict[str, str]) -> dict[str, Any]:
    # The settings may have changed since the webhook was made.
    if fault := url_fault(url, plain_http=conf.SIGNAL_PLAIN_HTTP.value):
        raise NotSent(fault)
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    address = await _checked_address(host, port, networks(conf.SIGNAL_ALLOWED_NETWORKS.value))
    shown = f"[{address}]" if ":" in address else address
    # To the address that was checked, under the name of the receiver: a second look-up could give another address.
    target = parts._replace(netloc=f"{shown}:{port}").geturl()
    name = f"[{host}]" if ":" in host else host
    is_default = port == PORTS[parts.scheme]
    headers = headers | {"host": name if is_default else f"{name}:{port}", "accept-encoding": "identity"}
    async with client.stream("POST", target, content=body.encode(), headers=headers, extensions={"sni_hostname": host}) as answer:
        return _judge_answer(answer.status_code, answer.headers, await _beginning(answer))


async def _checked_address(host: str, port: int, allowed: list[Network]) -> str:
    """Return an address of the host to which signals may be sent, or raise NotSent."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotSent(f"the name {host} has no address: {error.strerror or error}") from error
    addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
    for address in addresses:
        if may_be_sent_to(address, allowed):
            return address
    raise NotSent(f"{host} is {' and '.join(addresses)}, which is not public; LEDGER_SIGNAL_ALLOWED_NETWORKS can allow it")


async def _beginning(answer: httpx.Response) -> bytes:
    read = b""
    async for chunk in answer.aiter_raw():
        read += chunk
        if len(read) >= READ_BYTES:
            break
    return read[:READ_BYTES]


def _judge_answer(status: int, headers: httpx.Headers, content: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = {"status": status, "response": _text(content.decode("utf-8", "replace"))}
    if 200 <= status < 300:
        return facts
    if 300 <= status < 400:
        return facts | {"error": "the receiver redirects; redirects are not followed"}
    seconds = headers.get("retry-after", "")
    asked = timedelta(seconds=int(seconds)) if seconds.isascii() and seconds.isdigit() and len(seconds) < 8 else None
    return facts | {"error": f"the receiver answered {status}", "retry_after": asked}


def _text(text: str) -> str:
    """The beginning of a text from elsewhere, as it can be stored and shown."""
    return "".join(each if each.isprintable() else " " for each in text)[:KEPT_CHARACTERS].strip()
