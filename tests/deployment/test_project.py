"""The project's own machinery: make's targets, the layers, the pinned requirements."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import LONGEST_FIRST

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    said = subprocess.run(["make", "--silent"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in said.splitlines()} == set(phony[1].split())


def test_the_files_that_are_tested_first_exist() -> None:
    assert [name for name in LONGEST_FIRST if not (ROOT / "tests" / name).is_file()] == []


def test_ci_runs_make_check_which_ends_with_make_test() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake check")
    checks = re.search(r"^check: ([a-z ]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert checks is not None
    assert checks[1].split() == ["lint", "types", "layers", "migrations", "test"]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_pinned_by_hash_from_no_particular_index(name: str) -> None:
    text = (ROOT / name).read_text()
    pinned = re.findall(r"^([a-z0-9._-]+(?:\[[a-z,-]+\])?==\S+)[^\n]*\\\n    --hash=sha256:", text, re.MULTILINE)
    named = re.findall(r"^[a-z0-9]\S*", text, re.MULTILINE)
    assert len(pinned) == len(named) > 30
    assert "://" not in text


def test_the_runtime_requirements_have_the_versions_that_are_tested() -> None:
    def versions(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,-]+\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE))

    tested = versions("requirements-dev.txt")
    assert {name: version for name, version in versions("requirements.txt").items() if tested.get(name) != version} == {}


def test_a_module_in_no_layer_breaks_the_build(tmp_path: Path) -> None:
    """The control: the same tree without `ledger/utils.py` keeps the contract."""
    for package in ("ledger", "billing", "ledger_project"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    lint = [BIN / "lint-imports", "--no-cache", "--contract", "ledger-rooms"]
    control = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert control.returncode == 0, control.stdout
    (tmp_path / "ledger" / "utils.py").write_text('"""Things."""\n')
    broken = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert "utils" in broken.stdout


def test_the_license_file_and_the_metadata_name_the_mit_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
