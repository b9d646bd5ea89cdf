"""One call of the API: what to send, and what to read from the answer. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

T = TypeVar("T")
Item = TypeVar("Item")

LONGEST_WAIT_S: Final = 4
"""The longest time for which the server waits for an entry."""
PAUSE_S: Final = 1.0
"""How long a reader of the feed pauses before the next request, if the server did not wait."""


class Absent(Enum):
    """The type of ABSENT."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""Leaves a field out where None means null."""


def absent_if_none(value: T | None) -> T | Absent:
    """Return the value, or ABSENT for None: for fields that cannot be null."""
    return ABSENT if value is None else value


@dataclass(frozen=True)
class Answer:
    """A response of the server."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request that answers with T; the same however often it is sent.

    Args:
        path: with its parameters, each quoted.
        query, body: ABSENT values are left out; a body of None sends none.
        is_write: takes effect, and is recognised by its idempotency key. A dry run is no write.
        idempotency_key: None for one that the client makes when it sends the call.
        if_match: the sequence that must still be the account's last one.
        is_json: False for a document such as a PDF, which is answered as bytes.
    """

    method: str
    path: str
    query: Mapping[str, object] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    is_write: bool = False
    idempotency_key: str | None = None
    if_match: int | None = None
    is_json: bool = True

    def with_key(self, make_key: Callable[[], str]) -> "Call[T]":
        """Return the call with an idempotency key, if it needs one and has none."""
        if self.is_write and self.idempotency_key is None:
            return replace(self, idempotency_key=make_key())
        return self

    def headers(self) -> dict[str, str]:
        """Return the headers of this call, without the API key."""
        headers = {"Accept": "application/json" if self.is_json else "application/pdf, application/problem+json"}
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        if self.idempotency_key is not None:
            headers["Idempotency-Key"] = self.idempotency_key
        if self.if_match is not None:
            headers["If-Match"] = f'"{self.if_match}"'
        return headers

    def query_parameters(self) -> dict[str, str]:
        """Return the query as strings."""
        return {name: _as_text(value) for name, value in self.query.items() if value is not ABSENT}

    def content(self) -> bytes | None:
        """Return the body as JSON."""
        if self.body is None:
            return None
        given = {name: value for name, value in self.body.items() if value is not ABSENT}
        return json.dumps(given, default=_as_json, separators=(",", ":")).encode()

    def read(self, answer: Answer) -> T:
        """Return what a success answers, or raise ValueError if it is not what this call answers with."""
        return json.loads(answer.content) if self.is_json else answer.content  # type: ignore[return-value]


@dataclass(frozen=True)
class ListCall(Call[Mapping[str, Any]], Generic[Item]):
    """A call that answers with a page of items."""

    def after(self, page: Mapping[str, Any]) -> "ListCall[Item] | None":
        """Return the call of the next page, or None after the last one.

        Only the cursor is taken from the link, so that the API key is never sent to another address.
        """
        if page["next"] is None:
            return None
        cursor = parse_qs(urlsplit(page["next"]).query)["cursor"][0]
        return replace(self, query={**self.query, "cursor": cursor})

    @staticmethod
    def items(page: Mapping[str, Any]) -> Iterator[Item]:
        """Return the items of a page."""
        return iter(page["results"])


@dataclass(frozen=True)
class FeedCall(ListCall[Item]):
    """A call that answers with what came behind a place in the feed of all entries; there is always a next one."""

    @property
    def place(self) -> str:
        """The place from which on it reads."""
        return _as_text(self.query["after"])

    def after(self, page: Mapping[str, Any]) -> "FeedCall[Item]":
        """Return the call of what comes behind a page; of the link only the place is taken."""
        place = parse_qs(urlsplit(page["next"]).query)["after"][0]
        return replace(self, query={**self.query, "after": place})


def feed_call(
    after: datetime | str,
    *,
    wait_s: float,
    holder: str | None,
    credit_type: str | None,
    kind: str | None,
    refusals: bool | None,
    limit: int | None,
) -> FeedCall[Any]:
    """Return the call that follows all entries from a place on; see `Client.follow`.

    Args:
        wait_s: how long an attempt may take: the server answers two seconds earlier.
    """
    given = {"holder": holder, "credit_type": credit_type, "kind": kind, "refusals": refusals, "limit": limit}
    wait = max(0, min(LONGEST_WAIT_S, int(wait_s) - 2))
    query = {name: absent_if_none(value) for name, value in given.items()}
    return FeedCall("GET", "/v1/entries", query={"after": after, "wait": wait, **query})


def path(template: str, *values: str | int) -> str:
    """Return a path with its parameters, each quoted as one segment."""
    return template.format(*(quote(str(value), safe="") for value in values))


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_as_json(value)) if isinstance(value, date | Decimal) else str(value)


def _as_json(value: object) -> object:
    """Encode what JSON has no type for; the server checks the value."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")
