"""Commands whose help ends with examples, which a test tries out."""

from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import InterfaceError, OperationalError

from ledger.database.transactions import is_connection_lost
from ledger.errors import UnsafeDatabase


class HelpWithExamples(DjangoHelpFormatter):
    """Keeps the lines of the examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class CommandWithExamples(BaseCommand):
    """A command with `examples`: pairs of what is typed behind `manage.py`, and what it does."""

    examples: ClassVar[tuple[tuple[str, str], ...]]

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command. On a database that does not answer, or that the ledger cannot rely on, end it with a sentence, exit code 2."""
        try:
            return super().execute(*args, **options)
        except UnsafeDatabase as unsafe:
            raise CommandError(f"This database is refused. {unsafe}.", returncode=2) from unsafe
        except (OperationalError, InterfaceError) as error:
            if not is_connection_lost(error):
                raise
            raise CommandError(f"The database does not answer: {' '.join(str(error).split())}", returncode=2) from error

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """With the examples at the end of the help."""
        return super().create_parser(
            prog_name, subcommand, formatter_class=HelpWithExamples, epilog=self._examples_text(), **kwargs
        )

    def _examples_text(self) -> str:
        lines = (f"  manage.py {typed}\n      {does}" for typed, does in self.examples)
        return "\n".join(["examples:", *lines])
