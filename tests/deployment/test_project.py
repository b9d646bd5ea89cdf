"""The project's own machinery: make's targets, the layers, the pinned requirements."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.conftest import LONGEST_FIRST
from tests.parts import PARTS
from tests.reading import folders

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
PACKAGES = ("ledger", "billing", "ledger_project")


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    said = subprocess.run(["make", "--silent"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in said.splitlines()} == set(phony[1].split())


def test_the_files_that_are_tested_first_exist() -> None:
    assert [name for name in LONGEST_FIRST if not (ROOT / "tests" / name).is_file()] == []


def test_ci_runs_make_check_which_runs_the_tests_of_make_test_among_its_own() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake check")
    makefile = (ROOT / "Makefile").read_text()
    checks = re.search(r"^check: .+  ##.*\n\t@\$\(MAKE\) --no-print-directory -j2 ([a-z ]+)\n\t(.+)", makefile, re.MULTILINE)
    assert checks is not None
    assert checks[1].split() == ["lint", "types", "layers", "migrations", "docs"]
    assert "-m $(CHECKED)" in checks[2]
    tests = re.search(r"^test: .*\n\t(.+)", makefile, re.MULTILINE)
    checked = re.search(r'^CHECKED := (".+")$', makefile, re.MULTILINE)
    assert tests is not None
    assert checked is not None
    assert tests[1] == checks[2].replace("$(CHECKED)", checked[1].replace(" or check", ""))


def test_the_docs_name_every_part_of_make_prove() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [a-z]", (ROOT / "docs/reference/tests.md").read_text(), re.MULTILINE)
    assert tuple(rows[: len(PARTS)]) == PARTS


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-docs.txt"])
def test_requirements_are_pinned_by_hash_from_no_particular_index(name: str) -> None:
    text = (ROOT / name).read_text()
    pinned = re.findall(r"^([a-z0-9._-]+(?:\[[a-z,-]+\])?==\S+)[^\n]*\\\n    --hash=sha256:", text, re.MULTILINE)
    named = re.findall(r"^[a-z0-9]\S*", text, re.MULTILINE)
    assert len(pinned) == len(named) > 20
    assert "://" not in text


def test_the_docs_are_built_with_their_own_requirements_alone() -> None:
    """The site lists the product's settings, commands and problems, so that it loads the product."""

    def pinned(name: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,-]+\])?==", (ROOT / name).read_text(), re.MULTILINE))

    assert pinned("requirements.txt") | {"mkdocs-material"} <= pinned("requirements-docs.txt") <= pinned("requirements-dev.txt")
    assert re.search(r"^docs: \$\(VENV\)/\.installed-docs ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_runtime_requirements_have_the_versions_that_are_tested() -> None:
    def versions(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)(?:\[[a-z,-]+\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE))

    tested = versions("requirements-dev.txt")
    assert {name: version for name, version in versions("requirements.txt").items() if tested.get(name) != version} == {}


def imported_by(package: str) -> Iterator[str]:
    """The modules whose imports stand in the files of a package, by the first part of their names."""
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            yield from (name.partition(".")[0] for name in names)


def test_the_product_imports_what_it_is_installed_with_and_nothing_of_the_tests() -> None:
    """The tests' own packages are installed wherever the tests run, so that no other test finds such an import."""
    imported = {name for package in PACKAGES for name in imported_by(package)}
    assert "tests" not in imported
    distributions = packages_distributions()
    needed = {
        module: {name.lower().replace("_", "-") for name in distributions[module]} for module in imported & set(distributions)
    }
    assert {"django", "psycopg", "orjson"} <= needed.keys()
    installed = set(re.findall(r"^([a-z0-9._-]+)", (ROOT / "requirements-tracing.txt").read_text(), re.MULTILINE))
    # What only `ledger.testing`, `billing.testing` and the plugin of pytest import.
    installed |= {"factory-boy", "pytest"}
    assert {module: names for module, names in needed.items() if not names & installed} == {}


def test_the_product_names_every_requirement() -> None:
    text = "\n".join(path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(name.lower().replace("_", "-"), set()).add(module)
    required = re.findall(r"^([a-z0-9-]+)", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    # Python itself reads tzdata, where the machine has no time zones.
    unnamed = [name for name in required if not any(re.search(rf"\b{module}\b", text) for module in modules.get(name, ()))]
    assert unnamed == ["tzdata"]


def test_time_zones_are_installed_on_every_platform() -> None:
    """Customers' time zones are read from the machine, which need not have any. Windows alone gets them by other packages."""
    assert re.search(r"^tzdata==\S+ \\$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.check
def test_a_module_in_no_layer_breaks_the_build(tmp_path: Path) -> None:
    """The control: the same tree without `ledger/utils.py` keeps the contract."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    lint = [BIN / "lint-imports", "--no-cache", "--contract", "ledger-rooms"]
    control = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert control.returncode == 0, control.stdout
    (tmp_path / "ledger" / "utils.py").write_text('"""Things."""\n')
    broken = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert broken.returncode == 1
    assert "utils" in broken.stdout


MOST_FOLDERS = 60
"""A folder is a thought. Who makes one more, has one less elsewhere, or says here why not."""


def test_there_is_no_more_folder_than_there_are_thoughts() -> None:
    assert len(folders()) <= MOST_FOLDERS


FACADES = {"ledger/services", "ledger/reads", "billing/reads"}
"""What programs of other projects import by one name."""
NAMED_BY_DJANGO = {"billing/models"}
"""Django imports the module `models` of each application: it says what it consists of."""


def test_a_package_is_no_facade_who_needs_a_name_imports_its_module() -> None:
    for folder in folders():
        body = ast.parse((folder / "__init__.py").read_text()).body
        if str(folder.relative_to(ROOT)) not in FACADES | NAMED_BY_DJANGO:
            assert [node for node in body if not isinstance(node, ast.Expr)] == [], folder


def test_the_license_file_and_the_metadata_name_the_mit_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")


CIRCLES = """
import graphlib, grimp, sys
graph = grimp.build_graph("ledger", "billing", "ledger_project", cache_dir=None)
modules = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
folders = {}
for one, targets in modules.items():
    for other in targets:
        # The folders in which the two are, as far as they are beside each other.
        here, there = (path.split(".")[:-1] for path in (one, other))
        shared = next((place for place, (a, b) in enumerate(zip(here, there)) if a != b), None)
        if shared is not None:
            folders.setdefault(".".join(here[: shared + 1]), set()).add(".".join(there[: shared + 1]))
for arrows in (modules, folders):
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        print(*error.args[1])
"""


@pytest.mark.slow
@pytest.mark.check
def test_no_modules_import_each_other_not_even_for_types(tmp_path: Path) -> None:
    """Nor do folders that stand beside each other. The control: imports for types alone are found, one of a module that imports
    this one, and one of a folder that imports this folder."""
    find_circle = [sys.executable, "-c", CIRCLES]

    def circle(root: Path) -> str:
        return subprocess.run(find_circle, cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    assert circle(ROOT) == ""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    errors = tmp_path / "ledger" / "errors.py"
    errors.write_text(f"{errors.read_text()}\nif TYPE_CHECKING:\n    from ledger import journal\n")
    with (tmp_path / "billing" / "rating" / "names.py").open("a") as names:
        names.write("\nif TYPE_CHECKING:\n    from billing.metering import filters\n")
    found = set(circle(tmp_path).split())
    assert {"ledger.errors", "ledger.journal"} <= found
    assert {"billing.rating", "billing.metering"} <= found
