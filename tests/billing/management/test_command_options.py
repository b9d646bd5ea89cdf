"""`manage.py generate_invoices`: what each option does, and what it says when a name or a number is wrong."""

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from billing.generator.options import Options
from billing.generator.run import outcomes, runs, workers
from billing.generator.run.outcomes import RunOutcome, RunSummary, SubscriptionResult
from billing.management.commands import generate_invoices
from billing.models import Invoice, Run, RunResult
from billing.orders import suspension
from ledger.database import locking
from ledger.errors import HolderBusy
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, use

pytestmark = pytest.mark.django_db

JANUARY = "2026-01-01"


def run(*arguments: str) -> tuple[int, str, str]:
    """The exit code, and what was written to stdout and stderr."""
    out, err = StringIO(), StringIO()
    try:
        call_command("generate_invoices", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def run_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the summary of a run."""
    code, out, _ = run(*arguments, "--format", "json", "--no-progress")
    return code, json.loads(out)


def refused(*arguments: str) -> str:
    """What a refusal with exit code 2 says, and that no run was begun."""
    before = Run.objects.count()
    with pytest.raises(CommandError) as error:
        call_command("generate_invoices", *arguments, stdout=StringIO(), stderr=StringIO())
    assert Run.objects.count() == before
    assert error.value.returncode in (1, 2)
    return str(error.value)


def invoices_of(*refs: str) -> dict[str, int]:
    """How many invoices each subscription has."""
    return {ref: Invoice.objects.filter(subscription_ref=ref).count() for ref in refs}


@pytest.fixture
def plan() -> str:
    """10.00 a month in advance."""
    return PlanFactory(prices=[recurring()]).code


class Clock:
    """A clock for the workers that moves only when something sleeps, or is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.perf_counter = time.perf_counter

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The clock that the workers and the run go by."""
    clock = Clock()
    with mock.patch.object(locking, "time", clock), mock.patch.object(runs, "time", clock):
        yield clock


@contextmanager
def attempts_end_with(*results: SubscriptionResult | None, after: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Attempts to bill give these results, in turn; for None, and after the last, the attempt is really made."""
    left = list(results)
    real = outcomes.bill_one

    def attempt(ref: str, options: Options, *act: Any) -> SubscriptionResult:
        given = left.pop(0) if left else None
        done = real(ref, options, *act) if given is None else SubscriptionResult(ref, given.outcome, given.detail)
        after()
        return done

    with mock.patch.object(workers, "bill_one", attempt):
        yield


BUSY = SubscriptionResult("", RunOutcome.BUSY, "another process makes invoices for it")
FAILED = SubscriptionResult("", RunOutcome.FAILED, "ZeroDivisionError: division by zero")
DEFERRED = SubscriptionResult("", RunOutcome.DEFERRED, "a deadlock (40P01)")


# Which subscriptions ---------------------------------------------------------------------------------


def test_customer_and_currency_choose_the_subscriptions(plan: str) -> None:
    dollars = PlanFactory(prices=[recurring()], currency="USD").code
    ada, grace = CustomerFactory().ref, CustomerFactory().ref
    euro_of_ada = SubscriptionFactory(plan=plan, customer=ada).ref
    dollar_of_ada = SubscriptionFactory(plan=dollars, customer=ada).ref
    euro_of_grace = SubscriptionFactory(plan=plan, customer=grace).ref
    code, _ = run_json("--as-of", JANUARY, "--customer", ada, "--currency", "USD")
    assert (code, invoices_of(euro_of_ada, dollar_of_ada, euro_of_grace)) == (
        0, {euro_of_ada: 0, dollar_of_ada: 1, euro_of_grace: 0},
    )  # fmt: skip
    run_json("--as-of", JANUARY, "--customer", ada)
    assert invoices_of(euro_of_ada, euro_of_grace) == {euro_of_ada: 1, euro_of_grace: 0}
    run_json("--as-of", JANUARY, "--currency", "EUR", "--plan", plan)
    assert invoices_of(euro_of_ada, euro_of_grace) == {euro_of_ada: 1, euro_of_grace: 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--customer", "NOPE"), "--customer: unknown customer NOPE"),
        (("--plan", "NOPE"), "--plan: unknown plan NOPE"),
        (("--subscription", "NOPE", "--dry-run"), "--subscription: unknown subscription NOPE"),
        (("--currency", "XXX"), "invalid choice: 'XXX'"),
        (("--explain", "NOPE"), "--explain: subscription 'NOPE' does not exist"),
        (("--max-runtime", "-1"), "must be 0 to 604800 seconds"),
        (("--max-runtime", "nan"), "must be 0 to 604800 seconds"),
        (("--retry-wait", "soon"), "'soon' is not a number of seconds"),
        (("--max-periods", "0"), "must be at least 1"),
        (("--late-lookback", "-1"), "must not be negative"),
        (("--max-failures", "few"), "'few' is not a whole number"),
        (("--as-of", "9999-12-31", "--allow-future"), "'9999-12-31' must be in the years 2000 to 2200, in UTC"),
    ],
)
def test_unknown_names_and_wrong_numbers_are_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(*arguments)


