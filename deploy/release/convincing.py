"""What `make convince` printed for each release: `tests/convince/releases/VERSION.json`, by `make convince RECORD=COMMIT`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from deploy.release.sources import Sources, UnfitSources

FOLDER: Final = "tests/convince/releases"
PARTS: Final = ("Models", "Histories, judged by Porcupine", "Two requests that meet", "Audit and invoices")
"""What `make convince` shows, in its order."""


class MalformedResult(Exception):
    """A file of results is not what `make convince RECORD=COMMIT` writes; the message names the file, the field and the rule."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of `make convince`.

    Args:
        part: its title, of PARTS.
        seconds: how long it took.
        is_as_promised: whether it came out as docs/explanation/convince.md says.
        figures: what it printed in numbers, a sentence each.
    """

    part: str
    seconds: int
    is_as_promised: bool
    figures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What `make convince` printed for a release.

    Args:
        commit: the code that it ran on.
        date: the day on which it ran.
        machine: where: processor, cores, memory, Python, and the load before.
        parts: in the order of PARTS.
    """

    release: str
    commit: str
    date: str
    machine: Mapping[str, Any]
    parts: tuple[Part, ...]

    @property
    def is_as_promised(self) -> bool:
        """Whether each part came out as docs/explanation/convince.md says."""
        return all(each.is_as_promised for each in self.parts)


MACHINE: Final = {"processor": str, "cores": int, "memory_gib": float, "python": str, "load_before": float}
TYPES: Final = {"release": str, "commit": str, "date": str, "machine": dict, "parts": list}
TYPES_OF_PART: Final = {"part": str, "seconds": int, "is_as_promised": bool, "figures": list}


def path_of(root: Path, release: str) -> Path:
    """Where the result of a release stands."""
    return root / FOLDER / f"{release}.json"


def write_result(root: Path, result: Result) -> Path:
    """Write the result of a release in place of an earlier one; return its file."""
    path = path_of(root, result.release)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=1, ensure_ascii=False) + "\n")
    return path


def read_result(path: Path) -> Result:
    """Read the result of a release.

    Raises:
        MalformedResult: a field is missing, unknown or of another type, the name of the file is another release, the date is
            none, or the parts are others than PARTS.
    """
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise MalformedResult(f"{path.name}: no JSON: {error}") from None
    _require(path, "", found, TYPES)
    _require(path, "machine", found["machine"], MACHINE)
    for each in found["parts"]:
        _require(path, "parts", each, TYPES_OF_PART)
        if not each["figures"] or not all(isinstance(figure, str) and figure for figure in each["figures"]):
            raise MalformedResult(f"{path.name}: figures of {each['part']!r} has to be a list of sentences")
    if f"{found['release']}.json" != path.name:
        raise MalformedResult(f"{path.name}: release is {found['release']!r}")
    try:
        date.fromisoformat(found["date"])
    except ValueError:
        raise MalformedResult(f"{path.name}: date has to be a day, YYYY-MM-DD") from None
    parts = tuple(Part(**{**each, "figures": tuple(each["figures"])}) for each in found["parts"])
    if tuple(each.part for each in parts) != PARTS:
        raise MalformedResult(f"{path.name}: parts has to have {', '.join(map(repr, PARTS))}, in this order")
    return Result(**{**found, "parts": parts})


def _require(path: Path, where: str, found: object, types: Mapping[str, type]) -> None:
    """Return if an object has these fields, each of its type."""
    if not isinstance(found, dict) or found.keys() != types.keys():
        raise MalformedResult(f"{path.name}: {where or 'the file'} has to have the fields {', '.join(types)}")
    for name, of_type in types.items():
        if type(found[name]) is not of_type:
            raise MalformedResult(f"{path.name}: {name} has to be of the type {of_type.__name__}")


def require_result(sources: Sources) -> Result:
    """Return the result of the version that is to be released.

    Raises:
        UnfitSources: it has none, or one that is malformed or did not come out as promised.
    """
    path = path_of(sources.folder, sources.version)
    if not path.exists():
        raise UnfitSources(
            f"make convince RECORD=HEAD has not run for {sources.version}: run it, and commit {FOLDER}/{path.name}"
        )
    try:
        result = read_result(path)
    except MalformedResult as error:
        raise UnfitSources(f"{FOLDER}/{error}; make convince RECORD=HEAD writes it") from None
    if failed := [each.part for each in result.parts if not each.is_as_promised]:
        raise UnfitSources(f"{FOLDER}/{path.name}: make convince did not come out as promised: {', '.join(failed)}")
    return result
