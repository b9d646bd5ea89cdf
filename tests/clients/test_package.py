"""The wheel of the Python client, installed where nothing else is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "clients/python"


def run(*words: str | Path) -> str:
    """What a program prints, in a folder and an environment without this project."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "CREDIT_"))}
    return subprocess.run(words, cwd="/", env=environment, check=True, capture_output=True, text=True, timeout=300).stdout


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    run(uv, "build", "--quiet", "--out-dir", tmp_path / "dist", CLIENT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert len(list((tmp_path / "dist").glob("*.tar.gz"))) == 1
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    assert run(python, "-c", "import credit_ledger; print(credit_ledger.Client.spend)").strip()
    assert "typer" not in run(python, "-m", "pip", "list", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]")
    assert "balance" in run(tmp_path / "venv/bin/credit-ledger", "--help")
