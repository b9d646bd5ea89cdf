"""The packs to which fields of forms refer."""

from collections.abc import Sequence

from billing.admin.references import MOST
from billing.payments.models import Pack


def list_packs() -> Sequence[tuple[str, str]]:
    """Return the newest packs, with the names of their newest versions."""
    return list(dict(reversed(Pack.objects.order_by("-pk").values_list("code", "name")[:MOST])).items())
