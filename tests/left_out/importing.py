"""The folder of an application that is left out: as if it were deleted."""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class DeletedFolder(MetaPathFinder):
    """Finds no module of a package, though its files are there."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Refuse the package and what is in it; leave the others to those who find them."""
        if name == self._package or name.startswith(f"{self._package}."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def delete(package: str) -> None:
    """Have no module of the package imported from now on in this process."""
    sys.meta_path.insert(0, DeletedFolder(package))
