"""ASGI entry point: `ledger_project.asgi:application`. Does not come up on a database that would let wrong balances through."""

import sys
from concurrent.futures import ThreadPoolExecutor

from ledger.errors import UnsafeDatabase
from ledger_project.monitoring.spans import start_tracing
from ledger_project.serving.application import application
from ledger_project.serving.bootstrap import refuse_unsafe_database, wait_until_prepared

__all__ = ["application"]

wait_until_prepared()
# Some servers, uvicorn among them, import this module in their event loop, where Django's connections refuse to be used.
with ThreadPoolExecutor(1) as thread:
    try:
        thread.submit(refuse_unsafe_database).result()
    except UnsafeDatabase as unsafe:
        sys.exit(f"The web process does not start: this database is refused. {unsafe}.")
start_tracing()
