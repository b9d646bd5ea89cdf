"""The settings under test: those of the project, on an embedded server of the tests' own."""

import os
from pathlib import Path

from ledger_project import embedded_postgres

_root = Path(__file__).resolve().parent.parent

# Never the data directory that `make run` keeps its ledger in. What is found here is left for pytest-xdist's workers.
TEST_DATA_DIR = Path(
    os.environ.setdefault(
        "LEDGER_TEST_DATA_DIR", str(Path(os.environ.get("LEDGER_DATA_DIR", _root / ".data")).absolute() / "test")
    )
)
USES_EMBEDDED_SERVER = os.environ.setdefault("LEDGER_TEST_ON_EMBEDDED_SERVER", str(not os.environ.get("DATABASE_URL"))) == "True"

os.environ["LEDGER_DATA_DIR"] = str(TEST_DATA_DIR)
if USES_EMBEDDED_SERVER:
    # The owner makes the test databases; the server is started in tests/conftest.py.
    os.environ["DATABASE_URL"] = embedded_postgres.owner_url(TEST_DATA_DIR)

from ledger_project.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
