"""What the API rejects before it calls the ledger: nothing was written, nothing is recorded.

Statuses are given in `ledger.api.problems`, nowhere else.
"""

from collections.abc import Sequence

from ledger.errors import FieldError, LedgerError


class RequestError(LedgerError):
    """Base of what the API rejects."""

    code = "rejected"
    title = "The API rejected the request"


class MalformedRequest(RequestError):
    """The body is not one well-formed JSON object, or the URL is not well-formed. Carries `field_errors`."""

    code = "malformed-request"
    title = "The request is not well-formed"

    def __init__(self, *field_errors: FieldError) -> None:
        super().__init__()
        self.field_errors = field_errors


class InvalidRequest(RequestError):
    """Well-formed, but fields are missing, unknown or out of bounds. Carries all `field_errors` that were found."""

    code = "invalid-request"
    title = "The request is not valid"

    def __init__(self, field_errors: Sequence[FieldError]) -> None:
        super().__init__()
        self.field_errors = tuple(field_errors)


class IdempotencyKeyMissing(RequestError):
    """The write has no Idempotency-Key header."""

    code = "idempotency-key-missing"
    title = "A write needs an Idempotency-Key"
    field_errors = (
        FieldError("/Idempotency-Key", "required", "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."),
    )


class IdempotencyKeyInvalid(RequestError):
    """The Idempotency-Key is too long or contains characters other than printable ASCII."""

    code = "idempotency-key-invalid"
    title = "The Idempotency-Key is not valid"
    field_errors = (FieldError("/Idempotency-Key", "pattern", "An Idempotency-Key must be 1 to 255 printable ASCII characters."),)


class Unauthenticated(RequestError):
    """The request has no API key, or its key does not exist or is revoked; the response is the same for all three."""

    code = "unauthenticated"
    title = "The request needs a valid API key"


class ScopeMissing(RequestError):
    """The API key is valid but lacks a scope. Facts: scope."""

    code = "scope-missing"
    title = "The API key lacks a scope"


class NotFound(RequestError):
    """The resource does not exist, or this key may not see it; the response is the same for both."""

    code = "not-found"
    title = "Not found"


class MethodNotAllowed(RequestError):
    """The path does not support this method. Facts: method, allowed."""

    code = "method-not-allowed"
    title = "The path does not support this method"


class NotAcceptable(RequestError):
    """The client accepts no media type that this path serves. Facts: served."""

    code = "not-acceptable"
    title = "This path serves only JSON"


class UnsupportedMediaType(RequestError):
    """The body is not JSON in UTF-8, or it is compressed. Facts: accepted."""

    code = "unsupported-media-type"
    title = "The body must be application/json"


class BodyTooLarge(RequestError):
    """The body exceeds the limit of this path. Facts: limit_bytes."""

    code = "body-too-large"
    title = "The body is too large"


class BodyTimeout(RequestError):
    """The body took too long to arrive. Facts: seconds."""

    code = "body-timeout"
    title = "The body did not arrive in time"


class TooManyRequests(RequestError):
    """The API key, or the address of a client that is not logged in, asks for too much. Facts: retry_after_seconds."""

    code = "too-many-requests"
    title = "The client has sent too many requests"
