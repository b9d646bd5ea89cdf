"""The first page's item about the machine: whether the disk of the embedded server is filling up."""

from typing import Any

from django.db import connection

from ledger.operator_pages import Attention
from ledger_project.monitoring import work_checks
from ledger_project.monitoring.findings import State

TONES = {State.WARNING: "warning", State.FAILED: "danger"}


def items(request: Any) -> list[Attention]:
    """Warn operators who may see locks of low disk space; nothing if there is enough, or if the disk is another machine's."""
    if not request.user.has_perm("ledger.view_locks"):
        return []
    found = work_checks.disk(connection)
    if found.state is State.OK:
        return []
    return [Attention(tone=TONES[found.state], text=f"{found.check}: {found.text} {found.advice}")]
