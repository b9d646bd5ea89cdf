"""What is turned away at the door, before the ledger is asked: nothing was written, nothing is recorded.

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
    """Base of what the delivery refuses by itself."""

    code = "rejected"
    title = "The request was turned away"


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
    """A write came without an Idempotency-Key."""

    code = "idempotency-key-missing"
    title = "A write needs an Idempotency-Key"
    flaws = (Flaw("/Idempotency-Key", "required", "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."),)


class IdempotencyKeyInvalid(Rejected):
    """The Idempotency-Key is too long, or has other characters than printable ASCII."""

    code = "idempotency-key-invalid"
    title = "The Idempotency-Key is not valid"
    flaws = (Flaw("/Idempotency-Key", "pattern", "An Idempotency-Key is 1 to 255 printable ASCII characters."),)


class Unauthenticated(Rejected):
    """No API key, or one that does not exist or was revoked; which of them is not told."""

    code = "unauthenticated"
    title = "A valid API key is needed"


class ScopeMissing(Rejected):
    """The API key is good, but not for this. Facts: scope."""

    code = "scope-missing"
    title = "The API key may not do this"


class NotFound(Rejected):
    """There is nothing here, or nothing that this key may see; the two look the same."""

    code = "not-found"
    title = "Not found"


class MethodNotAllowed(Rejected):
    """The path exists, not with this method. Facts: method, allowed."""

    code = "method-not-allowed"
    title = "This method is not allowed here"


class NotAcceptable(Rejected):
    """The client accepts nothing that is served here. Facts: served."""

    code = "not-acceptable"
    title = "Only JSON is served here"


class UnsupportedMediaType(Rejected):
    """The body is of another kind than JSON in UTF-8. Facts: accepted."""

    code = "unsupported-media-type"
    title = "The body must be application/json"


class BodyTooLarge(Rejected):
    """The body is longer than this path takes. Facts: limit_bytes."""

    code = "body-too-large"
    title = "The body is too large"


class BodyTimeout(Rejected):
    """The body took too long to arrive. Facts: seconds."""

    code = "body-timeout"
    title = "The body did not arrive in time"


class TooManyRequests(Rejected):
    """The key has sent too many requests, or has too many running. Facts: retry_after_seconds."""

    code = "too-many-requests"
    title = "Too many requests with this key"
