"""What `make run` says while it starts."""

import pytest

from ledger_project.serving import steps


def test_a_step_says_what_begins_and_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 101.0, 113.5, 115.25])
    monkeypatch.setattr(steps, "monotonic", lambda: next(clock))
    with (
        steps.step("Preparing the database", "The database is ready"),
        steps.step("Making a demo company", "The demo company is made"),
    ):
        pass
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "Preparing the database …",
        "Making a demo company …",
        "The demo company is made (12.5 s)",
        "The database is ready (15.2 s)",
    ]
    assert said.out == ""


def test_a_step_that_fails_does_not_say_that_it_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="full"), steps.step("Starting PostgreSQL", "PostgreSQL has started"):
        raise OSError("full")
    assert capsys.readouterr().err == "Starting PostgreSQL …\n"
