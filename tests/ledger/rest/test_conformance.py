"""The ledger's calls do as the OpenAPI document says, and every path of it is put to that test. See tests/conformance.py."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.keys import api_keys
from ledger_project.api.documents import openapi_document
from ledger_project.serving.web import command
from tests.conformance import OF_THE_LEDGER, PATHS, ensure_conforms
from tests.conftest import Way, wsgi_command


@pytest.fixture
def key(committed_db: None, new_holder: Callable[[], str]) -> str:
    """A new key that may do all of the ledger."""
    return api_keys.create_api_key(name=f"conformance {new_holder()}", scopes=["ledger:admin", "keys:admin", "pages:write"])[1]


@pytest.mark.slow
@pytest.mark.check
def test_the_server_does_as_its_document_says_of_rates(
    key: str, server_processes: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """The few calls of rates and quotes read and write, so they meet each check."""
    ensure_conforms(server_processes(1)[0], key, tmp_path, "rates", examples=1)


@pytest.mark.slow
@pytest.mark.parametrize("way", [command, wsgi_command], ids=["front", "wsgi"])
def test_the_server_does_as_its_document_says(
    key: str, server_processes: Callable[..., list[Any]], tmp_path: Path, way: Way
) -> None:
    ensure_conforms(server_processes(1, way=way)[0], key, tmp_path, *OF_THE_LEDGER, examples=1)


@pytest.mark.slow
def test_the_server_does_so_for_many_made_up_requests(
    key: str, server_processes: Callable[..., list[Any]], tmp_path: Path
) -> None:
    ensure_conforms(server_processes(1)[0], key, tmp_path, *OF_THE_LEDGER, examples=150)


def test_every_path_of_the_document_is_in_one_part_that_is_tested() -> None:
    paths = list(json.loads(openapi_document())["paths"])
    parts = {path: [part for part, wanted in PATHS.items() if re.search(wanted, path)] for path in paths}

    assert len(paths) > 40
    assert {path: found for path, found in parts.items() if len(found) != 1} == {}
