"""What a lease decides, and what it sends next. Pure: no I/O, no clock.

A lease is a hold that a gateway decides against by itself. Its decisions are collected in groups, one capture for each, and sent
in one batch, in which the next hold is placed before the last one is used up.
"""

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from credit_ledger.problem import CreditLedgerError, Problem
from credit_ledger.problems import problem_of

MAX_AMOUNT: Final = 2**53 - 1
MAX_CAPTURES: Final = 500
"""How many captures one batch has at most."""
MAX_BATCH_BYTES: Final = 3_000_000
"""How long the captures of one batch are together at most; the server takes 4 MiB."""
MAX_KEYS: Final = 100_000
"""How many keys of decisions a lease remembers."""
REFILL_EVERY_MS: Final = 10_000
"""A lease is as large as what was used in this time."""
LATE_ANSWER_MS: Final = 5_000
"""After this time, an answer no longer says what time it is at the ledger."""
QUANTITY_PARTS: Final = 10**6
"""A hold that is sized by quantities has six decimals."""
FIRST_PAUSE_MS: Final = 1_000
"""How long a lease waits after a refused refill before the next; then twice as long, up to LONGEST_PAUSE_MS."""
LONGEST_PAUSE_MS: Final = 30_000


class LeaseExhausted(CreditLedgerError):
    """The lease has too few credits left for this decision. Nothing was decided, and nothing was sent.

    Args:
        requested: what the decision needs; 0 if the rate costs nothing now, and there is nothing to hold.
        left: the most that a decision can take now.
        problem: why the ledger refused the last refill, such as InsufficientCredits or BudgetExceeded; None if it did not.
    """

    def __init__(self, *, requested: int, left: int, problem: Problem | None) -> None:
        why = "" if problem is None else f" The ledger refused more: {problem}"
        if requested == 0:
            why = " What costs nothing is not held: spend it by a call."
        super().__init__(f"The lease has {left} credits left, and {requested} are needed.{why}")
        self.requested = requested
        self.left = left
        self.problem = problem


class JournalInUse(CreditLedgerError):
    """Another process has the journal of this lease."""


class LeaseClosed(CreditLedgerError):
    """The lease was closed: it decides nothing any more."""


@dataclass(frozen=True)
class Decision:
    """A decision that was taken.

    Args:
        amount: the credits that it took; by quantities, what they add to the cost of their group.
        left: the most that the next decision can take.
        repeated: True if this key was decided before; nothing was taken again.
    """

    amount: int
    left: int
    repeated: bool = False


@dataclass(frozen=True)
class Uncharged:
    """Decisions that the ledger did not charge.

    Args:
        operation: the capture or spend that was sent.
        problem: why the ledger refused it.
    """

    operation: Mapping[str, Any]
    problem: Problem


@dataclass(frozen=True)
class Terms:
    """What a lease is, as its owner asked for it.

    Args:
        amount: credits that it sets aside at first, and at least when it is used.
        most: credits that it ever sets aside at the same time: what is lost for a while if the process dies.
        expires_in_ms: how long a hold lives.
        margin_ms: how long before that the lease stops to decide against it.
        fields: `credit_type`, `reason`, `reference` and `metadata` of its holds, as far as they are given.
        rate: the rate that prices quantities, if they are used.
    """

    holder: str
    amount: int
    most: int
    expires_in_ms: int
    margin_ms: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    rate: str | None = None


class UnitPrice(NamedTuple):
    """`price` credits for `per` units."""

    price: int
    per: int


Prices = Mapping[str, UnitPrice]


@dataclass(frozen=True)
class Use:
    """What a decision is for. Decisions with the same use are captured by one entry.

    Args:
        fields: `reason`, `reference` and `metadata`, as far as they are given, as JSON with sorted names.
        key: its own idempotency key: such a decision is captured by an entry of its own.
        by_quantities: True if it is priced by the rate of the lease.
    """

    fields: str = "{}"
    key: str | None = None
    by_quantities: bool = False


@dataclass
class Group:
    """Decisions with the same use, against the same hold, that were not sent yet."""

    use: Use
    count: int = 0
    exact: Fraction = Fraction(0)
    quantities: dict[str, Fraction] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        return ceil(self.exact)


