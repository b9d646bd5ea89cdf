"""Tries every order of the steps of a model, breadth first, so that a path to a broken law is a shortest one.

A model is a state to begin with, the steps that are possible in a state, and laws that hold in each. States are values: two paths
that lead to equal ones go on as one.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)

Steps = Callable[[S], Iterable[tuple[str, S]]]
Laws = Mapping[str, Callable[[S], bool]]


@dataclass(frozen=True)
class Explored(Generic[S]):
    """What was found.

    Args:
        states: how many different states were reached.
        ends: how many of them have no next step.
        broken: the law that does not hold in the last state of `path`; empty: all laws hold in all states.
        path: the steps to that state, one of the shortest.
    """

    states: int
    ends: int
    broken: str = ""
    path: tuple[str, ...] = ()


def explore(start: S, steps: Steps[S], laws: Laws[S], at_the_end: Laws[S]) -> Explored[S]:
    """Visit all states that can be reached, or those up to the first one in which a law is broken.

    Args:
        laws: hold in each state.
        at_the_end: hold in each state without a next step.
    """
    came_from: dict[S, tuple[str, S] | None] = {start: None}
    waiting, ends = deque([start]), 0
    while waiting:
        state = waiting.popleft()
        following = list(steps(state))
        ends += not following
        for law, holds in [*laws.items(), *(() if following else at_the_end.items())]:
            if not holds(state):
                return Explored(len(came_from), ends, law, _path_to(state, came_from))
        for step, successor in following:
            if successor not in came_from:
                came_from[successor] = step, state
                waiting.append(successor)
    return Explored(len(came_from), ends)


def _path_to(state: S, came_from: Mapping[S, tuple[str, S] | None]) -> tuple[str, ...]:
    path = []
    while (origin := came_from[state]) is not None:
        step, state = origin
        path.append(step)
    return tuple(reversed(path))