def test_a_run_id_is_used_once(plan: str) -> None:
    run_id = str(uuid.uuid4())
    run_json("--as-of", JANUARY, "--plan", plan, "--run-id", run_id)
    assert refused("--as-of", JANUARY, "--plan", plan, "--run-id", run_id) == f"--run-id: run {run_id} already exists"


def test_an_unknown_subscription_is_refused_and_nothing_is_billed(plan: str) -> None:
    good, runs_before = SubscriptionFactory(plan=plan).ref, Run.objects.count()
    said = refused("--as-of", JANUARY, "--subscription", "NOPE", "--subscription", good, "--no-progress")
    assert (said, invoices_of(good)) == ("--subscription: unknown subscription NOPE", {good: 0})
    assert Run.objects.count() == runs_before


def test_what_is_suspended_is_billed_only_when_included(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    suspension.suspend(ref=ref, reason="looks-odd")
    code, summary = run_json("--as-of", JANUARY, "--plan", plan)
    assert (code, sum(summary["outcomes"].values()), invoices_of(ref)) == (0, 0, {ref: 0})
    code, summary = run_json("--as-of", JANUARY, "--plan", plan, "--include-suspended")
    assert (code, summary["outcomes"]["finalised"], invoices_of(ref)) == (0, 1, {ref: 1})


def test_nothing_due_is_said_and_what_is_due_is_listed_in_each_format(plan: str) -> None:
    as_of = "2026-01-01T00:00:00+00:00"
    arguments = ("--as-of", JANUARY, "--plan", plan, "--list-due")
    assert run(*arguments) == (0, "", f"No subscription is due as of {as_of}.\n")
    assert run_json(*arguments) == (0, {"as_of": as_of, "count": 0, "due": []})
    one, other = sorted(SubscriptionFactory(plan=plan).ref for _ in range(2))
    code, listed = run_json(*arguments)
    assert (code, listed["count"], sorted(listed["due"])) == (0, 2, [one, other])
    assert run(*arguments, "--subscription", one) == (0, f"{one}\n", "")
    assert run(*arguments, "--subscription", one, "--format", "jsonl")[1] == json.dumps({"subscription": one}) + "\n"
    assert invoices_of(one, other) == {one: 0, other: 0}


# As of, and how much at once -------------------------------------------------------------------------


def test_the_future_is_for_dry_runs_unless_it_is_insisted_on(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    tomorrow = (timezone.now() + timedelta(days=1)).isoformat()
    arguments = ("--as-of", tomorrow, "--plan", plan)
    assert "lies in the future" in refused(*arguments)
    code, dry = run_json(*arguments, "--dry-run")
    assert (code, dry["invoices"], invoices_of(ref)) == (0, 1, {ref: 0})
    assert run(*arguments, "--list-due")[1] == f"{ref}\n"
    code, summary = run_json(*arguments, "--allow-future")
    assert (code, summary["invoices"], invoices_of(ref)) == (0, 1, {ref: 1})


def test_max_periods_takes_the_oldest_first_and_the_next_run_goes_on(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    steps = [run_json("--as-of", "2026-03-01", "--plan", plan, "--max-periods", "2")[1]["periods"] for _ in range(3)]
    assert steps == [2, 1, 0]
    assert list(Invoice.objects.filter(subscription_ref=ref).order_by("id").values_list("total_minor", flat=True)) == [2000, 1000]


# When a run ends early -------------------------------------------------------------------------------


def test_a_run_without_time_begins_nothing_and_says_so(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    code, summary = run_json("--as-of", JANUARY, "--plan", plan, "--max-runtime", "0")
    assert (code, summary["exit_code"], summary["time_is_up"], invoices_of(ref)) == (6, 6, True, {ref: 0})
    assert Run.objects.get(pk=summary["run_id"]).exit_code == 6


@pytest.mark.parametrize("more", [(), ("--workers", "1")])
def test_a_run_whose_time_is_up_finishes_what_it_is_at(plan: str, clock: Clock, more: tuple[str, ...]) -> None:
    refs = [SubscriptionFactory(plan=plan).ref for _ in range(3)]

    def a_second_passes() -> None:
        clock.now += 1

    with attempts_end_with(after=a_second_passes):
        code, summary = run_json("--as-of", JANUARY, "--plan", plan, "--max-runtime", "2", *more)
    assert (code, summary["time_is_up"], sorted(invoices_of(*refs).values())) == (6, True, [0, 1, 1])
    # With all of it done in time, or nothing left to do, there is nothing to say.
    code, summary = run_json("--as-of", JANUARY, "--plan", plan, "--max-runtime", "2")
    assert (code, summary["time_is_up"], sum(invoices_of(*refs).values())) == (0, False, 3)
    assert run_json("--as-of", JANUARY, "--plan", plan, "--max-runtime", "0")[0] == 0


@pytest.mark.parametrize(
    ("more", "failed", "billed"),
    [((), 2, 1), (("--fail-fast",), 1, 0), (("--max-failures", "0"), 1, 0), (("--max-failures", "1"), 2, 0),
     (("--max-failures", "2"), 2, 1)],
)  # fmt: skip
def test_failures_end_a_run_when_asked_to(plan: str, more: tuple[str, ...], failed: int, billed: int) -> None:
    bad, worse, good = (SubscriptionFactory(plan=plan).ref for _ in range(3))
    refs = [word for ref in (bad, worse, good) for word in ("--subscription", ref)]
    with attempts_end_with(FAILED, FAILED):
        code, summary = run_json("--as-of", JANUARY, *refs, *more)
    assert (code, summary["outcomes"]["failed"], invoices_of(good)) == (3, failed, {good: billed})


# What has to wait ------------------------------------------------------------------------------------


def test_what_is_busy_is_tried_again_after_a_while(plan: str, clock: Clock) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    with attempts_end_with(BUSY, DEFERRED):
        code, summary = run_json("--as-of", JANUARY, "--plan", plan, "--retry-busy", "2", "--retry-wait", "0.5")
    assert (code, summary["outcomes"]["finalised"], invoices_of(ref)) == (0, 1, {ref: 1})
    assert (sum(clock.slept), max(clock.slept)) == (1.0, 0.2)


def test_subscriptions_that_stay_busy_or_deferred_are_reported_and_stored_with_the_reason(plan: str, clock: Clock) -> None:
    busy, deferred = SubscriptionFactory(plan=plan).ref, SubscriptionFactory(plan=plan).ref
    refs = ("--subscription", busy, "--subscription", deferred)
    with attempts_end_with(BUSY, DEFERRED):
        code, out, _ = run("--as-of", JANUARY, *refs, "--retry-busy", "0", "--no-progress", "--format", "jsonl")
    *results, summary = map(json.loads, out.splitlines())
    assert [(one["subscription"], one["outcome"], one["detail"]) for one in results] == [
        (busy, "busy", "another process makes invoices for it"), (deferred, "deferred", "a deadlock (40P01)"),
    ]  # fmt: skip
    assert code == generate_invoices.ONLY_BUSY_LEFT == 4
    assert (summary["outcomes"]["busy"], summary["outcomes"]["deferred"], clock.slept) == (1, 1, [])
    rows = RunResult.objects.filter(run_id=summary["run_id"]).values_list("subscription_ref", "outcome", "detail")
    assert set(rows) == {(one["subscription"], one["outcome"], one["detail"]) for one in results}
    with attempts_end_with(BUSY, DEFERRED):
        assert run("--as-of", JANUARY, *refs, "--retry-busy", "0", "--no-progress")[2].splitlines() == [
            f"{busy}: busy: another process makes invoices for it", f"{deferred}: deferred: a deadlock (40P01)",
        ]  # fmt: skip
    assert invoices_of(busy, deferred) == {busy: 0, deferred: 0}


def test_a_reason_is_what_the_generator_met(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    met = mock.Mock(side_effect=HolderBusy(key="ledger/ada"))
    done = outcomes.bill_one(ref, Options(as_of=at(1, 1)), met)
    assert (done.outcome, done.detail) == (RunOutcome.DEFERRED, "The holder is busy: key 'ledger/ada'.")


def test_a_run_that_reached_its_limit_still_counts_what_was_busy(plan: str) -> None:
    refs = [SubscriptionFactory(plan=plan).ref for _ in range(3)]
    words = [word for ref in refs for word in ("--subscription", ref)]
    with attempts_end_with(BUSY):
        code, summary = run_json("--as-of", JANUARY, *words, "--limit", "1")
    assert code == generate_invoices.LIMIT_REACHED == 5
    assert (summary["limit_reached"], summary["outcomes"]["busy"], summary["outcomes"]["finalised"]) == (True, 1, 1)


def test_what_is_busy_is_counted_while_it_happens(plan: str, clock: Clock) -> None:
    for _ in range(2):
        SubscriptionFactory(plan=plan)
    job = runs.job_for(Options(as_of=at(1, 1)), plans=(plan,))
    seen: list[int] = []

    def look(so_far: RunSummary) -> None:
        seen.append(so_far.waiting)

    with attempts_end_with(BUSY, BUSY):
        summary = runs.run(job, on_done=lambda done: None, on_tick=look, stop=lambda: False)
    assert (max(seen), seen[-1], summary.waiting, summary.invoices) == (2, 0, 0, 2)


def test_elsewhere_than_on_a_terminal_the_log_says_how_far_a_run_is(plan: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        SubscriptionFactory(plan=plan)
    with mock.patch.object(generate_invoices, "LOG_EVERY_S", 0), attempts_end_with(BUSY), caplog.at_level(logging.INFO):
        run("--as-of", JANUARY, "--plan", plan, "--retry-wait", "0")
    lines = [record.message for record in caplog.records if record.name == generate_invoices.__name__]
    assert any(", 1 busy, 0 failed" in line for line in lines)
    assert lines[-1].startswith("2 invoices, ")
    assert logging.getLogger(generate_invoices.__name__).isEnabledFor(logging.INFO)

    caplog.clear()
    with mock.patch.object(generate_invoices, "LOG_EVERY_S", 0):
        run("--as-of", JANUARY, "--plan", plan, "--no-progress")
    assert not caplog.records


def test_on_a_terminal_the_line_counts_what_is_busy() -> None:
    stream = mock.Mock(isatty=lambda: True)
    progress = generate_invoices._Progress(stream, shown=True)
    progress._last -= 2
    progress.tick(RunSummary(aside={0: 2, 1: 1}))
    assert ", 3 busy, 0 failed" in stream.write.call_args.args[0]


def test_late_usage_is_not_looked_for_with_a_lookback_of_zero() -> None:
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[metered()]).code)
    only = ("--subscription", subscription.ref, "--late-lookback")
    run_json("--as-of", "2026-02-01", *only, "0")
    use(subscription, "100", at(1, 5))
    assert run_json("--as-of", "2026-03-01", *only, "0")[1]["late_usage_minor"] == 0
    assert run_json("--as-of", "2026-04-01", *only[:-1])[1]["late_usage_minor"] == 200
