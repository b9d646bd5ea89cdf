"""How much a command has done, of how much, and the time left: a line on the terminal, or lines for `--verbosity 2`.

It is on standard error, so that pipes get only results; logs get nothing unless they are asked for.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from django.core.management.base import OutputWrapper

Update = Callable[[int, int | None], None]
"""Takes how many are done, and of how many; None: of an unknown number."""

LINE_EVERY_S: Final = 10.0
VERBOSE: Final = 2


def is_shown(stream: OutputWrapper, options: Mapping[str, Any]) -> bool:
    """Return whether a command with these options and this standard error shows its progress."""
    verbosity = options.get("verbosity", 1)
    return not options.get("no_progress") and verbosity > 0 and (stream.isatty() or verbosity >= VERBOSE)


@contextmanager
def progress_of(stream: OutputWrapper, options: Mapping[str, Any], what: str, unit: str) -> Iterator[Update]:
    """Yield a function that takes (done, total) and shows them as the options of the command and its terminal have it.

    Args:
        stream: the command's standard error; that of a worker's command is no terminal.
        what: the text before the numbers, such as "Auditing".
        unit: the plural of what is counted, such as "entries".
    """
    is_terminal = stream.isatty()
    if is_shown(stream, options) and not is_terminal:
        yield _Lines(stream, what, unit).update
        return
    with progress_bar(what, unit, shown=is_shown(stream, options)) as update:
        yield update


@contextmanager
def stop_with_progress(
    received: Sequence[int], stream: OutputWrapper, options: Mapping[str, Any], what: str, unit: str, count: Callable[[], int]
) -> Iterator[Callable[[], bool]]:
    """Yield the function that a run calls before each thing: it counts it, and returns whether a signal has ended the command.

    Args:
        received: the signals.
        count: returns how many there are; called only if the progress is shown.
    """
    if not is_shown(stream, options):
        yield lambda: bool(received)
        return
    total, begun = count(), 0
    with progress_of(stream, options, what, unit) as update:

        def stop() -> bool:
            nonlocal begun
            update(min(begun, total), total)
            begun += 1
            return bool(received)

        yield stop
        if not received:
            update(total, total)


class _Lines:
    """A line every LINE_EVERY_S seconds, and one at the end."""

    def __init__(self, stream: OutputWrapper, what: str, unit: str) -> None:
        self._stream, self._what, self._unit = stream, what, unit
        self._began = self._last = time.monotonic()

    def update(self, done: int, total: int | None) -> None:
        """Write a line, if it is time for one."""
        now = time.monotonic()
        if done != total and now - self._last < LINE_EVERY_S:
            return
        self._last = now
        of_all = "" if total is None else f" of {total:,}"
        self._stream.write(f"{self._what}: {done:,}{of_all} {self._unit}{self._time_left(done, total, now)}")
        self._stream.flush()

    def _time_left(self, done: int, total: int | None, now: float) -> str:
        """Return how long the rest takes at the rate so far; empty if that is unknown, or if there is no rest."""
        if not total or not done or done >= total:
            return ""
        left_s = round((total - done) * (now - self._began) / done)
        return f", about {left_s // 3600}:{left_s // 60 % 60:02}:{left_s % 60:02} left"


@contextmanager
def progress_bar(what: str, unit: str, *, shown: bool) -> Iterator[Update]:
    """Yield a function that takes (done, total) and updates the line. The line is on standard error and vanishes at the end.

    Args:
        what: the text before the bar.
        unit: the plural of what is counted, such as "entries".
        shown: False shows nothing, and neither does an installation without rich.
    """
    if not shown or find_spec("rich") is None:
        yield lambda done, total: None
        return
    # Imported only here: a command without a terminal does not need rich.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}, {{task.fields[rate]}} {unit}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, rate="–")

        def update(done: int, total: int | None) -> None:
            speed = progress.tasks[0].speed
            progress.update(task, completed=done, total=total, rate=f"{speed:,.0f}" if speed else "–")

        yield update
