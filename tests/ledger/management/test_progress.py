"""The progress line of long commands: shown where rich is installed, and nothing that a command needs."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from io import StringIO
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import call_command, get_commands
from django.core.management.base import OutputWrapper

from ledger.management import progress
from ledger_project.management.overview import OWN

QUICK = {
    "api_keys": "one key, or a bounded list",
    "books": "sums that closing a month has made",
    "deliver_signals": "it runs until it is ended, and the gauges say what waits",
    "doctor": "a bounded number of checks",
    "erase_customer": "one customer",
    "export_customer": "one customer",
    "ledger_report": "sums that closing a month has made",
    "locks": "what is held now",
    "prepare_database": "each step prints a line",
    "seller": "one row",
    "serve": "it runs until it is ended, and says what it starts",
    "shadow_report": "sums of what was compared",
    "two_step": "one operator",
    "usage_partitions": "some months",
    "work": "it runs until it is ended, and logs each task",
}
"""The commands that show no progress, and why they need none."""
SHOWS = ("progress_of(", "stop_with_progress(", "_Progress(")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def lines_of(seconds: list[float], updates: list[tuple[int, int | None]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a command writes with --verbosity 2 if it calls at these seconds after its begin."""
    clock: Iterator[float] = iter([0.0, *seconds])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    written = StringIO()
    with progress.progress_of(OutputWrapper(written), {"verbosity": 2}, "Checking", "entries") as update:
        for done, total in updates:
            update(done, total)
    return written.getvalue().splitlines()


def test_verbose_lines_say_how_many_of_how_many_and_how_long_the_rest_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2,500 of 10,000 took 11 s, so 7,500 take 33 s; the update in between comes too soon after the line before.
    updates: list[tuple[int, int | None]] = [(100, 10_000), (2_500, 10_000), (2_600, 10_000), (10_000, 10_000)]
    assert lines_of([1, 11, 12, 44], updates, monkeypatch) == [
        "Checking: 2,500 of 10,000 entries, about 0:00:33 left",
        "Checking: 10,000 of 10,000 entries",
    ]


def test_verbose_lines_leave_out_a_total_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of([1, 11], [(5, None), (2_500, None)], monkeypatch) == ["Checking: 2,500 entries"]


@pytest.mark.parametrize("options", [{}, {"verbosity": 1}, {"verbosity": 2, "no_progress": True}, {"verbosity": 0}])
def test_pipes_and_logs_get_no_progress_and_a_run_counts_nothing_for_it(options: dict[str, Any]) -> None:
    written = StringIO()
    count = Mock(return_value=2)
    with progress.stop_with_progress([], OutputWrapper(written), options, "Sending", "mails", count) as stop:
        assert stop() is False
    assert (written.getvalue(), count.call_count) == ("", 0)
    shown = [progress.is_shown(OutputWrapper(Terminal()), {"verbosity": each}) for each in (0, 1)]
    assert shown == [False, True]


def test_a_run_stops_at_a_signal_while_it_shows_its_progress() -> None:
    received: list[int] = []
    with progress.stop_with_progress(
        received, OutputWrapper(StringIO()), {"verbosity": 2}, "Sending", "mails", lambda: 2
    ) as stop:
        assert stop() is False
        received.append(15)
        assert stop() is True


@pytest.mark.django_db
def test_a_command_shows_its_progress_on_standard_error_only() -> None:
    for command, verbosity, expected in (
        ("generate_invoices", 1, ""), ("generate_invoices", 2, "laws"), ("deliver_mails", 2, "Sending: 0 of 0 mails"),
    ):  # fmt: skip
        arguments = ["--check"] if command == "generate_invoices" else []
        out, err = StringIO(), StringIO()
        call_command(command, *arguments, "--format", "json", verbosity=verbosity, stdout=out, stderr=err)
        assert expected in err.getvalue()
        assert bool(err.getvalue()) is bool(expected)
        assert out.getvalue().startswith("{")


def test_every_command_shows_its_progress_or_says_why_it_needs_none() -> None:
    own = {name: str(app) for name, app in get_commands().items() if str(app).partition(".")[0] in OWN}
    shows = {
        name
        for name, app in own.items()
        if any(each in inspect.getsource(import_module(f"{app}.management.commands.{name}")) for each in SHOWS)
    }
    assert shows | QUICK.keys() == own.keys()
    assert not shows & QUICK.keys()


def shown_on_standard_error(capsys: pytest.CaptureFixture[str]) -> str:
    """What a bar of 10 entries leaves on standard error."""
    with progress.progress_bar("Checking", "entries", shown=True) as update:
        update(5, 10)
    return capsys.readouterr().err


def test_with_rich_the_line_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The control: without a terminal, rich only ends the line."""
    assert shown_on_standard_error(capsys) == "\n"


def test_without_rich_there_is_no_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert shown_on_standard_error(capsys) == ""
