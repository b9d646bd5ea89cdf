import pytest

pytestmark = pytest.mark.django_db


def test_x():
    from django.db import connection

    with connection.cursor() as c:
        c.execute("select current_user, current_setting('lock_timeout'), current_setting('statement_timeout')")
        assert c.fetchone() == ("ledger_owner", "2s", "30s")


def test_app(app_role_connection):
    assert app_role_connection.execute("select current_user").fetchone() == ("ledger_app",)


def test_threads(run_threads):
    from django.db import connection

    def work(i):
        with connection.cursor() as c:
            c.execute("select pg_backend_pid()")
            return c.fetchone()[0]

    assert len(set(run_threads(work, 8))) == 8
