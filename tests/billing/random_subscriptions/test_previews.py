"""The preview of the next invoices, then runs at its instants: every document the same, at random moments of random lives."""

import random
from datetime import datetime
from typing import Any

import pytest
from django.db import transaction

from billing.generator.options import Options
from billing.generator.run import outcomes
from billing.generator.run.due import DueFilter, due_among
from billing.generator.run.preview import next_invoices
from ledger.services import preview
from tests.billing.random_subscriptions.simulator import Simulator, Traits
from tests.billing.random_subscriptions.test_dry_runs import made_by, rows

pytestmark = pytest.mark.django_db
INVOICES = 4
GIVEN_BY_RUNS = {"id", "number", "state", "issue_date", "due_date"}
"""What a run gives, or takes from the day on which it comes."""


def to_the_cent(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what only runs give, and without the ids of other invoices in its lines."""
    lines = [line | {"rating": {k: v for k, v in line["rating"].items() if k != "credits"}} for line in document["lines"]]
    return {name: value for name, value in document.items() if name not in GIVEN_BY_RUNS} | {"lines": lines}


class PreviewFirst(Simulator):
    """The simulation of `test_random_subscriptions.py`; now and then the next invoices are previewed, made, and rolled back."""

    def __init__(self, seed: int, traits: Traits) -> None:
        super().__init__(seed, traits)
        self.moments = random.Random(seed)
        self.compared = 0

    def _run_all(self, now: datetime) -> None:
        if self.moments.random() < 0.25:
            self._compare(now)
        super()._run_all(now)

    def _compare(self, now: datetime) -> None:
        refs = [simulated.ref for simulated in self.subscriptions]
        before = rows()
        with preview():
            shown = next_invoices(refs, as_of=now, most=INVOICES)
        assert rows() == before
        made: list[tuple[datetime, dict[str, Any]]] = []
        with transaction.atomic():
            for as_of in dict.fromkeys([now, *(one.as_of for one in shown)]):
                due = due_among(refs, DueFilter(as_of=as_of))
                made += [(as_of, document) for ref in due for document in made_by(lambda r=ref, a=as_of: _bill(r, a))]  # type: ignore[misc]
            transaction.set_rollback(True)
        previewed = [(one.as_of, to_the_cent(one.document)) for one in shown]
        assert previewed == [(as_of, to_the_cent(document)) for as_of, document in made][: len(previewed)]
        assert len(previewed) == min(len(made), INVOICES)
        self.compared += len(previewed)


def _bill(ref: str, as_of: datetime) -> None:
    done = outcomes.bill_one(ref, Options(as_of=as_of))
    assert done.outcome in ("finalised", "nothing_due"), (done.outcome, done.detail, done.traceback)


def simulate(seed: int, months: int) -> None:
    simulator = PreviewFirst(seed, Traits(months=months))
    try:
        simulator.run()
    except BaseException:
        for simulated in simulator.subscriptions:
            print("\n".join(["", simulated.ref, *simulated.log]))
        raise


@pytest.mark.parametrize("seed", range(2_000, 2_025))
def test_the_preview_is_what_runs_make(seed: int) -> None:
    simulate(seed, months=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3_000, 3_500))
def test_the_preview_is_what_runs_make_over_two_years(seed: int) -> None:
    simulate(seed, months=24)
