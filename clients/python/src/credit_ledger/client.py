"""The client for threads, over httpx."""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from os import PathLike
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeVar

import httpx

from credit_ledger.attempts import Attempts, Done, Lost, Retries
from credit_ledger.call import ABSENT, PAUSE_S, Absent, Answer, Call, FeedCall, ListCall, feed_call
from credit_ledger.generated import calls
from credit_ledger.generated.bodies import Entry, EntryKindEnum
from credit_ledger.generated.methods import Methods
from credit_ledger.lease_state import LeaseState, Uncharged
from credit_ledger.leases import Lease, open_journal, terms_of

T = TypeVar("T")
Item = TypeVar("Item")

NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
"""After these errors, the request was not sent."""


def new_key() -> str:
    """Return a new, unique idempotency key."""
    return str(uuid.uuid4())


def key_within(key: str, what: str) -> str:
    """Return the key of a capture or release, derived from the hold's key, so that a repeated block takes effect once."""
    return f"{key}/{what}" if len(key) + len(what) < 255 else new_key()


def text_of(error: Exception) -> str:
    """Return the text of a connection error."""
    return str(error) or type(error).__name__


class Client(Methods):
    """All calls of the API. Each is sent until its outcome is known, with one idempotency key, within the time of `retries`.

    Args:
        url: the address of the server, such as `https://credits.example.com`.
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
            Unreachable: the time is over, and no attempt was answered; nothing was written.
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

    def follow(
        self,
        after: datetime | str = "start",
        *,
        holder: str | None = None,
        credit_type: str | None = None,
        kind: EntryKindEnum | None = None,
        refusals: bool | None = None,
        limit: int | None = None,
    ) -> "Feed":
        """Follow the entries of all holders as they are recorded: each once, those of an account in the order of their sequence.

        The feed never ends, but waits for the next entry. Store `feed.position` with your results, and pass it as `after` to
        continue from there at any time. If the clock of the server is set back, some entries come again, with the same `id`.

        Args:
            after: `start`, `end` for entries from now on, an instant, or a position.
            holder, credit_type, kind: only such entries.
            refusals: whether to include refusals.
            limit: the most entries of one request.

        Raises, while it is read:
            FeedPositionLost: the ledger was restored from a state before the position.
            Unreachable, Problem: as every call; follow again from `feed.position`.
        """
        return Feed(
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
    ) -> "Hold":
        """Set credits aside at once. In a `with`, the end of the block captures the hold, or releases it if the block raises.

        Inside the block, `hold.capture(amount)` captures what the work cost. If the process dies, the hold ends at its
        `expires_at`.
        """
        key = idempotency_key or new_key()
        entry = self.send(
            calls.place_hold(
                holder, amount=amount, rate=rate, quantity=quantity, quantities=quantities, expires_at=expires_at,
                credit_type=credit_type, reason=reason, reference=reference, metadata=metadata, wait=wait, if_match=if_match,
                idempotency_key=key,
            )
        )  # fmt: skip
        return Hold(self, entry, key)

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
    ) -> Lease:
        """Hold credits for a while, so that `lease.spend(amount)` decides by itself, without I/O.

        What was decided is captured in groups in the background, and the lease is refilled before it is used up. `close`, or the
        end of a `with`, captures the rest of what was decided, and releases what was not used. If the process dies, at most
        `most` credits stay held until the hold expires, and what was not captured is not charged.

        Args:
            amount: credits that are held at first.
            most: credits that are held at the same time, if they are used that fast; by default `amount`.
            expires_in_s: how long a hold lives; one that is used is extended.
            margin_s: how long before its expiry a hold is given up; by default a sixth of its life.
            flush_every_s: how often what was decided is captured.
            rate: the rate that prices the quantities of decisions.
            credit_type, reason, reference, metadata: of the holds. Budgets and lots count by them.
            journal: a file that remembers what was decided, so that the process that comes after a crash captures it.
            on_uncharged: called for what the ledger refused to charge; by default it is logged.

        Raises:
            InsufficientCredits, Problem: the ledger refuses the hold.
            OutcomeUnknown, Unreachable: as every call.
            JournalInUse: another process has the journal.
        """
        fields = {"credit_type": credit_type, "reason": reason, "reference": reference, "metadata": metadata}
        terms = terms_of(holder, amount=amount, most=most, expires_in_s=expires_in_s, margin_s=margin_s, rate=rate, fields=fields)
        file = None if journal is None else open_journal(journal)
        state = LeaseState(terms, new_key()) if file is None else file.begin(terms, new_key)
        return Lease(self, state, journal=file, flush_every_s=flush_every_s, on_uncharged=on_uncharged).open()

    def _attempt(self, call: Call[Any], time_s: float) -> Answer | Lost:
        """Send a call once. Every failure, and an answer that arrives too slowly, is a lost attempt."""
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
    """The items of a list. Each iteration begins with the first page, and requests the next page when it is needed."""

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
        """Return the first item, or None if the list is empty."""
        return next(iter(self), None)


class Feed:
    """Entries of all holders as they are recorded, for ever."""

    def __init__(self, client: Client, call: FeedCall[Entry]) -> None:
        self._client = client
        self._call = call

    @property
    def position(self) -> str:
        """The position to continue from: in `pages`, after the current page; otherwise, after the last finished page."""
        return self._call.place

    def find_place(self) -> None:
        """Ask the server once, without waiting for an entry, where `end` is: the feed has what is recorded from then on."""
        now = replace(self._call, query={**self._call.query, "wait": 0})
        if self._call.place == "end":
            self._call = self._call.after(self._client.send(now))

    def __iter__(self) -> Iterator[Entry]:
        while True:
            entries, following = self._read()
            yield from entries
            self._call = following

    def pages(self) -> Iterator[list[Entry]]:
        """Yield page after page as they come, without empty pages; `limit` is the largest size of a page."""
        while True:
            entries, self._call = self._read()
            if entries:
                yield entries

    def _read(self) -> tuple[list[Entry], FeedCall[Entry]]:
        began = time.monotonic()
        page = self._client.send(self._call)
        entries = list(self._call.items(page))
        if not entries and time.monotonic() - began < PAUSE_S:
            time.sleep(PAUSE_S)
        return entries, self._call.after(page)


class Hold:
    """Credits that are set aside until they are captured or released.

    Args:
        entry: the hold as it was recorded; `entry["sequence"]` is its number.
        key: its idempotency key; the keys of its captures and its release begin with it.
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
        captured = self._client.capture(
            self.entry["holder_id"], self.entry["sequence"], amount=amount, rate=rate, quantity=quantity,
            quantities=quantities, newest_version=newest_version, final=final, over_capture=over_capture, reason=reason,
            reference=reference, metadata=metadata, credit_type=self.entry["credit_type"],
            idempotency_key=key_within(self._key, f"capture-{self._captures}"),
        )  # fmt: skip
        self.is_open = final is False
        return captured

    def release(self, *, reason: str | None = None) -> Entry:
        """Give all held credits back."""
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
