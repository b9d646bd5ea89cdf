"""Counts the results of operations, for /metrics: after the commit, a group at a time."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence

from ledger.errors import LedgerError, Refused
from ledger.journal import Result
from ledger.rules.requests import Request
from ledger.services.coming_credits import lacks_credits
from ledger.services.group_commit import ResultOrError
from ledger.telemetry.metrics import (
    GROUP_SIZE,
    GROUP_SIZES,
    OPERATIONS,
    REFUSALS,
    add_observations,
    call_before_reading,
)

RECORDED, REFUSED, REPLAYED, FAILED = "recorded", "refused", "replayed", "failed"

_guard = threading.Lock()
_operations: Counter[tuple[str, str]] = Counter()
_refusals: Counter[str] = Counter()
_groups = [0.0] * (len(GROUP_SIZES) + 2)
"""The number of groups in each bucket since the last writing, and the number of their requests."""


def count_group(requests: Sequence[Request], outcomes: Sequence[ResultOrError]) -> None:
    """Count the requests that shared a transaction, and their results."""
    with _guard:
        _groups[bisect_left(GROUP_SIZES, len(requests))] += 1
        _groups[-1] += len(requests)
        _count(zip(requests, outcomes, strict=True))


def count_operations(executed: Iterable[tuple[Request, ResultOrError]]) -> None:
    """Count the result of each request, except of a dry run, of one that waits for a busy holder, and of one only tried."""
    with _guard:
        _count(executed)


def _count(executed: Iterable[tuple[Request, ResultOrError]]) -> None:
    for request, outcome in executed:
        if outcome is None or request.dry_run or lacks_credits(outcome):
            continue
        word, refusal = _word(outcome)
        _operations[request.operation, word] += 1
        if refusal is not None:
            _refusals[refusal.code] += 1


def _word(outcome: Result | LedgerError) -> tuple[str, Refused | None]:
    """Return the result of a request as a word, and the refusal if it was refused now."""
    if isinstance(outcome, Refused):  # a limit that passes
        return REFUSED, outcome
    if isinstance(outcome, LedgerError):
        return FAILED, None
    if outcome.refusal is not None:
        return (REPLAYED, None) if outcome.refusal.replayed else (REFUSED, outcome.refusal)
    return REPLAYED if outcome.entry is not None and outcome.entry.replayed else RECORDED, None


def _write() -> None:
    with _guard:
        for (operation, word), count in _operations.items():
            OPERATIONS.labels(operation, word).inc(count)
        for code, count in _refusals.items():
            REFUSALS.labels(code).inc(count)
        if _groups[-1]:
            add_observations(GROUP_SIZE, _groups[:-1], _groups[-1])
        _operations.clear()
        _refusals.clear()
        _groups[:] = [0.0] * len(_groups)


call_before_reading(_write)
