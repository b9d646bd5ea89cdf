"""The last phase: what no test has noticed in a fork runs in new processes, which load the mutant from the disk.

A fork cannot show what a function did while its module was loaded, and it reaches only what tests do in their own process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.mutation.mutants import Change, Mutant
from tests.mutation.on_disk import on_disk
from tests.mutation.order import closeness, words

FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", re.MULTILINE)
MOST_FILES: Final = 12
"""How many files of tests a mutant is given, the nearest ones."""
NO_TESTS: Final = 5
"""What pytest ends with if no test is chosen."""
PATIENCE_S: Final = 900


def run_fresh(copy: Path, mutant: Mutant, change: Change, options: Any, environment: dict[str, str]) -> dict[str, Any]:
    """Run the nearest files of tests with a mutant in the copy of the project; return the row that says which test failed.

    A test that fails without the mutant too is left out.
    """
    files, broken = nearest(copy, change, options.tests), list[str]()
    while True:
        with on_disk(copy, change):
            failed = _first_failure(copy, [*files, *(f"--deselect={test}" for test in broken)], options.markers, environment)
        if failed is None:
            return {"number": mutant.number, "outcome": "survived", "files": files}
        if failed in broken or _first_failure(copy, [failed], options.markers, environment) is None:
            return {"number": mutant.number, "outcome": "killed", "by": failed}
        broken.append(failed)


def _first_failure(copy: Path, tests: list[str], markers: str, environment: dict[str, str]) -> str | None:
    """Run tests until one fails; return it, or the first of them if they do not come to an end, or None."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "--tb=line", "-m", markers, *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=os.environ | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return tests[0]
    if done.returncode in (0, NO_TESTS):
        return None
    failed = FAILED.search(done.stdout)
    return failed[1] if failed else tests[0]


def nearest(root: Path, change: Change, tests: list[str]) -> list[str]:
    """Return the files of tests that stand nearest to a mutant, or name its module and function."""
    path, function = change.place.path, change.place.function.rpartition(".")[2].rpartition(" ")[2]
    module = path.removesuffix(".py").replace("/", ".")
    nouns = words(f"{path.removesuffix('.py')} {change.place.function}")
    ranks = {}
    for file in (file for folder in tests for file in (root / folder).rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        is_named = (re.search(rf"\b{re.escape(function)}\b", text) is not None) + 2 * (module in text)
        ranks[str(file.relative_to(root))] = is_named + closeness(str(file.relative_to(root)), path, nouns)
    return sorted(ranks, key=lambda name: -ranks[name])[:MOST_FILES]
