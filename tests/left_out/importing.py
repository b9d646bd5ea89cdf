"""The folders of applications that are left out: as if they were deleted, with the folders of those that need them."""

import re
import sys
from collections.abc import Iterable, Sequence, Set
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Final

NEEDS: Final = re.compile(r"^    needs = (\(.*\))$", re.MULTILINE)
"""The line of an `apps.py`. It is read, not imported: afterwards no module of what is left out must be loaded."""


class DeletedFolders(MetaPathFinder):
    """Finds no module of some packages, though their files are there."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages = tuple(packages)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Refuse the packages and what is in them; leave the others to those who find them."""
        if any(name == package or name.startswith(f"{package}.") for package in self._packages):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def with_those_that_need(packages: Set[str], installed: Sequence[str]) -> list[str]:
    """Return these applications and those that need them, also through others, in the order of INSTALLED_APPS."""
    left_out = set(packages)
    while more := {name for name in installed if left_out & set(_needs(name))} - left_out:
        left_out |= more
    return [name for name in installed if name in left_out]


def _needs(name: str) -> Sequence[str]:
    path = Path(*name.split("."), "apps.py")
    found = NEEDS.search(path.read_text()) if name.startswith(("ledger.", "billing.")) else None
    return re.findall(r'"([^"]+)"', found[1]) if found else ()


def delete(packages: Iterable[str]) -> None:
    """Have no module of these packages imported from now on in this process."""
    sys.meta_path.insert(0, DeletedFolders(packages))
