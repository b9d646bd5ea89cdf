"""Query parameters: each given once, declared and read as strictly as a body."""

import re
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from ledger.api.kit.reading.fields import InvalidValue, TextField, TruthField, WholeNumberField
from ledger.api.kit.reading.parsing import is_storable, pointer_part
from ledger.api.kit.reading.strict_serializers import StrictSerializer, read
from ledger.api.kit.request_errors import FieldError, MalformedRequest


class QueryNumberField(WholeNumberField):
    """A whole number in a query: decimal digits."""

    _DIGITS = re.compile(r"-?[0-9]{1,20}")

    def clean(self, value: Any) -> int:
        if self._DIGITS.fullmatch(value) is None:
            raise InvalidValue("not-an-integer", "This must be a whole number in digits.")
        return super().clean(int(value))


class QueryTruthField(TruthField):
    """`true` or `false` in a query."""

    def clean(self, value: Any) -> bool:
        if value not in ("true", "false"):
            raise InvalidValue("not-a-boolean", "This must be true or false.")
        return bool(value == "true")


class ListQuery(StrictSerializer):
    """What every list takes; filters are added by subclasses."""

    limit = QueryNumberField(min_value=1, max_value=200, default=50, help_text="How many results at most.")
    cursor = TextField(
        min_length=1, max_length=1000, required=False, help_text="Opaque; from `next` or `previous` of an earlier response."
    )


class DryRunQuery(StrictSerializer):
    """What every write that can be tried takes; parameters of its own are added by subclasses."""

    dry_run = QueryTruthField(
        default=False,
        help_text="Return the response that the write would get, with 200 instead of 201; write nothing. Needs no "
        "Idempotency-Key.",
    )


def refuse_query(request: HttpRequest) -> None:
    """Return if the request has no query parameters, or raise as `read_query` does for one that is unknown."""
    if request.META.get("QUERY_STRING"):
        read_query(StrictSerializer, request)


def read_query(serializer_class: type[StrictSerializer], request: HttpRequest) -> dict[str, Any]:
    """Return the clean query parameters of a request, or raise with everything that is wrong with them.

    Raises:
        MalformedRequest: the query is not UTF-8, holds NUL, or gives a parameter twice.
        InvalidRequest: a parameter is unknown or out of bounds.
    """
    return read(serializer_class, query_parameters(request))


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
