"""The client for an event loop (asyncio or trio), over httpx."""

import random
import time
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from os import PathLike
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

import anyio
import httpx

from credit_ledger.attempts import Attempts, Done, Lost, Retries
from credit_ledger.call import ABSENT, PAUSE_S, Absent, Answer, Call, FeedCall, ListCall, feed_call
from credit_ledger.client import NOT_SENT, key_within, new_key, text_of
from credit_ledger.generated import calls
from credit_ledger.generated.bodies import Entry, EntryKindEnum
from credit_ledger.generated.methods import AsyncMethods
from credit_ledger.lease_state import Uncharged
from credit_ledger.leases import AsyncLease, terms_of

T = TypeVar("T")
Item = TypeVar("Item")

CLEAN_UP_S = 5.0
"""How long the release of a hold may keep a task that is being cancelled."""


class AsyncClient(AsyncMethods):
    """All calls of the API, as in `Client`, but awaited.

    Args:
        url: where the server is: `https://credits.example.com`.
        retries: how long a call is repeated.
        http: a client of httpx with other settings, such as a proxy; its timeouts and redirects are not used.
    """

    def __init__(self, url: str, api_key: str, *, retries: Retries | None = None, http: httpx.AsyncClient | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._retries = retries or Retries()
        self._http = http or httpx.AsyncClient()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def send(self, call: Call[T]) -> T:
        """Send a call until its outcome is known; raises what `Client.send` raises.

        A task that is cancelled leaves the outcome of a write unknown: give such a call an idempotency key of your own.
        """
        call = call.with_key(new_key)
        attempts, began = Attempts(call, self._retries), time.monotonic()
        while True:
            outcome = await self._attempt(call, attempts.time_of_attempt_s(time.monotonic() - began))
            next_step = attempts.judge(outcome, time.monotonic() - began, random.random())
            if isinstance(next_step, Done):
                value: T = next_step.value
                return value
            await anyio.sleep(next_step.after_s)

    def pages(self, call: ListCall[Item]) -> "AsyncPages[Item]":
        """Return the items of a list, page after page."""
        return AsyncPages(self, call)

    def follow(
        self,
        after: datetime | str = "start",
        *,
        holder: str | None = None,
        credit_type: str | None = None,
        kind: EntryKindEnum | None = None,
        refusals: bool | None = None,
        limit: int | None = None,
    ) -> "AsyncFeed":
        """As `Client.follow`, for `async for`."""
        return AsyncFeed(
            self,
            feed_call(
                after, wait_s=self._retries.attempt_s, holder=holder, credit_type=credit_type, kind=kind, refusals=refusals,
                limit=limit,
            ),
        )  # fmt: skip

    def hold(
        self,
        holder: str,
        *,
        amount: int | None = None,
        rate: str | None = None,
        quantity: int | None = None,
        quantities: Mapping[str, Decimal | str | int] | None = None,
        expires_at: datetime | str | Absent | None = ABSENT,
        credit_type: str | None = None,
        reason: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: int | None = None,
        if_match: int | None = None,
        idempotency_key: str | None = None,
    ) -> "HoldToBe":
        """Set credits aside: `await` it for an AsyncHold, or use it in an `async with`.

        At the end of the block the hold is captured, or released if the block raises or is cancelled. Inside,
        `await hold.capture(amount)` captures what the work did cost. A process that dies leaves the hold to its `expires_at`.
        """
        key = idempotency_key or new_key()
        call = calls.place_hold(
            holder, amount=amount, rate=rate, quantity=quantity, quantities=quantities, expires_at=expires_at,
            credit_type=credit_type, reason=reason, reference=reference, metadata=metadata, wait=wait, if_match=if_match,
            idempotency_key=key,
        )  # fmt: skip
        return HoldToBe(self, call, key)

    def lease(
        self,
        holder: str,
        *,
        amount: int,
        most: int | None = None,
        expires_in_s: float = 60.0,
        margin_s: float | None = None,
        flush_every_s: float = 1.0,
        rate: str | None = None,
        credit_type: str | None = None,
        reason: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        journal: str | PathLike[str] | None = None,
        on_uncharged: Callable[[Uncharged], None] | None = None,
    ) -> AsyncLease:
        """As `Client.lease`, for `async with`: its beginning holds the credits, its end captures and releases."""
        fields = {"credit_type": credit_type, "reason": reason, "reference": reference, "metadata": metadata}
        terms = terms_of(holder, amount=amount, most=most, expires_in_s=expires_in_s, margin_s=margin_s, rate=rate, fields=fields)
        return AsyncLease(self, terms, new_key, journal=journal, flush_every_s=flush_every_s, on_uncharged=on_uncharged)

    async def _attempt(self, call: Call[Any], time_s: float) -> Answer | Lost:
        """Send a call once. Every failure, and an answer that arrives too slowly, is a lost attempt."""
        try:
            with anyio.fail_after(time_s):
                response = await self._http.request(
                    call.method, self._url + call.path, params=call.query_parameters(), content=call.content(),
                    headers=self._headers | call.headers(), timeout=time_s, follow_redirects=False,
                )  # fmt: skip
        except NOT_SENT as error:
            return Lost(text_of(error), may_be_stored=False)
        except (TimeoutError, httpx.TransportError, httpx.DecodingError) as error:
            return Lost(text_of(error), may_be_stored=True)
        return Answer(response.status_code, response.headers, response.content)


class AsyncPages(Generic[Item]):
    """The items of a list. Each iteration begins with the first page, and requests the next page when it is needed."""

    def __init__(self, client: AsyncClient, call: ListCall[Item]) -> None:
        self._client = client
        self._call = call

    async def __aiter__(self) -> AsyncIterator[Item]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[list[Item]]:
        """Return page after page; `limit` is the size of each."""
        call: ListCall[Item] | None = self._call
        while call is not None:
            page = await self._client.send(call)
            yield list(call.items(page))
            call = call.after(page)

    async def first(self) -> Item | None:
        """Return the first item, or None if the list is empty."""
        page = await self._client.send(self._call)
        return next(self._call.items(page), None)


class AsyncFeed:
    """Entries of all holders as they are recorded, for ever."""

    def __init__(self, client: AsyncClient, call: FeedCall[Entry]) -> None:
        self._client = client
        self._call = call

    @property
    def position(self) -> str:
        """The position to continue from: in `pages`, after the current page; otherwise, after the last finished page."""
        return self._call.place

    async def find_place(self) -> None:
        """Ask the server once, without waiting for an entry, where `end` is: the feed has what is recorded from then on."""
        now = replace(self._call, query={**self._call.query, "wait": 0})
        if self._call.place == "end":
            self._call = self._call.after(await self._client.send(now))

    async def __aiter__(self) -> AsyncIterator[Entry]:
        while True:
            entries, following = await self._read()
            for entry in entries:
                yield entry
            self._call = following

    async def pages(self) -> AsyncIterator[list[Entry]]:
        """Yield page after page as they come, without empty pages; `limit` is the largest size of a page."""
        while True:
            entries, self._call = await self._read()
            if entries:
                yield entries

    async def _read(self) -> tuple[list[Entry], FeedCall[Entry]]:
        began = time.monotonic()
        page = await self._client.send(self._call)
        entries = list(self._call.items(page))
        if not entries and time.monotonic() - began < PAUSE_S:
            await anyio.sleep(PAUSE_S)
        return entries, self._call.after(page)


class AsyncHold:
    """Credits that are set aside until they are captured or released.

    Args:
        entry: the hold as it was recorded; `entry["sequence"]` is its number.
        key: its idempotency key, which those of its captures and its release begin with.
    """

    def __init__(self, client: AsyncClient, entry: Entry, key: str) -> None:
        self._client = client
        self._key = key
        self._captures = 0
        self.entry = entry
        self.is_open = True

    async def capture(
        self,
        amount: int | None = None,
        *,
        rate: str | None = None,
        quantity: int | None = None,
        quantities: Mapping[str, Decimal | str | int] | None = None,
        newest_version: bool | None = None,
        final: bool | None = None,
        over_capture: Literal["refuse", "if_available"] | None = None,
        reason: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Spend the held credits, or `amount` of them; the rest goes back to the holder, unless `final` is False.

        Instead of an amount, `quantities` may say what was used: by the version of the rate that priced the hold.
        """
        self._captures += 1
        captured = await self._client.capture(
            self.entry["holder_id"], self.entry["sequence"], amount=amount, rate=rate, quantity=quantity,
            quantities=quantities, newest_version=newest_version, final=final, over_capture=over_capture, reason=reason,
            reference=reference, metadata=metadata, credit_type=self.entry["credit_type"],
            idempotency_key=key_within(self._key, f"capture-{self._captures}"),
        )  # fmt: skip
        self.is_open = final is False
        return captured

    async def release(self, *, reason: str | None = None) -> Entry:
        """Give all held credits back."""
        released = await self._client.release(
            self.entry["holder_id"], self.entry["sequence"], reason=reason, credit_type=self.entry["credit_type"],
            idempotency_key=key_within(self._key, "release"),
        )  # fmt: skip
        self.is_open = False
        return released

    async def extend(self, expires_at: datetime | str) -> Entry:
        """Hold until another instant."""
        return await self._client.extend(
            self.entry["holder_id"], self.entry["sequence"], expires_at=expires_at, credit_type=self.entry["credit_type"]
        )


class HoldToBe:
    """A hold that is placed when it is awaited, or when its `async with` begins."""

    def __init__(self, client: AsyncClient, call: Call[Entry], key: str) -> None:
        self._client = client
        self._call = call
        self._key = key

    def __await__(self) -> Generator[Any, Any, AsyncHold]:
        return self._place().__await__()

    async def __aenter__(self) -> AsyncHold:
        self._hold = await self._place()
        return self._hold

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._hold.is_open:
            return
        if error is None:
            await self._hold.capture()
            return
        # A task that is cancelled releases all the same.
        with anyio.move_on_after(CLEAN_UP_S, shield=True):
            await self._hold.release()

    async def _place(self) -> AsyncHold:
        return AsyncHold(self._client, await self._client.send(self._call), self._key)
