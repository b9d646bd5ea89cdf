"""How much of the project there is to read: `python -m tests.reading [FOLDER]`, for this tree or another checkout of the project.

Prints each number with its aim, the most that it is to be. `--files` prints the files that name a noun; `--spend` also runs
`tests.benchmarks.walk`, which starts a PostgreSQL. A line is a line of a Python file, empty or not.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("ledger", "billing", "ledger_project")
FOLDERS_OF_DJANGO: Final = {"commands", "en", "management", "migrations", "templatetags"}
"""Django looks for modules in folders of these names."""
CREDITS: Final = frozenset({"ledger", "ledger.rest", "ledger.staff", "ledger.keys"})
"""The applications of credits with REST and pages."""
LOAD: Final = """
import sys, django
from django.conf import settings
settings.configure(INSTALLED_APPS=["ledger"], USE_TZ=True)
django.setup()
from ledger import services
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] in ("ledger", "billing"):
        with open(module.__file__) as file:
            print(name, sum(1 for _ in file))
"""


class Noun(NamedTuple):
    """One of its kind, of which a project adds more.

    Args:
        pattern: what the files that name it contain, or are called. Who adds one like it changes as many files at most.
        aim: how many files those are to be at most.
    """

    name: str
    pattern: str
    aim: int


NOUNS: Final = (
    Noun("a kind of entry (reissue)", r"\b(?:reissues?|Reissue\w*|REISSUE\w*)\b", 9),
    Noun("a field of a customer (buyer_reference)", r"\bbuyer_reference\b", 3),
    Noun("a provider of payments (Stripe), with its setting", r"\bStripeProvider\b", 2),
    Noun("a format of banks (MT940), with the table of formats", r"\bmt940\b", 2),
    Noun("a price model (package)", r"\bPackagePrice\b", 1),
    Noun("a read call (versions of a rate)", r"\b(?:RateVersions|rate_versions)\b", 3),
)
IRREGULAR: Final = frozenset((
    "begun", "bound", "bought", "broken", "brought", "built", "chosen", "dealt", "done", "drawn", "driven", "fallen", "felt",
    "forgotten", "found", "given", "gone", "grown", "held", "hidden", "kept", "known", "laid", "led", "left", "lost", "made",
    "meant", "met", "overridden", "paid", "risen", "said", "seen", "sent", "shown", "sold", "sought", "spent", "spoken",
    "stood", "stored", "struck", "sworn", "taken", "thought", "thrown", "told", "understood", "won", "worn", "wound",
    "written",
))  # fmt: skip
"""Participles that do not end in -ed. Those that are verbs as well (read, run, put, set) do not count."""
VERBS: Final = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "speed"})
SAME_EVERYWHERE: Final = frozenset({"Meta", "Command", "Migration"})
"""Names that Django gives to classes."""


class Size(NamedTuple):
    """What a reader has to read of something."""

    modules: int
    lines: int


# What is read -----------------------------------------------------------------------------------------


def loaded_modules(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of each module that `from ledger import services` loads where only the ledger is installed."""
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=root, capture_output=True, text=True, check=True)
    return {name: int(lines) for name, lines in (line.split() for line in done.stdout.splitlines())}


def credit_files(root: Path = ROOT) -> list[Path]:
    """Return the Python files of credits with REST and pages: those of `ledger` without the applications that CREDITS lacks."""
    others = {path.parent for path in (root / "ledger").rglob("apps.py")} - {root / name.replace(".", "/") for name in CREDITS}
    return [path for path in sorted((root / "ledger").rglob("*.py")) if not others & set(path.parents)]


def folders(root: Path = ROOT) -> list[Path]:
    """Return the packages of the product, without folders in which Django looks for modules."""
    packages = [path.parent for package in PACKAGES for path in sorted((root / package).rglob("__init__.py"))]
    return [folder for folder in packages if folder.name not in FOLDERS_OF_DJANGO]


