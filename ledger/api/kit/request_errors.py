"""What the API rejects before it calls the ledger: nothing was written, nothing is recorded.

Statuses are given in `ledger_project.problems`, nowhere else.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ledger.errors import LedgerError


class Flaw(NamedTuple):
    """One thing that is wrong with a request.

    `pointer` is a JSON pointer into the body ("" is the body itself); for a query parameter or a header it is "/" and its name.
    """

    pointer: str
    code: str
    detail: str


class Rejected(LedgerError):
    """Base of what the API rejects."""

    code = "rejected"
    title = "The API rejected the request"


class MalformedRequest(Rejected):
    """The body is not one well-formed JSON object, or the URL is not well-formed. Carries `flaws`."""

    code = "malformed-request"
    title = "The request is not well-formed"

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__()
        self.flaws = flaws


class InvalidRequest(Rejected):
    """Well-formed, but fields are missing, unknown or out of bounds. Carries all `flaws` that were found."""

    code = "invalid-request"
    title = "The request is not valid"

    def __init__(self, flaws: Sequence[Flaw]) -> None:
        super().__init__()
        self.flaws = tuple(flaws)


class IdempotencyKeyMissing(Rejected):
    """The write has no Idempotency-Key header."""

    code = "idempotency-key-missing"
    title = "A write needs an Idempotency-Key"
    flaws = (Flaw("/Idempotency-Key", "required", "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."),)


class IdempotencyKeyInvalid(Rejected):
    """The Idempotency-Key is too long or contains characters other than printable ASCII."""

    code = "idempotency-key-invalid"
    title = "The Idempotency-Key is not valid"
    flaws = (Flaw("/Idempotency-Key", "pattern", "An Idempotency-Key must be 1 to 255 printable ASCII characters."),)


class Unauthenticated(Rejected):
    """The request has no API key, or its key does not exist or is revoked; the answer is the same for all three."""

    code = "unauthenticated"
    title = "The request needs a valid API key"


class ScopeMissing(Rejected):
    """The API key is valid but lacks a scope. Facts: scope."""

    code = "scope-missing"
    title = "The API key lacks a scope"


class NotFound(Rejected):
    """The resource does not exist, or this key may not see it; the answer is the same for both."""

    code = "not-found"
    title = "Not found"


class MethodNotAllowed(Rejected):
    """The path does not support this method. Facts: method, allowed."""

    code = "method-not-allowed"
    title = "The path does not support this method"


class NotAcceptable(Rejected):
    """The client accepts no media type that this path serves. Facts: served."""

    code = "not-acceptable"
    title = "This path serves only JSON"


class UnsupportedMediaType(Rejected):
    """The body is not JSON in UTF-8, or it is compressed. Facts: accepted."""

    code = "unsupported-media-type"
    title = "The body must be application/json"


class BodyTooLarge(Rejected):
    """The body exceeds the limit of this path. Facts: limit_bytes."""

    code = "body-too-large"
    title = "The body is too large"


class BodyTimeout(Rejected):
    """The body took too long to arrive. Facts: seconds."""

    code = "body-timeout"
    title = "The body did not arrive in time"


class TooManyRequests(Rejected):
    """The API key has sent too many requests, or too many of its requests are running. Facts: retry_after_seconds."""

    code = "too-many-requests"
    title = "The API key has sent too many requests"
