"""Schemathesis against a running server: some thousand requests, good ones and bad ones, made from the OpenAPI document.

No answer is a 500; every answer has a status, a media type and a body that the document has for that call; what it forbids
is refused, and so is a call without a key.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger import services

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)


@pytest.fixture
def key(committed_db: None, new_holder: Callable[[], str]) -> str:
    """A key of its own that may do all of the ledger."""
    return services.create_api_key(name=f"conformance {new_holder()}", scopes=["ledger:admin"])[1]


def run_schemathesis(url: str, key: str, folder: Path, paths: str) -> subprocess.CompletedProcess[str]:
    """Run it on the calls whose path matches; what it says is in stdout."""
    command = [
        str(Path(sys.executable).with_name("st")),
        "run",
        f"{url}/v1/schema",
        "--include-path-regex",
        paths,
        "--header",
        f"Authorization: Bearer {key}",
        "--checks",
        ",".join(CHECKS),
        "--mode",
        "all",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "25",
        "--seed",
        "1",
        "--generation-database",
        "none",
        "--suppress-health-check",
        "all",
        "--continue-on-failure",
        "--no-color",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def test_the_server_does_as_its_document_says(key: str, server_processes: Callable[..., list[Any]], tmp_path: Path) -> None:
    web = server_processes(1)[0]
    ran = run_schemathesis(web.url, key, tmp_path, r"^/(v1/(holders|batches|rates|quotes)\b|healthz|readyz)")
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2_000:]
    assert "internal-error" not in web.log.read_text()
