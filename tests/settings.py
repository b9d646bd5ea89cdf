"""The settings under test: those of the project, on an embedded server of the tests' own.

With LEDGER_TEST_CITUS, the folder that `deploy/citus/build.sh` made, on a Citus cluster of the tests' own.
"""

import os
from pathlib import Path

from ledger_project.serving import postgres

_root = Path(__file__).resolve().parent.parent

CITUS = Path(os.environ["LEDGER_TEST_CITUS"]) if os.environ.get("LEDGER_TEST_CITUS") else None
if CITUS:
    os.environ |= {"LEDGER_DISTRIBUTED": "true", "LEDGER_SHARDS": "16"}

# Never the data directory that `make run` keeps its ledger in. What is found here is left for pytest-xdist's workers.
TEST_DATA_DIR = Path(
    os.environ.setdefault(
        "LEDGER_TEST_DATA_DIR",
        str(Path(os.environ.get("LEDGER_DATA_DIR", _root / ".data")).absolute() / ("test-citus" if CITUS else "test")),
    )
)
USES_EMBEDDED_SERVER = os.environ.setdefault("LEDGER_TEST_ON_EMBEDDED_SERVER", str(not os.environ.get("DATABASE_URL"))) == "True"

os.environ["LEDGER_DATA_DIR"] = str(TEST_DATA_DIR)
if USES_EMBEDDED_SERVER:
    # The owner makes the test databases; the server is started in tests/conftest.py.
    os.environ["DATABASE_URL"] = postgres.credentials_of(TEST_DATA_DIR).owner_url

from ledger_project.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
