"""`manage.py prepare_database`: migrate, then give the application's role its rights and the database its timeouts."""

import json
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections

from ledger.database.cluster import NoCluster
from ledger.management.examples import CommandWithExamples
from ledger_project.operators.two_step import UnknownGroups, ensure_groups_exist
from ledger_project.serving.bootstrap import (
    NewerSchema,
    NotPrepared,
    NotTheOwner,
    connected_as_owner,
    ensure_bootstrap_key,
    migrate_and_grant_rights,
    set_settings_of_role,
)
from ledger_project.serving.serve import refusal_of_bootstrap_key


class Command(CommandWithExamples):
    """Run it before each new version starts, as the owner, straight to PostgreSQL. It can run again at any time."""

    help = "Migrate, then give the application's role its rights and the database its timeouts. Idempotent."
    examples = (
        ("prepare_database", "migrate, and give rights and timeouts"),
        ("prepare_database --format json", "for programs"),
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the database of LEDGER_OWNER_DATABASE_URL, or of DATABASE_URL, or the embedded one.

        The key of LEDGER_BOOTSTRAP_API_KEY, if set, exists afterwards.
        """
        if refusal := refusal_of_bootstrap_key():
            raise CommandError(refusal)
        with connected_as_owner() as connection:
            role = connection.settings_dict["USER"]
            try:
                applied = migrate_and_grant_rights(connection, verbosity=_verbosity(options), report=self._report(options))
            except NotTheOwner as error:
                raise CommandError(
                    f"The role {role} may not prepare this database: {error}. "
                    "Set LEDGER_OWNER_DATABASE_URL to the URL of the role that owns the database and its tables."
                ) from error
            except (NoCluster, NewerSchema) as error:
                raise CommandError(f"{error}.") from error
            try:
                ensure_bootstrap_key()
            except NotPrepared as error:
                raise CommandError(str(error)) from error
            try:
                ensure_groups_exist()
            except UnknownGroups as error:
                raise CommandError(f"{error}.") from error
        set_settings_of_role(connections[DEFAULT_DB_ALIAS])
        if options["format"] == "json":
            self.stdout.write(json.dumps({"migrations_applied": applied}))
        else:
            self.stdout.write(self.style.SUCCESS(f"The database is ready; {applied} migrations applied."))

    def _report(self, options: dict[str, Any]) -> Callable[[str], None]:
        """The stream for progress: standard error if the output is JSON."""
        stream: Any = self.stderr if options["format"] == "json" else self.stdout
        report: Callable[[str], None] = stream.write
        return report


def _verbosity(options: dict[str, Any]) -> int:
    """The verbosity of the migrations: 0 if the output is JSON."""
    return 0 if options["format"] == "json" else int(options["verbosity"])
