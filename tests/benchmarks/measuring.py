"""Ratios, measured so that a busy machine favours neither side: round by round, in turns, the median of the quotients."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))


@dataclass(frozen=True)
class Result:
    """One line of the table: how much of `relative_to` `what` comes to.

    `aim` is a bound such as ">= 0.45" or "<= 1.8"; None for what is only shown. `context` holds absolute numbers of this machine.
    """

    row: str
    what: str
    relative_to: str
    ratio: float
    aim: str | None = None
    unit: str = "×"
    context: str = ""
    rounds: Sequence[float] = field(default_factory=list)

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is met; None without one."""
        if self.aim is None:
            return None
        comparison, bound = self.aim.split()
        return self.ratio >= float(bound) if comparison == ">=" else self.ratio <= float(bound)

    def as_json(self) -> dict[str, Any]:
        """All of it, for the JSON beside the table."""
        return {**asdict(self), "is_met": self.is_met, "rounds": [round(each, 4) for each in self.rounds]}


def interleaved(measures: Mapping[str, Callable[[], float]], *, rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Call every measure once a round, in an order that turns from round to round; returns what each gave."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    names = list(measures)
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        for name in turned:
            found[name].append(measures[name]())
    return found


def quotients(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Round by round."""
    return [above / below for above, below in zip(numerators, denominators, strict=True)]


def result(
    row: str,
    what: str,
    relative_to: str,
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    aim: str | None = None,
    context: str = "",
) -> Result:
    """The median of the rounds' quotients as a line of the table."""
    each = quotients(numerators, denominators)
    return Result(row, what, relative_to, median(each), aim, context=context, rounds=each)


def cpu_us(work: Callable[[int], object], times: int) -> float:
    """This process's CPU for one call, in microseconds."""
    start = time.process_time()
    for number in range(times):
        work(number)
    return (time.process_time() - start) / times * 1e6


def seconds(work: Callable[[], object]) -> float:
    """How long a call takes by the clock."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_of_process_us(pid: int) -> float:
    """What a process has used of the CPU since it began, in microseconds. Source: Linux, Documentation/scheduler/sched-stats."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e3


def children(pid: int) -> list[int]:
    """The processes that this one started, and those that they did."""
    own = [int(number) for task in Path(f"/proc/{pid}/task").iterdir() for number in (task / "children").read_text().split()]
    return own + [each for child in own for each in children(child)]


def resident_bytes(pid: int) -> int:
    """The memory that a process holds and shares with nobody, plus its share of the rest."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
