"""Workers run the tasks of the timetable when they are due; some tasks run in every worker, others in one worker at a time."""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.db import OperationalError, connection

from billing.metering import partitions
from billing.models import ScheduledTask
from ledger_project.work import worker
from ledger_project.work.timetable import DAY_S, HOUR_S, MINUTE_S, TIMETABLE, Task, how_often, named, performer
from ledger_project.work.worker import DatabaseGone, Worker

TASK_OF_EVERY_WORKER = Task("expire_credits", "for a test", MINUTE_S, by_every_worker=True, passing=frozenset({4}))
TASK_OF_ONE_WORKER = Task("usage_partitions", "for a test", DAY_S)


@pytest.fixture
def commands() -> Iterator[mock.Mock]:
    """Replaces the commands by a mock: it records the calls, and its side_effect is how a command ends."""
    with mock.patch.object(worker, "call_command") as called:
        yield called


def commands_called(commands: mock.Mock) -> list[str]:
    """The commands that were called, with their arguments."""
    return [" ".join(call.args) for call in commands.call_args_list]


def test_the_documentation_shows_the_timetable() -> None:
    operations = (settings.BASE_DIR / "docs/how-to/operations/tasks.md").read_text()
    shown = operations.split("<!-- timetable -->\n", 1)[1].split("\n<!-- end of timetable -->", 1)[0]
    rows = [f"| `{task.name}` | {task.what} | {how_often(task)} | {performer(task)} |" for task in TIMETABLE]
    assert shown.splitlines() == ["| task | what it does | when | by |", "|---|---|---|---|", *rows]


def test_every_task_is_a_command_with_its_arguments() -> None:
    for task in TIMETABLE:
        command = load_command_class(get_commands()[task.command], task.command)
        command.create_parser("manage.py", task.command).parse_args(list(task.arguments))
    assert len({task.name for task in TIMETABLE}) == len(TIMETABLE)
    commands = {"deliver_signals", "expire_credits", "generate_invoices", "update_totals", "usage_partitions", "audit_ledger"}
    commands |= {
        "make_recurring_grants",
        "settle_purchases",
        "collect_payments",
        "move_subscriptions",
        "deliver_mails",
        "check_vat_ids",
        "expire_subscriptions",
        "send_reminders",
    }
    assert {task.command for task in TIMETABLE} == commands


def test_tasks_are_chosen_by_name() -> None:
    assert named([]) == TIMETABLE
    assert [task.name for task in named(["audit_ledger", "generate_invoices --check"])] == [
        "audit_ledger",
        "generate_invoices --check",
    ]
    with pytest.raises(CommandError, match="unknown task 'NOPE'; the tasks are audit_ledger, ") as refused:
        call_command("work", "NOPE")
    assert refused.value.returncode == 2
    out = StringIO()
    call_command("work", "--list", stdout=out)
    assert [line.split("every")[0].strip() for line in out.getvalue().splitlines()] == [task.name for task in TIMETABLE]


@pytest.mark.django_db
def test_a_task_of_one_worker_runs_only_in_the_first_worker(commands: mock.Mock) -> None:
    for _ in range(3):
        Worker([TASK_OF_EVERY_WORKER, TASK_OF_ONE_WORKER]).do_what_is_due()
    assert commands_called(commands) == ["expire_credits", "usage_partitions", "expire_credits", "expire_credits"]
    row = ScheduledTask.objects.get(name="usage_partitions")
    assert (row.exit_code, row.due_at - row.started_at) == (0, timedelta(days=1))
    assert row.finished_at is not None
    assert row.finished_at >= row.started_at


