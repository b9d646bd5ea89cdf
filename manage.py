#!/usr/bin/env python
"""Run a management command of the credit ledger."""

import os
import sys


def main() -> None:
    """Run the command that is named, or list them. `serve` starts the web server and PostgreSQL before it loads Django."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    if sys.argv[1:] == ["serve"]:
        from ledger_project.serving import serve

        sys.exit(serve.main())
    from ledger_project.management import overview

    if overview.is_asked_for(sys.argv[1:]):
        overview.main()
        return
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
