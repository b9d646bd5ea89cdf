"""The plug-in of pytest that runs tests with a mutant: `pytest -p tests.mutation.worker --mutation=PHASE`, started by `__main__`.

    reach    each test once, without a mutant, to find which mutants and which names of the schema it reaches
    python   for each mutant of Python, a fork of the process gets the mutant's code into the loaded functions and runs its tests
    sql      for each mutant of a schema, a fork makes the test database from it and runs its tests

A fork has all tests loaded, so a mutant costs little more than the tests that run until one fails. The mutant is on the disk too,
for the processes that tests start; so the folder of pytest must be a copy of the project.
"""

import builtins
import ctypes
import importlib
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import psycopg
import pytest

from tests.mutation import python_changes
from tests.mutation.mutants import ROOT, Change, Mutant, is_open, read_changes, read_list, read_reasons, read_rows, results_of
from tests.mutation.on_disk import on_disk
from tests.mutation.order import Reach, ordered

PR_SET_CHILD_SUBREAPER: Final = 36
LONGEST: Final = 20_000
"""Characters of a statement; a longer one makes a whole schema and names all."""
NAME: Final = re.compile(r"\b(?:ledger|billing)_\w+")
MIGRATIONS: Final = ("ledger.migrations.0001_initial", "billing.migrations.0001_initial")
LAST: Final = "/concurrency/"
SLOWEST_S: Final = 60.0
"""How long a test may take with a mutant; longer if without one it takes a tenth of that time."""
UNKNOWN_S: Final = 1.0
"""How long a test takes that has not run yet."""
WARMING: Final = ("tests/ledger/", "tests/billing/")
"""A test of the first folder makes the database; as one of the second is next, nothing else of it is kept."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `__main__` says to the worker."""
    group = parser.getgroup("mutation")
    group.addoption("--mutation", choices=("reach", "python", "sql"), required=True)
    group.addoption("--mutation-folder", type=Path, required=True)
    group.addoption("--mutation-list", type=Path, required=True)
    group.addoption("--mutation-share", required=True, help="I/N: the I-th of N workers, from 0")
    group.addoption("--mutation-seconds", type=float, required=True)
    group.addoption("--mutation-limit", type=int, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Take the place of pytest's own loop over the tests."""
    config.pluginmanager.register(Worker(config), "mutation")


class Worker:
    """Does a worker's share of a phase, leaving out what is in its file of results already."""

    def __init__(self, config: pytest.Config) -> None:
        self._phase = config.getoption("--mutation")
        self._folder = config.getoption("--mutation-folder")
        self._place, self._workers = map(int, config.getoption("--mutation-share").split("/"))
        self._seconds = config.getoption("--mutation-seconds")
        self._mutants = read_list(config.getoption("--mutation-list"))
        if self._phase != "reach":
            self._mutants = self._mutants[: config.getoption("--mutation-limit")]
        self._changes = read_changes(self._folder)
        self._failure: pytest.TestReport | None = None
        self._outcomes: list[str] = []
        self._items: dict[str, pytest.Item] = {}

    # Phases ------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do the phase."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        self._items = {item.nodeid: item for item in session.items}
        {"reach": self._reach, "python": self._python, "sql": self._sql}[self._phase]()
        return True

    def _reach(self) -> None:
        """Run each test of this worker's files, and write what it reached."""
        results = self._folder / f"reach-{self._place}.jsonl"
        known = {row["test"] for row in read_rows(*self._folder.glob("reach-*.jsonl"))}
        files = {item.nodeid.partition("::")[0] for item in self._items.values()}
        mine = {file for file in files if crc32(file.encode()) % self._workers == self._place}
        items = [item for nodeid, item in self._items.items() if nodeid.partition("::")[0] in mine and nodeid not in known]
        # An interrupted run has the quick ones then.
        items.sort(key=lambda item: LAST in item.nodeid)
        reached: set[int] = set()
        names: set[str] = set()
        self._probe(reached)
        with results.open("a") as output, _observed_names(names):
            for item, following in zip(items, [*items[1:], None], strict=True):
                reached.clear()
                names.clear()
                start = time.monotonic()
                is_passed = self._run(item, following)
                row = {
                    "test": item.nodeid,
                    "seconds": round(time.monotonic() - start, 3),
                    "passed": is_passed and "passed" in self._outcomes,
                }
                output.write(json.dumps(row | {"mutants": sorted(reached), "names": sorted(names)}) + "\n")
                output.flush()

    def _probe(self, reached: set[int]) -> None:
        """Let each place of a mutant add the mutant's number to `reached`."""
        setattr(builtins, python_changes.PROBE, reached.add)
        functions = self._load_functions()
        by_path: dict[str, list[tuple[int, int]]] = {}
        for number, change in self._changes.items():
            if change.place.path.endswith(".py"):
                by_path.setdefault(change.place.path, []).append((number, change.lineno))
        for path, lines in by_path.items():
            source = (ROOT / path).read_text(encoding="utf-8")
            probed = python_changes.probed_code(str(ROOT / path), source, lines)
            python_changes.replace_code(functions, str(ROOT / path), source, probed)

    def _python(self) -> None:
        """Run the mutants of Python in forks of this process, once the database is made."""
        from django.db import connections

        first, second = (
            next(item for nodeid, item in self._items.items() if nodeid.startswith(folder) and _uses_database(item))
            for folder in WARMING
        )
        assert self._run(first, second), self._failure and self._failure.longreprtext
        connections.close_all()
        functions = self._load_functions()

        def enter(change: Change) -> None:
            path = ROOT / change.place.path
            mutated = compile(change.mutate(), str(path), "exec", dont_inherit=True)
            python_changes.replace_code(functions, str(path), path.read_text(encoding="utf-8"), mutated, change.place.function)

        self._run_mutants(".py", enter)

    def _sql(self) -> None:
        """Run the mutants of the schemas, each in a fork that makes its own database."""

        def enter(change: Change) -> None:
            for name in MIGRATIONS:
                sys.modules.pop(name, None)

        self._run_mutants(".sql", enter)

    def _load_functions(self) -> python_changes.Functions:
        import gc

        paths = {change.place.path for change in self._changes.values() if change.place.path.endswith(".py")}
        for path in paths:
            importlib.import_module(path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
        # What was collected is hidden from `gc.get_objects` (tests/conftest.py).
        gc.unfreeze()
        functions = python_changes.loaded_functions(str(ROOT / path) for path in paths)
        gc.freeze()
        return functions

    # Mutants -----------------------------------------------------------------------------------------

    def _run_mutants(self, suffix: str, enter: Callable[[Change], None]) -> None:
        """Run this worker's mutants, and write for each which test failed."""
        results = self._folder / f"results-{self._place}.jsonl"
        outcomes, reasons = results_of(self._folder), read_reasons()
        reach = [
            Reach(row["test"], row["seconds"], frozenset(row["mutants"]), frozenset(row["names"]))
            for row in read_rows(*sorted(self._folder.glob("reach-*.jsonl")))
            if row["passed"] and row["test"] in self._items
        ]
        known = {each.known for each in self._mutants} & set(self._items) - {each.test for each in reach}
        reach += [Reach(test, UNKNOWN_S, frozenset(), frozenset()) for test in known if test]
        times = {each.test: each.seconds for each in reach}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        kept = _children()
        # The share is of all mutants: which are open changes while the workers start, one after the other.
        shared = [each for each in self._mutants if each.place.path.endswith(suffix)][self._place :: self._workers]
        with results.open("a") as output:
            for mutant in (each for each in shared if is_open(each, outcomes, reasons)):
                output.write(json.dumps(self._result(mutant, reach, times, enter)) + "\n")
                output.flush()
                _end(_children() - kept)

    def _result(
        self, mutant: Mutant, reach: list[Reach], times: dict[str, float], enter: Callable[[Change], None]
    ) -> dict[str, Any]:
        """Run a mutant's tests; return the row that says which failed."""
        change = self._changes.get(mutant.number)
        if change is None:
            return {"number": mutant.number, "outcome": "gone"}
        start = time.monotonic()
        tests = ordered(ROOT, mutant.number, change, reach, mutant.known, self._seconds)
        with on_disk(ROOT, change):
            outcome = self._forked(change, tests, times, enter) if tests else {"outcome": "unreached"}
        return {"number": mutant.number, "tests": len(tests), "seconds": round(time.monotonic() - start, 1)} | outcome

    def _forked(
        self, change: Change, tests: list[str], times: dict[str, float], enter: Callable[[Change], None]
    ) -> dict[str, Any]:
        """Run tests in a fork with the mutant until one fails; return what to record."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._child(change, tests, writing, enter)
        os.close(writing)
        last = tests[0]
        with os.fdopen(reading, "rb", buffering=0) as messages:
            rest = b""
            while True:
                # The first test has the making of the database in it.
                patience = max(SLOWEST_S, 10 * times[last]) + (SLOWEST_S if last == tests[0] else 0)
                if not select.select([messages], [], [], patience)[0]:
                    break
                data = messages.read(65536)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "outcome" in message:
                        os.waitpid(pid, 0) if not _waited(pid) else None
                        return message
                    last = message["test"]
                if not data:
                    break
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        return {"outcome": "killed", "by": last, "why": "the process ended, or did not go on"}

    def _child(self, change: Change, tests: list[str], writing: int, enter: Callable[[Change], None]) -> None:
        """In the fork: get the mutant in, run the tests, say how it went, and end without what the parent does at its end."""

        def say(**message: Any) -> None:
            os.write(writing, json.dumps(message).encode() + b"\n")

        try:
            enter(change)
            items = [self._items[test] for test in tests]
            for item, following in zip(items, [*items[1:], None], strict=True):
                say(test=item.nodeid)
                if not self._run(item, following):
                    assert self._failure is not None
                    text = self._failure.longreprtext
                    is_unmade = "django_db_setup" in text and self._failure.when == "setup"
                    say(outcome="invalid" if is_unmade else "killed", by=item.nodeid, why=text.strip()[-300:])
                    with suppress(BaseException):
                        item.session._setupstate.teardown_exact(None)
                    break
            else:
                say(outcome="survived")
        except BaseException as error:
            say(outcome="failed", why=repr(error))
        finally:
            os._exit(0)

    # Tests -------------------------------------------------------------------------------------------

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Run a test as pytest does; return whether no part of it failed."""
        self._failure, self._outcomes = None, []
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        return self._failure is None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how the test went."""
        if report.failed and self._failure is None:
            self._failure = report
        if report.when == "call":
            self._outcomes.append(report.outcome)


def _uses_database(item: pytest.Item) -> bool:
    return item.get_closest_marker("django_db") is not None


@contextmanager
def _observed_names(names: set[str]) -> Iterator[None]:
    """Add to `names` the tables, views and functions that statements name, whichever way they are sent."""
    from ledger.database.statements import Statement

    found = lru_cache(maxsize=50_000)(lambda text: frozenset(NAME.findall(text) if len(text) < LONGEST else ()))
    patch = pytest.MonkeyPatch()
    for name in ("execute", "executemany"):
        send = getattr(psycopg.Cursor, name)

        def observed(cursor: Any, query: Any, *arguments: Any, _send: Any = send, **options: Any) -> Any:
            text = query if isinstance(query, str) else query.decode() if isinstance(query, bytes) else query.as_string(cursor)
            names.update(found(text))
            return _send(cursor, query, *arguments, **options)

        patch.setattr(psycopg.Cursor, name, observed)
    rows = Statement.rows

    def observed_rows(statement: Statement, values: Any) -> Any:
        names.update(found(statement.sql))
        return rows(statement, values)

    patch.setattr(Statement, "rows", observed_rows)
    with patch.context():
        yield
    patch.undo()


def _children() -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    found.add(int(folder.name))
    return found


def _waited(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _end(orphans: set[int]) -> None:
    """End what a fork left running, such as the servers of a test that did not come to its end."""
    for pid in orphans:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
