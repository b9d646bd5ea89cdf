"""Which tests run when: what `make test` runs, what `make check` adds, and the parts of `make prove`; docs/reference/tests.md.

`slow` leaves a test to the part of its folder, or to the part whose mark it bears beside it. `check` has `make check` run it, but
for the cases whose parameter is `slow` and bears no `check` itself.
`products(by=FUNCTION)` or `products(most=NUMBER)` leaves cases of a list to `products`. Of a test that both ways in run, one way
is left to `ways`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from inspect import isfunction, signature
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")

TESTS: Final = Path(__file__).parent

PARTS: Final = (
    "deployment", "ways", "products", "faults", "browser", "clients", "distributed", "benchmarks", "examples", "convince",
    "races",
)  # fmt: skip
"""The parts, in the order in which they run."""

FOLDERS: Final = {
    "deployment": "deployment",
    "embedding": "deployment",
    "schema": "deployment",
    "left_out": "deployment",
    "faults": "faults",
    "convince": "convince",
    "browser": "browser",
    "admin": "browser",
    "operators": "browser",
    "clients": "clients",
    "distributed": "distributed",
    "benchmarks": "benchmarks",
    "tampering": "products",
    "billing": "examples",
    "ledger": "examples",
}
"""The part of the slow tests of each folder; the innermost that is named here counts."""

TEST, CHECK = "not slow", "not slow or check"
"""What `make test` and `make check` select."""

selection = ""
"""What this run selects by marks; set before the tests are collected."""

WAYS: Final = ("front", "django")
"""The names of the two ways in among a test's parameters; see `way` in tests/ledger/rest/conftest.py."""


def spread(every: Iterable[T], *, test: Collection[T], check: Collection[T] = ()) -> list[Any]:
    """Parameters, such as seeds: which of them `make test` runs, and which `make check` besides; `make prove` runs every one.

    Where only those of `make test` or `make check` run, the others are not made, or one if there is no other.
    """

    def marks(each: T) -> list[pytest.MarkDecorator]:
        if each in test:
            return []
        return [pytest.mark.slow, pytest.mark.check] if each in check else [pytest.mark.slow]

    found = list(every)
    if selection in (TEST, CHECK):
        found = [each for each in found if each in test or (selection == CHECK and each in check)] or found[:1]
    return [pytest.param(each, marks=marks(each)) for each in found]


def is_left_out(test: Any) -> bool:
    """Whether it is a function of which this run selects no case, by its marks, so that pytest need not make them: thousands."""
    marks = getattr(test, "pytestmark", ()) if isfunction(test) else ()
    if selection not in (TEST, CHECK) or all(mark.name != "slow" for mark in marks):
        return False
    cases = [case for mark in marks if mark.name == "parametrize" for case in mark.args[1]]
    names = {mark.name for mark in (*marks, *(mark for case in cases for mark in getattr(case, "marks", ())))}
    return selection == TEST or "check" not in names


def mark_parts(items: list[pytest.Item]) -> None:
    """Give each test the marks of its parts, and mark as slow what `make test` leaves to `ways` and `products`.

    Raises:
        pytest.UsageError: a test is slow, and its folder is of no part.
    """
    for item in items:
        _leave_slow_case(item)
        _mark_way(item)
    for _, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        _leave_to_products(list(cases))
    for item in items:
        _mark_part(item)


def _leave_slow_case(item: pytest.Item) -> None:
    """Leave a case to `make prove` if a parameter of it is slow, even if the test is one of `make check`."""
    callspec = getattr(item, "callspec", None)
    names = {mark.name for mark in callspec.marks} if callspec is not None else set()
    if "slow" in names and "check" not in names:
        _leave_to_prove(item)


def _leave_to_prove(item: pytest.Item) -> None:
    """Mark a case as slow, and take the mark away with which its test is one of `make check`."""
    item.own_markers[:] = [mark for mark in item.own_markers if mark.name != "check"]
    item.add_marker("slow")


def _mark_way(item: pytest.Item) -> None:
    """Leave a test of one way in to `ways` if the other is chosen, by a digest of what their ids have in common."""
    name = _way_of(item)
    if name is None:
        return
    item.add_marker("ways")
    test, _, parameters = item.nodeid.partition("[")
    common = test + parameters.replace(name, "", 1)
    if WAYS[crc32(common.encode()) % len(WAYS)] != name:
        _leave_to_prove(item)


def _way_of(item: pytest.Item) -> str | None:
    """The name of the way in by which the test is run, if it is run by both."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or not isinstance(callspec.params.get("way"), type):
        return None
    return next((name for name in WAYS if name in callspec.id.split("-")), None)


def _leave_to_products(cases: list[pytest.Item]) -> None:
    """Mark the cases of a product as slow, but for one of each group, or for the number that its mark says."""
    mark = cases[0].get_closest_marker("products")
    if mark is None:
        return
    quick = [case for case in cases if not is_slow(case)]
    kept = set(_one_of_each(quick, mark.kwargs["by"]) if "by" in mark.kwargs else _evenly(quick, mark.kwargs["most"]))
    for case in quick:
        if case not in kept:
            case.add_marker("slow")


def _one_of_each(cases: list[pytest.Item], by: Callable[..., Any]) -> Iterator[pytest.Item]:
    """The first case of each group; `by` gives the group of a case from those of its parameters that it names."""
    names = signature(by).parameters
    seen = set()
    for case in cases:
        parameters = case.callspec.params  # type: ignore[attr-defined]
        group = by(**{name: parameters[name] for name in names})
        if group not in seen:
            seen.add(group)
            yield case


def _evenly(cases: list[pytest.Item], most: int) -> list[pytest.Item]:
    """This number of cases, at equal distances, the first among them."""
    count = min(most, len(cases))
    return [cases[number * len(cases) // count] for number in range(count)]


def _mark_part(item: pytest.Item) -> None:
    """Give a test the mark of its folder's part if it is slow or a race, and bears the mark of no part."""
    # All names at once: a look for the mark of each part in turn would take longer than all else here.
    names = {mark.name for mark in item.iter_markers()}
    if not names.isdisjoint(PARTS):
        return
    folders = _folders(item.path)
    if folders[:1] == ("concurrency",):
        item.add_marker("races")
    elif "slow" in names:
        part = next((FOLDERS[folder] for folder in reversed(folders) if folder in FOLDERS), None)
        if part is None:
            raise pytest.UsageError(f"{item.nodeid} is slow, and its folder is of no part; tests/parts.py has the parts")
        item.add_marker(part)


@cache
def _folders(path: Path) -> tuple[str, ...]:
    """The folders of a file below that of the tests."""
    return path.relative_to(TESTS).parts[:-1]


def is_slow(item: pytest.Item) -> bool:
    """Whether `make test` leaves the test out."""
    return item.get_closest_marker("slow") is not None
