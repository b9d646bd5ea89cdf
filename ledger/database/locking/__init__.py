"""Locks for the code of a project: declared on what needs them, so business logic names none. See docs/how-to/embedding.md."""

from ledger.database.lock_names import LockName, register
from ledger.database.locking.decorators import LockTemplate, locked, on
from ledger.database.locking.handlers import LockedHandlers
from ledger.database.locking.insertion import insert_once, unique
from ledger.database.locking.sharing import Turn, share

__all__ = ["LockName", "LockTemplate", "LockedHandlers", "Turn", "insert_once", "locked", "on", "register", "share", "unique"]
