"""`manage.py usage_partitions`, for a deployment whose application role does not own the tables."""

from contextlib import AbstractContextManager
from typing import Any

from billing.management.commands import usage_partitions
from ledger_project.serving.bootstrap import connected_as_owner


class Command(usage_partitions.Command):
    """Drops a month under the role of LEDGER_OWNER_DATABASE_URL."""

    def owner(self) -> AbstractContextManager[Any]:
        """The owner's connection."""
        return connected_as_owner()
