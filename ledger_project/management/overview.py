"""`manage.py help`: this project's commands with a sentence each, then Django's."""

import re
import sys
from collections.abc import Iterable
from typing import Final

import django
from django.core.management import get_commands, load_command_class

OWN: Final = ("ledger", "billing", "ledger_project")
"""The applications whose commands come first, and those below them."""
WIDTH: Final = 24
LONGEST: Final = 90
"""What follows a colon, a semicolon or a bracket in a longer sentence is in the command's own help."""
WITHOUT_DJANGO: Final = frozenset({"help", "-h", "--help"})


def is_asked_for(arguments: Iterable[str]) -> bool:
    """Return whether somebody asks which commands there are."""
    given = list(arguments)
    return not given or (len(given) == 1 and given[0] in WITHOUT_DJANGO)


def main() -> None:
    """Print the commands."""
    django.setup()
    sys.stdout.write(overview())


def overview() -> str:
    """Return the commands of this project, each with the first sentence of its help, and the names of the others."""
    commands = get_commands()
    own = sorted(name for name, app in commands.items() if _is_own(str(app)))
    others = sorted(set(commands) - set(own))
    lines = [
        "Type 'manage.py help COMMAND' for the options and examples of a command.",
        "",
        "Commands of the credit ledger:",
        *(f"  {name:{WIDTH}}{_sentence(name, str(commands[name]))}" for name in own),
        "",
        "Commands of Django and its packages:",
        *(f"  {name}" for name in others),
    ]
    return "\n".join(lines) + "\n"


def _is_own(app: str) -> bool:
    return app.split(".", maxsplit=1)[0] in OWN


def _sentence(name: str, app: str) -> str:
    """Return the first sentence of a command's help."""
    text = " ".join(load_command_class(app, name).help.split())
    first = text.split(". ")[0].rstrip(".")
    return f"{first if len(first) <= LONGEST else re.split(': |; | [(]', first)[0]}."
