"""`manage.py prepare_database`: migrate, then give the application's role its rights and the database its timeouts."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ledger_project.serving.bootstrap import NotTheOwner, connected_as_owner, ensure_bootstrap_key, migrate_and_grant_rights


class Command(BaseCommand):
    """Run it before each new version starts, as the owner, straight to PostgreSQL. It can be run again at any time."""

    help = "Migrate, then give the application's role its rights and the database its timeouts. Idempotent."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare the database of LEDGER_OWNER_DATABASE_URL, or of DATABASE_URL, or the embedded one.

        The key of LEDGER_BOOTSTRAP_API_KEY, if set, exists afterwards.
        """
        with connected_as_owner() as connection:
            role = connection.settings_dict["USER"]
            try:
                applied = migrate_and_grant_rights(connection, verbosity=options["verbosity"])
            except NotTheOwner as error:
                raise CommandError(
                    f"The role {role} may not prepare this database: {error}. "
                    "Set LEDGER_OWNER_DATABASE_URL to the URL of the role that owns the database and its tables."
                ) from error
            ensure_bootstrap_key()
        self.stdout.write(self.style.SUCCESS(f"The database is ready; {applied} migrations applied."))
