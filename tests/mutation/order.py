"""Which tests a mutant is given, and in which order: those that reach it, the near and quick ones first."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation import sql_changes
from tests.mutation.mutants import SCHEMAS, Change

SHORTEST_S: Final = 0.02
"""A test is not taken to be quicker than this: it would come before a nearer one."""


class Reach(NamedTuple):
    """A test as it ran without a mutant: how long it took, and which mutants and names of the schema it reached."""

    test: str
    seconds: float
    mutants: frozenset[int]
    names: frozenset[str]


def ordered(root: Path, number: int, change: Change, reach: Iterable[Reach], first: str | None, seconds: float) -> list[str]:
    """Return the tests for a mutant, as many as take no more than these seconds.

    A file of tests that has the mutant's noun gives many tests first, any other one some.

    Args:
        first: the test that is known to have failed with the mutant.
    """
    path = change.place.path
    if path.endswith(".sql"):
        schemas = "\n".join((root / schema).read_text(encoding="utf-8") for schema in SCHEMAS)
        steps = sql_changes.names_of(schemas, change.place.function)
        tests = [each for each in reach if each.names & set(steps) or each.test == first]
        nouns = words(" ".join(name for name, at in steps.items() if at < 2))
    else:
        # What was called once for the whole run, and is cached, was reached by one test only.
        namesake = f"/test_{Path(path).stem}.py::"
        tests = [each for each in reach if number in each.mutants or each.test == first or namesake in each.test]
        nouns = words(f"{path.removesuffix('.py')} {change.place.function}")
    by_file = defaultdict(list)
    for each in sorted(tests, key=lambda each: each.seconds):
        by_file[each.test.partition("::")[0]].append(each)
    ranks = {}
    for file, found in by_file.items():
        near = 1 + closeness(file, path, nouns)
        for place, each in enumerate(sorted(found, key=lambda each: -len(words(each.test.partition("::")[2]) & nouns)), start=1):
            ranks[each.test] = (each.test != first, place * max(each.seconds, SHORTEST_S) / near**2)
    times = {each.test: each.seconds for each in tests}
    taken, total = [], 0.0
    for test in sorted(ranks, key=lambda test: ranks[test]):
        total += times[test]
        if taken and total > seconds:
            break
        taken.append(test)
    return taken


def closeness(test_file: str, path: str, nouns: frozenset[str]) -> float:
    """Return how near a file of tests stands to a file of the product: its folders and its nouns."""
    folders = set(Path(test_file).parent.parts) & set(Path(path).parent.parts)
    own = words(Path(test_file).stem)
    of_schema = path.endswith(".sql") and bool({"schema", "audit", "auditing"} & set(Path(test_file).parts))
    return len(folders) + 2 * len(own & words(Path(path).stem)) + len(own & nouns) + of_schema


def words(text: str) -> frozenset[str]:
    """Return the words of a name, each in the singular."""
    found = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower())
    return frozenset(word.removesuffix("s") for word in found if word not in {"test", "ledger", "billing", "py"})
