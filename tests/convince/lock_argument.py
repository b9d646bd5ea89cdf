"""The lock argument as a model: lock, then read in a later statement, then write, then COMMIT; a connection may die at any step.

Clients ask for something of one account. Each has a key, and sends the same request again if it got no answer. As in PostgreSQL,
COMMIT writes the entry and frees the lock at once, and a connection that dies loses both. Whether only the answer to COMMIT is
lost, a client cannot know. `Argument` says what of the argument is left out: with nothing left out, the laws hold in every state;
with one part left out, a shortest path to a broken law is found, unless the database refuses the entry itself.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.convince.explore import Explored, explore

SECONDS: Final = 2
"""The clock of the model: now is 0, 1 or 2."""


class Request(NamedTuple):
    """What a client asks for: its idempotency key, the kind, and the credits."""

    key: str
    kind: str
    amount: int


class Entry(NamedTuple):
    """A row of the account: a request and its outcome at an instant; a refusal is a row as well."""

    request: Request
    is_granted: bool
    at: int


class Client(NamedTuple):
    """How far a client is. `seen` are the entries and `now` the instant that it read, `writes` is its row before COMMIT."""

    request: Request
    tries: int
    step: str = "asks"
    seen: tuple[Entry, ...] | None = None
    now: int | None = None
    writes: Entry | None = None
    answer: Entry | None = None


class State(NamedTuple):
    """Everything: the committed entries, whose connection has the lock, the clients, and the time."""

    entries: tuple[Entry, ...]
    owner: int | None
    clients: tuple[Client, ...]
    now: int = 0


@dataclass(frozen=True)
class Argument:
    """The argument, each part of which can be left out.

    Args:
        takes_lock: the lock is taken.
        reads_after_lock: the account is read by a statement after that which waited for the lock.
        reads_clock_after_lock: so is the clock.
        looks_for_key: the entry of an earlier try is looked for, and its outcome answered.
        frees_by_commit: the lock is freed by COMMIT, not before it.
        keeps_key: a client that got no answer sends the same key again.
        has_primary_key: two entries cannot follow the same one: the database refuses the second, also without the lock.
    """

    takes_lock: bool = True
    reads_after_lock: bool = True
    reads_clock_after_lock: bool = True
    looks_for_key: bool = True
    frees_by_commit: bool = True
    keeps_key: bool = True
    has_primary_key: bool = False


Decide = Callable[[Request, tuple[Entry, ...], int], bool]
"""Returns whether a request is granted after these entries, at this instant."""


def steps(state: State, argument: Argument, decide: Decide) -> Iterator[tuple[str, State]]:
    """Yield each step that is possible, with the state after it."""
    if state.now < SECONDS:
        yield "time passes", state._replace(now=state.now + 1)
    for number, client in enumerate(state.clients):
        name = f"client {number + 1} ({client.request.kind} {client.request.amount}, key {client.request.key})"
        for what, after in _steps_of(state, number, client, argument, decide):
            yield f"{name} {what}", after


def _steps_of(state: State, number: int, client: Client, argument: Argument, decide: Decide) -> Iterator[tuple[str, State]]:
    def go(step: str, **changes: object) -> State:
        changed = client._replace(step=step, **changes)
        return state._replace(clients=(*state.clients[:number], changed, *state.clients[number + 1 :]))

    may_lock = state.owner is None or not argument.takes_lock
    owner = number if argument.takes_lock else None
    match client.step:
        case "asks":
            early = {} if argument.reads_after_lock else {"seen": state.entries}
            early |= {} if argument.reads_clock_after_lock else {"now": state.now}
            yield "begins", go("waits", **early)
        case "waits" if may_lock:
            yield "gets the lock" if argument.takes_lock else "does without the lock", go("is locked")._replace(owner=owner)
        case "is locked":
            yield "reads", go("has read", **_read(state, client))
        case "has read":
            entry = _decided(client, argument, decide)
            yield (
                ("finds its entry" if entry in (client.seen or ()) else f"inserts {_words(entry)}"),
                go("has written", writes=entry),
            )
        case "has written" if not argument.frees_by_commit and state.owner == number:
            yield "frees the lock", state._replace(owner=None)
        case "has written":
            yield from _commits(state, number, client, argument, go)
    if client.step not in ("asks", "has answer", "gave up"):
        yield "loses the connection", _again(client, argument, go)._replace(owner=None if state.owner == number else state.owner)


def _read(state: State, client: Client) -> dict[str, object]:
    return {
        "seen": state.entries if client.seen is None else client.seen,
        "now": state.now if client.now is None else client.now,
    }


def _decided(client: Client, argument: Argument, decide: Decide) -> Entry:
    assert client.seen is not None
    assert client.now is not None
    if argument.looks_for_key:
        for entry in client.seen:
            if entry.request.key == client.request.key:
                return entry
    return Entry(client.request, decide(client.request, client.seen, client.now), client.now)


def _commits(
    state: State, number: int, client: Client, argument: Argument, go: Callable[..., State]
) -> Iterator[tuple[str, State]]:
    assert client.seen is not None
    assert client.writes is not None
    owner = None if state.owner == number else state.owner
    is_new = client.writes not in client.seen
    if is_new and argument.has_primary_key and len(state.entries) != len(client.seen):
        yield "is refused by the primary key", _again(client, argument, go)._replace(owner=owner)
        return
    entries = (*state.entries, client.writes) if is_new else state.entries
    answered = go("has answer", answer=client.writes, seen=None, now=None, writes=None)
    yield "commits", answered._replace(entries=entries, owner=owner)
    yield "commits, and the answer is lost", _again(client, argument, go)._replace(entries=entries, owner=owner)


def _again(client: Client, argument: Argument, go: Callable[..., State]) -> State:
    """Return the state in which a client without an answer tries again, if it does."""
    request = client.request if argument.keeps_key else client.request._replace(key=client.request.key + "'")
    step = "asks" if client.tries > 1 else "gave up"
    return go(step, request=request, tries=client.tries - 1, seen=None, now=None, writes=None)


def _words(entry: Entry) -> str:
    return f"the {entry.request.kind} at {entry.at}" if entry.is_granted else "a refusal"


def laws_of(decide: Decide) -> Mapping[str, Callable[[State], bool]]:
    """Return the laws: what holds in each state."""

    def follow(state: State) -> bool:
        return all(
            entry.is_granted == decide(entry.request, state.entries[:place], entry.at)
            for place, entry in enumerate(state.entries)
        )

    return {
        "each entry is what the entries before it allow": follow,
        "entries are in the order of their time": lambda state: (
            [e.at for e in state.entries] == sorted(e.at for e in state.entries)
        ),
        "a key has one entry": lambda state: len({e.request.key for e in state.entries}) == len(state.entries),
        "what a client asked once is granted once": lambda state: all(
            sum(e.is_granted for e in state.entries if e.request.key.rstrip("'") == key) <= 1
            for key in {e.request.key.rstrip("'") for e in state.entries}
        ),
        "an answer is an entry": lambda state: all(c.answer is None or c.answer in state.entries for c in state.clients),
    }


AT_THE_END: Final[Mapping[str, Callable[[State], bool]]] = {
    "nobody waits for ever, and the lock is free": lambda state: (
        state.owner is None and all(client.step in ("has answer", "gave up") for client in state.clients)
    )
}


def prove(argument: Argument, decide: Decide, requests: tuple[Request, ...], tries: int = 2) -> Explored[State]:
    """Try every order of the clients' steps, deaths and lost answers.

    Args:
        tries: how often a client sends its request at most.
    """
    start = State((), None, tuple(Client(request, tries) for request in requests))
    return explore(start, lambda state: steps(state, argument, decide), laws_of(decide), AT_THE_END)
