"""The body of a request, within a limit: the announced length, and the length that arrived."""

from django.http import HttpRequest, UnreadablePostError

from ledger.rest.kit.request_errors import BodyTooLarge, FieldError, MalformedRequest

NOT_WHOLE = FieldError("", "truncated", "The body is not whole.")
TOO_SHORT = FieldError("", "truncated", "The body is shorter than its Content-Length.")


def announced_bytes(request: HttpRequest, limit_bytes: int) -> int | None:
    """Return the length of the body by the request's head; None if the head does not have it.

    Raises:
        MalformedRequest: the Content-Length is not a number.
        BodyTooLarge: it exceeds the limit.
    """
    announced: str = request.META.get("CONTENT_LENGTH") or ""
    if not announced:
        return None
    if not (announced.isascii() and announced.isdigit()):
        raise MalformedRequest(FieldError("", "content-length", "The Content-Length is not a number."))
    if len(announced) > 12 or int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    return int(announced)


def read_whole(request: HttpRequest, limit_bytes: int) -> bytes:
    """Return the body of a request of Django's.

    Raises:
        MalformedRequest: the Content-Length is not a number, or less than it arrived.
        BodyTooLarge: it exceeds the limit.
    """
    announced = announced_bytes(request, limit_bytes)
    environ = getattr(request, "environ", {})
    # Django reads no body without a length, even if the server ends it.
    stream = environ["wsgi.input"] if announced is None and environ.get("wsgi.input_terminated") else request
    try:
        body: bytes = stream.read(limit_bytes + 1 if announced is None else announced)
    except UnreadablePostError:
        raise MalformedRequest(NOT_WHOLE) from None
    if len(body) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    if len(body) < (announced or 0):
        raise MalformedRequest(TOO_SHORT)
    return body
