"""What a run found: which mutants survived, by package, and whether the suite notices as much as before."""

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.mutation.mutants import PACKAGES, Mutant, read_list, read_reasons, results_of, write_list

KILLED_SHARE: Final = 0.95


def remember(path: Path, folder: Path) -> None:
    """Write into the list which test failed with each mutant, to be tried first next time."""
    results = results_of(folder)
    write_list([replace(each, known=results.get(each.number, {}).get("by", each.known)) for each in read_list(path)], path)


def report(path: Path, folder: Path) -> int:
    """Print the table and each survivor; return 0 if enough mutants are killed, else 1."""
    mutants, results = read_list(path), results_of(folder)
    reasons = read_reasons()
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    survivors = []
    for mutant in mutants:
        outcome = results.get(mutant.number, {}).get("outcome", "not run")
        if mutant.number in reasons and outcome not in ("killed", "gone"):
            outcome = "equivalent"
        elif outcome not in ("killed", "gone", "not run", "invalid"):
            outcome = "survived"
            survivors.append(mutant)
        for part in (_part(mutant), "all"):
            counts[part]["chosen"] += 1
            counts[part][outcome] += 1
            counts[part]["before"] += outcome not in ("gone", "not run") and mutant.killed_before is not None
    columns = ("chosen", "not run", "gone", "invalid", "before", "killed", "equivalent", "survived")
    rows = [["", *columns]] + [
        [part, *(str(counts[part][column]) for column in columns)] for part in [*sorted(set(counts) - {"all"}), "all"]
    ]
    for row in rows:
        sys.stdout.write(f"{row[0]:30}" + "".join(f"{cell:>11}" for cell in row[1:]) + "\n")
    for mutant in survivors:
        place = mutant.place
        sys.stdout.write(f"\n{mutant.number}: {place.path}, {place.function}, {place.operator}: {place.line}\n")
        sys.stdout.write(f"  {place.before}\n  → {place.after}\n")
    total = counts["all"]
    share = total["killed"] / max(1, total["killed"] + total["survived"])
    is_enough = total["killed"] >= total["before"] and share >= KILLED_SHARE
    sys.stdout.write(f"\nkilled: {total['killed']}, {share:.1%} of those that are not equivalent; before: {total['before']}\n")
    return 0 if is_enough else 1


def _part(mutant: Mutant) -> str:
    path = mutant.place.path
    return next((name for name in PACKAGES if path.startswith(name)), path)
