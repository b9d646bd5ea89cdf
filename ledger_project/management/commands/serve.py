"""`manage.py serve`, behind `make run`: PostgreSQL if none is given, a prepared database, and the web server, as one thing.

It ends as one thing too. Ctrl-C reaches only this process: the web server has a process group and PostgreSQL a session of its
own, so that each is stopped in order, the web server first. If this process is killed, the kernel tells the web server to
stop, and the next `serve` takes over a database that still runs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections
from django.db.utils import OperationalError, ProgrammingError

from ledger.checks import verify_database
from ledger.errors import Invalid, UnsafeDatabase
from ledger_project import embedded_postgres, web_server
from ledger_project.preloaded import SERVED_BY
from ledger_project.serving import supervisor
from ledger_project.serving.bootstrap import (
    OPERATOR,
    NotTheOwner,
    Secrets,
    connected_as_owner,
    migrate_and_grant_rights,
    seed,
    use_database,
)
from ledger_project.serving.supervisor import HOST, SERVES, EarlyStart, Signals, StartRefused, Stop, begun
from ledger_project.start_guard import web_processes_held_back
from ledger_project.timetable import named
from ledger_project.worker import working_beside


class Command(BaseCommand):
    """Start everything, serve until a signal comes, stop everything."""

    help = "Start PostgreSQL when DATABASE_URL is not set, prepare the database, and serve on 127.0.0.1:$PORT (8000)."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP."""
        try:
            self._serve(web_server.port_from_environment())
        except (StartRefused, embedded_postgres.EmbeddedPostgresError) as error:
            raise CommandError(str(error)) from error
        except supervisor.WebServerDoesNotStay as error:
            raise CommandError("The web server does not stay up; see its output above.") from error
        self.stdout.write("Stopped.")

    def _serve(self, port: int) -> None:
        with suppress(Stop), begun(settings.DATA_DIR, port) as start:
            start.ensure_begun()
            # The web server loads the application while the database comes up and is prepared: a second on another core.
            # Its workers look at it, and answer, only afterwards.
            with (
                web_processes_held_back(settings.DATA_DIR / "preparing.lock") as gate,
                _web_process(port, start.signals) as web,
            ):
                with gate:
                    server = self._database(start)
                    self._migrate_and_grant_rights()
                    made = self._seed()
                    verify_database(connection, needs_lock_timeout=True)
                    connections.close_all()
                    self._announce(made, port)
                database = None if server is None else supervisor.Database(server)
                with working_beside(named(["usage_partitions"])):
                    supervisor.keep_running(web, database)

    # The database

    def _database(self, start: EarlyStart) -> embedded_postgres.Server | None:
        """Wait until the embedded server runs, unless DATABASE_URL names another."""
        server = start.database()
        if server is not None:
            # The port may have changed since the settings were read.
            settings.OWNER_DATABASE_URL = server.owner_url
            use_database(server.application_url)
        return server

    def _migrate_and_grant_rights(self) -> None:
        try:
            with connected_as_owner() as owner:
                migrate_and_grant_rights(owner, verbosity=0)
        except NotTheOwner as error:
            # Right where the owner has prepared it already. Where not, the next step says what is missing.
            self.stderr.write(
                f"This role does not own the database, so serve did not prepare it ({error}); see LEDGER_OWNER_DATABASE_URL."
            )
        except OperationalError as error:
            raise CommandError(f"serve cannot reach the database: {error}") from error
        except UnsafeDatabase as error:
            raise CommandError(f"serve refuses this database: {error}") from error

    def _seed(self) -> Secrets:
        try:
            return seed()
        except Invalid as error:
            raise CommandError(f"LEDGER_BOOTSTRAP_API_KEY {error.facts['detail']}") from error
        except ProgrammingError as error:
            raise CommandError(f"The database is not prepared: run `manage.py prepare_database` as its owner. {error}") from error

    # What the operator sees

    def _announce(self, made: Secrets, port: int) -> None:
        address = f"http://{HOST}:{port}"
        lines = [f"REST      {address}/v1/", f"Docs      {address}/docs", f"Admin     {address}/admin/"]
        if made.admin_password:
            lines.append(f"Login     {OPERATOR} / {made.admin_password}    (shown once)")
        if made.api_key:
            lines.append(f"API key   {made.api_key}    (shown once)")
        self.stdout.write("\n".join(lines))
        self.stdout.flush()


# The web server --------------------------------------------------------------------------------------


@contextmanager
def _web_process(port: int, signals: Signals) -> Iterator[supervisor.WebServer]:
    """For the block, the web server runs in a process group of its own, which is gone afterwards."""
    try:
        # Whatever folder we were called from, it works in the project's.
        os.environ |= {"LEDGER_HOST": HOST, "PORT": str(port), "LEDGER_DATA_DIR": str(settings.DATA_DIR)}
        command = web_server.command_from_environment()
    except ValueError as error:
        raise CommandError(str(error)) from error
    marks = {SERVES: str(settings.DATA_DIR.resolve()), SERVED_BY: str(os.getpid())}
    web = supervisor.WebServer(command, environment=os.environ | marks, folder=settings.BASE_DIR)
    try:
        yield web
    finally:
        with signals.held_back():
            web.stop()
