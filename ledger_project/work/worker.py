"""A worker: runs the tasks of the timetable when they are due, until it is stopped, beside any number of other workers."""

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from types import FrameType
from typing import Any

from django.core.management import CommandError, call_command
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from ledger_project.work.timetable import MINUTE_S, Task

LOOK_EVERY_S = MINUTE_S
"""How often a worker checks whether a task of one worker is due."""
ROUNDS_WITHOUT_DATABASE = 5
SIGNS_OF_LIFE = 4
"""How often a worker renews its claim on a task within `retry_s`: three renewals may fail."""
SIGNALLED = 128
FAILED = 1

# One statement, so that only one of several workers gets the task. The task is due again `retry_s` after its worker's last sign
# of life, or at the next time after a success.
TAKE = """
    INSERT INTO billing_scheduledtask AS task (name, due_at, started_at, host)
    VALUES (%(name)s, clock_timestamp() + %(retry)s * interval '1 s', clock_timestamp(), %(host)s)
    ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, started_at = excluded.started_at, host = excluded.host,
        finished_at = NULL, exit_code = NULL
    WHERE task.due_at <= clock_timestamp()
    RETURNING started_at
"""
KEEP = """
    UPDATE billing_scheduledtask SET due_at = clock_timestamp() + %(retry)s * interval '1 s'
    WHERE name = %(name)s AND started_at = %(started_at)s AND finished_at IS NULL
"""
FINISH = """
    UPDATE billing_scheduledtask SET finished_at = clock_timestamp(), exit_code = %(code)s,
        succeeded_at = CASE WHEN %(well)s THEN clock_timestamp() ELSE succeeded_at END,
        due_at = CASE WHEN %(well)s THEN started_at + %(every)s * interval '1 s' ELSE due_at END,
        executions = executions + 1, failures = failures + CASE WHEN %(well)s THEN 0 ELSE 1 END,
        seconds = seconds + extract(epoch FROM clock_timestamp() - started_at)
    WHERE name = %(name)s AND started_at = %(started_at)s
"""

# The last result of a task of every worker, by any worker. Each worker itself knows when it is due.
NOTE = """
    INSERT INTO billing_scheduledtask AS task (name, due_at, started_at, finished_at, exit_code, succeeded_at, host, executions,
        failures, seconds)
    VALUES (%(name)s, %(started_at)s::timestamptz + %(every)s * interval '1 s', %(started_at)s, clock_timestamp(), %(code)s,
        CASE WHEN %(well)s THEN clock_timestamp() END, %(host)s, 1, CASE WHEN %(well)s THEN 0 ELSE 1 END,
        greatest(extract(epoch FROM clock_timestamp() - %(started_at)s::timestamptz), 0))
    ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, started_at = excluded.started_at,
        finished_at = excluded.finished_at, exit_code = excluded.exit_code,
        succeeded_at = coalesce(excluded.succeeded_at, task.succeeded_at), host = excluded.host,
        executions = task.executions + 1, failures = task.failures + excluded.failures, seconds = task.seconds + excluded.seconds
"""

log = logging.getLogger(__name__)


class DatabaseGone(Exception):
    """The database was unreachable for several rounds. Its address may have changed, so the worker must start again."""


