"""The settings under test: those of the project, on an embedded server of the tests' own.

With LEDGER_TEST_CITUS on a Citus cluster: one of the tests' own if it names the folder that `deploy/citus/build.sh` made, a
running one if it is a superuser's URL of the coordinator.
"""

import os
from pathlib import Path
from zlib import crc32

from psycopg.conninfo import conninfo_to_dict

from ledger_project.serving.postgres import credentials
from ledger_project.serving.postgres.credentials import OWNER
from tests.left_out import importing

_root = Path(__file__).resolve().parent.parent

CITUS = os.environ.get("LEDGER_TEST_CITUS", "")
CITUS_IS_RUNNING = "://" in CITUS
PASSWORD = "only-for-tests"
"""Of the owner's and the application's role, where the tests do not start the server."""
if CITUS:
    os.environ |= {"LEDGER_DISTRIBUTED": "true", "LEDGER_SHARDS": "16"}
if CITUS_IS_RUNNING:
    _at = conninfo_to_dict(CITUS)
    os.environ["DATABASE_URL"] = f"postgresql://{OWNER}:{PASSWORD}@{_at['host']}:{_at.get('port', 5432)}/ledger"

# Never the data directory that `make run` keeps its ledger in. What is found here is left for pytest-xdist's workers.
TEST_DATA_DIR = Path(
    os.environ.setdefault(
        "LEDGER_TEST_DATA_DIR",
        str(Path(os.environ.get("LEDGER_DATA_DIR", _root / ".data")).absolute() / ("test-citus" if CITUS else "test")),
    )
)
USES_EMBEDDED_SERVER = os.environ.setdefault("LEDGER_TEST_ON_EMBEDDED_SERVER", str(not os.environ.get("DATABASE_URL"))) == "True"

os.environ["LEDGER_DATA_DIR"] = str(TEST_DATA_DIR)
# The same whether the docs have been built or not.
os.environ["LEDGER_DOCS_DIR"] = str(TEST_DATA_DIR / "docs")
if USES_EMBEDDED_SERVER:
    # The owner makes the test databases; the server is started in tests/conftest.py.
    os.environ["DATABASE_URL"] = credentials.credentials_of(TEST_DATA_DIR).owner_url

LEFT_OUT = os.environ.get("LEDGER_TEST_WITHOUT", "").split()
"""The applications without which this run is, in a database of its own on the server of the run that has started it."""
WITHOUT: list[str] = []
"""These, and those that need one of them."""

from ledger_project.settings import *  # noqa: E402, F403

if LEFT_OUT:
    WITHOUT = importing.with_those_that_need(set(LEFT_OUT), INSTALLED_APPS)  # noqa: F405
    importing.delete(WITHOUT)
    INSTALLED_APPS = [name for name in INSTALLED_APPS if name not in WITHOUT]  # noqa: F405
    DATABASES["default"]["TEST"] = {"NAME": f"test_without_{crc32(' '.join(LEFT_OUT).encode()):08x}"}  # noqa: F405

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
