"""Clients that other generators make of the OpenAPI document: each is compiled strictly, and calls a running server."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import RunningServer
from tests.clients.generators.conftest import PROGRAMS, Workshop, ensure_installed

OAPI_CODEGEN = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
DONE = {
    "balances": [100, 70, 80, 60, 65],
    "shortfall": 930,
    "failed": 0,
    "kinds": ["spend", "grant", "capture", "release", "hold", "refund", "spend", "grant"],
}
"""What each program prints: the balances after a grant, a spend, a refund, a hold and a capture; what a refused spend lacked; how
many operations of a batch failed; and the kinds of all entries, the newest first."""


def used(workshop: Workshop, server: RunningServer, *words: str | Path) -> Any:
    """What a program prints that calls the server for a holder of its own."""
    holder = f"generated-{workshop.folder.name[:40].replace('_', '-')}"
    return json.loads(workshop.run(*words, holder, LEDGER_URL=server.url, LEDGER_API_KEY=server.api_key))


@pytest.mark.slow
def test_openapi_python_client(document: Path, python_workshop: Callable[[str], Workshop], running_server: RunningServer) -> None:
    workshop = python_workshop("openapi_python_client")
    workshop.run("openapi-python-client", "generate", "--path", document, "--output-path", "ledger_api", "--meta", "none")
    workshop.run("mypy", "main.py", "ledger_api")
    assert used(workshop, running_server, "python", "main.py") == DONE


@pytest.mark.slow
def test_openapi_typescript_with_openapi_fetch(
    document: Path, node_workshop: Callable[[str], Workshop], running_server: RunningServer
) -> None:
    workshop = node_workshop("openapi_fetch")
    workshop.run("openapi-typescript", document, "--default-non-nullable=false", "--output", "generated/schema.ts")
    workshop.run("tsc")
    assert used(workshop, running_server, "node", "main.js") == DONE


@pytest.mark.slow
def test_openapi_generator_for_python(
    document: Path, python_workshop: Callable[[str], Workshop], running_server: RunningServer
) -> None:
    ensure_installed("java")
    workshop = python_workshop("openapi_generator_python")
    generator = ("openapi-generator-cli", "generate", "-g", "python", "-i", document, "-o", ".")
    workshop.run(*generator, "--additional-properties=packageName=ledger_api")
    # Its templates do without some types, whatever the document.
    workshop.run("mypy", "--check-untyped-defs", "ledger_api")
    workshop.run("mypy", "--strict", "--follow-imports=silent", "main.py")
    assert used(workshop, running_server, "python", "main.py") == DONE


@pytest.mark.slow
def test_openapi_generator_for_typescript_fetch(
    document: Path, node_workshop: Callable[[str], Workshop], python_tools: Path, running_server: RunningServer
) -> None:
    ensure_installed("java")
    workshop = node_workshop("typescript_fetch")
    generator = (python_tools / "openapi-generator-cli", "generate", "-g", "typescript-fetch", "-i", document)
    workshop.run(*generator, "-o", "generated", "--additional-properties=importFileExtension=.js")
    workshop.run("tsc")
    assert used(workshop, running_server, "node", "main.js") == DONE


@pytest.mark.slow
def test_oapi_codegen(document: Path, tmp_path: Path, running_server: RunningServer) -> None:
    ensure_installed("go")
    workshop = Workshop(tmp_path, "")
    shutil.copytree(PROGRAMS / "oapi_codegen", tmp_path, dirs_exist_ok=True)
    (tmp_path / "api").mkdir()
    workshop.install("go", "install", OAPI_CODEGEN, GOBIN=str(tmp_path / "bin"))
    workshop.run("bin/oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "api/api.gen.go", document)
    workshop.install("go", "mod", "download")
    workshop.run("go", "vet", "./...")
    workshop.run("go", "build", "-o", "client", ".")
    assert used(workshop, running_server, "./client") == DONE


@pytest.mark.slow
@pytest.mark.parametrize("linter", ["redocly", "spectral"])
def test_linters_find_no_error(linter: str, document: Path, tmp_path: Path, node_tools: Path) -> None:
    (tmp_path / ".spectral.yaml").write_text('extends: ["spectral:oas"]\n')
    workshop = Workshop(tmp_path, str(node_tools / ".bin"))
    workshop.run(linter, "lint", document, REDOCLY_TELEMETRY="off", REDOCLY_SUPPRESS_UPDATE_NOTICE="true")
