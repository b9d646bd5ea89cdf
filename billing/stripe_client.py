"""The connection to Stripe, by its official package."""

from typing import NamedTuple

import stripe


class StripeConnection(NamedTuple):
    """Stripe's client, and what holds its connections."""

    client: stripe.StripeClient
    http: stripe.HTTPXClient


def connect(api_key: str, *, api_base: str, timeout_s: float) -> StripeConnection:
    """Return a connection; no request is sent. A request is sent once: the caller decides what is tried again.

    Args:
        api_base: the address of Stripe's API; empty: the usual one.
    """
    http = stripe.HTTPXClient(timeout=timeout_s, allow_sync_methods=True)
    client = stripe.StripeClient(
        api_key, base_addresses={"api": api_base} if api_base else {}, max_network_retries=0, http_client=http
    )
    return StripeConnection(client, http)
