"""The version of the ledger, as the record of the schema, metrics, spans and `manage.py doctor` say it."""

from typing import Final

VERSION: Final = "0.2.2"


def release_of(version: str) -> tuple[int, ...]:
    """Return a version in the order of versions: `0.10.2` as (0, 10, 2)."""
    return tuple(map(int, version.split(".")))
