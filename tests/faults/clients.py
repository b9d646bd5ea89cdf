"""Clients that send requests while connections break, and remember for each key what they were told."""

import http.client
import json
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from tests.faults.world import Asked, World

TIMEOUT_S = 60
ASKED_AGAIN = 30
"""How often an unknown request is sent again while connections still break."""


@dataclass(frozen=True)
class Answer:
    """A response, or why there was none."""

    status: int
    body: Any
    replayed: bool = False

    @property
    def outcome(self) -> str:
        """What the client is told: `stored`, `unknown`, or the outcome `not_executed` as `refused` or, of a 503, `failed`."""
        if self.status < 300:
            return "stored"
        if self.status == 503:
            return "failed" if self.body.get("outcome") == "not_executed" else "unknown"
        return "refused"

    @property
    def slug(self) -> str:
        return str(self.body.get("type", "")).rsplit("/", 1)[-1]


@dataclass
class Told:
    """All answers to one key, in their order."""

    asked: Asked
    answers: list[Answer] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """What the client knows: what it was told first, unless that was `unknown` and a later answer settled it."""
        for answer in self.answers:
            if answer.outcome == "unknown" or (answer.outcome == "failed" and answer is not self.answers[0]):
                continue
            return answer.outcome
        return "unknown"


class Clients:
    """As many threads as clients, which send one request after the other to servers in turn."""

    def __init__(self, world: World, urls: Sequence[str], api_key: str, *, seed: int) -> None:
        self.told: dict[str, Told] = {}
        """By key; each client writes the keys of its own requests only."""
        self.foreign: list[tuple[Asked, str]] = []
        """Names in errors that are not of the request."""
        self._world = world
        self._urls = urls
        self._api_key = api_key
        self._seed = seed

    def play(self, clients: int, requests: int) -> None:
        """Send this number of requests; each unknown one again until it is settled, and no other one twice."""
        numbers = count()

        def work(client: int) -> None:
            chance = random.Random(self._seed * 1000 + client)
            while (number := next(numbers)) < requests:
                asked = self._world.next(number, chance)
                answer = self.send(asked)
                for _ in range(ASKED_AGAIN):
                    if self.told[asked.key].outcome != "unknown":
                        break
                    answer = self.send(asked)
                if answer.outcome == "stored":
                    self._world.learn(asked, answer.body)

        with ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(work, client) for client in range(clients)]:
                done.result()

    def settle(self) -> None:
        """Send each request again that is still unknown."""
        for told in list(self.told.values()):
            if told.outcome == "unknown":
                self.send(told.asked)

    def outcomes(self) -> Counter[str]:
        """How many keys were told what first."""
        return Counter(told.answers[0].outcome for told in self.told.values())

    def send(self, asked: Asked) -> Answer:
        """Send the request once and remember the answer."""
        answer = self._answer(asked)
        self.told.setdefault(asked.key, Told(asked)).answers.append(answer)
        if answer.status >= 400:
            text = json.dumps(answer.body)
            own = self._world.own_names(asked)
            self.foreign += [(asked, text) for name in self._world.token_pattern.findall(text) if name not in own]
        return answer

    def _answer(self, asked: Asked) -> Answer:
        url = urlsplit(self._urls[hash(asked.key) % len(self._urls)])
        connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=TIMEOUT_S)
        headers = {
            "Authorization": f"Bearer {self._api_key}",
            "Idempotency-Key": asked.key,
            "Content-Type": "application/json",
        }
        try:
            connection.request(asked.method, asked.path, json.dumps(asked.body), headers)
            response = connection.getresponse()
            return Answer(response.status, json.loads(response.read()), response.headers.get("Idempotency-Replayed") == "true")
        finally:
            connection.close()
