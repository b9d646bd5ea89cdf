"""Which tests `make test`, `make check` and the parts of `make prove` run, by the marks of a small suite."""

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
    for mark in (*parts.PARTS, "slow", "check"):
        config.addinivalue_line("markers", mark)

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
"""


def collect(folder: Path, marks: str) -> str:
    """What pytest says about the tests that these marks select in the small suite."""
    words = ["-q", "--collect-only", "--strict-markers", "-p", "no:cacheprovider", "-p", "no:django", "-p", "no:schemathesis"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-m", marks, "--rootdir", folder, "-c", "/dev/null", folder],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def collected(folder: Path, marks: str) -> list[str]:
    """The names of the tests that these marks select."""
    return [line.partition("::")[2] for line in collect(folder, marks).splitlines() if "::" in line]


def small_suite(tmp_path: Path, folder: str) -> Path:
    """A folder of tests in the folder of a part."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "test_small.py").write_text(TESTS)
    return tmp_path


@pytest.mark.slow
@pytest.mark.check
def test_make_test_leaves_out_what_the_marks_leave_to_make_check_and_make_prove(tmp_path: Path) -> None:
    suite = small_suite(tmp_path, "billing")
    quick = collected(suite, "not slow")
    both_ways = [name for name in quick if "both_ways" in name]
    assert [name for name in quick if name not in both_ways] == [
        "test_quick", "test_kinds[1]", "test_kinds[4]", "test_some[1]", "test_some[3]", "test_seeds[2]",
    ]  # fmt: skip
    assert sorted(name[-2] for name in both_ways) == list("01234567")
    assert {name.partition("[")[2].partition("-")[0] for name in both_ways} == {"front", "django"}
    added = set(collected(suite, "not slow or check")) - set(quick)
    assert added == {"test_some[2]", "test_some[4]", "test_seeds[1]"}
    assert collected(suite, "examples") == ["test_long", "test_seeds[0]", "test_seeds[1]", "test_seeds[3]"]
    assert collected(suite, "clients") == ["test_of_another_part"]
    assert len(collected(suite, "products")) == 9
    assert len(collected(suite, "ways")) == 16


@pytest.mark.slow
@pytest.mark.check
def test_a_slow_test_of_no_part_is_refused(tmp_path: Path) -> None:
    said = collect(small_suite(tmp_path, "elsewhere"), "slow")
    assert "test_long is slow, and its folder is of no part" in said


def test_each_of_the_longest_files_is_there_once() -> None:
    """A file that was moved would lose its place without a word, and a worker be left alone with it at the end."""
    assert [name for name in LONGEST_FIRST if not (ROOT / "tests" / name).exists()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
