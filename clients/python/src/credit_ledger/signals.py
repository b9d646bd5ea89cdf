"""Signals that the ledger sends to webhooks: verified, and typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook, WebhookVerificationError

from credit_ledger.problem import CreditLedgerError


class SignalRejected(CreditLedgerError):
    """A request is not a signal from the ledger: its signature does not match, or it is more than 5 minutes old."""


@dataclass(frozen=True)
class Signal:
    """What happened.

    Args:
        id: the same each time the signal is sent; handle each id once.
        type: such as `entry.recorded`.
        timestamp: when its cause happened, as RFC 3339.
        data: of an entry, what `Client.entry` returns.
    """

    id: str
    type: str
    timestamp: str
    data: dict[str, Any]


def verify_signal(body: bytes | str, headers: Mapping[str, str], *secrets: str) -> Signal:
    """Return the signal of a request to a webhook, or raise SignalRejected.

    Args:
        body: the bytes as they were received, before anything parsed them.
        headers: of the request; upper and lower case in their names make no difference.
        secrets: of the webhook; during a rotation, both. One match is enough.
    """
    named = {name.lower(): value for name, value in headers.items()}
    for secret in secrets:
        try:
            content = Webhook(secret).verify(body, named)
            return Signal(named["webhook-id"], str(content["type"]), str(content["timestamp"]), content["data"])
        # A forged signature can be of any form, and the library lets errors of Base64 and of Unicode through.
        except (WebhookVerificationError, EmptyWebhookSecretError, ValueError, KeyError, TypeError) as error:
            last = error
    raise SignalRejected(f"This is not a signal from the ledger: {last if secrets else 'no secret was given'}.")
