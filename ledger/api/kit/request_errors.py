"""What the API rejects before it calls the ledger: nothing was written, nothing is recorded."""

from collections.abc import Sequence

from ledger.errors import FieldError, LedgerError, Problem


class RequestError(LedgerError):
    """Base of what the API rejects."""

    code = "rejected"
    title = "The API rejected the request"
    problem = Problem(400, "")


class MalformedRequest(RequestError):
    """The body is not one well-formed JSON object, or the URL is not well-formed. Carries `field_errors`."""

    code = "malformed-request"
    title = "The request is not well-formed"
    problem = Problem(400, "`errors` lists every fault.")

    def __init__(self, *field_errors: FieldError) -> None:
        super().__init__()
        self.field_errors = field_errors


class InvalidRequest(RequestError):
    """Well-formed, but fields are missing, unknown or out of bounds. Carries all `field_errors` that were found."""

    code = "invalid-request"
    title = "The request is not valid"
    problem = Problem(400, "`errors` lists every fault.")

    def __init__(self, field_errors: Sequence[FieldError]) -> None:
        super().__init__()
        self.field_errors = tuple(field_errors)


class IdempotencyKeyMissing(RequestError):
    """The write has no Idempotency-Key header."""

    code = "idempotency-key-missing"
    title = "A write needs an Idempotency-Key"
    problem = Problem(400, "`errors` lists every fault.")
    field_errors = (
        FieldError("/Idempotency-Key", "required", "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."),
    )


class IdempotencyKeyInvalid(RequestError):
    """The Idempotency-Key is too long or contains characters other than printable ASCII."""

    code = "idempotency-key-invalid"
    title = "The Idempotency-Key is not valid"
    problem = Problem(400, "`errors` lists every fault.")
    field_errors = (FieldError("/Idempotency-Key", "pattern", "An Idempotency-Key must be 1 to 255 printable ASCII characters."),)


class Unauthenticated(RequestError):
    """The request has no API key, or its key does not exist or is revoked; the response is the same for all three."""

    code = "unauthenticated"
    title = "The request needs a valid API key"
    problem = Problem(401, "Send `Authorization: Bearer <api key>` with a valid key.")


class ScopeMissing(RequestError):
    """The API key is valid but lacks a scope. Facts: scope."""

    code = "scope-missing"
    title = "The API key lacks a scope"
    problem = Problem(403, "The key needs the scope {scope}.")


class NotFound(RequestError):
    """The resource does not exist, or this key may not see it; the response is the same for both."""

    code = "not-found"
    title = "Not found"
    problem = Problem(404, "The resource does not exist, or this key may not see it.")


class MethodNotAllowed(RequestError):
    """The path does not support this method. Facts: method, allowed."""

    code = "method-not-allowed"
    title = "The path does not support this method"
    problem = Problem(405, "The Allow header lists the supported methods.")


class NotAcceptable(RequestError):
    """The client accepts no media type that this path serves. Facts: served."""

    code = "not-acceptable"
    title = "This path serves only JSON"
    problem = Problem(406, "This path serves {served}.")


class UnsupportedMediaType(RequestError):
    """The body is not JSON in UTF-8, or it is compressed. Facts: accepted."""

    code = "unsupported-media-type"
    title = "The body must be application/json"
    problem = Problem(415, "Send {accepted} in UTF-8, uncompressed.")


class BodyTooLarge(RequestError):
    """The body exceeds the limit of this path. Facts: limit_bytes."""

    code = "body-too-large"
    title = "The body is too large"
    problem = Problem(413, "The body must be at most {limit_bytes} bytes.")


class BodyTimeout(RequestError):
    """The body took too long to arrive. Facts: seconds."""

    code = "body-timeout"
    title = "The body did not arrive in time"
    problem = Problem(408, "The body must arrive within {seconds} s. Nothing was executed.")


class TooManyRequests(RequestError):
    """The API key, or the address of a client that is not logged in, asks for too much. Facts: retry_after_seconds."""

    code = "too-many-requests"
    title = "The client has sent too many requests"
    problem = Problem(429, "Try again in {retry_after_seconds} s.")
