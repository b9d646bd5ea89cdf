"""A provider's PostgreSQL, whose master is no superuser: the SQL of deploy.md, and everything after it."""

import re

import psycopg
import pytest

from tests.deployment.servers import ROOT, manage, started

PAGE = ROOT / "docs/how-to/operations/deploy.md"


def statements() -> list[str]:
    """The SQL of the page, for other names: the server of the tests has roles of these already."""
    (sql,) = re.findall(r"```sql\n(CREATE ROLE ledger_owner.*?)```", PAGE.read_text(), re.DOTALL)
    named = sql.replace("ledger_owner", "managed_owner").replace("ledger_app", "managed_app")
    named = named.replace("DATABASE ledger ", "DATABASE managed ").replace("'…'", "'secret'")
    return [line.split(";")[0] for line in named.splitlines() if line]


@pytest.mark.slow
@pytest.mark.parametrize("grants_membership", [True, False], ids=["as the page says", "control: without the membership"])
def test_a_master_with_createrole_and_createdb_sets_everything_up(grants_membership: bool) -> None:
    with started() as server:
        with psycopg.connect(server.credentials.maintenance_url, autocommit=True) as superuser:
            superuser.execute("CREATE ROLE master LOGIN CREATEROLE CREATEDB PASSWORD 'secret'")
            superuser.execute("GRANT pg_read_all_stats TO master WITH ADMIN OPTION")
        with psycopg.connect(server.credentials.url("master", "secret", "postgres"), autocommit=True) as master:
            for statement in statements():
                if not grants_membership and "CURRENT_USER" in statement:
                    continue
                if not grants_membership and "DATABASE" in statement:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        master.execute(statement)
                    return
                master.execute(statement)
        environment = {
            "DATABASE_URL": server.credentials.url("managed_app", "secret", "managed"),
            "LEDGER_OWNER_DATABASE_URL": server.credentials.url("managed_owner", "secret", "managed"),
            "LEDGER_APP_ROLE": "managed_app",
        }
        assert "The database is ready" in manage(server, "prepare_database", **environment)
        said = manage(server, "doctor", codes=(0, 1), **environment)
        assert "FAILED" not in said
        assert "Clean: no violations found." in manage(server, "audit_ledger", **environment)
