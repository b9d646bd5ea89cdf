"""Which tests `make test`, `make check` and the parts of `make prove` run, by the marks of a small suite."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONGEST_FIRST

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from pathlib import Path
import pytest
from tests import parts

parts.TESTS = Path(__file__).parent

class AsgiClient: pass
class Client: pass

@pytest.fixture(params=[AsgiClient, Client], ids=["front", "django"])
def way(request):
    return request.param

def pytest_configure(config):
    parts.selection = config.option.markexpr
    for mark in (*parts.PARTS, "slow", "check"):
        config.addinivalue_line("markers", mark)

def pytest_pycollect_makeitem(obj):
    return [] if parts.is_left_out(obj) else None

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    parts.mark_parts(items)
"""
TESTS = """
import pytest
from tests.parts import spread

def test_quick(): pass

@pytest.mark.slow
def test_long(): pass

@pytest.mark.slow
@pytest.mark.clients
def test_of_another_part(): pass

@pytest.mark.products(by=lambda size: size % 2)
@pytest.mark.parametrize("size", [1, 3, 4, 5, 6])
def test_kinds(size): pass

@pytest.mark.check
@pytest.mark.products(most=2)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_some(size): pass

@pytest.mark.parametrize("seed", spread(range(4), test=[2], check=[1]))
def test_seeds(seed): pass

@pytest.mark.parametrize("case", range(8))
def test_both_ways(way, case): pass

@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("case", range(8))
def test_both_ways_slowly(way, case): pass

@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("server", ["front", pytest.param("other", marks=pytest.mark.slow)])
def test_servers(server): pass
"""
COLLECT = """
import sys
import pytest

for marks in sys.argv[2:]:
    print(f"{{{marks}}}")
    sys.modules.pop("test_small", None)
    pytest.main([
        "-q", "--collect-only", "--strict-markers", "-p", "no:cacheprovider", "-p", "no:django", "-p", "no:schemathesis",
        "-m", marks, "--rootdir", sys.argv[1], "-c", "/dev/null", sys.argv[1],
    ])
"""


def collect(folder: Path, *selections: str) -> str:
    """What pytest says about the tests that each of these selections by marks takes from the small suite."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, folder, *selections],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def collected(folder: Path, *selections: str) -> dict[str, list[str]]:
    """The names of the tests that each selection takes."""
    parts = re.split(r"^\{(.*)\}$", collect(folder, *selections), flags=re.MULTILINE)[1:]
    return {
        marks: [line.partition("::")[2] for line in said.splitlines() if "::" in line]
        for marks, said in zip(parts[::2], parts[1::2], strict=True)
    }


def small_suite(tmp_path: Path, folder: str) -> Path:
    """A folder of tests in the folder of a part."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "test_small.py").write_text(TESTS)
    return tmp_path


@pytest.mark.slow
@pytest.mark.check
def test_make_test_leaves_out_what_the_marks_leave_to_make_check_and_make_prove(tmp_path: Path) -> None:
    checked = "not slow or check"
    found = collected(small_suite(tmp_path, "billing"), "not slow", checked, "examples", "clients", "products", "ways")
    quick = found["not slow"]
    both_ways = [name for name in quick if "both_ways" in name]
    assert [name for name in quick if name not in both_ways] == [
        "test_quick", "test_kinds[1]", "test_kinds[4]", "test_some[1]", "test_some[3]", "test_seeds[2]",
    ]  # fmt: skip
    assert sorted(name[-2] for name in both_ways) == list("01234567")
    assert {name.partition("[")[2].partition("-")[0] for name in both_ways} == {"front", "django"}
    added = set(found[checked]) - set(quick)
    added_of_both_ways = {name for name in added if "both_ways" in name}
    assert added - added_of_both_ways == {"test_some[2]", "test_some[4]", "test_seeds[1]", "test_servers[front]"}
    assert sorted(name[-2] for name in added_of_both_ways) == list("01234567")
    of_examples = ["test_long", "test_seeds[0]", "test_seeds[1]", "test_seeds[3]", "test_servers[front]", "test_servers[other]"]
    assert found["examples"] == of_examples
    assert found["clients"] == ["test_of_another_part"]
    assert len(found["products"]) == 9
    assert len(found["ways"]) == 32


@pytest.mark.slow
@pytest.mark.check
def test_what_only_make_prove_runs_is_not_made_for_the_others(tmp_path: Path) -> None:
    said = collect(small_suite(tmp_path, "billing"), "not slow", "not slow or check", "examples or ways")
    # Without the functions that are slow, and of the seeds those that `spread` leaves.
    assert re.findall(r"(\d+)/(\d+) tests collected", said) == [("14", "27"), ("26", "46"), ("38", "50")]


@pytest.mark.slow
@pytest.mark.check
def test_a_slow_test_of_no_part_is_refused(tmp_path: Path) -> None:
    said = collect(small_suite(tmp_path, "elsewhere"), "slow")
    assert "test_long is slow, and its folder is of no part" in said


def test_each_of_the_longest_files_is_there_once() -> None:
    """A file that was moved would lose its place without a word, and a worker be left alone with it at the end."""
    assert [name for name in LONGEST_FIRST if not (ROOT / "tests" / name).exists()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
