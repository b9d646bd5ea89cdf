"""`manage.py demo`: demo data, once."""

from typing import Any

from django.core.management.base import BaseCommand

from ledger_project.demonstration import furnish_demo


class Command(BaseCommand):
    """Make the demo data through the services; run again, it changes nothing."""

    help = "Create demo data: holders with grants, spends, refunds and refusals; a plan; subscriptions due for invoicing."

    def handle(self, *args: Any, **options: Any) -> None:
        """Make it, or what is missing of it, and say what there is."""
        made = furnish_demo()
        if options["verbosity"]:
            self.stdout.write(
                f"Demo data: {made.holders} holders with {made.entries} entries and {made.refusals} refusals; "
                f"{made.subscriptions} subscriptions, {made.invoices} invoice; manage.py generate_invoices bills the others"
            )
