"""`manage.py serve`: see `ledger_project.serving.serve`, which `manage.py` runs before Django is loaded."""

import sys
from typing import Any

from ledger.management.examples import CommandWithExamples
from ledger_project.serving import serve


class Command(CommandWithExamples):
    """Start everything, serve until a signal comes, stop everything."""

    help = (
        "Start PostgreSQL when DATABASE_URL is not set, prepare the database, and serve: calls on 127.0.0.1:$PORT (8000), "
        "pages on the next port."
    )
    examples = (("serve", "start everything; as make run"),)

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP."""
        sys.exit(serve.main())
