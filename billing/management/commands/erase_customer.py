"""`manage.py erase_customer`: erase the personal data of a customer."""

import getpass
import json
import logging
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.errors import CustomerStillBilled, NotFound
from billing.orders.erasure import ErasureResult, erase_customer, personal_words
from ledger.management.examples import CommandWithExamples

log = logging.getLogger(__name__)

REFUSED, BAD_ARGUMENTS = 1, 2


class Command(CommandWithExamples):
    """Changes the customer's row and the responses to earlier requests; documents keep their buyer."""

    help = (
        f"Erase a customer's name, {personal_words()} permanently: in the customer, in its mails and VAT lookups, and in the "
        "stored responses to earlier requests. The name becomes the day of the erasure. Invoices and credit notes keep their "
        "buyer, because tax law requires that. Refused while a subscription has no end yet or is not billed to its end, or a "
        "draft exists. Exit codes: 0 erased, 1 refused, 2 bad arguments or an unknown customer."
    )
    examples = (
        ("erase_customer CUST-7", "ask, then erase"),
        ("erase_customer CUST-7 --yes --format json", "for programs"),
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """See `help`."""
        parser.add_argument("ref", help="the customer's reference")
        parser.add_argument("--yes", action="store_true", help="do not ask to type the reference again")
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: %(default)s")

    def handle(self, *, ref: str, yes: bool, **options: Any) -> None:
        """Ask, erase, and print what stays."""
        if not yes:
            self._ask(ref)
        try:
            erased = erase_customer(ref=ref)
        except NotFound as error:
            raise CommandError(f"Customer {ref!r} does not exist.", returncode=BAD_ARGUMENTS) from error
        except CustomerStillBilled as refusal:
            facts = refusal.facts
            raise CommandError(
                f"{ref} cannot be erased: subscription {facts['subscription']} {facts['why']}. Nothing was erased.",
                returncode=REFUSED,
            ) from refusal
        log.info("customer erased", extra={"facts": {"customer": ref, "actor": f"command:{getpass.getuser()}"}})
        as_json = options["format"] == "json"
        self.stdout.write(json.dumps(erased.as_dict(), indent=2) if as_json else _as_text(erased))

    def _ask(self, ref: str) -> None:
        if not sys.stdin.isatty():
            raise CommandError("Add --yes if nobody can answer the question.", returncode=BAD_ARGUMENTS)
        self.stderr.write(f"This erases the name, {personal_words()} of {ref}. You cannot undo it.")
        if input("Type the reference again: ") != ref:
            raise CommandError("That is another reference. Nothing was erased.", returncode=BAD_ARGUMENTS)


def _as_text(erased: ErasureResult) -> str:
    documents = "1 document keeps its buyer" if erased.documents == 1 else f"{erased.documents} documents keep their buyer"
    responses = "1 stored response was" if erased.responses == 1 else f"{erased.responses} stored responses were"
    return f"{erased.ref} is now named “{erased.name}”, without {personal_words()}. {responses} erased. {documents}."
