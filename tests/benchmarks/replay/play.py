"""Playing a trace against a running ledger over HTTP, with the accidents that happen to clients.

Each recorded request is one spend, under a key made of the run and the row. Some are repeated with the same key after their
response, and some lose their connection before the response is read. Every repetition must get the first response.
"""

import http.client
import json
import random
import select
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tests.benchmarks.replay.traces import Use

RESPONSE_TIMEOUT_S: Final = 30
RETRY_FOR_S: Final = 60
GRANTED_SHARE: Final = {"promotional": 10, "purchased": 83}
"""Percent of what a holder's requests need, rounded down: together too little, so that some are refused."""


class ReplayFailed(Exception):
    """The ledger returned something wrong; the message says what."""


@dataclass(frozen=True)
class Target:
    """Where the ledger is, and under which names this run's holders and requests go there."""

    url: str
    api_key: str
    run: str

    def holder(self, user: int) -> str:
        """The holder that a user of the trace is in this run."""
        return f"{self.run}:user-{user:03}"


@dataclass(frozen=True)
class Accidents:
    """Every N-th request is repeated, or loses its response; 0: never."""

    repeat_every: int = 10
    drop_every: int = 25

    def drops(self, use: Use) -> bool:
        """True where the client hangs up before it reads the response."""
        return self.drop_every > 0 and use.number % self.drop_every == 0

    def drops_late(self, use: Use) -> bool:
        """True where it hangs up once the response has arrived: the spend took effect. Else the request may be lost too."""
        return use.number % (2 * self.drop_every) == 0

    def repeats(self, use: Use) -> bool:
        """True where the client sends the request again after the response."""
        return self.repeat_every > 0 and use.number % self.repeat_every == 0


@dataclass(frozen=True, slots=True)
class Response:
    """Status and body of a response, and whether it is a replay."""

    status: int
    content: bytes
    replayed: bool