@dataclass
class Held:
    """A hold of the lease.

    Args:
        left: credits that can still be decided: what the ledger holds, less what was decided and is not captured yet.
        ends_ms: at the latest now, by the clock of the gateway, the hold has not expired.
        version: of the rate that prices quantities.
        is_retired: nothing is decided against it any more; what is left goes back.
    """

    sequence: int
    left: int
    ends_ms: int
    life_ms: int
    version: int | None = None
    groups: dict[Use, Group] = field(default_factory=dict)
    is_used: bool = False
    is_retired: bool = False


@dataclass(frozen=True)
class Batch:
    """One request: the same operations with the same key, however often it is sent."""

    key: str
    operations: Sequence[Mapping[str, Any]]
    costs: Sequence[int]
    """What each capture or spend costs, and the size of a hold; 0 for other operations."""
    built_ms: int


class LeaseState:
    """The holds of a lease, its decisions, and the batch that is under way.

    Args:
        key: what the keys of its batches begin with; no other lease has it.
        number: of the last batch.
    """

    def __init__(self, terms: Terms, key: str, *, number: int = 0) -> None:
        self.terms = terms
        self.key = key
        self.number = number
        self.holds: list[Held] = []
        self.sent: Batch | None = None
        """The batch whose outcome is not known yet."""
        self.late: list[tuple[dict[str, Any], int]] = []
        """Spends instead of captures whose hold had ended, each with its cost."""
        self.prices: dict[int, Prices] = {}
        """Of the rate that prices quantities, by version."""
        self.decided = self.captured = self.uncharged = 0
        """Credits, in sum."""
        self.problem: Problem | None = None
        """Why the last refill was refused."""
        self.is_halted = False
        """The ledger refuses the batch as a whole: nothing is decided until it takes it."""
        self.is_closed = False
        self._keys: OrderedDict[str, int] = OrderedDict()
        self._size = terms.amount
        self._limit: int | None = None
        """What a refused refill said is there."""
        self._is_limited = False
        """Whether the last refill was of all that is there."""
        self._needed = 0
        """The largest decision that was refused since the last refill."""
        self._is_asked = False
        """Whether `ask_for` wants a refill now, also during a pause."""
        self._used_since_ms: int | None = None
        self._used = 0
        self._pause_ms = 0
        self._not_before_ms = 0
        self._is_outdated = False
        """Whether the rate may have a newer version: it has become more expensive, or the known one costs nothing."""
        self._server: tuple[datetime, int] | None = None

    # Deciding --------------------------------------------------------------------------------------------

    def left(self, now_ms: int) -> int:
        """Return the most credits that one decision can take now."""
        return max((each.left for each in self._usable(now_ms)), default=0)

    def decide(
        self, now_ms: int, use: Use, *, amount: int = 0, quantities: Mapping[str, Fraction] | None = None
    ) -> tuple[Held | None, Decision]:
        """Return which hold has the credits of a decision, and the decision; `take` then takes them.

        Returns:
            None for the hold of a key that was decided before.

        Raises:
            LeaseExhausted: no hold has them.
            LeaseClosed: the lease was closed.
            ValueError: the rate does not have a component.
        """
        if self.is_closed:
            raise LeaseClosed("The lease was closed.")
        if use.key is not None and use.key in self._keys:
            return None, Decision(self._keys[use.key], self.left(now_ms), repeated=True)
        cost = amount if quantities is None else ceil(exact_cost(self._newest_prices(), quantities))
        for held in self._usable(now_ms):
            if quantities is not None:
                group = held.groups.get(use) or Group(use)
                cost = ceil(group.exact + exact_cost(self._prices_of(held), quantities)) - group.cost
            if cost <= held.left:
                rest = [each.left - (cost if each is held else 0) for each in self._usable(now_ms)]
                return held, Decision(cost, max(rest))
        # The price of a hold of before says nothing about the next.
        cost = 0 if quantities is not None and self.is_free else cost
        self._need(cost)
        raise LeaseExhausted(requested=cost, left=self.left(now_ms), problem=self.problem)

    def take(self, held: Held, use: Use, cost: int, *, quantities: Mapping[str, Fraction] | None = None) -> None:
        """Take the credits of a decision from a hold that has them."""
        group = held.groups.setdefault(use, Group(use))
        group.count += 1
        group.exact += cost if quantities is None else exact_cost(self._prices_of(held), quantities)
        for name, quantity in (quantities or {}).items():
            group.quantities[name] = group.quantities.get(name, Fraction(0)) + quantity
        held.left -= cost
        held.is_used = True
        self.decided += cost
        self._used += cost
        if use.key is not None:
            self._keys[use.key] = cost
            if len(self._keys) > MAX_KEYS:
                self._keys.popitem(last=False)

    def _need(self, amount: int) -> None:
        """Remember a decision for which the next refill is to be large enough; one above `most` never fits.

        One that costs nothing also needs a hold, to be captured.
        """
        if amount <= self.terms.most:
            self._needed = max(self._needed, amount, 1)

    def _usable(self, now_ms: int) -> Iterator[Held]:
        """Yield the holds that can be decided against, the oldest first."""
        if not self.is_halted:
            for held in self.holds:
                is_priced = held.version is None or held.version in self.prices
                if is_priced and not held.is_retired and now_ms < held.ends_ms - self.terms.margin_ms:
                    yield held

    @property
    def needs_prices(self) -> bool:
        """True if the rate has a version that is not known: a hold by it is not used until `learn_prices`."""
        is_unknown = any(each.version not in (None, *self.prices) for each in self.holds)
        return not self.is_closed and (self._is_outdated or is_unknown)

    def learn_prices(self, prices: Mapping[int, Prices]) -> None:
        """Learn the prices of versions of the rate, the newest among them."""
        self.prices.update(prices)
        self._is_outdated = False

    @property
    def is_free(self) -> bool:
        """True if the newest version of the rate costs nothing, so that no quantities are worth a hold."""
        return bool(self.prices) and not any(each.price for each in self._newest_prices().values())

    def _newest_prices(self) -> Prices:
        return self.prices[max(self.prices)] if self.prices else {}

    def _prices_of(self, held: Held) -> Prices:
        return {} if held.version is None else self.prices[held.version]

    # Sending ---------------------------------------------------------------------------------------------

    def is_due(self, now_ms: int) -> bool:
        """Return whether a batch is due before its usual time: credits run low, or a hold ends soon."""
        if self.sent is not None:
            return False
        ends = any(each.ends_ms - self.terms.margin_ms <= now_ms or each.is_retired for each in self.holds)
        many = sum(len(each.groups) for each in self.holds) >= MAX_CAPTURES
        return ends or many or bool(self.late) or self._extends(now_ms) is not None or self._refill(now_ms)[0] > 0

    def ask_for(self, amount: int) -> None:
        """Have the next batch refill the lease, also during a pause, so that a decision of this amount can be taken."""
        self._is_asked = True
        self._need(amount)

    def close(self) -> None:
        """Decide nothing any more; the next batches capture what was decided, and release the rest."""
        self.is_closed = True

    def next_batch(self, now_ms: int) -> Batch | None:
        """Return the batch to send: the one whose outcome is unknown, or the next; None if there is nothing to send."""
        if self.sent is not None:
            return self.sent
        size, keeps_newest = self._refill(now_ms)
        if size > 0 and self.is_free:
            self._wait_for_a_price(now_ms)
            size = 0
        self._retire(now_ms, all_but_newest=size > 0, newest=not keeps_newest)
        operations: list[tuple[dict[str, Any], int]] = list(self._spends())
        is_whole = self._add_captures(operations)
        if is_whole:
            operations += self._releases(now_ms)
            size = min(size, self.terms.most - self._held_after(operations))
            if size > 0:
                operations.append((self._hold(size, now_ms), size))
                self._begin_refill(now_ms, size)
        if not operations:
            self._forget_ended()
            return None
        self.number += 1
        built, costs = zip(*operations, strict=True)
        self.sent = Batch(f"{self.key}/{self.number}", built, costs, now_ms)
        return self.sent

    def settle(self, batch: Batch, results: Sequence[Mapping[str, Any]], now_ms: int) -> list[Uncharged]:
        """Take the results of a batch; return what was not charged."""
        self.sent, self.is_halted = None, False
        uncharged = []
        for number, result in enumerate(results):
            operation, cost = batch.operations[number], batch.costs[number]
            if "body" in result:
                self._succeeded(batch, operation, cost, result["body"], now_ms)
            elif operation["operation"] not in ("capture", "spend"):
                self._failed(batch, operation, cost, _problem_in(result))
            elif not self._goes_late(batch, number, _problem_in(result)):
                self.uncharged += cost
                uncharged.append(Uncharged(operation, _problem_in(result)))
        self._forget_ended()
        return uncharged

    def refuse(self, problem: Problem) -> None:
        """Stop to decide, because the ledger refuses the batch as a whole, such as when the key was revoked."""
        self.is_halted, self.problem = True, problem

    def learn_time(self, text: str, now_ms: int) -> None:
        """Learn that it was this time at the ledger at about this instant of the gateway."""
        self._server = (datetime.fromisoformat(text), now_ms)

    # Which holds there are -------------------------------------------------------------------------------

    def _refill(self, now_ms: int) -> tuple[int, bool]:
        """Return how large the next hold is to be, 0 for none, and whether the newest hold goes on beside it."""
        is_paused = now_ms < self._not_before_ms and not self._is_asked
        if self.is_closed or self.is_halted or is_paused or self._server is None:
            return 0, True
        usable = list(self._usable(now_ms))
        total, most = sum(each.left for each in usable), max((each.left for each in usable), default=0)
        is_low = total * 2 < self._size and any(each.is_used for each in self.holds)
        if not is_low and self._needed <= most and (usable or not self._is_asked):
            return 0, True
        target = max(self._next_size(now_ms), self._needed)
        kept = usable[-1].left if usable else 0
        keeps_newest = self._needed <= max(kept, target - kept)
        size = target - kept if keeps_newest else target
        return (size if self._limit is None else min(size, self._limit)), keeps_newest

    def _next_size(self, now_ms: int) -> int:
        """Return the size of the lease for how fast it was used since the last refill: at most twice or half the last size."""
        if self._used_since_ms is None:
            return self._size
        paced = self._used * REFILL_EVERY_MS // max(1, now_ms - self._used_since_ms)
        bounded = min(max(paced, self._size // 2), self._size * 2)
        return min(max(bounded, self.terms.amount), self.terms.most)

    def _begin_refill(self, now_ms: int, size: int) -> None:
        """Remember when and how the lease is refilled."""
        self._is_limited = self._limit is not None
        if self._is_limited:
            self._pause(now_ms)
        else:
            self._size = self._next_size(now_ms)
        self._limit, self._used, self._used_since_ms = None, 0, now_ms
        self._needed, self._is_asked = 0, False

    def _wait_for_a_price(self, now_ms: int) -> None:
        """Ask for the prices again instead of a refill, and not before a pause once more."""
        self._is_outdated = True
        self._pause(now_ms)
        self._needed, self._is_asked = 0, False

    def _retire(self, now_ms: int, *, all_but_newest: bool, newest: bool) -> None:
        """Stop to use the holds that end soon; for a refill, also the older ones, and the newest if it is too small."""
        usable = list(self._usable(now_ms)) if not self.is_halted else self.holds
        kept = usable[:0] if self.is_closed else usable[-1:] if all_but_newest else usable
        kept = [] if newest and all_but_newest else kept
        for held in self.holds:
            held.is_retired = held.is_retired or held not in kept

    def _held_after(self, operations: Sequence[tuple[Mapping[str, Any], int]]) -> int:
        """Return the most that the ledger holds after these operations: others may have used the key of a capture."""
        keyed = (cost for operation, cost in operations if operation["operation"] == "capture" and "idempotency_key" in operation)
        return sum(each.left for each in self.holds if not each.is_retired) + sum(keyed)

    def _extends(self, now_ms: int) -> Held | None:
        """Return the newest hold if it is used, and half of its life is over."""
        newest = next(reversed(list(self._usable(now_ms))), None)
        if self.is_closed or newest is None or not newest.is_used or not newest.left or self._server is None:
            return None
        return newest if (newest.ends_ms - now_ms) * 2 < newest.life_ms else None

    def _forget_ended(self) -> None:
        """Forget the holds of which nothing is left, here and at the ledger."""
        self.holds = [each for each in self.holds if each.groups or each.left]

    def _drop(self, sequence: int) -> None:
        """Note that a hold has ended: nothing can be decided against it."""
        for held in self.holds:
            if held.sequence == sequence:
                held.left, held.is_retired = 0, True

    def _add_hold(self, batch: Batch, entry: Mapping[str, Any], now_ms: int) -> None:
        ends_ms, life_ms = _end_of(batch, entry)
        version = (entry.get("rating") or {}).get("version")
        amount = -entry["amount"]
        if amount == 0:
            # The rate has become free. Nothing can be taken from such a hold, which ends at its expiry.
            self._is_outdated = True
            return
        # A rate that has just become more expensive holds more than was meant.
        is_too_large = amount > self.terms.most
        self.holds.append(Held(entry["sequence"], amount, ends_ms, life_ms, version, is_retired=is_too_large))
        self._is_asked |= is_too_large
        if not self._is_limited:
            self.problem = None
        if now_ms >= self._not_before_ms:
            self._pause_ms = 0

    def _pause(self, now_ms: int) -> None:
        self._pause_ms = min(max(self._pause_ms * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS)
        self._not_before_ms = now_ms + self._pause_ms

    # What is sent ----------------------------------------------------------------------------------------

    def _operation(self, name: str, **fields: Any) -> dict[str, Any]:
        operation = {"operation": name, "holder": self.terms.holder, **fields}
        if "credit_type" in self.terms.fields:
            operation["credit_type"] = self.terms.fields["credit_type"]
        return operation

    def _spends(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the late spends of the next batch."""
        taken, self.late = self.late[:MAX_CAPTURES], self.late[MAX_CAPTURES:]
        yield from taken

    def _add_captures(self, operations: list[tuple[dict[str, Any], int]]) -> bool:
        """Add a capture for each group, as far as the batch has room; return whether all had room."""
        length = 0
        for held in self.holds:
            while held.groups:
                use = next(iter(held.groups))
                capture = self._capture(held, held.groups[use])
                length += len(json.dumps(capture))
                if len(operations) >= MAX_CAPTURES or length > MAX_BATCH_BYTES:
                    return False
                operations.append((capture, held.groups.pop(use).cost))
        return True

    def _capture(self, held: Held, group: Group) -> dict[str, Any]:
        fields = json.loads(group.use.fields)
        if "reason" not in fields:
            fields["reason"] = "1 decision" if group.count == 1 else f"{group.count} decisions"
        if group.use.key is not None:
            fields["idempotency_key"] = group.use.key
        price: dict[str, Any] = {"amount": group.cost}
        if group.use.by_quantities:
            price = {"quantities": {name: as_decimal(quantity) for name, quantity in sorted(group.quantities.items())}}
        return self._operation("capture", hold=held.sequence, **price, final=False, **fields)

    def _releases(self, now_ms: int) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield what ends holds, and what lets the newest one live on."""
        for held in self.holds:
            if held.is_retired and held.left:
                yield self._operation("release", hold=held.sequence), 0
        extended = self._extends(now_ms)
        if extended is not None:
            extended.is_used = False
            yield self._operation("extend", hold=extended.sequence, expires_at=self._expiry(now_ms)), 0

    def _hold(self, size: int, now_ms: int) -> dict[str, Any]:
        price: dict[str, Any] = {"amount": size}
        if self.terms.rate is not None:
            price = {"rate": self.terms.rate, "quantities": quantities_for(self._newest_prices(), size)}
        fields = {name: value for name, value in self.terms.fields.items() if name != "credit_type"}
        return self._operation("hold", **price, expires_at=self._expiry(now_ms), **fields)

    def _expiry(self, now_ms: int) -> str:
        """Return when a hold that begins now expires, by the clock of the ledger."""
        assert self._server is not None, "the time of the ledger is learnt first"
        time, at_ms = self._server
        expires_at = time.astimezone(UTC) + timedelta(milliseconds=now_ms - at_ms + self.terms.expires_in_ms)
        return expires_at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z"

    # What came of it -------------------------------------------------------------------------------------

    def _succeeded(self, batch: Batch, operation: Mapping[str, Any], cost: int, entry: Mapping[str, Any], now_ms: int) -> None:
        if now_ms - batch.built_ms < LATE_ANSWER_MS:
            self.learn_time(entry["effective_at"], batch.built_ms)
        match operation["operation"]:
            case "capture" | "spend":
                self.captured += cost
            case "release":
                self._drop(operation["hold"])
            case "extend":
                for held in self.holds:
                    if held.sequence == operation["hold"]:
                        held.ends_ms, held.life_ms = _end_of(batch, entry)
            case "hold":
                self._add_hold(batch, entry, now_ms)

    def _failed(self, batch: Batch, operation: Mapping[str, Any], cost: int, problem: Problem) -> None:
        if operation["operation"] != "hold":
            if operation["operation"] == "release" or problem.slug == "hold-closed":
                self._drop(operation["hold"])
            return
        self.problem = problem
        available = problem.facts.get("available", problem.facts.get("remaining"))
        requested = problem.facts.get("requested")
        if self.terms.rate is not None and isinstance(requested, int) and requested > cost:
            self._is_outdated = self._is_asked = True
            return
        self._limit = available if isinstance(available, int) and 0 < available < cost else None
        if self._limit is None:
            self._pause(batch.built_ms)
        else:
            self._is_asked = True

    def _goes_late(self, batch: Batch, number: int, problem: Problem) -> bool:
        """Have the next batch spend what a capture did not charge because its hold had ended.

        A capture that was refused for another reason leaves its credits in the hold.
        """
        operation, cost = batch.operations[number], batch.costs[number]
        if operation["operation"] == "spend":
            return False
        if problem.slug != "hold-closed":
            for held in self.holds:
                held.left += cost if held.sequence == operation["hold"] else 0
            return False
        self._drop(operation["hold"])
        spend = {name: value for name, value in operation.items() if name not in ("hold", "final")}
        if "quantities" in operation:
            spend["rate"] = self.terms.rate
        self.late.append(({**spend, "operation": "spend", "idempotency_key": f"{batch.key}/{number}/late"}, cost))
        return True


def use_of(
    *, reason: str | None, reference: str | None, metadata: Mapping[str, Any] | None, key: str | None, by_quantities: bool
) -> Use:
    """Return what a decision is for; decisions with equal ones are captured together."""
    if reason is None and reference is None and not metadata:
        return Use(key=key, by_quantities=by_quantities)
    given = {"reason": reason, "reference": reference, "metadata": metadata or None}
    fields = {name: value for name, value in given.items() if value is not None}
    return Use(json.dumps(fields, sort_keys=True), key, by_quantities)


def exact_quantities(quantities: Mapping[str, Decimal | str | int]) -> dict[str, Fraction]:
    """Return quantities as exact numbers.

    Raises:
        ValueError: the ledger would not take them.
    """
    exact = {name: Fraction(Decimal(quantity)) for name, quantity in quantities.items()}
    if not exact or any(not 0 <= each <= MAX_AMOUNT or each * 10**12 % 1 for each in exact.values()):
        raise ValueError("quantities are numbers, 0 or more, with at most 12 decimals, of at least one component")
    return exact


def exact_cost(prices: Prices, quantities: Mapping[str, Fraction]) -> Fraction:
    """Return what quantities cost before the sum is rounded up.

    Raises:
        ValueError: the rate does not have a component.
    """
    for name in quantities:
        if name not in prices:
            raise ValueError(f"the rate has no component {name!r}; it has {', '.join(prices)}")
    return sum((quantity * prices[name].price / prices[name].per for name, quantity in quantities.items()), Fraction(0))


def quantities_for(prices: Prices, amount: int) -> dict[str, str]:
    """Return quantities that cost this number of credits, or nearly: of the component with the lowest price above 0."""
    name = min((each for each in prices if prices[each].price), key=lambda each: Fraction(*prices[each]))
    parts = amount * prices[name].per * QUANTITY_PARTS // prices[name].price
    return {name: as_decimal(min(Fraction(parts, QUANTITY_PARTS), Fraction(MAX_AMOUNT)))}


def as_decimal(quantity: Fraction) -> str:
    """Return a quantity of at most 12 decimals in plain digits."""
    whole, rest = divmod(quantity.numerator * 10**12 // quantity.denominator, 10**12)
    return f"{whole}.{rest:012d}".rstrip("0").rstrip(".")


def _end_of(batch: Batch, entry: Mapping[str, Any]) -> tuple[int, int]:
    """Return when a hold ends at the earliest by the clock of the gateway, and how long it lives.

    The ledger decided at `effective_at`, which was not before the batch was built: so clocks need not agree.
    """
    life = datetime.fromisoformat(entry["expires_at"]) - datetime.fromisoformat(entry["effective_at"])
    life_ms = life // timedelta(milliseconds=1)
    return batch.built_ms + life_ms, life_ms


def _problem_in(result: Mapping[str, Any]) -> Problem:
    return problem_of(result["status"], result.get("problem"))
