"""The progress line of long commands: shown where rich is installed, and nothing that a command needs."""

import pytest

from ledger.management import progress


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
