"""Workers run the tasks of the timetable when they are due; some tasks run in every worker, others in one worker at a time."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.db import OperationalError, connection

from billing.metering import partitions
from billing.models import ScheduledTask
from ledger.management.end_signals import collect_end_signals
from ledger_project.work import turns, worker
from ledger_project.work.timetable import DAY_S, HOUR_S, MINUTE_S, TIMETABLE, Lane, Task, how_often, named, performer
from ledger_project.work.turns import Ending, take_turn
from ledger_project.work.worker import DatabaseGone, Worker
from tests.deployment.serving.test_serve import wait_until

TASK_OF_EVERY_WORKER = Task("expire_credits", "for a test", MINUTE_S, by_every_worker=True, passing=frozenset({4}))
TASK_OF_ONE_WORKER = Task("usage_partitions", "for a test", DAY_S)


@pytest.fixture
def commands() -> Iterator[mock.Mock]:
    """Replaces the commands by a mock: it records the calls, and its side_effect is how a command ends."""
    with mock.patch.object(turns, "call_command") as called:
        yield called


def commands_called(commands: mock.Mock) -> list[str]:
    """The commands that were called, with their arguments."""
    return [" ".join(call.args) for call in commands.call_args_list]


def test_the_documentation_shows_the_timetable() -> None:
    operations = (settings.BASE_DIR / "docs/how-to/operations/tasks.md").read_text()
    shown = operations.split("<!-- timetable -->\n", 1)[1].split("\n<!-- end of timetable -->", 1)[0]
    rows = [
        f"| `{task.name}` | {task.what} | {how_often(task)} | {performer(task)} | {task.lane} | "
        f"{f'{task.turn_s} s' if task.turn_s else 'no limit'} |"
        for task in TIMETABLE
    ]
    assert shown.splitlines() == ["| task | what it does | when | by | lane | a turn |", "|---|---|---|---|---|---|", *rows]


def test_every_task_is_a_command_with_its_arguments() -> None:
    for task in TIMETABLE:
        command = load_command_class(get_commands()[task.command], task.command)
        command.create_parser("manage.py", task.command).parse_args([*task.arguments, *task.options])
    assert len({task.name for task in TIMETABLE}) == len(TIMETABLE)
    commands = {"deliver_signals", "expire_credits", "generate_invoices", "update_totals", "usage_partitions", "audit_ledger"}
    commands |= {
        "make_recurring_grants",
        "settle_purchases",
        "collect_payments",
        "top_up_accounts",
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


def test_tasks_are_chosen_by_lane() -> None:
    assert {task.lane for task in TIMETABLE} == set(Lane)
    assert {task.name for task in named([], ["outbound"])} == {
        "collect_payments", "deliver_signals", "deliver_mails", "check_vat_ids",
    }  # fmt: skip
    assert named([], ["money", "outbound", "upkeep"]) == TIMETABLE
    assert named(["audit_ledger"], ["money"]) == ()
    with pytest.raises(CommandError, match="no task of audit_ledger is in that lane"):
        call_command("work", "audit_ledger", "--lane", "money")


def test_what_asks_strangers_or_writes_money_has_a_bound_of_time() -> None:
    assert [task.name for task in TIMETABLE if task.turn_s is None and task.lane is not Lane.UPKEEP] == []


@pytest.mark.django_db
def test_a_task_of_one_worker_runs_only_in_the_first_worker(commands: mock.Mock) -> None:
    for _ in range(3):
        for task in (TASK_OF_EVERY_WORKER, TASK_OF_ONE_WORKER):
            take_turn(task)
    assert commands_called(commands) == ["expire_credits", "usage_partitions", "expire_credits", "expire_credits"]
    row = ScheduledTask.objects.get(name="usage_partitions")
    assert (row.exit_code, row.due_at - row.started_at) == (0, timedelta(days=1))
    assert row.finished_at is not None
    assert row.finished_at >= row.started_at


@pytest.mark.django_db
def test_how_a_task_of_every_worker_went_is_on_record_in_one_row(commands: mock.Mock) -> None:
    take_turn(TASK_OF_EVERY_WORKER)
    first = ScheduledTask.objects.get()
    assert (first.name, first.exit_code, first.due_at - first.started_at) == ("expire_credits", 0, timedelta(minutes=1))
    assert first.succeeded_at is not None
    commands.side_effect = SystemExit(3)
    take_turn(TASK_OF_EVERY_WORKER)
    failed = ScheduledTask.objects.get()
    assert (failed.exit_code, failed.succeeded_at, failed.started_at > first.started_at) == (3, first.succeeded_at, True)
    commands.side_effect = SystemExit(4)  # passes: the next run makes it good
    take_turn(TASK_OF_EVERY_WORKER)
    passed = ScheduledTask.objects.get()
    assert (passed.exit_code, passed.succeeded_at is not None and passed.succeeded_at > first.succeeded_at) == (4, True)


@pytest.mark.django_db
@pytest.mark.parametrize("task", [TASK_OF_EVERY_WORKER, TASK_OF_ONE_WORKER], ids=["every worker", "one worker"])
def test_executions_and_failures_of_all_workers_are_counted_with_their_seconds(commands: mock.Mock, task: Task) -> None:
    seen = []
    for ending in (None, SystemExit(1), None):
        commands.side_effect = ending
        take_turn(task)
        row = ScheduledTask.objects.get()
        seen.append((row.executions, row.failures))
        assert row.seconds > 0
        ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1), seconds=100)
    assert seen == [(1, 0), (2, 1), (3, 1)]
    assert row.seconds > 100


@pytest.mark.django_db
def test_a_task_runs_again_when_it_is_due_and_not_before(commands: mock.Mock) -> None:
    take_turn(TASK_OF_ONE_WORKER)
    ScheduledTask.objects.update(due_at=datetime.now(UTC) + timedelta(seconds=60))
    take_turn(TASK_OF_ONE_WORKER)
    assert commands.call_count == 1
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    take_turn(TASK_OF_ONE_WORKER)
    assert commands.call_count == 2


@pytest.mark.django_db
@pytest.mark.parametrize("ending", [SystemExit(1), CommandError("no", returncode=2), ValueError("no"), KeyboardInterrupt()])
def test_a_failed_task_is_due_again_in_an_hour(commands: mock.Mock, ending: BaseException) -> None:
    commands.side_effect = ending
    take_turn(TASK_OF_ONE_WORKER)
    row = ScheduledTask.objects.get()
    assert row.exit_code in (1, 2, 130)
    assert timedelta(seconds=HOUR_S - 1) < row.due_at - row.started_at < timedelta(seconds=HOUR_S + 1)


@pytest.mark.django_db
def test_a_task_of_a_vanished_worker_is_taken_by_another_when_it_is_due_again(commands: mock.Mock) -> None:
    taken = turns._take(TASK_OF_ONE_WORKER)
    assert taken is not None
    assert turns._take(TASK_OF_ONE_WORKER) is None
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    again = turns._take(TASK_OF_ONE_WORKER)
    assert again is not None
    # If the first worker is still alive, its end does not end the task of the second.
    turns._finish(TASK_OF_ONE_WORKER, taken, 0)
    assert ScheduledTask.objects.get().finished_at is None
    turns._finish(TASK_OF_ONE_WORKER, again, 0)
    assert ScheduledTask.objects.get().exit_code == 0


def let_the_hour_pass() -> None:
    """Make every scheduled task due."""
    ScheduledTask.objects.update(due_at=datetime.now(UTC) - timedelta(seconds=1))


@pytest.mark.django_db
def test_a_task_that_takes_longer_than_an_hour_is_not_taken_by_another_worker() -> None:
    taken = turns._take(TASK_OF_ONE_WORKER)
    let_the_hour_pass()
    turns._keep(TASK_OF_ONE_WORKER, taken)
    assert turns._take(TASK_OF_ONE_WORKER) is None
    let_the_hour_pass()
    again = turns._take(TASK_OF_ONE_WORKER)
    assert again is not None, "the control: without a sign of life another worker takes it"
    let_the_hour_pass()
    turns._keep(TASK_OF_ONE_WORKER, taken)
    assert turns._take(TASK_OF_ONE_WORKER) is not None, "a worker keeps only what it took itself"


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
    with mock.patch.object(turns, "_keep", keep), mock.patch.object(turns, "SIGNS_OF_LIFE", 1_000):
        take_turn(task)
    row = ScheduledTask.objects.get()
    assert (row.exit_code, set(calls)) == (0, {(task, row.started_at)})
    assert "usage_partitions: the worker could not renew its claim: no server" in caplog.text
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("keeps ")] == []


def test_of_many_workers_at_the_same_time_one_gets_the_task(run_threads: Callable[..., list[Any]]) -> None:
    for _ in range(5):
        ScheduledTask.objects.filter(name="usage_partitions").update(due_at=datetime.now(UTC) - timedelta(seconds=1))
        taken = run_threads(lambda index: turns._take(TASK_OF_ONE_WORKER), 4)
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
        take_turn(TASK_OF_ONE_WORKER)
        take_turn(TASK_OF_EVERY_WORKER)
    lines = [(record.levelname, record.message, record.facts["exit_code"]) for record in caplog.records]
    assert lines == [("ERROR", "usage_partitions: failed\n3 things are wrong", 1), ("INFO", "expire_credits: done", 4)]


@pytest.mark.django_db
def test_how_a_turn_ended_is_its_exit_code(commands: mock.Mock) -> None:
    endings = {}
    for how in (None, SystemExit(4), SystemExit(1), SystemExit(143), KeyboardInterrupt(), OperationalError("no server")):
        commands.side_effect = how
        endings[repr(how)] = take_turn(TASK_OF_EVERY_WORKER)
    assert list(endings.values()) == [
        Ending.DONE, Ending.DONE, Ending.FAILED, Ending.STOPPED, Ending.STOPPED, Ending.NO_DATABASE,
    ]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("handles_signals", [True, False])
def test_a_turn_whose_time_is_over_is_told_to_end_and_the_next_one_goes_on(commands: mock.Mock, handles_signals: bool) -> None:
    def work(*arguments: str, **streams: StringIO) -> None:
        with collect_end_signals() if handles_signals else nullcontext([]) as received:
            while not received:
                signal.pause()
        raise SystemExit(128 + received[0])

    commands.side_effect = work
    task = Task("expire_credits", "for a test", MINUTE_S, by_every_worker=True, turn_s=1)
    before = signal.getsignal(signal.SIGTERM)
    with mock.patch.object(signal, "setitimer", lambda which, seconds: signal_set(which, seconds and 0.05)):
        assert take_turn(task) is Ending.UNFINISHED
    row = ScheduledTask.objects.get()
    assert (row.exit_code, row.failures, row.succeeded_at is not None) == (0, 0, True)
    assert signal.getsignal(signal.SIGTERM) is before


signal_set = signal.setitimer


@pytest.mark.django_db
def test_a_turn_that_lasted_longer_than_its_interval_is_due_again_at_its_end(commands: mock.Mock) -> None:
    began = datetime.now(UTC) - timedelta(minutes=3)
    turns._note(TASK_OF_EVERY_WORKER, began, 0)
    row = ScheduledTask.objects.get()
    assert row.due_at >= row.finished_at - timedelta(seconds=1)


# Turns as processes ----------------------------------------------------------------------------------


@pytest.fixture
def turn_of(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], Ending]]:
    """What the processes of turns do, by command, instead of a turn; they need no database."""
    found: dict[str, Callable[[], Ending]] = {}
    monkeypatch.setattr(worker, "take_turn", lambda task: found[task.command]())
    monkeypatch.setattr(Worker, "_load_commands", lambda self: None)
    monkeypatch.setattr(worker, "PAUSE_S", 0.005)
    monkeypatch.setattr(worker, "STOP_AGAIN_S", 0.01)
    return found


def task_named(name: str, *, turn_s: int | None = 10, every_s: int = DAY_S) -> Task:
    return Task(name, "for a test", every_s, by_every_worker=True, turn_s=turn_s)


def never_ends() -> Ending:
    while True:
        signal.pause()


def test_a_task_that_never_ends_holds_up_no_other_and_its_process_is_killed_in_the_end(
    turn_of: dict[str, Callable[[], Ending]], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf() -> Ending:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        return never_ends()

    def done() -> Ending:
        (tmp_path / "done").touch()
        return Ending.DONE

    turn_of |= {"deaf": deaf, "quick": done}
    monkeypatch.setattr(worker, "GRACE_S", 0.5)
    one = Worker([task_named("deaf", turn_s=0), task_named("quick")])
    one.run_once()
    assert (tmp_path / "done").exists()
    assert caplog.messages == [
        "deaf: its turn did not end in time; its process is killed", "deaf: its process was ended by signal 9",
    ]  # fmt: skip


def test_a_worker_that_stops_stops_its_turns(turn_of: dict[str, Callable[[], Ending]], tmp_path: Path) -> None:
    def waits() -> Ending:
        with collect_end_signals() as received:
            (tmp_path / "begun").touch()
            while not received:
                time.sleep(0.005)
        (tmp_path / "ended").touch()
        return Ending.STOPPED

    turn_of |= {"waits": waits}
    one = Worker([task_named("waits")])
    thread = threading.Timer(0, lambda: (wait_until((tmp_path / "begun").exists, "begun"), one.stop.set()))
    thread.start()
    one.run()
    thread.join()
    assert (tmp_path / "ended").exists()
    assert one._turns == {}


def test_an_unfinished_turn_goes_on_at_once_and_another_one_when_it_is_due(
    turn_of: dict[str, Callable[[], Ending]], tmp_path: Path
) -> None:
    counted = tmp_path / "counted"
    counted.touch()
    one = Worker([task_named("counts"), task_named("once")])

    def count() -> Ending:
        with counted.open("a") as file:
            file.write("x")
        return Ending.UNFINISHED

    def once() -> Ending:
        with (tmp_path / "once").open("a") as file:
            file.write("x")
        return Ending.DONE

    turn_of |= {"counts": count, "once": once}
    thread = threading.Timer(0, lambda: (wait_until(lambda: len(counted.read_text()) >= 3, "three turns"), one.stop.set()))
    thread.start()
    one.run()
    thread.join()
    assert (tmp_path / "once").read_text() == "x"


def test_a_worker_ends_after_five_rounds_in_a_row_without_a_database(turn_of: dict[str, Callable[[], Ending]]) -> None:
    turn_of |= {"a": lambda: Ending.NO_DATABASE, "b": lambda: Ending.NO_DATABASE}
    one = Worker([task_named("a", every_s=0), task_named("b", every_s=0)])
    with pytest.raises(DatabaseGone):
        one.run()
    assert one._turns_without_database == 2 * worker.ROUNDS_WITHOUT_DATABASE
    one._note_end(one._tasks[0], Ending.DONE)
    assert one._turns_without_database == 0


@pytest.mark.usefixtures("as_application")
def test_a_worker_creates_the_coming_usage_partitions_with_the_applications_role() -> None:
    ScheduledTask.objects.filter(name="usage_partitions").update(due_at=datetime.now(UTC) - timedelta(seconds=1))
    assert [take_turn(task) for task in named(["usage_partitions"])] == [Ending.DONE]
    assert ScheduledTask.objects.get(name="usage_partitions").exit_code == 0
    this_month = datetime.now(UTC).date().replace(day=1)
    names = {one.name for one in partitions.partitions(connection)}
    assert {partitions.name_of(partitions.month_after(this_month, step)) for step in (1, 2, 3, 4)} <= names
