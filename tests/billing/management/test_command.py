"""`manage.py generate_invoices` in one process: what it shows, what it leaves, and with which code it ends."""

import json
from collections import Counter
from io import StringIO
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing.auditing import consistency
from billing.generator.options import Options
from billing.generator.run import workers
from billing.generator.run.due import DueFilter, DueWalk, how_many
from billing.generator.run.generate import generate
from billing.generator.run.outcomes import RunOutcome, RunSummary, SubscriptionResult
from billing.management.commands import generate_invoices
from billing.models import Invoice, NumberSeries, Run, RunResult
from billing.orders import suspension
from ledger.database.statements import fetch_value
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, metered, recurring, use

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> tuple[int, str]:
    """The exit code and what was written to stdout."""
    out = StringIO()
    try:
        call_command("generate_invoices", *arguments, "--no-progress", stdout=out, stderr=StringIO())
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def run_json(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the summary of a run."""
    code, out = run(*arguments, "--format", "json")
    return code, json.loads(out)


@pytest.fixture
def plan() -> str:
    """10.00 a month in advance, and 0.02 per call."""
    return PlanFactory(prices=[recurring(), metered()]).code


def test_the_command_bills_what_is_due_and_nothing_the_second_time(plan: str) -> None:
    refs = [SubscriptionFactory(plan=plan).ref for _ in range(3)]
    use(SubscriptionFactory(plan=plan, started_at=at(6, 1)), "1", at(6, 2))
    code, first = run_json("--as-of", "2026-02-01", "--plan", plan)
    assert (code, first["outcomes"]["finalised"], first["outcomes"]["nothing_due"]) == (0, 3, 1)
    assert first["money"] == {"EUR": {"invoices": 3, "total_minor": 6000, "credits_applied_minor": 0}}
    assert Invoice.objects.filter(subscription_ref__in=refs).count() == 3
    code, second = run_json("--as-of", "2026-02-01", "--plan", plan)
    assert (code, second["invoices"], second["outcomes"]["nothing_due"]) == (0, 0, 0)


def test_a_dry_run_has_the_figures_of_the_real_one_and_leaves_nothing(plan: str) -> None:
    for _ in range(3):
        use(SubscriptionFactory(plan=plan), "50", at(1, 9))
    before = (Invoice.objects.count(), Run.objects.count(), RunResult.objects.count())
    _, dry = run_json("--as-of", "2026-02-01", "--plan", plan, "--dry-run")
    assert (Invoice.objects.count(), Run.objects.count(), RunResult.objects.count()) == before
    _, real = run_json("--as-of", "2026-02-01", "--plan", plan)
    for name in ("money", "invoices", "lines", "periods", "outcomes"):
        assert dry[name] == real[name]


def test_the_limit_is_kept_and_said(plan: str) -> None:
    for _ in range(3):
        SubscriptionFactory(plan=plan)
    code, summary = run_json("--as-of", "2026-01-01", "--plan", plan, "--limit", "2")
    assert (code, summary["invoices"], summary["limit_reached"]) == (5, 2, True)


def test_failures_and_suspended_ones_end_with_3_and_the_others_are_billed(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good, suspended, failing = (SubscriptionFactory(plan=plan).ref for _ in range(3))
    suspension.suspend(ref=suspended, reason="looks-odd")
    refs = [word for ref in (good, suspended, failing) for word in ("--subscription", ref)]
    real = workers.bill_one

    def attempt(ref: str, *arguments: Any) -> SubscriptionResult:
        return SubscriptionResult(ref, RunOutcome.FAILED, "ZeroDivisionError") if ref == failing else real(ref, *arguments)

    monkeypatch.setattr(workers, "bill_one", attempt)
    code, summary = run_json("--as-of", "2026-01-01", *refs)
    assert code == 3
    assert {name: count for name, count in summary["outcomes"].items() if count} == {"finalised": 1, "suspended": 1, "failed": 1}
    rows = RunResult.objects.filter(run_id=summary["run_id"]).values_list("subscription_ref", "outcome")
    assert set(rows) == {(good, "finalised"), (suspended, "suspended"), (failing, "failed")}
    assert Run.objects.get(pk=summary["run_id"]).exit_code == 3


def test_one_kind_only_and_drafts(plan: str) -> None:
    subscription = SubscriptionFactory(plan=plan)
    use(subscription, "50", at(1, 9))
    _, usage = run_json("--as-of", "2026-02-01", "--plan", plan, "--only", "usage", "--draft")
    assert usage["outcomes"]["created"] == 1
    assert list(Invoice.objects.filter(subscription_ref=subscription.ref).values_list("state", "scope", "total_minor")) == [
        ("draft", "usage", 100)
    ]


def test_jsonl_has_a_line_per_subscription_and_the_summary_last(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    _, out = run("--as-of", "2026-01-01", "--plan", plan, "--format", "jsonl")
    one, summary = (json.loads(line) for line in out.splitlines())
    assert (one["subscription"], one["outcome"], one["invoices"][0]["total_minor"]) == (ref, "finalised", 1000)
    assert summary["exit_code"] == 0


def test_what_is_due_is_listed_without_doing_it(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    assert run("--as-of", "2026-01-01", "--plan", plan, "--list-due") == (0, f"{ref}\n")
    assert not Invoice.objects.filter(subscription_ref=ref).exists()


def test_a_subscription_is_explained(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    generate(ref=ref, options=Options(as_of=at(1, 1)))
    _, explanation = run_json("--as-of", "2026-02-01", "--explain", ref)
    assert explanation["due"] == "recurring_due_at 2026-02-01T00:00:00+00:00 has passed"
    [claim] = explanation["newest_claims"]
    assert (claim["kind"], claim["price_key"], claim["amount_minor"]) == ("recurring", "base", 1000)
    assert [(one["price_key"], one["plan_code"], one["plan_version"]) for one in explanation["versions"]][:2] == [
        ("", plan, 1),
        ("base", plan, 1),
    ]
    assert explanation["lock"]["name"] == f"invoice_gen/{ref}"


def test_an_explanation_names_prices_plans_and_kinds(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    generate(ref=ref, options=Options(as_of=at(1, 1)))
    _, text = run("--as-of", "2026-02-01", "--explain", ref)
    assert f"Ordered        the subscription on {plan} v1, from 2026-01-01 00:00 to no end" in text
    assert f"Ordered        quantity 1 of base on {plan} v1, from 2026-01-01 00:00 to no end" in text
    assert (
        "Billed         from 2026-01-01 00:00 to 2026-02-01 00:00 UTC: kind recurring, price key base, amount minor 1000" in text
    )
    assert "None" not in text


def test_the_check_finds_nothing_after_ordinary_life(plan: str) -> None:
    SubscriptionFactory(plan=plan)
    run("--as-of", "2026-03-01", "--plan", plan)
    code, found = run_json("--check")
    e_invoices = found.pop("e_invoices")
    assert (code, found) == (0, {"findings": [], "count": 0, "usage_never_billed": []})
    assert (e_invoices["documents"], e_invoices["lacking"], e_invoices["broken"]) == (1, 1, 0)  # nobody said who invoices


def test_the_check_takes_as_long_as_there_are_documents() -> None:
    bounds = []

    def record(execute: Any, sql: str, *more: Any) -> Any:
        if sql in consistency.CHECKS.values():
            bounds.append(fetch_value(str, "SHOW statement_timeout"))
        return execute(sql, *more)

    with connection.execute_wrapper(record):
        run("--check")
    assert set(bounds) == {"0"}


def test_the_check_finds_a_hole_a_wrong_sum_and_an_orphan(plan: str) -> None:
    ref = SubscriptionFactory(plan=plan).ref
    run("--as-of", "2026-01-01", "--plan", plan, "--draft")
    draft = Invoice.objects.get(subscription_ref=ref)
    Invoice.objects.filter(pk=draft.pk).update(subtotal_minor=1, total_minor=1, amount_due_minor=1, subscription_id=0)
    NumberSeries.objects.update_or_create(name="INV", defaults={"last_value": 10**9})
    code, found = run_json("--check")
    assert code == 1
    assert {one["finding"] for one in found["findings"]} == {
        "series does not match its documents", "lines do not add up to the invoice", "orphan", "line without its claim",
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("--as-of", "2999-01-01"),
        ("--as-of", "yesterday"),
        ("--workers", "0"),
        ("--draft", "--finalize"),
        ("--as-of", "2026-01-01T00:00:00"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_done(plan: str, arguments: tuple[str, ...]) -> None:
    SubscriptionFactory(plan=plan)
    with pytest.raises(CommandError):
        call_command("generate_invoices", "--plan", plan, *arguments, stdout=StringIO(), stderr=StringIO())
    assert (Invoice.objects.count(), Run.objects.count()) == (0, 0)


def test_a_terminal_shows_how_long_the_rest_takes() -> None:
    progress = generate_invoices._Progress(Mock(isatty=lambda: True), shown=True)
    progress.expected = 3600 * 3 + 1
    assert progress._time_left(RunSummary(outcomes=Counter(finalised=1)), progress._began + 2.0) == ", 6:00:00 left"
    assert progress._time_left(RunSummary(), progress._began + 2.0) == ""


def test_how_many_are_due_is_what_the_walk_finds() -> None:
    plan = PlanFactory().code
    for _ in range(3):
        SubscriptionFactory(plan=plan)
    due_filter = DueFilter(as_of=at(1, 1), plans=(plan,))
    assert how_many(due_filter) == len(list(DueWalk(due_filter))) == 3
