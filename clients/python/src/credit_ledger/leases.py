"""Leases: credits that a gateway holds for a while, decides against by itself, and captures in groups."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from decimal import Decimal
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from credit_ledger.call import Call
from credit_ledger.generated import calls
from credit_ledger.generated.bodies import BatchBody, Entry, RateBody
from credit_ledger.lease_state import (
    MAX_AMOUNT,
    Batch,
    Decision,
    LeaseExhausted,
    LeaseState,
    Prices,
    Terms,
    Uncharged,
    UnitPrice,
    exact_quantities,
    quantities_for,
    use_of,
)
from credit_ledger.problem import Busy, CreditLedgerError, Problem

if TYPE_CHECKING:
    from credit_ledger.async_client import AsyncClient
    from credit_ledger.client import Client
    from credit_ledger.journal import Journal

LOG: Final = logging.getLogger("credit_ledger")
TURNS_OF_A_REFILL: Final = 3
"""A batch whose outcome was unknown, the refill, and the smaller refill if the account has less."""
LONGEST_PAUSE_S: Final = 30.0
MAX_LIFE_MS: Final = 30 * 24 * 3_600_000
"""How long a hold of a lease lives at most; the ledger takes 31 days, by its own clock."""
CLEAN_UP_S: Final = 5.0
"""How long the last batches may keep a task that is being cancelled."""


def now_ms() -> int:
    """Return a time that also goes on while the machine sleeps, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return int((time.monotonic() if clock is None else time.clock_gettime(clock)) * 1_000)


def terms_of(
    holder: str,
    *,
    amount: int,
    most: int | None,
    expires_in_s: float,
    margin_s: float | None,
    rate: str | None,
    fields: Mapping[str, Any],
) -> Terms:
    """Return the terms of a lease.

    Raises:
        ValueError: they cannot be.
    """
    most = amount if most is None else most
    expires_in_ms = int(expires_in_s * 1_000)
    margin_ms = expires_in_ms // 6 if margin_s is None else int(margin_s * 1_000)
    if not 1 <= amount <= most <= MAX_AMOUNT:
        raise ValueError(f"amount and most must be 1 <= amount <= most <= {MAX_AMOUNT}")
    if not 0 <= margin_ms * 2 < expires_in_ms <= MAX_LIFE_MS:
        raise ValueError("expires_in_s must be more than twice margin_s, and at most 30 days")
    given = {name: value for name, value in fields.items() if value is not None}
    return Terms(holder, amount, most, expires_in_ms, margin_ms, given, rate)


def time_call(state: LeaseState) -> Call[Entry]:
    """Return the call that tells the time of the ledger, and whether it would give the lease a credit: a dry run of a hold."""
    terms = state.terms
    quantities = None if terms.rate is None else quantities_for(state.prices[max(state.prices)], 1)
    amount = None if quantities else 1
    return calls.place_hold(
        terms.holder, amount=amount, rate=terms.rate, quantities=quantities, dry_run=True, **terms.fields
    )  # fmt: skip


def prices_of(rate: RateBody) -> Prices:
    """Return the prices of a version of a rate, by component."""
    components: Mapping[str, Any] = rate.get("components") or {"quantity": rate}
    return {name: UnitPrice(each["price"], each["per"]) for name, each in components.items()}


def check_use(
    *, reason: str | None, reference: str | None, metadata: Mapping[str, Any] | None, idempotency_key: str | None
) -> None:
    """Raise ValueError for what the ledger would refuse in the capture, after the decision."""
    if reason is not None and len(reason) > 500:
        raise ValueError("a reason has at most 500 characters")
    if reference is not None and len(reference) > 200:
        raise ValueError("a reference has at most 200 characters")
    if metadata and (len(metadata) > 50 or any(len(key) > 64 for key in metadata) or len(json.dumps(metadata)) > 8_192):
        raise ValueError("metadata has at most 50 keys of at most 64 characters, and 8 KiB as JSON")
    key = idempotency_key
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise ValueError("an idempotency key has 1 to 255 printable ASCII characters")


