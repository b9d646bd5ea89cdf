"""Commands whose help ends with examples, which a test runs."""

from typing import Any, ClassVar, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import InterfaceError, OperationalError

from ledger import conf
from ledger.database.locks import sqlstate
from ledger.errors import UnsafeDatabase

NO_ANSWER: Final = ("08", "57P")
"""The beginnings of SQLSTATEs that mean: a server, or a node of a cluster, cannot be reached or has ended the session."""


class HelpWithExamples(DjangoHelpFormatter):
    """Keeps the lines of the examples unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class CommandWithExamples(BaseCommand):
    """A command with `examples`: pairs of the arguments behind `manage.py` and their effect.

    It checks the settings by which it decides, as `manage.py check` does, and starts in two thirds of the time.
    """

    examples: ClassVar[tuple[tuple[str, str], ...]]
    requires_system_checks: list[str] | tuple[str, ...] = [conf.CHECKS]

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; end with a sentence and exit code 2 if the database does not answer or is not safe to use."""
        try:
            return super().execute(*args, **options)
        except UnsafeDatabase as unsafe:
            raise CommandError(f"This database is refused. {unsafe}.", returncode=2) from unsafe
        except (OperationalError, InterfaceError) as error:
            if not (sqlstate(error) or NO_ANSWER[0]).startswith(NO_ANSWER):
                raise
            raise CommandError(f"The database does not answer: {' '.join(str(error).split())}", returncode=2) from error

    def load(self) -> None:
        """Import what the command imports late, for a process that forks others to run it."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return the help with the examples at its end."""
        return super().create_parser(
            prog_name, subcommand, formatter_class=HelpWithExamples, epilog=self._examples_text(), **kwargs
        )

    def _examples_text(self) -> str:
        lines = (f"  manage.py {typed}\n      {does}" for typed, does in self.examples)
        return "\n".join(["examples:", *lines])
