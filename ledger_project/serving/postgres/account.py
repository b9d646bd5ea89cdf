"""The operating system account that PostgreSQL runs under: it refuses to run as root."""

import os
import pwd
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger_project.serving.postgres.errors import EmbeddedPostgresError


@dataclass(frozen=True)
class SystemAccount:
    """The operating system account that PostgreSQL runs under."""

    uid: int
    gid: int

    @classmethod
    def choose(cls) -> "SystemAccount":
        """Return our account; under root the first of `postgres` and `nobody` that exists."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid())
        for name in ("postgres", "nobody"):
            with suppress(KeyError):
                entry = pwd.getpwnam(name)
                return cls(entry.pw_uid, entry.pw_gid)
        raise EmbeddedPostgresError(
            "PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody` to run it as"
        )

    @property
    def process_options(self) -> dict[str, Any]:
        """Return the arguments with which `subprocess` runs a program as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if os.geteuid() == 0 else {}

    def can_reach(self, path: Path) -> bool:
        """Return whether this account may pass every directory down to `path` and read it."""
        path = path.resolve()
        return all(self._has(folder, "x") for folder in [*path.parents]) and self._has(path, "rx" if path.is_dir() else "r")

    def _has(self, path: Path, letters: str) -> bool:
        found = path.stat()
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid == self.gid else 0
        bits = {"r": stat.S_IROTH, "x": stat.S_IXOTH}
        return all(found.st_mode >> shift & bits[letter] for letter in letters)
