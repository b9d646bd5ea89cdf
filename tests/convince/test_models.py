"""The models: the laws hold in all states, and break as soon as one part of the argument is left out."""

import pytest

from tests.convince.arguments import Trial, trials
from tests.convince.explore import explore

TRIALS = [
    pytest.param(each, id=each.about.replace(" ", "-"), marks=[pytest.mark.slow, pytest.mark.convince] if each.is_large else [])
    for each in trials()
]


@pytest.mark.parametrize("trial", TRIALS)
def test_the_law_breaks_exactly_if_a_part_is_left_out(trial: Trial) -> None:
    explored = trial.run()
    assert (explored.broken, bool(explored.path)) == (trial.breaks, bool(trial.breaks)), trial.verdict(explored)
    assert explored.states > 100


def test_a_path_is_a_shortest_one_and_an_end_is_judged() -> None:
    def steps(state: int) -> list[tuple[str, int]]:
        return [(f"{state} + {more}", state + more) for more in (1, 3) if state + more <= 7]

    found = explore(0, steps, {"is not 7": lambda state: state != 7}, {})
    assert (found.broken, found.path) == ("is not 7", ("0 + 1", "1 + 3", "4 + 3"))
    assert explore(0, steps, {}, {"ends at 6": lambda state: state == 6}).broken == "ends at 6"
    whole = explore(0, steps, {}, {"ends at 7": lambda state: state == 7})
    assert (whole.states, whole.ends, whole.broken) == (8, 1, "")
