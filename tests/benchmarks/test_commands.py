"""Each benchmark is a command, `python -m tests.benchmarks.NAME`, that starts without Django's settings."""

import os
import subprocess
import sys

import pytest

from tests.benchmarks.server import ROOT


@pytest.mark.slow
def test_every_benchmark_can_be_imported_without_settings() -> None:
    files = [path for path in (ROOT / "tests" / "benchmarks").rglob("*.py") if "__name__ ==" in path.read_text()]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    assert "tests.benchmarks.walk" in modules
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    script = f"from importlib import import_module\nfor name in {modules}: import_module(name)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
