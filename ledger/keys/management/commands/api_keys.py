"""`manage.py api_keys`: list, make, rotate and revoke API keys."""

import getpass
import json
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from ledger.errors import Invalid
from ledger.keys import api_keys
from ledger.keys.errors import KeyEnded, KeyNameTaken, KeyRotating
from ledger.keys.models import ApiKey
from ledger.management.examples import CommandWithExamples
from ledger.records import Shape, shape_of
from ledger.rules.instants import to_text, to_us
from ledger.scopes import SCOPES
from ledger.values import MAX_ACTOR_CHARACTERS, FieldError

LIST, CREATE, ROTATE, REVOKE = ACTIONS = ("list", "create", "rotate", "revoke")
TIMES: Final = ("created_at", "last_used_at", "expires_at", "rotated_at", "former_until", "revoked_at")
TAKES: Final = {
    LIST: (),
    CREATE: ("scopes", "holder_id", "labels", "expires_at", "requests_per_second", "concurrent_requests"),
    ROTATE: ("former_until",),
    REVOKE: (),
}
"""The options that each action takes."""


class Command(CommandWithExamples):
    """Print keys; the text of a secret only when it is made. Exit code 2 for wrong arguments, 1 for a refusal."""

    help = (
        "List, make, rotate or revoke API keys. A new secret is printed once and stored nowhere. The staff log records what the "
        "command did."
    )
    examples = (
        ("api_keys list", "list all keys, with their scopes and expiries"),
        ("api_keys create shop --scope ledger:read --scope ledger:spend", "make a key, and print its secret"),
        (
            "api_keys create till --scope ledger:spend --holder ada --expires-at 2027-01-31T00:00:00Z",
            "make a key for one holder that expires",
        ),
        (
            "api_keys create red.ada --scope ledger:spend --holder team-red --label team=red --label member=ada",
            "make a key whose spends carry these labels",
        ),
        ("api_keys rotate shop --former-until 2026-12-24T12:00:00Z", "print a new secret; the current one ends at that time"),
        ("api_keys rotate shop", "print a new secret; all earlier secrets end now"),
        ("api_keys revoke shop", "end the key"),
        ("api_keys list --format json", "for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("action", choices=ACTIONS, help=f"one of {', '.join(ACTIONS)}")
        parser.add_argument("name", nargs="?", help="the name of the key; required except for `list`")
        parser.add_argument("--scope", action="append", dest="scopes", metavar="SCOPE", help=f"create: {', '.join(SCOPES)}")
        parser.add_argument(
            "--holder", dest="holder_id", metavar="HOLDER", help="create: confine the key to this holder; default: all holders"
        )
        parser.add_argument(
            "--label",
            action="append",
            dest="labels",
            metavar="NAME=VALUE",
            help="create: a label that all that the key writes carries, such as member=ada",
        )
        parser.add_argument(
            "--expires-at", metavar="TIME", help="create: when the key expires, such as 2027-01-31T00:00:00Z; default: never"
        )
        for limit in ("requests-per-second", "concurrent-requests"):
            parser.add_argument(
                f"--{limit}", type=int, metavar="NUMBER", help="create: a limit; default: the limit in the settings"
            )
        parser.add_argument("--former-until", metavar="TIME", help="rotate: when the current secret ends; default: now")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *args: Any, action: str, name: str | None, **options: Any) -> None:
        """Execute the action, and print the keys that it concerns."""
        given = {option: options[option] for names in TAKES.values() for option in names if options[option] is not None}
        if (name is None) != (action == LIST):
            raise CommandError(f"{action} takes {'no name' if name else 'the name of a key'}.", returncode=2)
        if unknown := given.keys() - TAKES[action]:
            raise CommandError(f"{action} does not take {', '.join(sorted(unknown))}.", returncode=2)
        try:
            keys, secret = _execute_action(action, name or "", given)
        except Invalid as invalid:
            raise CommandError(_fault(invalid.facts["pointer"], invalid.facts["detail"]), returncode=2) from invalid
        except (KeyEnded, KeyNameTaken, KeyRotating) as refusal:
            raise CommandError(refusal.answer.detail.format(**refusal.facts)) from refusal
        shown = [_show_key(key) | ({"secret": secret} if secret else {}) for key in keys]
        if options["format"] == "json":
            self.stdout.write(json.dumps(shown if action == LIST else shown[0], indent=2, ensure_ascii=False))
        else:
            self.stdout.write("\n\n".join(_as_text(each) for each in shown) or "There is no API key.")


def _execute_action(action: str, name: str, given: dict[str, Any]) -> tuple[list[ApiKey], str]:
    """Execute the action; return the keys that it concerns, and the new secret or an empty text."""
    if action == LIST:
        return list(ApiKey.objects.order_by("name")), ""
    actor = f"command:{getpass.getuser()}"[:MAX_ACTOR_CHARACTERS]
    if action == CREATE:
        labels = {"labels": _labels(given["labels"])} if "labels" in given else {}
        request = _read(shape_of(api_keys.ApiKeyRequest), {"name": name, **given, **labels}, actor=actor)
        return _as_listed(api_keys.create_api_key.execute(request))
    key = ApiKey.objects.filter(name=name).first()
    if key is None:
        raise CommandError(f"No API key is named {name}.", returncode=2)
    if action == ROTATE:
        request = _read(shape_of(api_keys.RotationRequest), {"id": key.pk, **given}, actor=actor)
        return _as_listed(api_keys.rotate_api_key.execute(request))
    api_keys.revoke_api_key(key, actor=actor)
    key.refresh_from_db()
    return [key], ""


def _labels(given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if any(not separator for _, separator, _ in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise CommandError("--label takes NAME=VALUE, once for each name.", returncode=2)
    return {name: value for name, _, value in pairs}


def _as_listed(made: tuple[ApiKey, str]) -> tuple[list[ApiKey], str]:
    return [made[0]], made[1]


def _read(shape: Shape[Any], body: dict[str, Any], **more: Any) -> Any:
    """Return the request, or raise what the API would say of this body."""
    errors: list[FieldError] = []
    fields = shape.take(body, "", errors)
    if errors:
        raise CommandError(" ".join(_fault(error.pointer, error.detail) for error in errors), returncode=2)
    return shape.make(fields | more)


def _fault(pointer: str, detail: str) -> str:
    return f"{pointer.removeprefix('/')}: {detail}"


def _show_key(key: ApiKey) -> dict[str, Any]:
    """A key as JSON."""
    times = {name: None if (at := getattr(key, name)) is None else to_text(to_us(at)) for name in TIMES}
    return {
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.granted_scopes,
        "holder_id": key.holder_id,
        "labels": key.labels,
        "requests_per_second": key.requests_per_second,
        "concurrent_requests": key.concurrent_requests,
        "created_by": key.created_by,
        "revoked_by": key.revoked_by,
        **times,
    }


def _as_text(shown: dict[str, Any]) -> str:
    """Return a key as lines of names and values."""
    labels = ", ".join(f"{name}={value}" for name, value in sorted(shown["labels"].items()))
    texts = shown | {"scopes": ", ".join(shown["scopes"]), "labels": labels}
    return "\n".join(f"{name.replace('_', ' '):<22}{value}" for name, value in texts.items() if value not in (None, ""))
