"""The preview of the next invoices, then runs at its instants: every document the same, at random moments of random lives."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from django.db import transaction

from billing import reads
from billing.documents.invoice_payments import record_payment
from billing.generator.options import Options
from billing.generator.run import outcomes, runs
from billing.generator.run.due import DueFilter, due_among
from billing.generator.run.preview import preview_next_invoices
from billing.models import Invoice
from tests.billing.factories import unique
from tests.billing.random_subscriptions.customer_simulator import CustomerSimulator
from tests.billing.random_subscriptions.simulator import Simulator, Traits
from tests.billing.random_subscriptions.test_dry_runs import made_by, rows
from tests.parts import spread

pytestmark = pytest.mark.django_db
INVOICES = 4
GIVEN_BY_RUNS = {"id", "number", "state", "issue_date", "due_date"}
"""What a run gives, or takes from the day on which it comes."""


def to_the_cent(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what only runs give, and without the ids of other invoices in its lines."""
    lines = [line | {"rating": {k: v for k, v in line["rating"].items() if k != "credits"}} for line in document["lines"]]
    return {name: value for name, value in document.items() if name not in GIVEN_BY_RUNS} | {"lines": lines}


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what the runs of the block write; each has its own transactions, as in a TestCase."""
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        yield
        transaction.set_rollback(True)


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
        shown = preview_next_invoices(refs, as_of=now, most=INVOICES)
        assert rows() == before
        made: list[tuple[datetime, dict[str, Any]]] = []
        with rolled_back():
            for as_of in dict.fromkeys([now, *(one.as_of for one in shown)]):
                due = due_among(refs, DueFilter(as_of=as_of))
                made += [(as_of, document) for ref in due for document in made_by(lambda r=ref, a=as_of: _bill(r, a))]  # type: ignore[misc]
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


@pytest.mark.parametrize("seed", spread(range(2_000, 2_025), test=[2_011, 2_017], check=[2_000]))
def test_the_preview_is_what_runs_make(seed: int) -> None:
    simulate(seed, months=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3_000, 3_500))
def test_the_preview_is_what_runs_make_over_two_years(seed: int) -> None:
    simulate(seed, months=24)


class PreviewOfCustomers(CustomerSimulator):
    """The same for all subscriptions of a customer, which share invoices; those that wait for their payment are paid first."""

    def __init__(self, seed: int, traits: Traits) -> None:
        self.moments = random.Random(f"moments {seed}")
        super().__init__(seed, traits)

    def _run_all(self, now: datetime) -> None:
        if self.moments.random() < 0.25:
            self._compare_preview(now)
        super()._run_all(now)

    def _compare_preview(self, now: datetime) -> None:
        refs = [simulated.ref for simulated in self.subscriptions]
        before = rows()
        shown = preview_next_invoices(refs, as_of=now, most=INVOICES)
        assert rows() == before
        made: list[dict[str, Any]] = []
        with rolled_back():
            for simulated in self.subscriptions:
                if simulated.model.activation == "waiting":
                    pk, first = self.first[simulated.ref]
                    record_payment(invoice=pk, payment=unique("pay"), amount_minor=first.due - first.paid)
            for as_of in dict.fromkeys([now, *(one.as_of for one in shown)]):
                made += self._made(as_of)
        previewed = [to_the_cent(one.document) for one in shown]
        assert previewed == [to_the_cent(document) for document in made][: len(previewed)]
        assert len(previewed) == min(len(made), INVOICES)

    def _made(self, as_of: datetime) -> list[dict[str, Any]]:
        """The invoices of a run over the customer; drafts that wait come with the run that makes an invoice of them."""
        known = set(Invoice.objects.filter(customer_id=self.customer_row.pk).exclude(state="draft").values_list("pk", flat=True))
        job = runs.job_for(Options(as_of=as_of), customers=(self.customer_row.ref,))
        assert runs.run(job, on_done=lambda done: None, on_tick=lambda summary: None, stop=lambda: False).failures == 0
        new = Invoice.objects.filter(customer_id=self.customer_row.pk).exclude(state="draft").exclude(pk__in=known)
        return [reads.invoice_document(pk) for pk in new.order_by("series_value").values_list("pk", flat=True)]


@pytest.mark.parametrize("seed", spread(range(4_000, 4_060), test=(), check=[4_000]))
def test_the_preview_of_a_customer_is_what_runs_make(seed: int) -> None:
    """Without usage that is charged within its period: a run that comes only for drafts which wait ends such a charge, too."""
    PreviewOfCustomers(seed, Traits(months=6, running=False)).run()
