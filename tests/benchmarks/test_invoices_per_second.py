"""How many invoices a second one machine makes, by one worker and by four."""

import json
import time

import pytest

from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, use
from tests.concurrency.test_invoices_races import numbers_are_gapless, start_generate_invoices

SUBSCRIPTIONS = 600
GAIN = 1.2
"""Of four workers, on two cores: one worker and its server process keep one core and a half busy by themselves."""


def make_due(count: int) -> str:
    """Subscriptions with two lines each; returns the code of their plan."""
    plan = PlanFactory(prices=[recurring(timing="arrears"), metered()]).code
    customer = CustomerFactory().ref
    for _ in range(count):
        use(SubscriptionFactory(plan=plan, customer=customer), "10", at(1, 5))
    return plan


@pytest.mark.slow
def test_four_workers_make_a_hundred_invoices_a_second_and_more_than_one_makes(committed_db, raw_connection) -> None:
    rates: dict[int, float] = {}
    for workers in (1, 4):
        plan = make_due(SUBSCRIPTIONS)
        began = time.perf_counter()
        process = start_generate_invoices(
            "--as-of", "2026-02-01", "--plan", plan, "--workers", str(workers), "--format", "json", "--no-progress"
        )
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        summary = json.loads(out)
        assert (summary["invoices"], summary["lines"]) == (SUBSCRIPTIONS, 2 * SUBSCRIPTIONS)
        rates[workers] = SUBSCRIPTIONS / summary["seconds"]
        print(f"{workers} workers: {rates[workers]:.0f}/s, {summary['milliseconds']}, {time.perf_counter() - began:.1f} s in all")
    assert numbers_are_gapless(raw_connection(autocommit=True))
    assert rates[4] >= 100
    assert rates[4] >= GAIN * rates[1]
