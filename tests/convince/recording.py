"""Clients in processes of their own that write down each request: when it was sent, when its answer came, and what it said.

Nothing here knows more of the ledger than its HTTP interface, so a history is what is seen from outside. Times are of
CLOCK_MONOTONIC, which all processes of a machine share.
"""

import http.client
import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

TIMEOUT_S: Final = 60
TRIES: Final = 200
"""How often a request without an answer is sent at most; most fail at once, because a server is gone."""
REPEATED: Final = 0.05
"""The share of writes that are sent again after their answer."""
REFUSED: Final = {402: {"insufficient-credits"}, 409: {"not-refundable", "refund-exceeds-spend", "hold-closed"}}
"""The answers that are decisions, by status."""
KINDS: Final = ("grant", *["spend"] * 8, *["read"] * 4, *["hold"] * 3, *["capture", "release", "refund"] * 2)


@dataclass(frozen=True)
class Operation:
    """A line of the history; tests/convince/porcupine/main.go says what the fields are."""

    client: int
    holder: str
    kind: str
    key: str
    amount: int = 0
    of: str = ""
    call: int = 0
    outcome: str = "unknown"
    sequence: int = 0
    balance: int = 0
    held: int = 0
    # `return` is a word of Python.
    returned: int = 0

    def line(self) -> str:
        """Return it as JSON."""
        row = asdict(self)
        row["return"] = row.pop("returned")
        return json.dumps(row)


@dataclass
class Client:
    """One client: its requests follow each other, and each unknown one is sent again until it has an answer."""

    number: int
    urls: Sequence[str]
    api_key: str
    holders: Sequence[str]
    chance: random.Random
    is_sound: bool

    def __post_init__(self) -> None:
        """Begin with nothing that could be captured or refunded."""
        self.history: list[Operation] = []
        self.lost = 0
        """How many tries had no answer, so that the client could not know whether they took effect."""
        self._made: dict[str, list[tuple[str, str, int]]] = {"hold": [], "spend": []}
        self._count = 0

    def play(self, requests: int) -> list[Operation]:
        """Send this number of requests, some of them again after their answer; return what was asked and answered."""
        for _ in range(requests):
            asked, path, body = self._next()
            answer = self._ask(asked, path, body)
            if answer.outcome == "granted" and asked.kind in self._made:
                self._made[asked.kind].append((asked.holder, asked.key, answer.sequence))
            if body is not None and self.chance.random() < REPEATED:
                self._ask(asked, path, body)
        return self.history

    def _ask(self, asked: Operation, path: str, body: dict[str, Any] | None) -> Operation:
        """Send a request until there is an answer, and write it down."""
        first = time.monotonic_ns()
        for _ in range(TRIES):
            answer = self._send(asked, path, body)
            if answer.outcome != "unknown":
                self.history.append(replace(answer, call=first))
                return self.history[-1]
        if self.is_sound:
            raise AssertionError(f"no answer to {asked}")
        return asked

    def _next(self) -> tuple[Operation, str, dict[str, Any] | None]:
        """Return the next request, with its path and body."""
        self._count += 1
        kind, key = self.chance.choice(KINDS), f"{self.number}-{self._count}"
        made = self._made["spend" if kind == "refund" else "hold"]
        if kind in ("capture", "release", "refund") and made:
            # Others of them stay, to be asked for twice.
            holder, of, sequence = self.chance.choice(made[-3:])
            asked = Operation(self.number, holder, kind, key, of=of)
            if kind == "refund":
                return asked, f"/v1/holders/{holder}/refunds", {"spend": sequence}
            return asked, f"/v1/holders/{holder}/holds/{sequence}/{'captures' if kind == 'capture' else 'release'}", {}
        holder = self.chance.choice(self.holders)
        if kind == "read":
            return Operation(self.number, holder, kind, key), f"/v1/holders/{holder}/balance", None
        kind = kind if kind in ("grant", "hold") else "spend"
        amount = self.chance.randint(10, 60) if kind == "grant" else self.chance.randint(1, 9)
        return Operation(self.number, holder, kind, key, amount), f"/v1/holders/{holder}/{kind}s", {"amount": amount}

    def _send(self, asked: Operation, path: str, body: dict[str, Any] | None) -> Operation:
        """Send the request once; return what was answered, if anything was."""
        url = urlsplit(self.chance.choice(self.urls))
        connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.api_key}"}
        if body is not None:
            headers |= {"Idempotency-Key": asked.key, "Content-Type": "application/json"}
        try:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            status, found = response.status, json.loads(response.read())
        except ConnectionRefusedError:
            return asked
        except (OSError, http.client.HTTPException, ValueError):
            status, found = 0, {}
        finally:
            connection.close()
        answer = replace(asked, **_told(asked, status, found, is_sound=self.is_sound), returned=time.monotonic_ns())
        self.lost += answer.outcome == "unknown"
        return answer


def _told(asked: Operation, status: int, found: dict[str, Any], *, is_sound: bool) -> dict[str, Any]:
    """Return what an answer says; of a ledger that is not sound, another error is a refusal, unless it says that it is none.

    Raises:
        AssertionError: it is none that the interface promises, such as a 500.
    """
    if status in (200, 201):
        outcome = "read" if asked.kind == "read" else "granted"
        return {"outcome": outcome} | {name: found[name] for name in ("sequence", "balance", "held")}
    problem = str(found.get("type", "")).rsplit("/", 1)[-1]
    if problem in REFUSED.get(status, ()):
        return {"outcome": "refused"}
    if status in (0, 503):
        return {"outcome": "unknown"}
    if not is_sound:
        return {"outcome": "unknown" if found.get("outcome") == "unknown" else "refused"}
    raise AssertionError(f"{asked}: {status} {found}")


def play(
    first: int,
    clients: int,
    requests: int,
    urls: Sequence[str],
    api_key: str,
    holders: Sequence[str],
    seed: int,
    *,
    is_sound: bool,
) -> tuple[list[str], int]:
    """Play some clients as threads of this process; return the lines of the history, and how many answers were lost.

    Args:
        first: the number of the first client.
        requests: of each client.
        is_sound: False of a ledger that was broken on purpose, which may answer anything.
    """
    players = [
        Client(number, urls, api_key, holders, random.Random(seed * 1000 + number), is_sound)
        for number in range(first, first + clients)
    ]
    with ThreadPoolExecutor(clients) as pool:
        lines = [each.line() for history in pool.map(lambda player: player.play(requests), players) for each in history]
    return lines, sum(player.lost for player in players)
