"""What is refused about API keys."""

from typing import Annotated

from ledger.errors import Answer, LedgerError
from ledger.values import Choice, ListOf, Text, Time


class KeyEnded(LedgerError):
    """The API key is revoked or has expired, so it cannot get another secret. Nothing was written."""

    code = "key-ended"
    title = "The API key has ended"
    answer = Answer(409, "The API key is {how}. Make another one.")

    how: Annotated[str, Choice(("revoked", "expired"), "What ended it.")]


class KeyRotating(LedgerError):
    """The former secret of the API key is still valid, and a key has two secrets at most. Nothing was written."""

    code = "key-rotating"
    title = "The former secret of the API key is still valid"
    answer = Answer(
        409,
        "The former secret is valid until {former_until}, and a key has at most two secrets. Rotate it later, or without an "
        "overlap.",
    )

    former_until: Annotated[str, Time("Until when the former secret is valid.")]


class KeyNameTaken(LedgerError):
    """The name belongs to an existing resource with other content. The name of an API key stays taken when the key has ended.

    Nothing was written.
    """

    code = "already-exists"
    title = "The name is taken"
    answer = Answer(409, "Another API key is called {ref}.")

    resource: Annotated[str, Text("What kind of thing it is.", most=64)]
    ref: Annotated[str, Text("Its reference.", most=100)]


class KeyExceedsOwn(LedgerError):
    """The API key has, or would have, more rights than the key that sends the request. Nothing was written."""

    code = "key-exceeds-own"
    title = "The API key exceeds the key that sends the request"
    answer = Answer(403, "`exceeds` names the fields that go beyond the key that sends the request; GET /v1/key shows that key.")

    exceeds: Annotated[list[str], ListOf(Text(most=32), "The names of the fields that go beyond.", most=8)]
