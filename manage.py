#!/usr/bin/env python
"""Run a management command of the credit ledger."""

import os
import sys


def main() -> None:
    """Run the command that is named. Where it is `serve`, PostgreSQL comes up while Django is loaded."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
    if sys.argv[1:] == ["serve"]:
        from ledger_project.serving.supervisor import begun_from_environment

        with begun_from_environment():
            run()
    else:
        run()


def run() -> None:
    """Load Django and run it."""
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
