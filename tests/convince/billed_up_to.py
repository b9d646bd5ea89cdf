"""Late usage as a model: events are recorded without the lock of invoices, and runs bill what they have not billed yet.

An event gets its time when it is inserted, and others see it when its transaction commits, less than `LONGEST` later. A run
cannot see an event that is inserted and not committed. So it notes that it has seen everything up to when it read,
less `LONGEST`, and a later run looks again at all events recorded since then. What it finds, it compares with what is billed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.convince.explore import Explored, explore

LONGEST: Final = 2
"""A transaction takes less than this, in the model's seconds; a longer one is ended by the server."""
SECONDS: Final = 5


class Event(NamedTuple):
    """A report of usage: when it was inserted, and whether its transaction has committed, or has died."""

    at: int | None = None
    is_committed: bool = False
    is_lost: bool = False


class Run(NamedTuple):
    """A run of the generator: what it found unbilled, and the instant at which it read."""

    step: str = "begins"
    found: frozenset[int] = frozenset()
    read_at: int = 0


class State(NamedTuple):
    """Everything: the time, events, runs, who has the lock of the invoices, what lines bill, and what was seen up to when."""

    now: int
    events: tuple[Event, ...]
    runs: tuple[Run, ...]
    owner: int | None = None
    billed: tuple[int, ...] = ()
    seen_until: int = -1


@dataclass(frozen=True)
class Cursor:
    """How runs find late usage, each part of which can be left out.

    Args:
        takes_lock: a run takes the lock of the subscription's invoices.
        leaves_margin: it notes that it has seen everything up to `LONGEST` before it read, not up to that instant.
        ends_long_transactions: the server ends a transaction after `LONGEST`.
        compares: what a run finds is compared with what is billed.
    """

    takes_lock: bool = True
    leaves_margin: bool = True
    ends_long_transactions: bool = True
    compares: bool = True


def steps(state: State, cursor: Cursor) -> Iterator[tuple[str, State]]:
    """Yield each step that is possible, with the state after it."""
    overdue = [e for e in state.events if _is_open(e) and e.at is not None and state.now - e.at >= LONGEST - 1]
    if state.now < SECONDS and not (overdue and cursor.ends_long_transactions):
        yield f"it becomes {state.now + 1}", state._replace(now=state.now + 1)
    for number, event in enumerate(state.events):
        for what, after in _event_steps(event, state.now):
            yield f"event {number + 1} {what}", state._replace(events=_replaced(state.events, number, after))
    for number, run in enumerate(state.runs):
        for what, successor in _run_steps(state, number, run, cursor):
            yield f"run {number + 1} {what}", successor


def _is_open(event: Event) -> bool:
    return event.at is not None and not event.is_committed and not event.is_lost


def _event_steps(event: Event, now: int) -> Iterator[tuple[str, Event]]:
    if event.at is None and now < LONGEST:
        yield f"is inserted at {now}", event._replace(at=now)
    elif _is_open(event):
        yield "is committed", event._replace(is_committed=True)
        yield "is lost with its connection", event._replace(is_lost=True)


def _run_steps(state: State, number: int, run: Run, cursor: Cursor) -> Iterator[tuple[str, State]]:
    def go(changed: Run, **changes: object) -> State:
        return state._replace(runs=_replaced(state.runs, number, changed), **changes)

    owner = None if state.owner == number else state.owner
    match run.step:
        case "begins" if state.owner is None or not cursor.takes_lock:
            yield "gets the lock", go(Run("is locked"), owner=number if cursor.takes_lock else None)
        case "is locked":
            found = frozenset(
                place for place, event in enumerate(state.events)
                if event.is_committed and event.at is not None and event.at > state.seen_until
                and not (cursor.compares and place in state.billed)
            )  # fmt: skip
            yield f"reads at {state.now}", go(Run("has read", found, state.now))
        case "has read":
            seen = run.read_at - LONGEST if cursor.leaves_margin else run.read_at
            billed = (*state.billed, *sorted(run.found))
            yield "commits", go(Run("is done"), billed=billed, seen_until=max(seen, state.seen_until), owner=owner)
    if run.step in ("is locked", "has read"):
        yield "loses the connection", go(Run(), owner=owner)


def _replaced(values: tuple[object, ...], number: int, value: object) -> tuple[object, ...]:
    return (*values[:number], value, *values[number + 1 :])


LAWS: Final[Mapping[str, Callable[[State], bool]]] = {
    "an event is billed once": lambda state: len(set(state.billed)) == len(state.billed),
    "what is billed was recorded": lambda state: all(state.events[place].is_committed for place in state.billed),
}
AT_THE_END: Final[Mapping[str, Callable[[State], bool]]] = {
    # A run that reads after everything has ended: it bills the rest, if it looks at it.
    "a later run finds what is not billed yet": lambda state: all(
        place in state.billed or (event.at or 0) > state.seen_until
        for place, event in enumerate(state.events)
        if event.is_committed
    ),
}


def prove(cursor: Cursor, events: int = 2, runs: int = 2) -> Explored[State]:
    """Try every order in which events are inserted, committed and lost, and runs read, commit and die."""
    start = State(0, (Event(),) * events, (Run(),) * runs)
    return explore(start, lambda state: steps(state, cursor), LAWS, AT_THE_END)
