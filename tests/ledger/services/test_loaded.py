"""What a project loads that has only the ledger and imports only its use-cases: nothing that can be left out."""

import subprocess
import sys

from ledger_project.settings import BASE_DIR

MOST_MODULES, MOST_LINES = 82, 14_950
LOAD = """
import sys, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["ledger"], USE_TZ=True)
django.setup()
from ledger import services
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("ledger", "billing"):
        with open(module.__file__) as file:
            print(name, sum(1 for _ in file))
"""


def test_who_imports_the_use_cases_loads_the_core_alone() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=BASE_DIR, capture_output=True, text=True, check=True)
    loaded = {name: int(lines) for name, lines in (line.split() for line in done.stdout.splitlines())}
    rooms = {name.split(".")[1] for name in loaded if "." in name}
    others = "admin api audit cluster exchange portal reads signals statements totals typesetting"
    assert "execute" in {name.rpartition(".")[2] for name in loaded}
    assert rooms & set(others.split()) == set()
    assert not [name for name in loaded if name.startswith("billing")]
    assert (len(loaded) <= MOST_MODULES, sum(loaded.values()) <= MOST_LINES) == (True, True), (len(loaded), sum(loaded.values()))
