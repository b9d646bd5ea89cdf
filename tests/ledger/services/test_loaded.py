"""What a project loads that has only the ledger and imports only its use-cases: nothing that can be left out."""

import sys
from types import FrameType

import pytest

from ledger import services
from ledger_project.settings import BASE_DIR
from tests.reading import loaded_modules

MOST_FILES = 26
MOST_MODULES, MOST_LINES = 73, 15_150


def test_who_imports_the_use_cases_loads_the_core_alone() -> None:
    loaded = loaded_modules()
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    others = "audit cluster exchange json_values keys portal reads responses rest scopes"
    others += " shadow signals staff statements totals typesetting"
    assert "execute" in {name.rpartition(".")[2] for name in loaded}
    assert rooms & set(others.split()) == set()
    assert not [name for name in loaded if name.startswith("billing")]
    assert (len(loaded) <= MOST_MODULES, sum(loaded.values()) <= MOST_LINES) == (True, True), (len(loaded), sum(loaded.values()))


@pytest.mark.django_db
def test_a_spend_runs_through_few_files() -> None:
    """Who reads what happens in a spend reads functions of these files; what a process does once, at first, is not counted."""
    services.grant(holder_id="ada", amount=100, idempotency_key="order-1", actor="shop")
    services.spend(holder_id="ada", amount=30, idempotency_key="job-1")
    files: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        files.add(frame.f_code.co_filename)

    traced = sys.gettrace()
    sys.settrace(note)
    try:
        services.spend(holder_id="ada", amount=30, idempotency_key="job-2")
    finally:
        sys.settrace(traced)
    ours = sorted(file for file in files if file.startswith(f"{BASE_DIR}/ledger/"))
    assert f"{BASE_DIR}/ledger/journal.py" in ours
    assert len(ours) <= MOST_FILES, ours
