"""A progress line on the terminal: how much a command has done, how fast, and the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec


@contextmanager
def progress_bar(what: str, unit: str, *, shown: bool) -> Iterator[Callable[[int, int], None]]:
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

        def update(done: int, total: int) -> None:
            speed = progress.tasks[0].speed
            progress.update(task, completed=done, total=total, rate=f"{speed:,.0f}" if speed else "–")

        yield update
