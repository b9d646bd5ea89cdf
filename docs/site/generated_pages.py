"""The parts of the reference that are generated from declarations when the site is built: settings, commands, problems.

A page has a comment such as `<!-- generated: settings -->` where its table goes.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

OURS: Final = ("ledger", "billing", "ledger_project")
DJANGOS: Final = {
    "help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks",
}  # fmt: skip
"""Options that every command of Django has."""


REQUEST_TIMEOUT: Final = 408

PAGE: Final = re.compile(r"docs/([\w/-]+)\.md")


def set_up() -> None:
    """Load the project as it is without a database: nothing here connects to one."""
    # MkDocs takes back what a hook adds to the path while it is loaded.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    import django

    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "SECRET_KEY": "not-used",
        "LEDGER_DATA_DIR": tempfile.gettempdir(),
    }
    django.setup()


def settings() -> str:
    """A table of `settings.LEDGER`."""
    from ledger import conf

    rows = ["| name | default | what it decides |", "|---|---|---|"]
    for setting in conf.SETTINGS:
        about = setting.about
        if setting.choices:
            about += f" One of {', '.join(f'`{choice}`' for choice in setting.choices)}."
        rows.append(f"| `{setting.name}` | `{setting.default!r}` | {PAGE.sub(_link, about)} |")
    return "\n".join(rows)


def _link(found: re.Match[str]) -> str:
    """A link to a page of the docs from a page of the reference."""
    return f"[{found[1].partition('/')[2].replace('-', ' ')}](../{found[1]}.md)"


def commands() -> str:
    """A section for each command, with its options."""
    from django.core.management import get_commands, load_command_class

    found = sorted((name, app) for name, app in get_commands().items() if isinstance(app, str) and app.partition(".")[0] in OURS)
    return "\n\n".join(_command(name, load_command_class(app, name).create_parser("manage.py", name)) for name, app in found)


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"## {name}", "", _escaped(" ".join((parser.description or "").split()))]
    options = [action for action in parser._actions if action.dest not in DJANGOS]
    if options:
        lines += ["", "| option | what it does |", "|---|---|", *map(_option, options)]
    return "\n".join(lines)


def _option(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or ())) or action.dest.upper()}"
    names = ", ".join(f"`{flag}{value}`" for flag in action.option_strings) or f"`{action.metavar or action.dest}`"
    text = _escaped(((action.help or "") % (vars(action) | {"prog": ""})).strip())
    return f"| {_escaped(names)} | {text} |"


def problems() -> str:
    """A section for each problem: its status, what it means, what a client does, and its facts."""
    from ledger.rest.kit.problems import problems_by_slug

    ordered = sorted(problems_by_slug().items(), key=lambda found: (found[1][0].answer.status, found[0]))
    return "\n\n".join("\n".join(_problem(slug, classes)) for slug, classes in ordered)


def _problem(slug: str, classes: list[type[Any]]) -> Iterator[str]:
    first = classes[0]
    meaning = " ".join((first.__doc__ or first.title).split())
    yield f"## {slug}"
    yield ""
    yield f"**{first.answer.status} · {first.title}.** {_escaped(meaning)}"
    yield ""
    yield f"*What to do:* {_advice(first)}"
    facts = [(name, value) for each in classes for name, value in _facts(each)]
    if facts:
        yield ""
        yield "| fact | type | what it is |"
        yield "|---|---|---|"
        for name, value in dict(facts).items():
            yield f"| `{name}` | {_type(value.openapi())} | {_escaped(value.text)} |"


def _facts(error_class: type[Any]) -> list[tuple[str, Any]]:
    from ledger.values import annotations_of

    return [(name, annotation.value) for name, annotation in annotations_of(error_class).items()]


def _type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "object"  # members, which the document has as a component
    kind = schema.get("type") or next((_type(part) for part in schema.get("anyOf", schema.get("oneOf", []))), "object")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _advice(error_class: type[Any]) -> str:
    from ledger import errors

    wait = error_class.answer.retry_after_seconds
    if error_class.answer.outcome == errors.UNKNOWN:
        return "Send the same request with the same key until a response settles it."
    if wait is not None or "retry_after_seconds" in dict(_facts(error_class)):
        seconds = f" ({wait} s)" if isinstance(wait, int) else ""
        return f"Wait as long as `Retry-After` says{seconds}, then send the same request with the same key. Nothing was written."
    if issubclass(error_class, errors.Retryable) or error_class.answer.status == REQUEST_TIMEOUT:
        return "Send the same request with the same key later. Nothing was written."
    if issubclass(error_class, errors.Refused) and error_class.passes:
        return "The limit is temporary: the same request with the same key may succeed later. The refusal is not recorded."
    if issubclass(error_class, errors.Refused):
        return "The refusal of a write is recorded, and the same key gets it again. When the cause is gone, use a new key."
    return "Correct the request, or what it depends on. Nothing was written, and the key can still be used."


def _escaped(text: str) -> str:
    """As a cell of a table."""
    return text.replace("|", "\\|")


PAGES: Final[dict[str, Callable[[], str]]] = {"settings": settings, "commands": commands, "problems": problems}
