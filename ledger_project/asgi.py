"""ASGI entry point: `ledger_project.asgi:application`. Does not come up on a database that would let wrong balances through."""

from ledger_project.monitoring.spans import start_tracing
from ledger_project.serving.application import application
from ledger_project.serving.bootstrap import refuse_unsafe_database, wait_until_prepared

__all__ = ["application"]

wait_until_prepared()
refuse_unsafe_database()
start_tracing()