class Worker:
    """Runs tasks when they are due.

    Args:
        tasks: the tasks of the timetable that it runs.
        stop: set to end it after its current task.
    """

    def __init__(self, tasks: Sequence[Task], stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()
        self._tasks = tasks
        self._looks_at = dict.fromkeys((task.name for task in tasks), float("-inf"))
        self._is_at_work = False
        self._rounds_without_database = 0

    def run(self) -> None:
        """Work until `stop` is set.

        Raises:
            DatabaseGone: see there.
        """
        while not self.stop.is_set():
            self.do_what_is_due()
            self.stop.wait(max(min(self._looks_at.values()) - time.monotonic(), 0))

    def do_what_is_due(self) -> None:
        """Go through the timetable once. A failure is logged and the task comes again; no task keeps the others from their turn.

        Raises:
            DatabaseGone: see there.
        """
        for task in self._tasks:
            if self.stop.is_set() or time.monotonic() < self._looks_at[task.name]:
                continue
            self._looks_at[task.name] = time.monotonic() + min(task.every_s, LOOK_EVERY_S)
            try:
                self._do(task)
                self._rounds_without_database = 0
            except (DatabaseError, InterfaceError) as error:
                log.error("%s failed: %s", task.name, error)
                self._count_a_round_without_database()
            finally:
                if not connection.in_atomic_block:
                    close_old_connections()

    def _count_a_round_without_database(self) -> None:
        self._rounds_without_database += 1
        if self._rounds_without_database >= ROUNDS_WITHOUT_DATABASE * len(self._tasks):
            raise DatabaseGone

    def _do(self, task: Task) -> None:
        if task.by_every_worker:
            started_at = datetime.now(UTC)
            _note(task, started_at, self._run(task))
            return
        started_at = _take(task)
        if started_at is not None:
            with _kept(task, started_at):
                code = self._run(task)
            _finish(task, started_at, code)

    def _run(self, task: Task) -> int:
        """Run the command, log its result, and return its exit code."""
        output = StringIO()
        began = time.monotonic()
        code = self._exit_code(task, output)
        facts = {"exit_code": code, "seconds": round(time.monotonic() - began, 3)}
        if code == 0 or code in task.passing:
            log.log(logging.INFO if task.every_s >= MINUTE_S else logging.DEBUG, "%s: done", task.name, extra={"facts": facts})
        elif code > SIGNALLED:
            log.info("%s: stopped by a signal", task.name, extra={"facts": facts})
            self.stop.set()
        else:
            log.error("%s: failed\n%s", task.name, output.getvalue().strip(), extra={"facts": facts})
        return code

    def _exit_code(self, task: Task, output: StringIO) -> int:
        self._is_at_work = True
        try:
            call_command(task.command, *task.arguments, stdout=output, stderr=output)
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else FAILED
        except CommandError as error:
            output.write(str(error))
            return int(error.returncode)
        except KeyboardInterrupt:
            return SIGNALLED + signal.SIGINT
        except (DatabaseError, InterfaceError):
            raise
        except Exception:
            log.exception("%s: failed", task.name)
            return FAILED
        finally:
            self._is_at_work = False
        return 0

    @contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """While the block runs, SIGINT and SIGTERM set `stop`; a task that does not handle them itself is interrupted."""

        def receive(number: int, frame: FrameType | None) -> None:
            self.stop.set()
            if self._is_at_work:
                raise KeyboardInterrupt

        before: dict[int, Callable[..., Any] | int | None] = {
            number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _take(task: Task) -> Any:
    """Return when this worker took a task of one worker; None if it is not due or another worker has it."""
    with connection.cursor() as cursor:
        cursor.execute(TAKE, {"name": task.name, "retry": task.retry_s, "host": socket.gethostname()[:255]})
        (taken_at,) = cursor.fetchone() or (None,)
    return taken_at


@contextmanager
def _kept(task: Task, started_at: Any) -> Iterator[None]:
    """While the block runs, no other worker takes the task: a thread gives signs of life."""
    has_ended = threading.Event()

    def keep() -> None:
        while not has_ended.wait(task.retry_s / SIGNS_OF_LIFE):
            try:
                _keep(task, started_at)
            except (DatabaseError, InterfaceError) as error:
                log.warning("%s: the worker could not renew its claim: %s", task.name, error)
            finally:
                connection.close()

    thread = threading.Thread(target=keep, name=f"keeps {task.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def _keep(task: Task, started_at: Any) -> None:
    """Make the task due `retry_s` from now, unless another worker has taken it."""
    with connection.cursor() as cursor:
        cursor.execute(KEEP, {"name": task.name, "started_at": started_at, "retry": task.retry_s})


def _finish(task: Task, started_at: Any, code: int) -> None:
    """Record its result and its next due time: after `every_s` if it succeeded, else at most `retry_s` from now."""
    with connection.cursor() as cursor:
        cursor.execute(FINISH, _ending(task, started_at, code))


def _note(task: Task, started_at: datetime, code: int) -> None:
    """Record the result of a task of every worker in this worker."""
    with connection.cursor() as cursor:
        cursor.execute(NOTE, {**_ending(task, started_at, code), "host": socket.gethostname()[:255]})


def _ending(task: Task, started_at: datetime, code: int) -> dict[str, Any]:
    well = code == 0 or code in task.passing
    return {"name": task.name, "started_at": started_at, "code": code, "well": well, "every": task.every_s}
