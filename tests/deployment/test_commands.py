"""Every command of the project has examples that parse, tells programs JSON and people sentences."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.core.management.base import BaseCommand, SystemCheckError
from django.db import DatabaseError, OperationalError
from pytest_django import Settings

from billing.generator.run.outcomes import RunOutcome
from billing.management.run_texts import amount, run_text
from ledger.conf import CHECKS
from ledger.management.commands import expire_credits
from ledger.management.examples import CommandWithExamples
from ledger.models import CreditType
from ledger.services.expiration import ExpirationSummary
from ledger_project.management import overview
from tests.billing.factories import PlanFactory, SubscriptionFactory, recurring

OURS = ("ledger", "billing", "ledger_project")
WITHOUT_JSON = {"serve"}
"""Runs until it is stopped, and tells of it in the log."""


def project_commands() -> Iterator[tuple[str, BaseCommand]]:
    """Name and class of each command of the project."""
    for name, application in sorted(get_commands().items()):
        if str(application).partition(".")[0] in OURS:
            yield name, load_command_class(application, name)


def printed_by(*arguments: str) -> str:
    """What the command prints."""
    out = StringIO()
    with suppress(SystemExit):
        call_command(*arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_every_command_has_examples_that_its_parser_takes_and_its_help_shows() -> None:
    names = []
    for name, command in project_commands():
        parser = command.create_parser("manage.py", name)
        examples: Any = command.examples  # type: ignore[attr-defined]
        assert examples, name
        for typed, does in examples:
            first, *arguments = shlex.split(typed)
            assert (first, does.endswith(".")) == (name, False)
            parser.parse_args(arguments)
            assert f"\n  manage.py {typed}\n      {does}" in parser.format_help()
        names.append(name)
    assert len(names) >= 15


def test_every_command_checks_the_settings_by_which_it_decides_and_no_pages(settings: Settings) -> None:
    for name, command in project_commands():
        assert list(command.requires_system_checks) in ([], [CHECKS]), name
    settings.LEDGER = {"SHARD": 1}
    with pytest.raises(SystemCheckError, match=r"ledger\.E004"):
        call_command("expire_credits", skip_checks=False)
    settings.LEDGER = {}
    settings.BILLING_LIMITS = {"unknown": 1}
    with pytest.raises(SystemCheckError, match=r"billing\.E001"):
        call_command("generate_invoices", skip_checks=False)


class Failing(CommandWithExamples):
    """A command during which the database fails."""

    examples = ()

    def __init__(self, error: DatabaseError) -> None:
        super().__init__()
        self.error = error

    def handle(self, **options: Any) -> None:
        raise self.error


def failure(cause: psycopg.Error) -> DatabaseError:
    """The error as Django raises it."""
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.OperationalError("connection failed:\nno such host"),
        psycopg.errors.ConnectionFailure("connection failed:\nno such host"),
        psycopg.errors.AdminShutdown("connection failed:\nno such host"),
    ],
    ids=["never connected", "a node does not answer", "ended"],
)
def test_a_command_ends_with_a_sentence_where_the_database_does_not_answer(cause: psycopg.Error) -> None:
    with pytest.raises(CommandError, match="The database does not answer: connection failed: no such host") as ended:
        call_command(Failing(failure(cause)), skip_checks=True)
    assert ended.value.returncode == 2


def test_control_any_other_failure_of_the_database_is_not_said_to_be_that() -> None:
    with pytest.raises(OperationalError, match="deadlock"):
        call_command(Failing(failure(psycopg.errors.DeadlockDetected("deadlock"))), skip_checks=True)


def test_every_command_with_output_has_a_form_for_programs() -> None:
    takers = {
        name for name, command in project_commands() if "--format" in command.create_parser("manage.py", name).format_help()
    }
    assert {name for name, _ in project_commands()} - takers == WITHOUT_JSON


def test_no_help_shows_its_examples_twice() -> None:
    for name, command in project_commands():
        assert "manage.py " + name not in command.help, name


def test_the_timetable_and_the_partitions_are_printed_as_json(db: None) -> None:
    tasks = json.loads(printed_by("work", "--list", "--format", "json"))
    audit = {
        "task": "audit_ledger", "lane": "upkeep", "every_seconds": 86_400, "by": "one worker",
        "what": "Check every law of the ledger",
    }  # fmt: skip
    assert audit in tasks
    assert "audit_ledger                 every day     one worker" in printed_by("work", "--list")
    found = json.loads(printed_by("usage_partitions", "--list", "--format", "json"))
    assert [each["name"] for each in found][-1] == "billing_usageevent_default"


# People ----------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_expirations_are_printed_in_sentences() -> None:
    assert re.fullmatch(r"Nothing is due: looked at 0 accounts in 0\.\d s\.\n", printed_by("expire_credits"))
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    due = ExpirationSummary(due=2)
    due.add_credits("usd_cents", expired=120_034)
    due.add_credits("credits", expired=1, released=30)
    text = "2 accounts due: 1 credit, 1,200.34 USD to expire, 30 credits to release. Nothing was written (dry run)."
    assert expire_credits._as_text(due, dry_run=True) == text
    assert (due.expired_credits, due.expired_by_type) == (120_035, {"usd_cents": 120_034, "credits": 1})


@pytest.mark.django_db
def test_what_is_left_of_a_run_of_expirations_is_printed() -> None:
    summary = ExpirationSummary(booked=2, entries=3, busy=1, failed=1, limit_reached=True, failures=["ada: no"])
    summary.add_credits("credits", expired=1_500)
    assert expire_credits._as_text(summary, dry_run=False).splitlines() == [
        "Booked 3 entries for 2 accounts in 0.0 s. Expired: 1,500 credits. Released from holds: nothing.",
        "1 account busy; the next run books them.",
        "The limit was reached; the next run continues.",
        "Failed: ada: no",
    ]


@pytest.mark.django_db
def test_the_text_of_a_run_of_the_generator_is_in_words_and_money() -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="1250.00")]).code
    refs = [SubscriptionFactory(plan=plan).ref for _ in range(2)]
    shown = printed_by("generate_invoices", "--plan", plan, "--as-of", "2026-01-01", "--no-progress").splitlines()
    assert shown[0].startswith("Run            ")
    assert shown[0].endswith(", as of 2026-01-01 00:00:00 UTC")
    assert shown[1:4] == [
        "Subscriptions  2 finalised",
        "Invoices       2 with 2 lines for 2 periods",
        "Billed         EUR 2,500.00 on 2 invoices",
    ]
    assert "_" not in "".join(shown).replace(shown[0], "")
    again = printed_by("generate_invoices", "--plan", plan, "--as-of", "2026-01-01", "--no-progress", "--dry-run")
    assert "(dry run: nothing was written)" in again
    explained = printed_by("generate_invoices", "--explain", refs[0], "--as-of", "2026-01-15").splitlines()
    assert explained[0] == f"Subscription   {refs[0]}, as of 2026-01-15 00:00:00 UTC"
    assert any(line.startswith("Billed         from 2026-01-01 00:00 to 2026-02-01 00:00 UTC: ") for line in explained)
    assert explained[-1].startswith(f"Lock           invoice_gen/{refs[0]}, number ")
    assert printed_by("generate_invoices", "--check").endswith("Clean: the bills follow from the stored data.\n")


@pytest.mark.django_db
def test_the_text_of_a_run_says_why_it_ended_early_and_what_is_never_billed() -> None:
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    summary = {
        "run_id": "r", "as_of": "2026-02-01T00:00:00+00:00", "dry_run": False, "invoices": 0, "lines": 0, "periods": 0,
        "outcomes": dict.fromkeys(RunOutcome, 0),
        "money": {}, "credits_granted": {"usd_cents": 1_000, "credits": 1}, "credits_taken_back": {},
        "credits_spent_on_usage": {}, "late_usage_minor": 0,
        "usage_never_billed": [{"reason": "too late", "meter": "calls", "subscriptions": 1, "events": 2, "value": "7"}],
        "milliseconds": {"p50": 0, "p95": 0, "max": 0}, "seconds": 1.0,
        "limit_reached": True, "time_is_up": True, "workers_lost": 1,
    }  # fmt: skip
    assert run_text(summary).splitlines()[1:] == [
        "Subscriptions  none due",
        "Invoices       0 with 0 lines for 0 periods",
        "Granted        10.00 USD, 1 credit",
        "Never billed   reason too late, meter calls, subscriptions 1, events 2, value 7",
        "Took           1.0 s; an invoice 0 ms, the slowest 0 ms",
        "Ended early    --limit was reached, --max-runtime was reached, lost 1 worker",
    ]


@pytest.mark.parametrize(
    ("minor", "currency", "text"), [(120_450, "EUR", "EUR 1,204.50"), (-5, "USD", "USD -0.05"), (1_200, "JPY", "JPY 1,200")]
)
def test_money_is_written_as_people_write_it(minor: int, currency: str, text: str) -> None:
    assert amount(minor, currency) == text


def test_the_overview_has_each_command_of_ours_with_a_sentence_before_those_of_django() -> None:
    own, _, others = overview.overview().partition("Commands of Django")
    lines = dict(re.findall(r"^  (\w+) +(\S.*)$", own, re.MULTILINE))
    assert {"serve", "work", "generate_invoices", "audit_ledger", "demo", "two_step"} <= set(lines)
    unclear = {name: text for name, text in lines.items() if not re.fullmatch(r"[A-Z]\w+,? .{12,110}\.", text)}
    assert unclear == {}, "a sentence that says what the command does, on one line of a terminal"
    assert "migrate" in others
    assert "migrate" not in lines
    assert [overview.is_asked_for(given) for given in ([], ["help"], ["--help"], ["help", "serve"], ["serve"])] == [
        True, True, True, False, False,
    ]  # fmt: skip
