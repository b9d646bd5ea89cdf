"""The connection to Stripe, by its official package: each answer is bounded in time and size."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

import httpx
import stripe

MAX_BYTES: Final = 4 * 1024 * 1024
"""Of one answer. The largest is a page of 100 rows, which has some hundred kilobytes."""


class TooLarge(Exception):
    """More than MAX_BYTES came."""


class BoundedClient(stripe.HTTPClient):
    """Sends the requests of Stripe's package. What does not answer in time, a byte at a time or without end, has not answered."""

    name: ClassVar[str] = "httpx"

    def __init__(self, *, timeout_s: float) -> None:
        """Open no connection.

        Args:
            timeout_s: within which the whole answer must be here.
        """
        super().__init__()
        self._timeout_s = timeout_s
        self._trusted = ssl.create_default_context(cafile=stripe.ca_bundle_path)

    def request(  # type: ignore[override]  # the stream of usage is not asked for; the body is bytes, as in its own clients
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        """Return the answer; raise stripe.APIConnectionError if there is none."""
        try:
            return asyncio.run(self._exchange(method, url, headers, post_data))
        except (httpx.HTTPError, httpx.InvalidURL, TooLarge, OSError) as error:
            raise stripe.APIConnectionError(f"No answer of Stripe ({type(error).__name__})", should_retry=True) from error

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str] | None, post_data: Any
    ) -> tuple[bytes, int, Mapping[str, str]]:
        client = httpx.AsyncClient(verify=self._trusted, follow_redirects=False, timeout=self._timeout_s)
        asked = client.stream(method, url, headers=headers, data=post_data or {})
        async with asyncio.timeout(self._timeout_s), client, asked as answer:
            content = b""
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > MAX_BYTES:
                    raise TooLarge
            return content, answer.status_code, answer.headers

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""


class StripeConnection(NamedTuple):
    """Stripe's client, and what sends its requests."""

    client: stripe.StripeClient
    http: stripe.HTTPClient


def connect(api_key: str, *, api_base: str, timeout_s: float) -> StripeConnection:
    """Return a connection; no request is sent. A request is sent once: the caller decides what is tried again.

    Args:
        api_base: the address of Stripe's API; empty: the usual one.
        timeout_s: of each request, to the end of its answer.
    """
    http = BoundedClient(timeout_s=timeout_s)
    client = stripe.StripeClient(
        api_key, base_addresses={"api": api_base} if api_base else {}, max_network_retries=0, http_client=http
    )
    return StripeConnection(client, http)
