"""A worker: begins the turns of tasks when they are due, until it is stopped, beside any number of other workers.

Note [A turn is a process]
    Each turn of a task is a process that the worker forks, so a task that waits for a stranger holds up nobody, whatever it waits
    for. A turn has a time: when it is over, the command ends after its present step. A process that does not end even then, as
    in a call that nothing interrupts, is killed; every task is made for that. The worker itself opens no connection and starts no
    thread, because a fork would share the one and lose the other.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from django.core.management import get_commands, load_command_class
from django.db import connections

from ledger.management.examples import CommandWithExamples
from ledger_project.processes import end_with
from ledger_project.work.timetable import LOOK_EVERY_S, Lane, Task
from ledger_project.work.turns import Ending, take_turn

GRACE_S = 30
"""How long a turn may take to end after its time; then its process is killed."""
STOP_AGAIN_S = 1.0
"""How often a process is told to stop: the first signal may come before it listens."""
PAUSE_S = 0.1
ROUNDS_WITHOUT_DATABASE = 5
NICENESS_OF_UPKEEP = 5
"""Of two processes that compute, one that serves money comes first."""

log = logging.getLogger(__name__)


class DatabaseGone(Exception):
    """The database was unreachable for several rounds. Its address may have changed, so the worker must start again."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that runs, by its task, its process and when it began."""

    task: Task
    pid: int
    began: float

    @property
    def has_overrun(self) -> bool:
        """Whether it has not ended in its time, nor in the grace after it."""
        return self.task.turn_s is not None and time.monotonic() - self.began > self.task.turn_s + GRACE_S


class Worker:
    """Begins turns when they are due; each task has at most one turn at a time here. See Note [A turn is a process].

    Args:
        tasks: the tasks of the timetable that it runs.
        stop: set to end it after the present steps of its turns.
    """

    def __init__(self, tasks: Sequence[Task], stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()
        self._tasks = tasks
        self._due_at = dict.fromkeys((task.name for task in tasks), float("-inf"))
        self._turns: dict[int, Turn] = {}
        self._killed: set[int] = set()
        self._turns_without_database = 0

    def run(self) -> None:
        """Work until `stop` is set, and then until the turns have ended.

        Raises:
            DatabaseGone: see there.
        """
        self._load_commands()
        try:
            while not self.stop.is_set():
                self._begin_due_turns()
                self._watch_turns()
                self.stop.wait(PAUSE_S if self._turns else self._seconds_until_due())
        finally:
            self._stop_turns()

    def run_once(self) -> None:
        """Give each task that is due one turn, and wait for all of them.

        Raises:
            DatabaseGone: none of them reached the database.
        """
        self._load_commands()
        self._begin_due_turns()
        try:
            while self._turns and not self.stop.wait(PAUSE_S):
                self._watch_turns()
        finally:
            self._stop_turns()
        if self._turns_without_database >= len(self._tasks):
            raise DatabaseGone

    def _load_commands(self) -> None:
        """Import what the turns need once, here."""
        for task in self._tasks:
            command = load_command_class(get_commands()[task.command], task.command)
            if isinstance(command, CommandWithExamples):
                command.load()
        connections.close_all()

    def _seconds_until_due(self) -> float:
        return max(min(self._due_at.values()) - time.monotonic(), 0)

    def _begin_due_turns(self) -> None:
        at_work = {turn.task.name for turn in self._turns.values()}
        for task in self._tasks:
            if task.name not in at_work and time.monotonic() >= self._due_at[task.name]:
                self._due_at[task.name] = time.monotonic() + (
                    task.every_s if task.by_every_worker else min(task.every_s, LOOK_EVERY_S)
                )
                turn = Turn(task, _fork_turn(task), time.monotonic())
                self._turns[turn.pid] = turn

    def _watch_turns(self) -> None:
        """Take note of the turns that have ended, and kill those that do not end.

        Raises:
            DatabaseGone: see there.
        """
        for turn in list(self._turns.values()):
            pid, status = os.waitpid(turn.pid, os.WNOHANG)
            if pid:
                del self._turns[pid]
                self._note_end(turn.task, os.waitstatus_to_exitcode(status))
            elif turn.has_overrun and turn.pid not in self._killed:
                self._killed.add(turn.pid)
                log.error("%s: its turn did not end in time; its process is killed", turn.task.name)
                os.kill(turn.pid, signal.SIGKILL)

    def _note_end(self, task: Task, code: int) -> None:
        if code < 0:
            log.error("%s: its process was ended by signal %d", task.name, -code)
        if code == Ending.UNFINISHED:
            self._due_at[task.name] = time.monotonic()
        self._turns_without_database = self._turns_without_database + 1 if code == Ending.NO_DATABASE else 0
        if self._turns_without_database >= ROUNDS_WITHOUT_DATABASE * len(self._tasks):
            raise DatabaseGone

    def _stop_turns(self) -> None:
        """Have all turns end after their present steps, and wait for them."""
        deadline, told_at = time.monotonic() + GRACE_S, float("-inf")
        while self._turns:
            now = time.monotonic()
            if now - told_at >= STOP_AGAIN_S:
                told_at = now
                for pid in self._turns:
                    os.kill(pid, signal.SIGTERM if now < deadline else signal.SIGKILL)
            for pid in list(self._turns):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del self._turns[pid]
            time.sleep(PAUSE_S if self._turns else 0)

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """While the block runs, SIGINT and SIGTERM set `stop`."""

        def receive(number: int, frame: FrameType | None) -> None:
            self.stop.set()

        before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _fork_turn(task: Task) -> int:
    """Return the number of a child process that takes a turn of the task."""
    parent = os.getpid()
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    ending = Ending.FAILED
    try:
        end_with(parent)
        if task.lane is Lane.UPKEEP:
            os.nice(NICENESS_OF_UPKEEP)
        ending = take_turn(task)
        connections.close_all()
    except BaseException:
        log.exception("%s: failed", task.name)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        # Not `sys.exit`: what the parent has still to do when it ends is not ours.
        os._exit(ending)
