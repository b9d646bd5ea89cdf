"""`manage.py two_step`: lists the operators with two-step login, or turns it off for somebody who lost app and recovery codes."""

import json
from typing import Any

from django.contrib.auth.models import User
from django.core.management import CommandError, CommandParser
from django_otp.plugins.otp_totp.models import TOTPDevice

from ledger.management.examples import CommandWithExamples
from ledger.operators.staff_log import record
from ledger_project.operators import two_step


class Command(CommandWithExamples):
    """Prints the operators who have two-step login, or turns it off for one of them."""

    help = "List the operators who have two-step login; with --off NAME, turn it off for an operator who has lost the app."
    examples = (
        ("two_step", "the operators with two-step login"),
        ("two_step --off mara", "for an operator who lost the app"),
        ("two_step --format json", "for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--off", metavar="NAME", help="turn two-step login off for this operator; the next login needs only the password"
        )
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        """List the operators or turn it off; exit with 1 if there is no such operator or no two-step login."""
        name = options["off"]
        is_json = options["format"] == "json"
        if name is None:
            found = TOTPDevice.objects.filter(confirmed=True).order_by("user__username")
            names = list(found.values_list("user__username", flat=True))
            text = "\n".join(names) or "No operator has two-step login."
            self.stdout.write(json.dumps({"operators": names}, indent=2) if is_json else text)
            return
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"There is no operator {name}.")
        if not two_step.turn_off(user):
            raise CommandError(f"{name} has no two-step login.")
        record(None, "second-step-off", about=f"user {name}")
        self.stdout.write(json.dumps({"off": name}, indent=2) if is_json else f"Two-step login is off for {name}.")
