"""Parses the bytes of a request to one JSON object, and refuses what two parsers could read differently."""

import json
import re
from collections.abc import Iterator
from typing import Any

from django.http import HttpRequest

from ledger.records import Shape
from ledger.rest.kit.request_errors import InvalidRequest, MalformedRequest, UnsupportedMediaType
from ledger.values import FieldError, json_name, pointer_part

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
BODY_LIMIT_BYTES = 64 * 1024
BATCH_LIMIT_BYTES = 4 * 1024 * 1024
DEPTH_LIMIT = 20

BEYOND_ANY_LIMIT = 10**40
"""Replaces every integer of more than 40 characters: each field refuses it, and no time is spent on converting 60,000 digits."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_UTF8_BOM = b"\xef\xbb\xbf"
_JSON_WITH_CHARSET = re.compile(r'application/(merge-patch\+)?json\s*(?:;\s*charset\s*=\s*"?utf-?8"?\s*)?;?\s*', re.IGNORECASE)


def read_body(request: HttpRequest) -> dict[str, Any]:
    """Return the JSON object in a request.

    Args:
        request: has as `raw_body` its bytes, or the error.

    Raises:
        UnsupportedMediaType: another type than application/json (for PATCH, also application/merge-patch+json), another charset
            than UTF-8, or a compressed body.
        BodyTooLarge: more is announced or sent than this path accepts.
        MalformedRequest: not one well-formed JSON object.
    """
    if request.META.get("CONTENT_TYPE") != JSON or "HTTP_CONTENT_ENCODING" in request.META:
        if _is_bare(request):
            raise _malformed_request("empty-body", "The request has no body; send a JSON object.")
        ensure_json(request)
    body: bytes | Exception = request.raw_body  # type: ignore[attr-defined]
    if isinstance(body, Exception):
        raise body
    return parse_object(body)


def _is_bare(request: HttpRequest) -> bool:
    """True for a request without a body and without a Content-Type."""
    meta = request.META
    return not meta.get("CONTENT_TYPE") and meta.get("CONTENT_LENGTH") in (None, "", "0") and "HTTP_TRANSFER_ENCODING" not in meta


def ensure_json(request: HttpRequest) -> None:
    """Return if the request declares its body as plain JSON in UTF-8, or raise `UnsupportedMediaType`."""
    content_type = request.META.get("CONTENT_TYPE", "")
    form = _JSON_WITH_CHARSET.fullmatch(content_type.strip())
    is_json = content_type == JSON or (form is not None and (form[1] is None or request.method == "PATCH"))
    encoding = request.META.get("HTTP_CONTENT_ENCODING", "identity")
    if not is_json or encoding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(accepted=f"{JSON}, {MERGE_PATCH}" if request.method == "PATCH" else JSON)


def is_merge_patch(request: HttpRequest) -> bool:
    """Return whether the body also changes members of members. Source: RFC 7396."""
    return request.META.get("CONTENT_TYPE", "").strip().lower().startswith(MERGE_PATCH)


def read(shape: Shape[Any], data: Any) -> dict[str, Any]:
    """Return the fields of a body or query, or raise `InvalidRequest` with every fault.

    Returns:
        Fields that were given or have a default. An optional field that was left out or null is not in it.
    """
    if type(data) is not dict:
        raise InvalidRequest([FieldError("", "not-an-object", f"This must be an object, not {json_name(data)}.")])
    field_errors: list[FieldError] = []
    taken = shape.take(data, "", field_errors)
    if field_errors:
        raise InvalidRequest(field_errors)
    return taken


# From bytes to an object -----------------------------------------------------------------------------


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in `body`.

    Integers come as `int`, or as plus or minus `BEYOND_ANY_LIMIT`; numbers with a point or an exponent as `float`, so that a
    field of integers can refuse 1.0. -0.0 comes as 0.0.

    Raises:
        MalformedRequest: empty, not UTF-8, with a byte order mark, not JSON (NaN and Infinity are not), not an object, a key
            twice in one object, nested deeper than 20, or a string with NUL or half of a surrogate pair.
    Source: RFC 8259; RFC 7493 (I-JSON), which asks for the same.
    """
    value = _parse_body(body, "object")
    if type(value) is not dict:
        raise _malformed_request("not-an-object", "The body must be a JSON object.")
    return value


def parse_array(body: bytes) -> list[Any]:
    """Return the JSON array in `body`. Raises: as `parse_object`, and for a body that is no array."""
    value = _parse_body(body, "array")
    if type(value) is not list:
        raise _malformed_request("not-an-array", "The body must be a JSON array.")
    return value


def _parse_body(body: bytes, what: str) -> Any:
    if not body:
        raise _malformed_request("empty-body", f"The body is empty; send a JSON {what}.")
    if body.startswith(_UTF8_BOM):
        raise _malformed_request("byte-order-mark", "The body begins with a byte order mark.")
    if body.count(b"{") + body.count(b"[") > DEPTH_LIMIT:
        _ensure_shallow(body)
    try:
        value = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _malformed_request("not-utf-8", f"The body is not valid UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise _malformed_request("malformed-json", f"The body is not JSON at character {error.pos}: {error.msg}.") from error
    if b"\\u" in body:  # unescaped, the decoder and UTF-8 have refused them already
        field_errors = [
            FieldError(at, "forbidden-character", "NUL and unpaired surrogates are refused.") for at in _unstorable(value, "")
        ]
        if field_errors:
            raise MalformedRequest(*field_errors)
    return value


def _malformed_request(code: str, detail: str) -> MalformedRequest:
    return MalformedRequest(FieldError("", code, detail))


def _ensure_shallow(body: bytes) -> None:
    """Refuse deeply nested JSON before a recursive parser reads it."""
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_LIMIT:
            raise _malformed_request("too-deep", f"The body is nested deeper than {DEPTH_LIMIT} levels.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedRequest(FieldError(pointer_part(twice), "duplicate-key", "The object contains this key twice."))
    return value


def _integer(literal: str) -> int:
    if len(literal) <= 40:
        return int(literal)
    return -BEYOND_ANY_LIMIT if literal[0] == "-" else BEYOND_ANY_LIMIT


def _number(literal: str) -> float:
    # JSON in the database has no zero below zero.
    return float(literal) + 0.0


def _no_constant(literal: str) -> None:
    raise _malformed_request("malformed-json", f"{literal} is not JSON.")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_no_constant)


def _unstorable(value: Any, pointer: str) -> Iterator[str]:
    """Yield the pointers of strings, and of objects with keys, that PostgreSQL and other readers cannot hold."""
    if isinstance(value, str):
        if not is_storable(value):
            yield pointer
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unstorable(item, f"{pointer}/{number}")
    elif isinstance(value, dict):
        for key, item in value.items():
            if is_storable(key):
                yield from _unstorable(item, pointer + pointer_part(key))
            else:
                yield pointer + pointer_part(key)


def is_storable(text: str) -> bool:
    """True if the text has neither NUL nor half of a surrogate pair."""
    if "\0" in text:
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
