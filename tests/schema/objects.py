"""The whole schema of a prepared database, one line for each object: its kind, its name and a digest of its definition."""

import hashlib
import re
from pathlib import Path
from typing import Final

from django.db.backends.base.base import BaseDatabaseWrapper

from tests.schema.catalogue import schema

LISTING: Final = Path(__file__).with_name("objects.txt")
NOT_OURS: Final = ("django_", "auth_", "axes_", "otp_")
"""How the names of other applications' objects begin."""


NEXT: Final = "\n\n"
MONTHLY: Final = re.compile("_[0-9]{6}")
"""In the names of partitions, which come and go."""


def lines_of(database: BaseDatabaseWrapper) -> list[str]:
    """Return a line for each relation and type, with all that belongs to it, and for each function; sorted."""
    definitions: dict[tuple[str, str], list[str]] = {}
    for kind, name, *definition in schema(database):
        if name.lstrip("_").startswith(NOT_OURS) or MONTHLY.search(name):
            continue
        key = ("function", name) if kind == "function" else ("relation", re.split("[. ]", name)[0])
        definitions.setdefault(key, []).append("\n".join(map(str, (kind, name, *definition))))
    return sorted(
        f"{kind} {name} {hashlib.sha256(NEXT.join(parts).encode()).hexdigest()[:12]}"
        for (kind, name), parts in definitions.items()
    )