def spend_files(root: Path = ROOT) -> tuple[int, int]:
    """Return how many files a spend over HTTP runs through: all, and without those that only count and log."""
    command = [sys.executable, "-m", "tests.benchmarks.walk"]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    both = re.findall(r"\d+ calls, (\d+) files", said)
    return int(both[0]), int(both[1])


# What is changed --------------------------------------------------------------------------------------


def naming_files(noun: Noun, root: Path = ROOT) -> list[str]:
    """Return the Python and SQL files of the product that name a noun."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*")) if path.suffix in (".py", ".sql")]
    return [str(path.relative_to(root)) for path in paths if re.search(noun.pattern, f"{path.name}\n{path.read_text()}")]


# Words ------------------------------------------------------------------------------------------------


@cache
def _nodes(root: Path) -> list[ast.AST]:
    """Return every node of the product's code."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]


def is_participle(name: str) -> bool:
    """Return whether a name is one word that says neither what is done nor with what."""
    word = name.strip("_")
    return word in IRREGULAR or (word.endswith("ed") and "_" not in word and word not in VERBS)


def participles(root: Path = ROOT) -> Counter[str]:
    """Return how often each bare participle names a function. Properties are no functions: a boolean may read as a statement."""
    functions = (node for node in _nodes(root) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return Counter(each.name for each in functions if is_participle(each.name) and not _is_property(each))


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(each).rpartition(".")[2] for each in function.decorator_list}
    return bool(names & {"property", "cached_property"})


def assignments_of_found(root: Path = ROOT) -> int:
    """Return how often `found` is assigned, a name that does not say what was found."""
    names = (node for node in _nodes(root) if isinstance(node, ast.Name))
    return sum(name.id == "found" and isinstance(name.ctx, ast.Store) for name in names)


def ambiguous_classes(root: Path = ROOT) -> dict[str, int]:
    """Return how many classes have the same name, for each name that several have."""
    names = Counter(node.name for node in _nodes(root) if isinstance(node, ast.ClassDef))
    return {name: number for name, number in names.items() if number > 1 and name not in SAME_EVERYWHERE}


# The table --------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A number with what it counts, and the most that it is to be."""

    what: str
    number: int
    aim: int | None = None


def rows(root: Path, *, spend: bool) -> Iterator[Row]:
    """Yield each number."""
    loaded = loaded_modules(root)
    yield Row("lines that `from ledger import services` loads", sum(loaded.values()), 12_500)
    yield Row("modules that it loads", len(loaded))
    if spend:
        every, without_counting = spend_files(root)
        yield Row("files that a spend over HTTP runs through", every, 34)
        yield Row("the same without those that only count and log", without_counting)
    size = _size(credit_files(root))
    yield Row("lines of credits with REST and pages", size.lines, 28_000)
    yield Row("modules of it", size.modules)
    yield Row("folders", len(folders(root)), 60)
    for noun in NOUNS:
        yield Row(f"files that name {noun.name}", len(naming_files(noun, root)), noun.aim)
    yield Row("functions that are a bare participle", sum(participles(root).values()), 173)
    yield Row("assignments of `found`", assignments_of_found(root), 196)
    yield Row("names that several classes have", len(ambiguous_classes(root)), 23)


def _size(paths: Sequence[Path]) -> Size:
    return Size(len(paths), sum(len(path.read_text().splitlines()) for path in paths))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--spend", action="store_true", help="also count the files that a spend runs through")
    parser.add_argument("--files", action="store_true", help="print the files that name each noun")
    options = parser.parse_args()
    root = options.folder.resolve()
    for row in rows(root, spend=options.spend):
        aim = "" if row.aim is None else f"  aim {row.aim:,}"
        number = f"{row.number:,}" if row.number else "–"
        sys.stdout.write(f"{row.what:75} {number:>7}{aim}\n")
    for noun in NOUNS if options.files else ():
        sys.stdout.write(f"{noun.name}:\n" + "".join(f"    {name}\n" for name in naming_files(noun, root)))


if __name__ == "__main__":
    main()
