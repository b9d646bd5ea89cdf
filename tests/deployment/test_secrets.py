"""Each secret of a deployment has its row in docs/how-to/operations/security.md, and can be replaced while calls are served."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from psycopg import sql

from ledger import conf, services
from tests.conftest import _conninfo

ROOT = Path(settings.BASE_DIR)
PAGE = ROOT / "docs/how-to/operations/security.md"
SOUNDS_SECRET = re.compile(r"SECRET|PASSWORD|KEY|TOKEN|SALT|DATABASE_URL|EMAIL_URL")
NO_SECRETS = {
    "LEDGER_LOCK_KEY_SCHEME", "LEDGER_KEY_REQUESTS_PER_SECOND", "LEDGER_KEY_CONCURRENT_REQUESTS",
    "SECRET_KEY_FALLBACKS",  # stands in the row of SECRET_KEY
}  # fmt: skip


def rows() -> str:
    """The first column of the table."""
    (table,) = re.findall(r"^\| secret \|.*?\n\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(line.split("|")[1] for line in table.strip().splitlines())


def test_every_secret_of_a_deployment_has_its_row() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]+)`", (ROOT / "docs/how-to/operations/settings.md").read_text()))
    named |= set(re.findall(r"^(?:# )?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    named |= {f"LEDGER_{setting.name}" for setting in conf.SETTINGS}
    named |= set(re.findall(r"env\.\w+\(\s*\"([A-Z_]+)\"", (ROOT / "ledger_project/settings.py").read_text()))
    secret = {name for name in named if SOUNDS_SECRET.search(name)} - NO_SECRETS
    assert {"SECRET_KEY", "DATABASE_URL", "LEDGER_METRICS_TOKEN", "LEDGER_STRIPE_EVENT_SECRET", "POSTGRES_PASSWORD"} <= secret
    assert {name for name in secret if f"`{name}`" not in rows()} == set()
    assert named >= NO_SECRETS, "a name that there is no more"


SPEND = """
from ledger import services
print(services.spend(holder_id={holder!r}, amount=30, idempotency_key="job").balance)
"""


@pytest.mark.slow
@pytest.mark.check
def test_a_second_role_serves_while_the_password_of_the_first_ends(committed_db: None, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    services.grant(holder_id=holder, amount=100, idempotency_key="order")
    role = sql.Identifier("ledger_app_2")
    with psycopg.connect(_conninfo("superuser"), autocommit=True) as superuser:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'second' IN ROLE ledger_app").format(role))
        try:
            at = superuser.info
            url = f"postgresql://ledger_app_2:second@{quote(at.host, safe='')}:{at.port}/{quote(at.dbname, safe='')}"
            environment = {"PATH": os.environ["PATH"], "SECRET_KEY": "only-for-tests", "DATABASE_URL": url}
            words = [sys.executable, "manage.py", "shell", "--verbosity", "0", "--command", SPEND.format(holder=holder)]
            done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            assert (done.stdout.strip(), done.returncode) == ("70", 0), done.stderr
            with psycopg.connect(url, autocommit=True) as second, pytest.raises(psycopg.errors.InsufficientPrivilege):
                second.execute("UPDATE ledger_entry SET amount = -1 WHERE holder_id = %s", [holder])
        finally:
            superuser.execute(sql.SQL("DROP ROLE {}").format(role))
