"""The packs to which fields of forms refer."""

from collections.abc import Sequence

from billing.admin.references import newest_by_code
from billing.payments.models import Pack
from ledger.operators.additions import Row


def list_packs(word: str) -> Sequence[Row]:
    """Return packs with the names of their newest versions, the newest first."""
    return [(pack.code, pack.name) for pack in newest_by_code(Pack.objects.all(), word)]
