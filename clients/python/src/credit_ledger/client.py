"""The client for threads, over httpx."""

import random
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeVar

import httpx

from credit_ledger.attempts import Attempts, Done, Lost, Retries
from credit_ledger.call import ABSENT, Absent, Answer, Call, ListCall
from credit_ledger.generated import calls
from credit_ledger.generated.bodies import Entry
from credit_ledger.generated.methods import Methods

T = TypeVar("T")
Item = TypeVar("Item")

NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""After these, the request has not left."""


def new_key() -> str:
    """Return an idempotency key that no other call has."""
    return str(uuid.uuid4())


def key_within(key: str, what: str) -> str:
    """Return the key of what follows from a hold: the same for the same hold, so that repeating all of it takes effect once."""
    return f"{key}/{what}" if len(key) + len(what) < 255 else new_key()


def text_of(error: Exception) -> str:
    """Return what to say of an error of the connection."""
    return str(error) or type(error).__name__


class Client(Methods):
    """All calls of the API. Each is sent until its outcome is known, with one idempotency key, within the time of `retries`.

    Args:
        url: where the server is: `https://credits.example.com`.
        retries: how long a call is repeated.
        http: a client of httpx with other settings, such as a proxy; its timeouts and redirects are not used.
    """

    def __init__(self, url: str, api_key: str, *, retries: Retries | None = None, http: httpx.Client | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._retries = retries or Retries()
        self._http = http or httpx.Client()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def send(self, call: Call[T]) -> T:
        """Send a call until its outcome is known.

        Raises:
            Problem: the server refused it.
            OutcomeUnknown: the time is over, and it may be stored.
            Unreachable: the time is over, and it was not answered; it wrote nothing.
        """
        call = call.with_key(new_key)
        attempts, began = Attempts(call, self._retries), time.monotonic()
        while True:
            outcome = self._attempt(call, attempts.time_of_attempt_s(time.monotonic() - began))
            next_step = attempts.judge(outcome, time.monotonic() - began, random.random())
            if isinstance(next_step, Done):
                value: T = next_step.value
                return value
            time.sleep(next_step.after_s)

    def pages(self, call: ListCall[Item]) -> "Pages[Item]":
        """Return the items of a list, page after page."""
        return Pages(self, call)

    def hold(
        self,
        holder: str,
        *,
        amount: int | None = None,
        rate: str | None = None,
        quantity: int | None = None,
        expires_at: datetime | str | Absent | None = ABSENT,
        credit_type: str | None = None,
        reason: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        if_match: int | None = None,
        idempotency_key: str | None = None,
    ) -> "Hold":
        """Set credits aside, at once. In a `with`, the end of the block captures the hold, or releases it if the block raises.

        Inside, `hold.capture(amount)` captures what the work did cost. A process that dies leaves the hold to its `expires_at`.
        """
        key = idempotency_key or new_key()
        entry = self.send(
            calls.place_hold(
                holder, amount=amount, rate=rate, quantity=quantity, expires_at=expires_at, credit_type=credit_type,
                reason=reason, reference=reference, metadata=metadata, if_match=if_match, idempotency_key=key,
            )
        )  # fmt: skip
        return Hold(self, entry, key)

    def _attempt(self, call: Call[Any], time_s: float) -> Answer | Lost:
        """Send a call once. Whatever fails, and however slowly the answer trickles, is a lost attempt."""
        ends_at = time.monotonic() + time_s
        try:
            with self._http.stream(
                call.method, self._url + call.path, params=call.query_parameters(), content=call.content(),
                headers=self._headers | call.headers(), timeout=time_s, follow_redirects=False,
            ) as response:  # fmt: skip
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if time.monotonic() > ends_at:
                        return Lost("the answer took too long", may_be_stored=True)
                return Answer(response.status_code, response.headers, bytes(content))
        except NOT_SENT as error:
            return Lost(text_of(error), may_be_stored=False)
        except (httpx.TransportError, httpx.DecodingError) as error:
            return Lost(text_of(error), may_be_stored=True)


class Pages(Generic[Item]):
    """The items of a list. Each iteration begins with the first page again, and asks for a page when the last one is used up."""

    def __init__(self, client: Client, call: ListCall[Item]) -> None:
        self._client = client
        self._call = call

    def __iter__(self) -> Iterator[Item]:
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[list[Item]]:
        """Return page after page; `limit` is the size of each."""
        call: ListCall[Item] | None = self._call
        while call is not None:
            page = self._client.send(call)
            yield list(call.items(page))
            call = call.after(page)

    def first(self) -> Item | None:
        """Return the first item, or None of an empty list."""
        return next(iter(self), None)


class Hold:
    """Credits that are set aside until they are captured or released.

    Args:
        entry: the hold as it was recorded; `entry["sequence"]` is its number.
        key: its idempotency key, which those of its captures and its release begin with.
    """

    def __init__(self, client: Client, entry: Entry, key: str) -> None:
        self._client = client
        self._key = key
        self._captures = 0
        self.entry = entry
        self.is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.is_open:
            return
        if error is None:
            self.capture()
        else:
            self.release()

    def capture(
        self,
        amount: int | None = None,
        *,
        final: bool | None = None,
        over_capture: Literal["refuse", "if_available"] | None = None,
        reason: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Spend what is held, or `amount` of it; the rest comes back, unless `final` is False."""
        self._captures += 1
        captured = self._client.capture(
            self.entry["holder_id"], self.entry["sequence"], amount=amount, final=final, over_capture=over_capture, reason=reason,
            reference=reference, metadata=metadata, credit_type=self.entry["credit_type"],
            idempotency_key=key_within(self._key, f"capture-{self._captures}"),
        )  # fmt: skip
        self.is_open = final is False
        return captured

    def release(self, *, reason: str | None = None) -> Entry:
        """Give back all that is held."""
        released = self._client.release(
            self.entry["holder_id"], self.entry["sequence"], reason=reason, credit_type=self.entry["credit_type"],
            idempotency_key=key_within(self._key, "release"),
        )  # fmt: skip
        self.is_open = False
        return released

    def extend(self, expires_at: datetime | str) -> Entry:
        """Hold until another instant."""
        return self._client.extend(
            self.entry["holder_id"], self.entry["sequence"], expires_at=expires_at, credit_type=self.entry["credit_type"]
        )
