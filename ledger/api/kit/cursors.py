"""Lists by the page: a limit, and an opaque cursor that names the row to go on from.

A page is found by the key of its neighbour's last row, never by counting rows, so page 10,000 costs what page 1 costs and rows
that arrive meanwhile shift nothing. A cursor carries a MAC over the list and its filters: one that was made up, altered or taken
from another list is refused.
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import orjson
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from ledger.api.kit.inputs import query_parameters
from ledger.api.kit.request_errors import Flaw, InvalidRequest

Row = TypeVar("Row")
Keyset = tuple[str | int | datetime, ...]

_MAC_LENGTH_BYTES = 12


class Window(NamedTuple):
    """Which page of a list is asked for."""

    limit: int
    backwards: bool
    keyset: Keyset | None
    request: HttpRequest

    @property
    def rows_wanted(self) -> int:
        """One more than the limit: the extra row tells that there is another page."""
        return self.limit + 1

    def newest_first(self) -> dict[str, Any]:
        """Return the bound for a selector of a descending list: `before` the row towards older ones, `after` it towards newer."""
        return {} if self.keyset is None else {"after" if self.backwards else "before": self.keyset}

    def ascending(self) -> dict[str, Any]:
        """Return the bound for a selector of an ascending list."""
        return {} if self.keyset is None else {"before" if self.backwards else "after": self.keyset}

    def page(self, rows: Sequence[Row], *, keyset: Callable[[Row], Keyset], body: Callable[[Row], Any]) -> dict[str, Any]:
        """Return the page as it is answered.

        Args:
            rows: up to `rows_wanted`, nearest to the cursor's row, in the order in which they are shown.
            keyset: what a row is found by; unique in the list.
            body: a row as it is shown.
        """
        more = len(rows) > self.limit
        shown = (rows[1:] if self.backwards else rows[:-1]) if more else rows
        following = bool(shown) and (more or self.backwards)
        preceding = bool(shown) and (more if self.backwards else self.keyset is not None)
        return {
            "results": [body(row) for row in shown],
            "next": self._link(False, keyset(shown[-1])) if following else None,
            "previous": self._link(True, keyset(shown[0])) if preceding else None,
        }

    def _link(self, backwards: bool, keyset: Keyset) -> str:
        parameters = query_parameters(self.request)
        parameters["cursor"] = _encoded(backwards, keyset, _list_name(self.request, parameters))
        return self.request.build_absolute_uri(f"{self.request.path}?{urlencode(parameters)}")


def open_window(request: HttpRequest, query: dict[str, Any]) -> Window:
    """Return the page that a list request asks for, and take `limit` and `cursor` out of `query`: what is left are the filters.

    Args:
        query: what `read_query` made of a `ListQuery`.
    Raises:
        InvalidRequest: the cursor is not one that this list gave out for these filters.
    """
    limit: int = query.pop("limit")
    cursor: str | None = query.pop("cursor", None)
    if cursor is None:
        return Window(limit, False, None, request)
    backwards, keyset = _decoded(cursor, _list_name(request, query_parameters(request)))
    return Window(limit, backwards, keyset, request)


def _list_name(request: HttpRequest, parameters: Mapping[str, str]) -> bytes:
    filters = sorted((name, value) for name, value in parameters.items() if name not in ("limit", "cursor"))
    return orjson.dumps([request.path, filters])


def _mac(payload: bytes, list_name: bytes) -> bytes:
    message = len(payload).to_bytes(4) + payload + list_name
    return salted_hmac("ledger.api.kit.cursors", message, algorithm="sha256").digest()[:_MAC_LENGTH_BYTES]


def _encoded(backwards: bool, keyset: Keyset, list_name: bytes) -> str:
    payload = orjson.dumps([backwards, [_packed(part) for part in keyset]])
    return base64.urlsafe_b64encode(_mac(payload, list_name) + payload).rstrip(b"=").decode("ascii")


def _decoded(cursor: str, list_name: bytes) -> tuple[bool, Keyset]:
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    mac, payload = data[:_MAC_LENGTH_BYTES], data[_MAC_LENGTH_BYTES:]
    if not hmac.compare_digest(mac, _mac(payload, list_name)):
        raise InvalidRequest([Flaw("/cursor", "not-a-cursor", "This cursor belongs to another list or other filters.")])
    backwards, parts = orjson.loads(payload)
    return backwards, tuple(_unpacked(part) for part in parts)


def _packed(part: str | int | datetime) -> Any:
    """Return a part of a keyset as JSON; a moment as whole microseconds, so that it comes back exactly."""
    if isinstance(part, datetime):
        return {"t": part.astimezone(UTC).isoformat(timespec="microseconds")}
    return part


def _unpacked(part: Any) -> str | int | datetime:
    return datetime.fromisoformat(part["t"]) if isinstance(part, dict) else part
