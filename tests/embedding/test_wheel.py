"""The wheel: what is in it, what it requires, and that each part works with its extra alone."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from ledger import services
from ledger.records import UseCase
from ledger.services import credits as credits_module
from tests.embedding.installations import DRIVER, ROOT, run

PACKAGES = ("ledger", "billing")

LOAD = """
import django, importlib, pkgutil, sys
WORDS = {
    "api": {"rest", "calls", "schemas", "responses", "examples", "paths", "urls"},
    "admin": {"staff", "pages", "cards", "forms", "references", "search", "attention"},
}
MODULES = {
    "senders": {"ledger.signals.sending", "ledger.signals.delivery"},
    "stripe": {"billing.payments.providers.stripe_payments", "billing.stripe_client", "billing.tax_services.stripe_tax"},
}
from django.conf import settings
apps, wanted, parts = (text.split(",") for text in sys.argv[1:])
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", *apps], USE_TZ=True)
django.setup()
for package in wanted:
    for module in pkgutil.walk_packages([importlib.import_module(package).__path__[0]], f"{package}."):
        # An application of its own has its calls and its pages in modules that say so: `alert_calls`, `alert_pages`.
        left_out = {*parts, "pytest_plugin"}.union(*(WORDS.get(part, ()) for part in parts))
        words = {*module.name.split("."), module.name.rpartition("_")[2]}
        if left_out.isdisjoint(words) and not any(module.name in MODULES.get(part, ()) for part in parts):
            importlib.import_module(module.name)
            print(module.name)
"""
"""Imports every module of packages, beside those of some parts, and prints their names."""

UNFOLD = "unfold,unfold.contrib.filters,django.contrib.admin,django.contrib.messages,ledger.staff"


def pyproject() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def load(python: Path, apps: str, packages: str, without: str = "-", *, succeeds: bool = True) -> str:
    """Import the modules of packages in an environment; without those of some parts."""
    return run(python, "-c", LOAD, apps, packages, without, succeeds=succeeds)


def test_the_wheel_has_every_file_of_the_two_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if not name.endswith("/") and ".dist-info/" not in name}
    list_files = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    listed = subprocess.run(list_files, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found == {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    endings = {Path(name).suffix for name in found}
    assert {".py", ".sql", ".html", ".css", ".js", ".typ"} <= endings
    # Type checkers read the annotations of packages that say so.
    assert {f"{package}/py.typed" for package in PACKAGES} <= found


@pytest.mark.parametrize("file", ["pyproject.toml", "clients/python/pyproject.toml"])
def test_a_checkout_can_be_built_with_any_release_of_the_backends_series(file: str) -> None:
    """pip downloads the backend: a bound at the newest patch fails where a registry does not serve that one yet."""
    (required,) = tomllib.loads((ROOT / file).read_text())["build-system"]["requires"]
    assert re.fullmatch(r"uv_build>=0\.[0-9]+,<0\.[0-9]+", required)


def test_the_wheels_metadata_has_the_licence_and_the_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert (metadata["Name"], metadata["License-Expression"], metadata["Requires-Python"]) == ("credit-ledger", "MIT", ">=3.11")
    assert set(metadata.get_all("Provides-Extra") or ()) == {
        "api",
        "admin",
        "billing",
        "payments",
        "pdf",
        "server",
        "testing",
        "vies",
        "webhooks",
    }


def test_the_pinned_requirements_are_those_of_the_server_within_their_ranges() -> None:
    """requirements.in pins what the extra `[server]`, and what it names, may be."""
    project = pyproject()
    extras = project["optional-dependencies"]
    declared: dict[str, Requirement] = {}
    for line in [*project["dependencies"], *(line for extra in extras if extra != "testing" for line in extras[extra])]:
        requirement = Requirement(line)
        if requirement.name == "credit-ledger":
            assert requirement.extras == {"api", "admin", "billing", "payments", "pdf", "vies", "webhooks"}
            continue
        before = declared.setdefault(requirement.name, requirement)
        before.extras |= requirement.extras
        before.specifier &= requirement.specifier
    lines = (line for line in (ROOT / "requirements.in").read_text().splitlines() if not line.startswith("#"))
    pinned = {requirement.name: requirement for requirement in map(Requirement, lines)}
    assert {name: each.extras for name, each in pinned.items()} == {name: each.extras for name, each in declared.items()}
    for name, requirement in pinned.items():
        (version,) = (each.version for each in requirement.specifier)
        assert declared[name].specifier.contains(version), (name, version)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extras", "apps", "packages", "without", "has"),
    [
        ([], "ledger", "ledger", "api,admin,testing,senders", "ledger.services.execute"),
        (["webhooks"], "ledger,ledger.rest,ledger.signals", "ledger", "api,admin,testing", "ledger.signals.sending"),
        (["api"], "ledger,ledger.rest", "ledger", "admin,testing,senders", "ledger.rest.urls"),
        (["admin"], f"{UNFOLD},ledger", "ledger", "api,testing,senders", "ledger.staff.holder_page"),
        (["testing"], "ledger", "ledger", "api,admin,senders", "ledger.testing"),
        (["billing"], "ledger,billing", "billing", "api,admin,testing,stripe", "billing.generator.run.generate"),
        (["billing", "payments"], "ledger,billing", "billing", "api,admin,testing", "billing.payments.providers.stripe_payments"),
        (["billing", "api"], "ledger,ledger.rest,billing", "billing", "admin,testing,stripe", "billing.api.urls"),
        (["billing", "admin"], f"{UNFOLD},ledger,billing", "billing", "api,testing,stripe", "billing.admin.invoices"),
        (["billing", "testing"], "ledger,billing", "billing", "api,admin,stripe", "billing.testing"),
    ],
)
def test_each_part_is_imported_with_its_extra_alone(
    extras: list[str], apps: str, packages: str, without: str, has: str, python_with: Callable[..., Path]
) -> None:
    modules = load(python_with(*extras), apps, packages, without).split()
    assert has in modules
    assert len(modules) > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("apps", "package", "missing"),
    [
        ("ledger", "ledger.rest", "(rest_framework|drf_spectacular)"),
        ("ledger", "ledger.staff.kit", "unfold"),
        ("ledger", "ledger.testing", "factory"),
        ("ledger,billing", "billing", "(rest_framework|stdnum)"),
    ],
)
def test_without_its_extra_a_part_is_not_imported(
    apps: str, package: str, missing: str, python_with: Callable[..., Path]
) -> None:
    """The control: these environments have nothing of the tests' own."""
    assert re.search(f"No module named '{missing}'", load(python_with(), apps, package, succeeds=False))


