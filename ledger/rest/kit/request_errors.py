"""The errors with which the API rejects a request before it calls the ledger: nothing was written or recorded."""

from collections.abc import Sequence
from typing import Annotated

from ledger.errors import Answer, Invalid, LedgerError
from ledger.values import MAX_LABEL_CHARACTERS, MAX_METADATA_KEY_CHARACTERS, Count, FieldError, ListOf, Text


class RequestError(LedgerError):
    """Base of these errors."""

    code = "rejected"
    title = "The API rejected the request"
    answer = Answer(400, "")


class MalformedRequest(RequestError):
    """The body is not one well-formed JSON object, or the URL is not well-formed. `errors` lists every fault."""

    code = "malformed-request"
    title = "The request is not well-formed"
    answer = Answer(400, "`errors` lists every fault.")

    def __init__(self, *field_errors: FieldError) -> None:
        super().__init__()
        self.field_errors = field_errors


class InvalidRequest(RequestError):
    """Well-formed, but fields are missing, unknown or out of bounds. `errors` lists every fault."""

    code = "invalid-request"
    title = "The request is not valid"
    answer = Answer(400, "`errors` lists every fault.")

    def __init__(self, field_errors: Sequence[FieldError]) -> None:
        super().__init__()
        self.field_errors = tuple(field_errors)

    def __str__(self) -> str:
        """Return one sentence, with each field and the rule that it breaks."""
        faults = [str(Invalid(pointer=each.pointer, rule=each.code, detail=each.detail)) for each in self.field_errors]
        return f"{self.title}: {'; '.join(each.rstrip('.') for each in faults)}."


class IdempotencyKeyMissing(RequestError):
    """The write has no Idempotency-Key header."""

    code = "idempotency-key-missing"
    title = "A write needs an Idempotency-Key"
    answer = Answer(400, "`errors` lists every fault.")
    field_errors = (
        FieldError("/Idempotency-Key", "required", "Send an Idempotency-Key header of 1 to 255 printable ASCII characters."),
    )


class IdempotencyKeyInvalid(RequestError):
    """The Idempotency-Key is too long or contains characters other than printable ASCII."""

    code = "idempotency-key-invalid"
    title = "The Idempotency-Key is not valid"
    answer = Answer(400, "`errors` lists every fault.")
    field_errors = (FieldError("/Idempotency-Key", "pattern", "An Idempotency-Key must be 1 to 255 printable ASCII characters."),)


class Unauthenticated(RequestError):
    """The request has no API key, or its key does not exist, is revoked or has expired; the response is the same for all.

    A key for tests gets another sentence where the deployment is not for tests, and the other way round.
    """

    code = "unauthenticated"
    title = "The request needs a valid API key"
    answer = Answer(401, "Send `Authorization: Bearer <api key>` with a valid key.")


class KeyForTests(Unauthenticated):
    """The API key is for tests, and this deployment is not."""

    answer = Answer(401, "This deployment does not accept API keys for tests, which begin with test_.")


class KeyNotForTests(Unauthenticated):
    """The deployment is for tests, and the API key is not."""

    answer = Answer(401, "This deployment is for tests: it accepts only API keys that begin with test_.")


class ScopeMissing(RequestError):
    """The API key is valid but lacks a scope."""

    code = "scope-missing"
    title = "The API key lacks a scope"
    answer = Answer(403, "The key needs the scope {scope}.")

    scope: Annotated[str, Text("The scope that the call needs.", most=64)]


class LabelBound(RequestError):
    """The API key is bound to a value of a label, and the request names another one."""

    code = "label-bound"
    title = "The API key is bound to another value of the label"
    answer = Answer(
        403, "Whatever the key writes has the label {label} with the value {value}; leave it out, or name this value."
    )

    label: Annotated[str, Text("The label that the request names.", most=MAX_METADATA_KEY_CHARACTERS)]
    value: Annotated[str, Text("The value to which the key is bound.", most=MAX_LABEL_CHARACTERS)]


class NotWithLabels(RequestError):
    """The API key is bound to labels, and the call also shows or changes what does not carry them."""

    code = "not-with-labels"
    title = "A key that is bound to labels cannot make this call"
    answer = Answer(403, "The call needs a key that is bound to no label; GET /v1/key shows those of this key.")


class NotFound(RequestError):
    """The resource does not exist, or this key may not see it; the response is the same for both."""

    code = "not-found"
    title = "Not found"
    answer = Answer(404, "The resource does not exist, or this key may not see it.")


class MethodNotAllowed(RequestError):
    """The path does not support this method."""

    code = "method-not-allowed"
    title = "The path does not support this method"
    answer = Answer(405, "The Allow header lists the supported methods.")

    method: Annotated[str, Text("The method of the request.", most=32)] = ""
    allowed: Annotated[list[str], ListOf(Text(most=32), "The methods of the path, as in Allow.", most=16)]


class NotAcceptable(RequestError):
    """The client accepts no media type that this path serves."""

    code = "not-acceptable"
    title = "This path serves only JSON"
    answer = Answer(406, "This path serves {served}.")

    served: Annotated[str, Text("The media type that this path serves.", most=64)]


class UnsupportedMediaType(RequestError):
    """The body is not JSON in UTF-8, or it is compressed."""

    code = "unsupported-media-type"
    title = "The body must be application/json"
    answer = Answer(415, "Send {accepted} in UTF-8, uncompressed.")

    accepted: Annotated[str, Text("The media type that this path takes.", most=64)]


class BodyTooLarge(RequestError):
    """The body exceeds the limit of this path."""

    code = "body-too-large"
    title = "The body is too large"
    answer = Answer(413, "The body must be at most {limit_bytes} bytes.")

    limit_bytes: Annotated[int, Count("The limit of this path.")]


class BodyTimeout(RequestError):
    """The body took longer than 20 s to arrive."""

    code = "body-timeout"
    title = "The body did not arrive in time"
    answer = Answer(408, "The body must arrive within {seconds} s. Nothing was executed.")

    seconds: Annotated[int, Count("How long a body may take.")]


class TooManyRequests(RequestError):
    """The API key, or the address of a client that is not logged in, has sent too many requests."""

    code = "too-many-requests"
    title = "The client has sent too many requests"
    answer = Answer(429, "Try again in {retry_after_seconds} s.")

    retry_after_seconds: Annotated[int, Count("As in Retry-After.")]