@pytest.mark.django_db
def test_how_a_task_of_every_worker_went_is_on_record_in_one_row(commands: mock.Mock) -> None:
    Worker([TASK_OF_EVERY_WORKER]).do_what_is_due()
    first = ScheduledTask.objects.get()
    assert (first.name, first.exit_code, first.due_at - first.started_at) == ("expire_credits", 0, timedelta(minutes=1))
    assert first.succeeded_at is not None
    commands.side_effect = SystemExit(3)
    Worker([TASK_OF_EVERY_WORKER]).do_what_is_due()
    failed = ScheduledTask.objects.get()
    assert (failed.exit_code, failed.succeeded_at, failed.started_at > first.started_at) == (3, first.succeeded_at, True)
    commands.side_effect = SystemExit(4)  # passes: the next run makes it good
    Worker([TASK_OF_EVERY_WORKER]).do_what_is_due()
    passed = ScheduledTask.objects.get()
    assert (passed.exit_code, passed.succeeded_at is not None and passed.succeeded_at > first.succeeded_at) == (4, True)


@pytest.mark.django_db
@pytest.mark.parametrize("task", [TASK_OF_EVERY_WORKER, TASK_OF_ONE_WORKER], ids=["every worker", "one worker"])
def test_executions_and_failures_of_all_workers_are_counted_with_their_seconds(commands: mock.Mock, task: Task) -> None:
    seen = []
    for ending in (None, SystemExit(1), None):
        commands.side_effect = ending
        Worker([task]).do_what_is_due()
        row = ScheduledTask.objects.get()
        seen.append((row.executions, row.failures))
        assert row.seconds > 0
        ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1), seconds=100)
    assert seen == [(1, 0), (2, 1), (3, 1)]
    assert row.seconds > 100


@pytest.mark.django_db
def test_a_task_runs_again_when_it_is_due_and_not_before(commands: mock.Mock) -> None:
    Worker([TASK_OF_ONE_WORKER]).do_what_is_due()
    ScheduledTask.objects.update(due_at=datetime.now(UTC) + timedelta(seconds=60))
    Worker([TASK_OF_ONE_WORKER]).do_what_is_due()
    assert commands.call_count == 1
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    Worker([TASK_OF_ONE_WORKER]).do_what_is_due()
    assert commands.call_count == 2


@pytest.mark.django_db
@pytest.mark.parametrize("ending", [SystemExit(1), CommandError("no", returncode=2), ValueError("no"), KeyboardInterrupt()])
def test_a_failed_task_is_due_again_in_an_hour(commands: mock.Mock, ending: BaseException) -> None:
    commands.side_effect = ending
    Worker([TASK_OF_ONE_WORKER]).do_what_is_due()
    row = ScheduledTask.objects.get()
    assert row.exit_code in (1, 2, 130)
    assert timedelta(seconds=HOUR_S - 1) < row.due_at - row.started_at < timedelta(seconds=HOUR_S + 1)


@pytest.mark.django_db
def test_a_task_of_a_vanished_worker_is_taken_by_another_when_it_is_due_again(commands: mock.Mock) -> None:
    taken = worker._take(TASK_OF_ONE_WORKER)
    assert taken is not None
    assert worker._take(TASK_OF_ONE_WORKER) is None
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    again = worker._take(TASK_OF_ONE_WORKER)
    assert again is not None
    # If the first worker is still alive, its end does not end the task of the second.
    worker._finish(TASK_OF_ONE_WORKER, taken, 0)
    assert ScheduledTask.objects.get().finished_at is None
    worker._finish(TASK_OF_ONE_WORKER, again, 0)
    assert ScheduledTask.objects.get().exit_code == 0


def let_the_hour_pass() -> None:
    """Make every scheduled task due."""
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))


@pytest.mark.django_db
def test_a_task_that_takes_longer_than_an_hour_is_not_taken_by_another_worker() -> None:
    taken = worker._take(TASK_OF_ONE_WORKER)
    let_the_hour_pass()
    worker._keep(TASK_OF_ONE_WORKER, taken)
    assert worker._take(TASK_OF_ONE_WORKER) is None
    let_the_hour_pass()
    again = worker._take(TASK_OF_ONE_WORKER)
    assert again is not None, "the control: without a sign of life another worker takes it"
    let_the_hour_pass()
    worker._keep(TASK_OF_ONE_WORKER, taken)
    assert worker._take(TASK_OF_ONE_WORKER) is not None, "a worker keeps only what it took itself"