@pytest.mark.slow
def test_pdfs_are_set_with_their_extra_alone_and_are_no_calls_without_it(python_with: Callable[..., Path]) -> None:
    code = """
import datetime, django
from django.conf import settings
needed = ["django.contrib.contenttypes", "django.contrib.auth"]
settings.configure(INSTALLED_APPS=[*needed, "ledger", "ledger.rest", "ledger.totals", "ledger.statements"], USE_TZ=True)
django.setup()
from ledger.typesetting import typeset
print(typeset.IS_INSTALLED, typeset.without_glyph("A") == "" if typeset.IS_INSTALLED else "")
try:
    from ledger.rest.urls import urlpatterns
except ImportError:
    urlpatterns = []
print(sum(str(each.pattern).endswith(".pdf") for each in urlpatterns), "of", len(urlpatterns) > 20)
"""
    assert run(python_with("pdf"), "-c", code).split() == ["True", "True", "0", "of", "False"]
    assert run(python_with("api"), "-c", code).split() == ["False", "0", "of", "True"]
    assert run(python_with("api", "pdf"), "-c", code).split() == ["True", "True", "1", "of", "True"]


@pytest.mark.slow
def test_pip_installs_the_wheel_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", wheel, DRIVER)
    installed = set(re.findall(r"^(\S+?)==", run(*pip, "freeze"), re.MULTILINE))
    assert not {"djangorestframework", "django-unfold", "typst"} & {name.lower() for name in installed}
    assert "ledger.services.execute" in load(python, "ledger", "ledger", "api,admin,testing,senders")
    run(*pip, "install", f"{wheel}[api,admin,billing,payments,pdf,testing,webhooks]")
    apps = f"{UNFOLD},ledger,ledger.rest,billing"
    assert {"ledger.rest.urls", "billing.admin.runs"} <= set(load(python, apps, "ledger,billing").split())


def names_offered(init: Path) -> tuple[set[str], set[str]]:
    """What a package imports from its own modules to offer it, and what it says in `__all__`."""
    package = init.parent.relative_to(ROOT).as_posix().replace("/", ".")
    imported, said = set(), set()
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            imported |= {each.asname or each.name for each in node.names if each.name != "*"}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and ast.unparse(node.targets[0]) == "__all__":
            said = {ast.literal_eval(each) for each in node.value.elts}
    return imported, said


def test_a_strict_type_checker_lets_others_import_what_a_package_offers() -> None:
    """Strict mypy takes a name that a package only imports for its own use as missing."""
    forgotten = {}
    for package in PACKAGES:
        for init in (ROOT / package).rglob("__init__.py"):
            imported, said = names_offered(init)
            if imported - said:
                forgotten[init] = imported - said
    assert forgotten == {}


def test_every_use_case_is_offered() -> None:
    named = {name for name, value in vars(credits_module).items() if isinstance(value, UseCase)}
    assert len(named) >= 20
    assert named <= set(services.__all__)
    assert all(hasattr(services, name) for name in services.__all__)
