"""One turn of a task, in a process of its own: it runs the command, ends it when its time is over, and records the result."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from io import StringIO
from types import FrameType
from typing import Any

from django.core.management import CommandError, call_command
from django.db import DatabaseError, InterfaceError, connection

from ledger_project.work.timetable import MINUTE_S, TIME_IS_UP, Task

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

# The last result of a task of every worker, by any worker. Each worker itself knows when it is due. What lasted longer than until
# its next start begins again at once.
NOTE = """
    INSERT INTO billing_scheduledtask AS task (name, due_at, started_at, finished_at, exit_code, succeeded_at, host, executions,
        failures, seconds)
    VALUES (%(name)s, greatest(%(started_at)s::timestamptz + %(every)s * interval '1 s', clock_timestamp()), %(started_at)s,
        clock_timestamp(), %(code)s,
        CASE WHEN %(well)s THEN clock_timestamp() END, %(host)s, 1, CASE WHEN %(well)s THEN 0 ELSE 1 END,
        greatest(extract(epoch FROM clock_timestamp() - %(started_at)s::timestamptz), 0))
    ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, started_at = excluded.started_at,
        finished_at = excluded.finished_at, exit_code = excluded.exit_code,
        succeeded_at = coalesce(excluded.succeeded_at, task.succeeded_at), host = excluded.host,
        executions = task.executions + 1, failures = task.failures + excluded.failures, seconds = task.seconds + excluded.seconds
"""

log = logging.getLogger(__name__)


class Ending(IntEnum):
    """How a turn ended: the exit code of its process."""

    DONE = 0
    FAILED = 1
    NO_DATABASE = 2
    UNFINISHED = 3
    """Its time was over, and the next turn goes on at once."""
    STOPPED = 4
    """A signal asked it to stop."""


class Clock:
    """The time of a turn: when it is over, the process asks itself to end, as somebody from outside would, by SIGTERM."""

    def __init__(self, seconds: int | None) -> None:
        self._seconds = seconds
        self.is_over = False

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.is_over = True
        os.kill(os.getpid(), signal.SIGTERM)

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the block, the clock runs; only in the main thread."""
        if self._seconds is None:
            yield
            return
        before = signal.signal(signal.SIGALRM, self._end)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def take_turn(task: Task) -> Ending:
    """Run a task once and record the result; of a task of one worker, only if it is due and nobody has it. Never raises.

    SIGINT and SIGTERM are for the command: one that handles them ends after its present step, one that does not is interrupted.
    """
    try:
        with _handling_signals(signal.SIG_IGN):
            return _turn(task)
    except (DatabaseError, InterfaceError) as error:
        log.error("%s failed: %s", task.name, error)
        return Ending.NO_DATABASE


def _turn(task: Task) -> Ending:
    clock = Clock(task.turn_s)
    if task.by_every_worker:
        started_at = datetime.now(UTC)
        code, ending = _run(task, clock)
        _note(task, started_at, code)
        return ending
    started_at = _take(task)
    if started_at is None:
        return Ending.DONE
    with _keep_turn(task, started_at):
        code, ending = _run(task, clock)
    _finish(task, started_at, code)
    return ending


def _run(task: Task, clock: Clock) -> tuple[int, Ending]:
    """Run the command and log its result; return the exit code to record, and how the turn ended."""
    output = StringIO()
    began = time.monotonic()
    with clock.running():
        code = _exit_code(task, output)
    if code > SIGNALLED and clock.is_over:
        code = TIME_IS_UP if TIME_IS_UP in task.passing else 0
        ending = Ending.UNFINISHED
    elif code > SIGNALLED:
        ending = Ending.STOPPED
    elif code == 0 or code in task.passing:
        ending = Ending.UNFINISHED if code == TIME_IS_UP else Ending.DONE
    else:
        ending = Ending.FAILED
    _log_result(task, code, ending, output.getvalue().strip(), seconds=round(time.monotonic() - began, 3))
    return code, ending


def _log_result(task: Task, code: int, ending: Ending, output: str, *, seconds: float) -> None:
    facts = {"exit_code": code, "seconds": seconds}
    if ending is Ending.FAILED:
        log.error("%s: failed\n%s", task.name, output, extra={"facts": facts})
    elif ending is Ending.STOPPED:
        log.info("%s: stopped by a signal", task.name, extra={"facts": facts})
    else:
        text = "done" if ending is Ending.DONE else "its turn is over, the next one goes on"
        log.log(logging.INFO if task.every_s >= MINUTE_S else logging.DEBUG, "%s: %s", task.name, text, extra={"facts": facts})


def _exit_code(task: Task, output: StringIO) -> int:
    try:
        with _handling_signals(_interrupt):
            call_command(task.command, *task.arguments, *task.options, stdout=output, stderr=output)
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
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handling_signals(handler: Any) -> Iterator[None]:
    """For the block, SIGINT and SIGTERM are handled like this."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
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
def _keep_turn(task: Task, started_at: Any) -> Iterator[None]:
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