def open_journal(path: str | PathLike[str]) -> "Journal":
    """Open the journal of a lease; files are locked as POSIX has it, so this is not for Windows."""
    from credit_ledger.journal import Journal  # only where it can be imported

    return Journal(path)


class LeaseBase:
    """What leases for threads and for event loops have in common: decisions, and what goes out and comes in."""

    def __init__(self, state: LeaseState, journal: "Journal | None", on_uncharged: Callable[[Uncharged], None] | None) -> None:
        self._state = state
        self._journal = journal
        self._on_uncharged = on_uncharged or _log_uncharged
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._written: str | None = None
        """The key of the last batch that the journal has."""
        self.error: Exception | None = None
        """Why the last batch was not settled yet; None if it was."""

    def spend(
        self,
        amount: int | None = None,
        *,
        quantities: Mapping[str, Decimal | str | int] | None = None,
        reason: str | None = None,
        reference: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Decision:
        """Decide at once and without I/O whether these credits may be spent, and take them from the lease.

        Decisions with the same reason, reference and metadata are captured together, by one entry.

        Args:
            amount: 1 or more.
            quantities: instead of the amount, of components of the rate of the lease. Those that are captured together are
                priced together, so their sum is rounded up once.
            idempotency_key: decided once, and captured by an entry of its own with this key.

        Raises:
            LeaseExhausted: too few credits are left; a refill is on its way if the ledger may give one.
            LeaseClosed: the lease was closed.
            ValueError: the ledger would refuse the capture.
            RuntimeError: another process opened the lease.
        """
        if os.getpid() != self._process:
            raise RuntimeError("a lease belongs to the process that opened it: open one after the fork")
        if (amount is None) == (quantities is None):
            raise ValueError("give either an amount or quantities")
        if amount is not None and (type(amount) is not int or not 1 <= amount <= MAX_AMOUNT):
            raise ValueError(f"an amount is an integer from 1 to {MAX_AMOUNT}")
        if quantities is not None and self._state.terms.rate is None:
            raise ValueError("quantities need a lease with a rate")
        check_use(reason=reason, reference=reference, metadata=metadata, idempotency_key=idempotency_key)
        exact = None if quantities is None else exact_quantities(quantities)
        use = use_of(reason=reason, reference=reference, metadata=metadata, key=idempotency_key, by_quantities=exact is not None)
        with self._lock:
            is_due = False
            try:
                held, decision = self._state.decide(now_ms(), use, amount=amount or 0, quantities=exact)
                if held is not None:
                    if self._journal is not None:
                        self._journal.decided(held, use, decision.amount, exact)
                    self._state.take(held, use, decision.amount, quantities=exact)
            finally:
                is_due = self._state.is_due(now_ms())
                if is_due:
                    self._wake()
        return decision

    @property
    def left(self) -> int:
        """The most credits that one decision can take now."""
        with self._lock:
            return self._state.left(now_ms())

    @property
    def decided(self) -> int:
        """The credits of all decisions."""
        return self._state.decided

    @property
    def captured(self) -> int:
        """The credits of the decisions that the ledger has on record."""
        return self._state.captured

    def _wake(self) -> None:
        raise NotImplementedError

    def _next_call(self) -> tuple[Batch, Call[BatchBody]] | None:
        """Return the batch to send now, as it is written down."""
        with self._lock:
            batch = self._state.next_batch(now_ms())
            if batch is None:
                return None
            if batch.key != self._written and self._journal is not None:
                self._journal.sent(self._state, batch)
            self._written = batch.key
        operations: Any = batch.operations
        return batch, calls.batch(mode="each", operations=operations, idempotency_key=batch.key)

    def _settled(self, batch: Batch, body: BatchBody) -> None:
        uncharged: Sequence[Uncharged] = ()
        try:
            with self._lock:
                uncharged = self._state.settle(batch, body["results"], now_ms())
                if self._journal is not None:
                    self._journal.settled(self._state)
                self.error = None
        finally:
            # Also if the journal cannot be written: the state has forgotten them.
            self._tell(uncharged)

    def _tell(self, uncharged: Sequence[Uncharged]) -> None:
        for each in uncharged:
            try:
                self._on_uncharged(each)
            except Exception:
                LOG.exception("on_uncharged failed for %s", dict(each.operation))

    def _failed(self, error: Exception) -> None:
        self.error = error
        if isinstance(error, Problem) and not isinstance(error, Busy):
            with self._lock:
                self._state.refuse(error)

    def _ask_for(self, amount: int) -> None:
        with self._lock:
            self._state.ask_for(amount)

    def _goes_on(self, amount: int) -> bool:
        """Return whether another turn may help a refill."""
        with self._lock:
            return self._state.left(now_ms()) < amount and self._state.is_due(now_ms())

    def _learn(self, versions: Sequence[RateBody]) -> bool:
        """Take the prices of versions of the rate; return whether those of all holds are there."""
        with self._lock:
            self._state.learn_prices({each["version"]: prices_of(each) for each in versions})
            return not self._state.needs_prices

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _refused(self) -> CreditLedgerError:
        return self._state.problem or LeaseExhausted(requested=1, left=0, problem=None)


class Lease(LeaseBase):
    """A lease for threads; `Client.lease` opens it. A thread of its own captures and refills in the background.

    `close`, or the end of a `with`, captures what was decided and gives the rest back.
    """

    def __init__(
        self,
        client: "Client",
        state: LeaseState,
        *,
        journal: "Journal | None",
        flush_every_s: float,
        on_uncharged: Callable[[Uncharged], None] | None,
    ) -> None:
        super().__init__(state, journal, on_uncharged)
        self._client = client
        self._flush_every_s = flush_every_s
        self._sending = threading.Lock()
        self._woken = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="credit-lease", daemon=True)

    def open(self) -> Self:
        """Capture what an earlier process has left in the journal, and place the first hold.

        Raises:
            InsufficientCredits, Problem: the ledger refuses it.
            LeaseExhausted: the rate costs nothing, and there is nothing to hold.
            OutcomeUnknown, Unreachable: as every call.
        """
        try:
            while self._turn():
                pass
            if self._state.terms.rate is not None:
                self._learn_prices()
            if self._state.is_free:
                raise LeaseExhausted(requested=0, left=0, problem=None)
            asked_ms = now_ms()
            self._state.learn_time(self._client.send(time_call(self._state))["effective_at"], asked_ms)
            if self.refill() < 1:
                raise self._refused()
        except BaseException:
            self._close_journal()
            raise
        self._thread.start()
        return self

    def refill(self, amount: int = 1) -> int:
        """Ask the ledger now for credits for a decision of this amount; return how many a decision can take then.

        Raises:
            OutcomeUnknown, Unreachable, Problem: as every call.
        """
        self._ask_for(amount)
        for _ in range(TURNS_OF_A_REFILL):
            self._turn()
            if not self._goes_on(amount):
                break
        return self.left

    def flush(self) -> None:
        """Capture now what was decided until now."""
        self._turn()

    def close(self) -> None:
        """Capture what was decided, and give the rest back.

        Raises:
            OutcomeUnknown, Unreachable, Problem: as every call. The holds then end at their expiry; what was decided and not
                captured is not charged, or is by the next lease with the same journal.
        """
        with self._lock:
            self._state.close()
        self._ends.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            while self._turn():
                pass
        finally:
            self._close_journal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _wake(self) -> None:
        self._woken.set()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._ends.wait(pause_s):
            self._woken.wait(self._flush_every_s)
            self._woken.clear()
            try:
                self._turn()
                pause_s = 0.0
            except (CreditLedgerError, OSError) as error:
                self.error = error
                pause_s = min(max(1.0, pause_s * 2), LONGEST_PAUSE_S)

    def _turn(self) -> bool:
        """Send the next batch, and wait for its outcome; return False if there was nothing to send."""
        with self._sending:
            following = self._next_call()
            if following is None:
                if self._state.needs_prices:
                    self._learn_prices()
                return False
            batch, call = following
            try:
                if self._journal is not None:
                    self._journal.sync()
                body = self._client.send(call)
            except (CreditLedgerError, OSError) as error:
                self._failed(error)
                raise
            self._settled(batch, body)
            if self._state.needs_prices:
                self._learn_prices()
            return True

    def _learn_prices(self) -> None:
        """Learn the prices of the newest version of the rate."""
        rate, credit_type = self._state.terms.rate or "", self._state.terms.fields.get("credit_type")
        for versions in self._client.rate_versions(rate, credit_type=credit_type, limit=1).pages():
            if self._learn(versions):
                return