@dataclass
class Tally:
    """What came of a run. Latencies are in seconds, of every response that was read."""

    accepted: list[Use] = field(default_factory=list)
    refused: int = 0
    repeated: int = 0
    dropped: int = 0
    retried: int = 0
    replays: int = 0
    latencies_s: list[float] = field(default_factory=list)
    took_s: float = 0.0
    granted: Counter[int] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """Recorded requests that were played."""
        return len(self.accepted) + self.refused

    @property
    def responses(self) -> int:
        """Responses that were read."""
        return len(self.latencies_s)

    def latency_ms(self, percent: float) -> float:
        """The latency that this percentage of the responses did not exceed."""
        ordered = sorted(self.latencies_s)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def add(self, other: "Tally") -> None:
        """Count another client's part in."""
        self.accepted += other.accepted
        self.latencies_s += other.latencies_s
        for name in ("refused", "repeated", "dropped", "retried", "replays"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


# One client ------------------------------------------------------------------------------------------


class Client:
    """One thread's connection, kept open, and what it has seen."""

    def __init__(self, target: Target) -> None:
        """Connect at the first request."""
        self.target = target
        self.tally = Tally()
        address = urlsplit(target.url)
        self._connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=RESPONSE_TIMEOUT_S)
        self._headers = {"Authorization": f"Bearer {target.api_key}", "Content-Type": "application/json"}

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def get(self, path: str) -> Any:
        """The JSON of a path.

        Raises:
            ReplayFailed: the response is not a 200.
        """
        self._connection.request("GET", path, headers=self._headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise ReplayFailed(f"GET {path}: {response.status} {content.decode(errors='replace')}")
        return json.loads(content)

    def grant(self, user: int, amount: int, source: str) -> None:
        """Give a user credits, or raise ReplayFailed."""
        body = json.dumps({"amount": amount, "source": source, "reason": "replay"}).encode()
        response = self._request(f"/v1/holders/{self.target.holder(user)}/grants", body, f"{self.target.run}:{source}")
        if response.status != 201:
            raise ReplayFailed(f"grant: {response.status} {response.content.decode(errors='replace')}")

    def spend(self, use: Use, accidents: Accidents) -> None:
        """Play one recorded request, with its accidents, until it is accepted or refused; count the outcome.

        Raises:
            ReplayFailed: a response is neither, or a repetition got another response.
        """
        path = f"/v1/holders/{self.target.holder(use.user)}/spends"
        key = f"{self.target.run}:{use.number}"
        body = json.dumps({"amount": use.credits, "reason": "inference", "reference": f"row {use.number}"}).encode()
        if accidents.drops(use):
            self._send_and_drop(path, body, key, late=accidents.drops_late(use))
        response = self._request(path, body, key)
        if response.status == 201:
            self.tally.accepted.append(use)
        elif response.status == 402:
            self.tally.refused += 1
        else:
            raise ReplayFailed(f"row {use.number}: {response.status} {response.content.decode(errors='replace')}")
        if accidents.repeats(use):
            self._repeat(use, path, body, key, response)

    def _repeat(self, use: Use, path: str, body: bytes, key: str, first: Response) -> None:
        self.tally.repeated += 1
        again = self._request(path, body, key)
        if (again.status, again.content, again.replayed) != (first.status, first.content, True):
            raise ReplayFailed(f"row {use.number}: first {first} and, repeated, {again}")

    def _request(self, path: str, body: bytes, key: str) -> Response:
        """Send until there is a response other than "try again"."""
        give_up_at = time.monotonic() + RETRY_FOR_S
        while True:
            try:
                response, retry_after_s = self._once(path, body, key)
            except (OSError, http.client.HTTPException):
                self._connection.close()
                response, retry_after_s = None, 0.1
            if response is not None and response.status not in (429, 503):
                self.tally.replays += response.replayed
                return response
            if time.monotonic() > give_up_at:
                raise ReplayFailed(f"{path}: no response within {RETRY_FOR_S} s; the last was {response}")
            self.tally.retried += 1
            time.sleep(retry_after_s * random.uniform(0.5, 1.0))

    def _once(self, path: str, body: bytes, key: str) -> tuple[Response, float]:
        started = time.perf_counter()
        self._connection.request("POST", path, body, self._headers | {"Idempotency-Key": key})
        response = self._connection.getresponse()
        content = response.read()
        self.tally.latencies_s.append(time.perf_counter() - started)
        replayed = response.getheader("Idempotency-Replayed") == "true"
        return Response(response.status, content, replayed), float(response.getheader("Retry-After") or 1)

    def _send_and_drop(self, path: str, body: bytes, key: str, *, late: bool) -> None:
        """Send the request whole and break the connection off without reading, as a client's crash does."""
        with suppress(OSError, http.client.HTTPException):
            self._connection.request("POST", path, body, self._headers | {"Idempotency-Key": key})
            wire = self._connection.sock
            assert wire is not None
            if late:
                select.select([wire], [], [], RESPONSE_TIMEOUT_S)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()
        self.tally.dropped += 1


# All clients -----------------------------------------------------------------------------------------


class Schedule:
    """Hands out the recorded requests in order, each when its time has come."""

    def __init__(self, uses: Sequence[Use], speed: float) -> None:
        """`speed`: how many times faster than recorded; 0 is as fast as the clients can."""
        self._uses = iter(uses)
        self._first_came_at = uses[0].came_at
        self._speed = speed
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Hand out no more."""
        self._stopped.set()

    def __iter__(self) -> Iterator[Use]:
        while not self._stopped.is_set():
            with self._lock:
                use = next(self._uses, None)
            if use is None:
                return
            if self._speed:
                due_s = (use.came_at - self._first_came_at).total_seconds() / self._speed
                self._stopped.wait(max(0.0, self._started + due_s - time.monotonic()))
            yield use


def grant_all(target: Target, uses: Sequence[Use], concurrency: int) -> Counter[int]:
    """Give every user two lots, promotional and purchased, that are together a little less than needed.

    Returns: what each user got in all.
    """
    needed: defaultdict[int, int] = defaultdict(int)
    for use in uses:
        needed[use.user] += use.credits
    granted: Counter[int] = Counter()

    def grant(user: int) -> None:
        client = Client(target)
        try:
            for source, percent in GRANTED_SHARE.items():
                amount = max(1, needed[user] * percent // 100)
                client.grant(user, amount, source)
                granted[user] += amount
        finally:
            client.close()

    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(grant, sorted(needed)))
    return granted


def spend_all(target: Target, uses: Sequence[Use], *, concurrency: int, speed: float, accidents: Accidents) -> Tally:
    """Play all requests from this many clients at once, or raise what the first failing one raised."""
    tally = Tally()
    schedule = Schedule(uses, speed)

    def play() -> Tally:
        client = Client(target)
        try:
            for use in schedule:
                client.spend(use, accidents)
        finally:
            client.close()
        return client.tally

    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        # Whatever ends this, the clients must: the pool waits for them.
        try:
            for each in [pool.submit(play) for _ in range(concurrency)]:
                tally.add(each.result())
        finally:
            schedule.stop()
    tally.took_s = time.perf_counter() - started
    return tally


def check_balances(target: Target, tally: Tally) -> int:
    """Check that the balance of every holder agrees with the responses; return the number of holders.

    Raises:
        ReplayFailed: a balance is another.
    """
    expected = Counter(tally.granted)
    for use in tally.accepted:
        expected[use.user] -= use.credits
    client = Client(target)
    try:
        for user, credits_left in sorted(expected.items()):
            balance = client.get(f"/v1/holders/{target.holder(user)}/balance")
            if (balance["balance"], balance["available"]) != (credits_left, credits_left):
                raise ReplayFailed(f"{target.holder(user)} should have {credits_left} credits and has {balance}")
    finally:
        client.close()
    return len(expected)
