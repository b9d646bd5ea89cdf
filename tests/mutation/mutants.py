"""The mutants: each is one small fault at one place of the source, which is found again by what it says, not by its number."""

import json
import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parent.parent
LIST: Final = FOLDER / "mutants.jsonl"
CHANGES: Final = "changes.jsonl"
REASONS: Final = FOLDER / "equivalent.toml"
"""Why mutants change nothing that anybody can see, by number."""
SEED: Final = 36
APPS: Final = ("ledger", "billing")
SCHEMAS: Final = tuple(
    sorted(str(path.relative_to(ROOT)) for app in APPS for path in (ROOT / app).rglob("migrations/schema.sql"))
)
PACKAGES: Final = (
    "ledger/rules",
    "ledger/services",
    "ledger/journal.py",
    "ledger/database",
    "ledger/rest/kit",
    "billing/rating",
    "billing/generator",
    "billing/metering",
    "billing/documents",
    "billing/payments",
)


@dataclass(frozen=True)
class Place:
    """What a mutant changes, and where.

    `function` is a qualified name, or the head of a statement of SQL. `line` is the line on which the change begins. `occurrence`
    counts the places that are the same in all else, from 0.
    """

    path: str
    function: str
    operator: str
    before: str
    after: str
    line: str
    occurrence: int = 0


@dataclass(frozen=True)
class Mutant:
    """A mutant of the list.

    `killed_before` is the test that failed with it before the suite was cut; None if no test failed. `known` is a test that fails
    with it now, which is tried first.
    """

    number: int
    place: Place
    killed_before: str | None = None
    known: str | None = None


@dataclass(frozen=True)
class Change:
    """A mutant as it was found in the present source: the line on which it begins, and the whole file with the change."""

    place: Place
    lineno: int
    mutate: Callable[[], str]


def read_list(path: Path = LIST) -> list[Mutant]:
    """Return the mutants of the list, in the order in which the seed chose them."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Mutant(row["number"], Place(**row["place"]), row["killed_before"], row["known"]) for row in rows]


def write_list(mutants: Iterable[Mutant], path: Path = LIST) -> None:
    """Write the list, one mutant a line."""
    path.write_text("".join(json.dumps(asdict(mutant), ensure_ascii=False) + "\n" for mutant in mutants))


def changes_of(root: Path, path: str) -> list[Change]:
    """Return all mutants of a file."""
    from tests.mutation import python_changes, sql_changes

    source = (root / path).read_text(encoding="utf-8")
    found = sql_changes.changes_of(path, source) if path.endswith(".sql") else python_changes.changes_of(path, source)
    return list(_numbered(found))


def _numbered(changes: Iterable[Change]) -> Iterator[Change]:
    """Count the places that are the same in all else."""
    seen: Counter[Place] = Counter()
    for change in changes:
        yield replace(change, place=replace(change.place, occurrence=seen[change.place]))
        seen[change.place] += 1


def sources(root: Path) -> list[str]:
    """Return the files of Python that mutants are made of."""
    found = [path for name in PACKAGES for path in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))]
    return sorted(str(path.relative_to(root)) for path in found if path.exists())


def homes(root: Path) -> list[str]:
    """Return the files in which a mutant may be found again: all of the product, because packages move too."""
    return sorted(
        str(path.relative_to(root)) for app in APPS for end in ("*.py", "schema.sql") for path in (root / app).rglob(end)
    )


def choose(root: Path, *, count: int, in_schemas: int, seed: int = SEED) -> list[Mutant]:
    """Choose mutants by a seed, `in_schemas` of them in the schemas, each file with a share by its size.

    Of a file the operator is drawn first and then the place, because most places are arguments and texts.
    """
    chance = random.Random(seed)
    drawn = _drawn(root, sources(root), count - in_schemas, chance) + _drawn(root, SCHEMAS, in_schemas, chance)
    chance.shuffle(drawn)
    return [Mutant(number, place) for number, place in enumerate(drawn, start=1)]


def _drawn(root: Path, paths: Iterable[str], count: int, chance: random.Random) -> list[Place]:
    by_file = {path: [change.place for change in changes_of(root, path)] for path in paths}
    by_file = {path: places for path, places in by_file.items() if places}
    drawn: dict[Place, None] = {}
    while len(drawn) < count:
        [path] = chance.choices(list(by_file), [len(places) for places in by_file.values()])
        by_operator = defaultdict(list)
        for place in by_file[path]:
            by_operator[place.operator].append(place)
        drawn[chance.choice(by_operator[chance.choice(sorted(by_operator))])] = None
    return list(drawn)


def locate(root: Path, mutants: Iterable[Mutant]) -> dict[int, Change]:
    """Find mutants in the present source, by number; one whose code is gone is missing.

    A function that moved to another file is found there, if its line stands there only.
    """
    mutants = list(mutants)
    changes: dict[str, dict[Place, Change]] = {}

    def of(path: str) -> dict[Place, Change]:
        if path not in changes:
            exists = (root / path).exists()
            changes[path] = {change.place: change for change in changes_of(root, path)} if exists else {}
        return changes[path]

    found: dict[int, Change] = {}
    texts = {path: (root / path).read_text(encoding="utf-8") for path in homes(root)}
    for mutant in mutants:
        place = mutant.place
        others = [path for path, text in texts.items() if path != place.path and place.line in text]
        for path in [place.path, *others]:
            if change := of(path).get(replace(place, path=path)):
                found[mutant.number] = change
                break
    return found


def write_changes(folder: Path, changes: dict[int, Change]) -> None:
    """Write located mutants for the workers, which would each take half a minute to locate them."""
    rows = (
        {"number": number, "place": asdict(each.place), "lineno": each.lineno, "text": each.mutate()}
        for number, each in changes.items()
    )
    (folder / CHANGES).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def read_changes(folder: Path) -> dict[int, Change]:
    """Return what `write_changes` wrote."""
    rows = read_rows(folder / CHANGES)
    return {row["number"]: Change(Place(**row["place"]), row["lineno"], partial(str, row["text"])) for row in rows}


def read_rows(*paths: Path) -> list[dict[str, Any]]:
    """Return the rows of files of JSON lines; a last line that was cut off by an interruption is left out."""
    rows = []
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return rows


def results_of(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the last result of each mutant, by number; those of new processes came last."""
    return {row["number"]: row for row in read_rows(*sorted(folder.glob("results-*.jsonl")))}


def read_reasons() -> dict[int, str]:
    """Return why mutants are equivalent to the product, by number."""
    return {int(number): reason for number, reason in tomllib.loads(REASONS.read_text()).items()} if REASONS.exists() else {}


def is_open(mutant: Mutant, results: dict[int, dict[str, Any]], reasons: dict[int, str]) -> bool:
    """Return whether a mutant is to be run: no test has failed with it yet, and it is not known to be equivalent."""
    return mutant.number not in reasons and results.get(mutant.number, {}).get("outcome") not in ("killed", "gone", "invalid")
