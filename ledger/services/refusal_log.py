"""One line of the log for each refusal that no line of an API call tells of: in a batch, in the admin, by a command."""

import logging
from collections.abc import Iterable
from functools import partial

from django.db import transaction

from ledger.errors import LedgerError
from ledger.rules import Request

log = logging.getLogger("ledger.refusals")


def log_refusals(refused: Iterable[tuple[Request, LedgerError]], *, batch: str = "") -> None:
    """Write a line for each, once the present transaction is committed; nothing is written where it is rolled back.

    Args:
        refused: what was asked, and why it was refused. A dry run is no refusal.
        batch: the key of the batch that it was part of.
    """
    if log.isEnabledFor(logging.INFO):
        lines = [(request, error) for request, error in refused if not request.dry_run]
        transaction.on_commit(partial(_write_all, lines, batch))


def _write_all(refused: Iterable[tuple[Request, LedgerError]], batch: str) -> None:
    for request, error in refused:
        _write(request, error, batch)


def _write(request: Request, error: LedgerError, batch: str) -> None:
    facts = {
        "problem": error.code,
        "holder": request.holder_id,
        "credit_type": request.credit_type,
        "idempotency_key": request.idempotency_key,
        "batch": batch,
        "actor": request.actor,
        "request_id": request.request_id,
        "replayed": getattr(error, "replayed", False),
    }
    log.info("%s refused", request.operation, extra={"facts": {name: value for name, value in facts.items() if value}})
