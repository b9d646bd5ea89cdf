"""What `make convince` printed is kept for each release, whole and well-formed, and the page shows it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.release import build
from deploy.release.convincing import PARTS, MalformedResult, Part, Result, path_of, read_result, write_result
from deploy.release.sources import UnfitSources
from tests.benchmarks.tables import placed
from tests.convince import record
from tests.convince.record import PAGE, ROOT, parts_of, releases, results, table

PRINTED = """
Models
======

  spends, as it is: holds in all 1,200 states
  spends, without the lock: broken after 2 steps: each entry is what the entries before it allow
      1. a reads
      2. b reads
  late usage, as it is: holds in all 34 states

Models: as it is to be, 25 s

Histories, judged by Porcupine
==============================


1,040 answers: 1,000 granted, 40 read; 3 lost; 2 connections cut, 3 servers killed
........                                                                 [100%]
8 passed in 36.10s

Histories, judged by Porcupine: NOT AS IT IS TO BE, 36 s

"""
MACHINE = {"processor": "x", "cores": 2, "memory_gib": 1.5, "python": "3.11.7", "load_before": 0.5}
RESULT = Result("9.9.9", "12345678", "2026-11-29", MACHINE, tuple(Part(part, 1, True, ("1 passed in 1s",)) for part in PARTS))


def test_what_is_kept_of_a_run_are_its_figures() -> None:
    assert list(parts_of(PRINTED.splitlines())) == [
        Part("Models", 25, True, ("3 models: 2 hold, in 1,234 states; 1 break",)),
        Part(
            "Histories, judged by Porcupine", 36, False,
            ("1,040 answers: 1,000 granted, 40 read; 3 lost; 2 connections cut, 3 servers killed", "8 passed in 36.10s"),
        ),
    ]  # fmt: skip


def test_the_page_shows_each_release_and_says_which_was_not_run() -> None:
    page = (ROOT / PAGE).read_text()
    assert placed(page, table(results(), releases())) == page
    shown = table({"9.9.9": RESULT}, ["9.9.9", "9.9.8"])
    assert "| **9.9.9** | 2026-11-29, commit 12345678 | 2 cores (x), 1.5 GiB, Python 3.11.7; load before: 0.5 | 4 |" in shown
    assert "| | Models | 1 passed in 1s | 1 |" in shown
    assert "| **9.9.8** | not run | | |" in shown


def git(*words: str) -> str:
    """What git prints in this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def test_each_result_that_is_kept_came_out_as_promised_and_names_a_commit() -> None:
    for release, result in results().items():
        assert release in releases()
        assert result.is_as_promised
        # A clone without the history does not know the commit.
        assert git("cat-file", "-t", result.commit) == "commit" or git("rev-parse", "--is-shallow-repository") == "true"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"release": "9.9.8"}, "release is '9.9.8'"),
        ({"commit": 7}, "commit has to be of the type str"),
        ({"date": "yesterday"}, "date has to be a day"),
        ({"machine": {}}, "machine has to have the fields processor, cores, memory_gib, python, load_before"),
        ({"machine": MACHINE | {"cores": "2"}}, "cores has to be of the type int"),
        ({"parts": []}, "parts has to have 'Models', "),
        ({"parts": [{"part": "Models"}]}, "parts has to have the fields part, seconds, is_as_promised, figures"),
        (
            {"parts": [{"part": "Models", "seconds": 1, "is_as_promised": True, "figures": []}]},
            "figures of 'Models' has to be a list of sentences",
        ),
        ({"more": 1}, "the file has to have the fields release, commit, date, machine, parts"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_malformed_result_is_refused_by_field_and_rule(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write_result(tmp_path, RESULT)
    assert read_result(path) == RESULT
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(MalformedResult, match=message):
        read_result(path)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "9.9.9.json"
    path.write_text("{")
    with pytest.raises(MalformedResult, match=r"9\.9\.9\.json: no JSON"):
        read_result(path)


def test_nothing_is_kept_of_a_run_that_did_not_come_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(record, "_lines_of_run", lambda clone: iter(PRINTED.splitlines()))
    monkeypatch.setattr(record, "write_result", pytest.fail)
    monkeypatch.setattr("sys.argv", ["record", "HEAD"])
    assert record.main() == 1
    assert "Nothing is kept" in capsys.readouterr().err


# A release asks for it --------------------------------------------------------------------------------


def commit_of(root: Path) -> None:
    """Commit everything that differs in a clone."""
    for words in (["add", "--all"], ["-c", "user.name=x", "-c", "user.email=x@x.example", "commit", "--quiet", "-m", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True)


@pytest.mark.slow
def test_a_release_with_a_day_is_refused_without_its_result_or_with_one_that_is_malformed_or_not_as_promised(
    tmp_path: Path,
) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, root], check=True)
    version = next(iter(releases()))
    path = path_of(root, version)
    path.unlink(missing_ok=True)
    changelog = root / "CHANGELOG.md"
    changelog.write_text(re.sub(rf"^## {version} .*$", f"## {version} (unreleased)", changelog.read_text(), flags=re.MULTILINE))
    (root / "more").touch()
    commit_of(root)
    assert build.build_release(target, builders=(), root=root).version == version
    changelog.write_text(changelog.read_text().replace(f"## {version} (unreleased)", f"## {version} (2026-11-30)"))
    commit_of(root)
    with pytest.raises(UnfitSources, match=f"make convince RECORD=HEAD has not run for {version}"):
        build.build_release(target, builders=(), root=root)
    broken = tuple(Part(part, 1, part != "Models", ("1 passed in 1s",)) for part in PARTS)
    for text, message in (
        ("{}", "the file has to have the fields"),
        (
            write_result(root, Result(version, "1", "2026-11-29", MACHINE, broken)).read_text(),
            "did not come out as promised: Models",
        ),
    ):
        path.write_text(text)
        commit_of(root)
        with pytest.raises(UnfitSources, match=message):
            build.build_release(target, builders=(), root=root)
        assert not (target / build.SUMS).exists()
    write_result(root, Result(version, "1", "2026-11-29", MACHINE, RESULT.parts))
    commit_of(root)
    assert build.build_release(target, builders=(), root=root).version == version
