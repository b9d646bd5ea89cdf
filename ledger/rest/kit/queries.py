"""Query parameters: each given once, declared, and read as strictly as a body."""

import re
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from ledger.records import Record, shape_of
from ledger.rest.kit.parsing import is_storable, read
from ledger.rest.kit.request_errors import MalformedRequest
from ledger.values import Boolean, FieldError, Integer, InvalidValue, Text, pointer_part


class QueryInteger(Integer):
    """A whole number in a query: decimal digits."""

    _DIGITS = re.compile(r"-?[0-9]{1,20}")

    def read(self, value: Any) -> int:
        if self._DIGITS.fullmatch(value) is None:
            raise InvalidValue("not-an-integer", "This must be a whole number in digits.")
        return super().read(int(value))


class QueryBoolean(Boolean):
    """`true` or `false` in a query."""

    def read(self, value: Any) -> bool:
        if value not in ("true", "false"):
            raise InvalidValue("not-a-boolean", "This must be true or false.")
        return bool(value == "true")


@dataclass(frozen=True, kw_only=True)
class ListQuery(Record):
    """The parameters of every list; subclasses add filters."""

    limit: Annotated[int, QueryInteger("How many results at most.", least=1, most=200)] = 50
    cursor: Annotated[str | None, Text("Opaque; from `next` or `previous` of an earlier response.", least=1, most=1000)] = None


@dataclass(frozen=True, kw_only=True)
class DryRunQuery(Record):
    """The parameter of every write that can be tried; subclasses add their own."""

    dry_run: Annotated[
        bool,
        QueryBoolean(
            "Return the response that the write would get, with 200 instead of 201; write nothing. Needs no Idempotency-Key."
        ),
    ] = False


def refuse_query(request: HttpRequest) -> None:
    """Return if the request has no query parameters, or raise as `read_query` does for an unknown one."""
    if request.META.get("QUERY_STRING"):
        read_query(Record, request)


def read_query(declared: type[Record], request: HttpRequest) -> dict[str, Any]:
    """Return the checked query parameters of a request, or raise with every fault.

    Raises:
        MalformedRequest: the query is not UTF-8, contains NUL, or has a parameter twice.
        InvalidRequest: a parameter is unknown or out of bounds.
    """
    return read(shape_of(declared), query_parameters(request))


def query_parameters(request: HttpRequest) -> dict[str, str]:
    """Return the query parameters, each given once, or raise `MalformedRequest`."""
    query = request.META.get("QUERY_STRING", "")
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError as error:  # UnicodeDecodeError is one
        raise MalformedRequest(
            FieldError("", "malformed-query", "The query is not valid UTF-8, or it has too many parameters.")
        ) from error
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if not (is_storable(name) and is_storable(value)):
            raise MalformedRequest(
                FieldError(pointer_part(name), "forbidden-character", "NUL and unpaired surrogates are refused.")
            )
        if name in parameters:
            raise MalformedRequest(FieldError(pointer_part(name), "duplicate-key", "The query contains this parameter twice."))
        parameters[name] = value
    return parameters
