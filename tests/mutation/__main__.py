"""Run the mutants of the list, and print which of them no test noticed. docs/reference/mutants.md explains it."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutation.fresh import run_fresh
from tests.mutation.mutants import (
    CHANGES,
    LIST,
    ROOT,
    Mutant,
    choose,
    homes,
    is_open,
    locate,
    read_changes,
    read_list,
    read_reasons,
    results_of,
    write_changes,
    write_list,
)
from tests.mutation.report import remember, report

FOLDER: Final = Path(tempfile.gettempdir()) / "mutants"
TESTS: Final = ("tests/ledger", "tests/billing", "tests/schema", "tests/deployment/monitoring", "tests/concurrency")
PHASES: Final = ("python", "sql", "reach", "python", "sql", "fresh")
"""Before it is known which tests reach a mutant, only the test runs that failed with it the last time."""
SUFFIXES: Final = {"python": ".py", "sql": ".sql"}


def main() -> int:
    """Do what the command line says; return 1 if too many mutants survive."""
    options = _options()
    if options.command == "choose":
        write_list(choose(ROOT, count=options.count, in_schemas=options.count // 9), options.list)
        return 0
    if options.command == "run":
        if options.forget:
            shutil.rmtree(options.folder, ignore_errors=True)
        options.folder.mkdir(parents=True, exist_ok=True)
        _locate(options)
        for phase in options.phases.split(","):
            if any(each.place.path.endswith(SUFFIXES.get(phase, "")) for each in _open(options)):
                (_run_fresh if phase == "fresh" else _run)(phase, options)
    if options.command == "remember":
        remember(options.list, options.folder)
        return 0
    return report(options.list, options.folder)


COMMANDS: Final = {
    "run": "go on where an earlier run ended, or try the survivors again with the tests of today; then report",
    "report": "print what was found",
    "choose": "write a new list of mutants",
    "remember": "write into the list which test failed with each mutant",
}


def _options() -> argparse.Namespace:
    commands = "\n".join(f"  {name:9} {what}" for name, what in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="make mutants", description=f"{__doc__}\n{commands}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", default="run", choices=COMMANDS)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for copies, servers and results (%(default)s)")
    parser.add_argument("--list", type=Path, default=LIST, help="the mutants (%(default)s)")
    parser.add_argument("--count", type=int, default=300, help="how many mutants are chosen, or run (%(default)s)")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS", "2")), help="how many processes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of tests that a mutant is given at most (%(default)s)")
    parser.add_argument("--markers", default="not slow", help="which tests count, as for pytest -m (%(default)s)")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="folders of tests")
    parser.add_argument("--phases", default=",".join(PHASES), help="only these of %(default)s")
    parser.add_argument("--forget", action="store_true", help="forget what an earlier run found")
    return parser.parse_args()


def _open(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants that are still to be run."""
    results, reasons = results_of(options.folder), read_reasons()
    return [each for each in read_list(options.list)[: options.count] if is_open(each, results, reasons)]


def _locate(options: argparse.Namespace) -> None:
    """Find the mutants in the source, unless an earlier run found them in the same source."""
    read = [options.list, *(ROOT / path for path in homes(ROOT)), *LIST.parent.glob("*changes.py")]
    found = options.folder / CHANGES
    if not found.exists() or found.stat().st_mtime < max(path.stat().st_mtime for path in read):
        write_changes(options.folder, locate(ROOT, read_list(options.list)))


def _run(phase: str, options: argparse.Namespace) -> None:
    """Run a phase in as many processes as there are jobs, each in a copy of the project and with a server of its own."""
    running = []
    for place in range(options.jobs):
        copy = options.folder / f"project-{place}"
        _copy_project(copy)
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.worker", "-p", "no:xdist", "-p", "no:cacheprovider",
            "--reuse-db", "--create-db", "-m", options.markers, f"--mutation-seconds={options.seconds}",
            f"--mutation={phase}", f"--mutation-folder={options.folder.absolute()}", f"--mutation-share={place}/{options.jobs}",
            f"--mutation-list={options.list.absolute()}", f"--mutation-limit={options.count}",
            *options.tests,
        ]  # fmt: skip
        environment = os.environ | {"LEDGER_DATA_DIR": str(options.folder.absolute() / f"data-{place}"), "PYTHONHASHSEED": "0"}
        log = (options.folder / f"{phase}-{place}.log").open("wb")
        running.append(subprocess.Popen(command, cwd=copy, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
    try:
        codes = [process.wait() for process in running]
    except KeyboardInterrupt:
        for process in running:
            process.wait()
        raise
    # 1: tests failed, as they should.
    if set(codes) - {0, 1}:
        sys.exit(f"{phase}: pytest ended with {codes}; see {options.folder}/{phase}-*.log")


def _run_fresh(phase: str, options: argparse.Namespace) -> None:
    """Run what no fork noticed in new processes."""
    changes = read_changes(options.folder)
    waiting = iter([each for each in _open(options) if each.number in changes])

    def work(place: int) -> None:
        copy = options.folder / f"project-{place}"
        _copy_project(copy)
        environment = {"LEDGER_DATA_DIR": str(options.folder.absolute() / f"data-{place}")}
        with (options.folder / f"results-fresh-{place}.jsonl").open("a") as output:
            for mutant in waiting:
                row = run_fresh(copy, mutant, changes[mutant.number], options, environment)
                output.write(json.dumps(row) + "\n")
                output.flush()

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, range(options.jobs)))


def _copy_project(copy: Path) -> None:
    """Copy what git knows or would add: the mutants are written to the copy."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    shutil.rmtree(copy, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


if __name__ == "__main__":
    sys.exit(main())
