"""ASGI entry points. Neither starts on a database that would let wrong balances through.

`ledger_project.asgi:application` serves everything, and `ledger_project.asgi:calls` the API and the probes.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from django.core.management.base import SystemCheckError

from ledger.errors import UnsafeDatabase
from ledger.telemetry.count_history import HISTORY
from ledger_project.monitoring.spans import start_tracing
from ledger_project.serving.application import application, calls
from ledger_project.serving.bootstrap import refuse_unsafe_database, refuse_wrong_settings, wait_until_prepared
from ledger_project.serving.pages_server import serves_pages, step_back_when_started

__all__ = ["application", "calls"]

wait_until_prepared()
try:
    refuse_wrong_settings()
except SystemCheckError as wrong:
    sys.exit(f"The web process does not start: {wrong}")
# Some servers, uvicorn among them, import this module in their event loop, in which Django refuses connections.
with ThreadPoolExecutor(1) as thread:
    try:
        thread.submit(refuse_unsafe_database).result()
    except UnsafeDatabase as unsafe:
        sys.exit(f"The web process does not start: this database is refused. {unsafe}.")
start_tracing()
step_back_when_started()
if serves_pages():
    HISTORY.keep()
