"""A line on the terminal that says how far a command is, how fast, and how long it will take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, unit: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to be told (done, total); the line is on standard error, and gone at the end."""
    if not shown:
        yield lambda done, total: None
        return
    # Only here: commands that run without a terminal need not load it.
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

        def told(done: int, total: int) -> None:
            speed = progress.tasks[0].speed
            progress.update(task, completed=done, total=total, rate=f"{speed:,.0f}" if speed else "–")

        yield told