class AsyncLease(LeaseBase):
    """A lease for an event loop (asyncio or trio), as `Lease`; `AsyncClient.lease` describes it, and `async with` opens it.

    `spend` does not wait, and is not awaited. Call it only from the event loop.
    """

    def __init__(
        self,
        client: "AsyncClient",
        terms: Terms,
        new_key: Callable[[], str],
        *,
        journal: str | PathLike[str] | None,
        flush_every_s: float,
        on_uncharged: Callable[[Uncharged], None] | None,
    ) -> None:
        file = None if journal is None else open_journal(journal)
        super().__init__(LeaseState(terms, new_key()) if file is None else file.begin(terms, new_key), file, on_uncharged)
        self._client = client
        self._flush_every_s = flush_every_s
        self._sending = anyio.Lock()
        self._woken = anyio.Event()

    async def refill(self, amount: int = 1) -> int:
        """As `Lease.refill`."""
        self._ask_for(amount)
        for _ in range(TURNS_OF_A_REFILL):
            await self._turn()
            if not self._goes_on(amount):
                break
        return self.left

    async def flush(self) -> None:
        """Capture now what was decided until now."""
        await self._turn()

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            self._close_journal()
            raise
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._state.close()
        self._tasks.cancel_scope.cancel()
        try:
            # The task group would wrap the error of the block in a group.
            await self._tasks.__aexit__(None, None, None)
        finally:
            # A task that is cancelled captures all the same.
            with anyio.move_on_after(CLEAN_UP_S, shield=True) if error is not None else nullcontext():
                try:
                    while await self._turn():
                        pass
                finally:
                    self._close_journal()

    async def _open(self) -> None:
        while await self._turn():
            pass
        if self._state.terms.rate is not None:
            await self._learn_prices()
        if self._state.is_free:
            raise LeaseExhausted(requested=0, left=0, problem=None)
        asked_ms = now_ms()
        self._state.learn_time((await self._client.send(time_call(self._state)))["effective_at"], asked_ms)
        if await self.refill() < 1:
            raise self._refused()

    def _wake(self) -> None:
        self._woken.set()

    async def _run(self) -> None:
        pause_s = 0.0
        while True:
            await anyio.sleep(pause_s)
            with anyio.move_on_after(self._flush_every_s):
                await self._woken.wait()
            self._woken = anyio.Event()
            try:
                await self._turn()
                pause_s = 0.0
            except (CreditLedgerError, OSError) as error:
                self.error = error
                pause_s = min(max(1.0, pause_s * 2), LONGEST_PAUSE_S)

    async def _turn(self) -> bool:
        """Send the next batch, and wait for its outcome; return False if there was nothing to send."""
        async with self._sending:
            following = self._next_call()
            if following is None:
                if self._state.needs_prices:
                    await self._learn_prices()
                return False
            batch, call = following
            try:
                if self._journal is not None:
                    await anyio.to_thread.run_sync(self._journal.sync)
                body = await self._client.send(call)
            except (CreditLedgerError, OSError) as error:
                self._failed(error)
                raise
            self._settled(batch, body)
            if self._state.needs_prices:
                await self._learn_prices()
            return True

    async def _learn_prices(self) -> None:
        """Learn the prices of the newest version of the rate."""
        rate, credit_type = self._state.terms.rate or "", self._state.terms.fields.get("credit_type")
        async for versions in self._client.rate_versions(rate, credit_type=credit_type, limit=1).pages():
            if self._learn(versions):
                return


def _log_uncharged(uncharged: Uncharged) -> None:
    LOG.warning("A lease could not charge what it had decided: %s; %s", uncharged.problem, dict(uncharged.operation))
