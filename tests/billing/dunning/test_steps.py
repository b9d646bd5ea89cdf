"""Which reminder is due: pure."""

from datetime import date, timedelta

import pytest

from billing.dunning.steps import due_step

DUE = date(2026, 3, 1)


def day(after: int) -> date:
    return DUE + timedelta(days=after)


@pytest.mark.parametrize(
    ("reminded", "today", "step"),
    [
        ([], 6, None),
        ([], 7, 1),
        ([], 400, 1),
        ([7], 20, None),
        ([7], 21, 2),
        ([7, 21], 34, None),
        ([7, 21], 35, 3),
        ([7, 21, 35], 400, None),
        # A late first reminder keeps the distance of the next one: 14 days.
        ([100], 113, None),
        ([100], 114, 2),
    ],
)
def test_each_step_is_due_once_and_keeps_its_distance(reminded: list[int], today: int, step: int | None) -> None:
    found = due_step([7, 21, 35], due_date=DUE, reminded=[day(each) for each in reminded], today=day(today))
    assert found == step


def test_without_steps_nothing_is_due() -> None:
    assert due_step([], due_date=DUE, reminded=[], today=day(400)) is None
