"""Lists by the page: a limit, and an opaque cursor that names the row from which to continue.

A page is found by the key of its neighbour's last row, never by counting rows, so page 10,000 costs what page 1 costs, and new
rows shift nothing. A cursor is signed for its list and filters: an invented or altered one, or one of another list, is refused.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from django.core.signing import BadSignature, Signer
from django.http import HttpRequest

from ledger.rest.kit.queries import query_parameters
from ledger.rest.kit.request_errors import FieldError, InvalidRequest

Row = TypeVar("Row")
Keyset = tuple[str | int | datetime, ...]


class PageRequest(NamedTuple):
    """The requested page of a list."""

    limit: int
    backwards: bool
    keyset: Keyset | None
    request: HttpRequest

    @property
    def rows_wanted(self) -> int:
        """One more than the limit: an extra row means that there is another page."""
        return self.limit + 1

    def newest_first(self) -> dict[str, Any]:
        """Return the bound for a read of a descending list: `before` the row towards older ones, `after` it towards newer."""
        return {} if self.keyset is None else {"after" if self.backwards else "before": self.keyset}

    def ascending(self) -> dict[str, Any]:
        """Return the bound for a read of an ascending list."""
        return {} if self.keyset is None else {"before" if self.backwards else "after": self.keyset}

    def response_body(
        self,
        rows: Sequence[Row],
        *,
        keyset: Callable[[Row], Keyset],
        body: Callable[[Row], Any],
        searched_to: Keyset | None = None,
    ) -> dict[str, Any]:
        """Return the page for the response.

        Args:
            rows: up to `rows_wanted`, nearest to the cursor's row, in the order in which they are shown.
            keyset: what a row is found by; unique in the list.
            body: a row as it is shown.
            searched_to: where a search ended that looks at a limited number of rows and did not find `rows_wanted`; None if it
                found them, or looked at all. The page beyond goes on from there.
        """
        more = len(rows) > self.limit
        shown = (rows[1:] if self.backwards else rows[:-1]) if more else rows
        following = bool(shown) and (more or self.backwards)
        preceding = bool(shown) and (more if self.backwards else self.keyset is not None)
        last = keyset(shown[-1]) if following else None
        first = keyset(shown[0]) if preceding else None
        if searched_to is not None and not more:
            last, first = (last, searched_to) if self.backwards else (searched_to, first)
        return {
            "results": [body(row) for row in shown],
            "next": None if last is None else self._link(False, last),
            "previous": None if first is None else self._link(True, first),
        }

    def _link(self, backwards: bool, keyset: Keyset) -> str:
        list_name = _list_name(self.request, query_parameters(self.request))
        return link(self.request, cursor=_encode_cursor(backwards, keyset, list_name))


def link(request: HttpRequest, **parameters: str) -> str:
    """Return the URL of the same call with these query parameters added or replaced."""
    return request.build_absolute_uri(f"{request.path}?{urlencode(query_parameters(request) | parameters)}")


def requested_page(request: HttpRequest, query: dict[str, Any]) -> PageRequest:
    """Return the page of a list request, and remove `limit` and `cursor` from `query`: the rest are the filters.

    Args:
        query: the result of `read_query` for a `ListQuery`.
    Raises:
        InvalidRequest: the cursor does not come from this list with these filters.
    """
    limit: int = query.pop("limit")
    cursor: str | None = query.pop("cursor", None)
    if cursor is None:
        return PageRequest(limit, False, None, request)
    backwards, keyset = _decode_cursor(cursor, _list_name(request, query_parameters(request)))
    return PageRequest(limit, backwards, keyset, request)


def _list_name(request: HttpRequest, parameters: Mapping[str, str]) -> str:
    filters = sorted((name, value) for name, value in parameters.items() if name not in ("limit", "cursor"))
    return json.dumps([request.path, filters])


def _signer(list_name: str) -> Signer:
    return Signer(salt=f"ledger.rest.kit.cursors {list_name}", sep=".")


def _encode_cursor(backwards: bool, keyset: Keyset, list_name: str) -> str:
    return _signer(list_name).sign_object([backwards, [_pack_part(part) for part in keyset]])


def _decode_cursor(cursor: str, list_name: str) -> tuple[bool, Keyset]:
    try:
        backwards, parts = _signer(list_name).unsign_object(cursor)
    except BadSignature:
        detail = "This cursor belongs to another list or other filters."
        raise InvalidRequest([FieldError("/cursor", "not-a-cursor", detail)]) from None
    return backwards, tuple(_unpack_part(part) for part in parts)


def _pack_part(part: str | int | datetime) -> Any:
    """Return a part of a keyset as JSON; a time in whole microseconds, so that it stays exact."""
    if isinstance(part, datetime):
        return {"t": part.astimezone(UTC).isoformat(timespec="microseconds")}
    return part


def _unpack_part(part: Any) -> str | int | datetime:
    return datetime.fromisoformat(part["t"]) if isinstance(part, dict) else part
