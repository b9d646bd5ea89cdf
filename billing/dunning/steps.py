"""Which reminder of an overdue invoice is due. Pure."""

from collections.abc import Sequence
from datetime import date, timedelta


def due_step(days: Sequence[int], *, due_date: date, reminded: Sequence[date], today: date) -> int | None:
    """Return the number of the reminder that is due, from 1 on; None if none is.

    However late it is, reminders keep their distance: the next one comes as many days after the last as its step says.

    Args:
        days: of each step, days after the due date, increasing.
        reminded: the days of the reminders so far, in their order.
    """
    done = len(reminded)
    if done >= len(days):
        return None
    due = due_date + timedelta(days=days[done])
    if done:
        due = max(due, reminded[-1] + timedelta(days=days[done] - days[done - 1]))
    return done + 1 if today >= due else None
