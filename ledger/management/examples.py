"""Commands whose help ends with examples, which a test tries out."""

from contextlib import suppress
from typing import Any, ClassVar, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import Error

from ledger.database.cluster import is_on_worker
from ledger.errors import UnsafeDatabase

AT_A_WORKER: Final = (
    "DATABASE_URL leads to a worker of the cluster. Run this command at the coordinator: only that has the tables it needs."
)


class HelpWithExamples(DjangoHelpFormatter):
    """Keeps the lines of the examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


class CommandWithExamples(BaseCommand):
    """A command with `examples`: pairs of what is typed behind `manage.py`, and what it does."""

    examples: ClassVar[tuple[tuple[str, str], ...]]
    needs_coordinator: ClassVar[bool] = False
    """Whether it uses tables that a cluster has at its coordinator only."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command, or refuse (exit code 2, nothing was done): at a worker if it needs the coordinator, and on a
        database that the ledger cannot rely on.
        """
        try:
            # Without a database the command says itself what is missing.
            with suppress(Error):
                if self.needs_coordinator and is_on_worker():
                    raise CommandError(AT_A_WORKER, returncode=2)
            return super().execute(*args, **options)
        except UnsafeDatabase as unsafe:
            raise CommandError(f"This database is refused. {unsafe}.", returncode=2) from unsafe

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """With the examples at the end of the help."""
        return super().create_parser(
            prog_name, subcommand, formatter_class=HelpWithExamples, epilog=self._examples_text(), **kwargs
        )

    def _examples_text(self) -> str:
        lines = (f"  manage.py {typed}\n      {does}" for typed, does in self.examples)
        return "\n".join(["examples:", *lines])
