"""`make convince RECORD=COMMIT`: runs `make convince` of a commit, and keeps what it printed for the commit's release.

It runs in a clone of the commit, so that the files that are being worked on are not what is shown. The result stands in
tests/convince/releases, and in the table of docs/explanation/convince.md.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy.release.build import ROOT
from deploy.release.convincing import FOLDER, PARTS, Part, Result, read_result, write_result
from deploy.release.notes import HEADING
from ledger.version import release_of
from tests.benchmarks.server import computer
from tests.benchmarks.tables import placed

PAGE: Final = "docs/explanation/convince.md"
FIRST_RELEASE: Final = (0, 2, 0)
END_OF_PART: Final = re.compile(r"^(?P<part>.+): (?P<verdict>as it is to be|NOT AS IT IS TO BE), (?P<seconds>\d+) s$")
HOLDS: Final = re.compile(r"^  .+: holds in all ([\d,]+) states$")
BREAKS: Final = re.compile(r"^  .+: broken after \d+ steps: ")
FIGURE: Final = re.compile(r"^[\d,]+ answers: |^\d+ (passed|failed|skipped|errors?)\b")


def main() -> int:
    """Record a commit; return 1 if a part did not come out as it is to, or was left out. Then nothing is kept."""
    commit = subprocess.run(
        ["git", "rev-parse", "--verify", f"{sys.argv[1]}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    machine = computer()
    with tempfile.TemporaryDirectory(prefix="convince-") as folder:
        clone = Path(folder) / "code"
        subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, clone], check=True)
        subprocess.run(["git", "checkout", "--quiet", "--detach", commit], cwd=clone, check=True)
        (clone / ".venv").symlink_to((ROOT / ".venv").resolve())
        release = tomllib.loads((clone / "pyproject.toml").read_text())["project"]["version"]
        lines = list(_lines_of_run(clone))
    result = Result(release, commit[:8], datetime.now(UTC).date().isoformat(), machine, tuple(parts_of(lines)))
    if tuple(each.part for each in result.parts) != PARTS or not result.is_as_promised:
        print("\nNothing is kept: not every part came out as it is to.", file=sys.stderr)
        return 1
    print(f"\nKept in {write_result(ROOT, result).relative_to(ROOT)} and in {PAGE}")
    write_page()
    return 0


def _lines_of_run(clone: Path) -> Iterator[str]:
    """Run it, print what it prints, and yield its lines."""
    environment = {**os.environ, "LEDGER_DATA_DIR": str(clone / ".data")}
    words = [sys.executable, "-m", "tests.convince"]
    with subprocess.Popen(words, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            yield line.rstrip("\n")


def parts_of(lines: Iterable[str]) -> Iterator[Part]:
    """Read what `make convince` prints: each part with its figures."""
    figures: list[str] = []
    states: list[int] = []
    broken = 0
    for line in lines:
        if ended := END_OF_PART.match(line):
            if states or broken:
                figures = [f"{len(states) + broken} models: {len(states)} hold, in {sum(states):,} states; {broken} break"]
            yield Part(ended["part"], int(ended["seconds"]), ended["verdict"] == "as it is to be", tuple(figures))
            figures, states, broken = [], [], 0
        elif holds := HOLDS.match(line):
            states.append(int(holds[1].replace(",", "")))
        elif BREAKS.match(line):
            broken += 1
        elif FIGURE.match(line):
            figures.append(line)


def results() -> dict[str, Result]:
    """The results of all releases that have one."""
    return {path.stem: read_result(path) for path in (ROOT / FOLDER).glob("*.json")}


def releases() -> list[str]:
    """The releases whose databases are upgraded, the newest first, as the changelog has them."""
    headings = HEADING.findall((ROOT / "CHANGELOG.md").read_text())
    return [version for version in headings if release_of(version) >= FIRST_RELEASE]


def table(found: Mapping[str, Result], versions: Iterable[str]) -> str:
    """The table of the page: a row for each release, and for each part that it was shown."""
    lines = ["| release | | printed | s |", "|---|---|---|---|"]
    for version in versions:
        result = found.get(version)
        if result is None:
            lines.append(f"| **{version}** | not run | | |")
            continue
        where = result.machine
        lines.append(
            f"| **{result.release}** | {result.date}, commit {result.commit} | {where['cores']} cores ({where['processor']}), "
            f"{where['memory_gib']} GiB, Python {where['python']}; load before: {where['load_before']} "
            f"| {sum(each.seconds for each in result.parts)} |"
        )
        lines += [f"| | {each.part} | {'; '.join(each.figures)} | {each.seconds} |" for each in result.parts]
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Write the table into the page."""
    page = ROOT / PAGE
    page.write_text(placed(page.read_text(), table(results(), releases())))


if __name__ == "__main__":
    sys.exit(main())
