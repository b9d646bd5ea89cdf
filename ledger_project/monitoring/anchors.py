"""The anchors that a deployment keeps: the newest file of the folder LEDGER_ANCHOR_DIR."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.conf import settings

from ledger.audit.anchors import AnchorUnreadable, written_at

FILES_LOOKED_AT = 1_000


@dataclass(frozen=True)
class Anchor:
    """An anchor's file, and the time of writing that it states."""

    path: Path
    written_at: datetime


def newest_anchor() -> Anchor | None:
    """Return the newest readable anchor of the folder; None if there is no folder, or no anchor in it."""
    if settings.ANCHOR_DIR is None:
        return None
    try:
        files = sorted(settings.ANCHOR_DIR.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[:FILES_LOOKED_AT]
    except OSError:
        return None
    for path in files:
        try:
            return Anchor(path, written_at(path))
        except (AnchorUnreadable, OSError):
            continue
    return None