@pytest.mark.django_db
def test_a_worker_gives_signs_of_life_until_its_task_ends_also_when_one_fails(
    commands: mock.Mock, caplog: pytest.LogCaptureFixture
) -> None:
    kept_twice, calls = threading.Event(), []

    def keep(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            raise OperationalError("no server")
        kept_twice.set()

    def work(*arguments: str, **streams: StringIO) -> None:
        assert kept_twice.wait(60)

    commands.side_effect = work
    task = Task("usage_partitions", "for a test", DAY_S, retry_s=1)
    with mock.patch.object(worker, "_keep", keep), mock.patch.object(worker, "SIGNS_OF_LIFE", 1_000):
        Worker([task]).do_what_is_due()
    row = ScheduledTask.objects.get()
    assert (row.exit_code, set(calls)) == (0, {(task, row.started_at)})
    assert "usage_partitions: the worker could not renew its claim: no server" in caplog.text
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("keeps ")] == []


def test_of_many_workers_at_the_same_time_one_gets_the_task(run_threads: Callable[..., list[Any]]) -> None:
    for _ in range(5):
        ScheduledTask.objects.filter(name="usage_partitions").update(due_at=datetime.now(UTC) - timedelta(seconds=1))
        taken = run_threads(lambda index: worker._take(TASK_OF_ONE_WORKER), 4)
        assert sum(one is not None for one in taken) == 1


@pytest.mark.django_db
def test_a_failure_is_logged_with_its_message_and_the_other_tasks_still_run(
    commands: mock.Mock, caplog: pytest.LogCaptureFixture
) -> None:
    def end(command: str, *arguments: str, stdout: StringIO, stderr: StringIO) -> None:
        stdout.write("3 things are wrong")
        if command == "usage_partitions":
            raise SystemExit(1)
        raise SystemExit(4)

    commands.side_effect = end
    with caplog.at_level(logging.INFO):
        Worker([TASK_OF_ONE_WORKER, TASK_OF_EVERY_WORKER]).do_what_is_due()
    lines = [(record.levelname, record.message, record.facts["exit_code"]) for record in caplog.records]
    assert lines == [("ERROR", "usage_partitions: failed\n3 things are wrong", 1), ("INFO", "expire_credits: done", 4)]


@pytest.mark.django_db
def test_a_worker_ends_after_five_rounds_in_a_row_without_a_database(
    commands: mock.Mock, caplog: pytest.LogCaptureFixture
) -> None:
    commands.side_effect = OperationalError("no server")
    one = Worker([TASK_OF_EVERY_WORKER])
    for _ in range(worker.ROUNDS_WITHOUT_DATABASE - 1):
        one.do_what_is_due()
        one._looks_at["expire_credits"] = 0
    commands.side_effect = None
    one.do_what_is_due()
    commands.side_effect = OperationalError("no server")
    for _ in range(worker.ROUNDS_WITHOUT_DATABASE - 1):
        one._looks_at["expire_credits"] = 0
        one.do_what_is_due()
    one._looks_at["expire_credits"] = 0
    with pytest.raises(DatabaseGone):
        one.do_what_is_due()
    assert commands.call_count == 2 * worker.ROUNDS_WITHOUT_DATABASE


@pytest.mark.django_db
def test_a_signal_ends_the_worker_after_its_task(commands: mock.Mock) -> None:
    commands.side_effect = SystemExit(143)
    one = Worker([TASK_OF_EVERY_WORKER, TASK_OF_ONE_WORKER])
    one.run()
    assert (commands_called(commands), one.stop.is_set()) == (["expire_credits"], True)


@pytest.mark.usefixtures("as_application")
def test_a_worker_creates_the_coming_usage_partitions_with_the_applications_role() -> None:
    ScheduledTask.objects.filter(name="usage_partitions").update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    Worker(named(["usage_partitions"])).do_what_is_due()
    assert ScheduledTask.objects.get(name="usage_partitions").exit_code == 0
    this_month = datetime.now(UTC).date().replace(day=1)
    names = {one.name for one in partitions.partitions(connection)}
    assert {partitions.name_of(partitions.month_after(this_month, step)) for step in (1, 2, 3, 4)} <= names
