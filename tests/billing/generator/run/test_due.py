"""The walk of a run over the subscriptions that may be due."""

from typing import Any

import pytest

from billing.generator.run.due import MISSES_TO_LOOK_AGAIN, DueFilter, DueWalk
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, recurring


@pytest.mark.django_db
@pytest.mark.parametrize(("missed", "reads"), [(True, 2), (False, 1)])
def test_after_a_few_misses_in_a_row_a_walk_looks_again_at_what_is_due_and_yields_nobody_twice(
    monkeypatch: pytest.MonkeyPatch, missed: bool, reads: int
) -> None:
    plan = PlanFactory(prices=[recurring()]).code
    refs = {SubscriptionFactory(plan=plan).ref for _ in range(MISSES_TO_LOOK_AGAIN + 1)}
    read = DueWalk._chunk
    looked = []

    def observed(walk: DueWalk, *place: Any) -> Any:
        looked.append(place)
        return read(walk, *place)

    monkeypatch.setattr(DueWalk, "_chunk", observed)
    walk, seen = DueWalk(DueFilter(as_of=at(1, 1))), []
    for ref in walk:
        seen.append(ref)
        walk.missed(missed)

    assert (set(seen), len(seen), len(looked)) == (refs, len(refs), reads)
