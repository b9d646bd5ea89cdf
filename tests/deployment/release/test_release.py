"""The files of a release: the same bytes each time, with metadata that registries accept, and links that lead somewhere there."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from jsonschema import Draft7Validator
from packaging.metadata import Metadata
from referencing import Registry, Resource
from trove_classifiers import classifiers

from deploy.release import build
from deploy.release.archives import write_archive
from deploy.release.components import pins_of, read_pins
from deploy.release.links import with_absolute_links
from deploy.release.notes import notes_of
from deploy.release.sources import Sources, UnfitSources, copy_sources, seconds_of_commit
from tests.deployment.test_docs import LINK

ROOT = build.ROOT
AT = 1_795_963_297
SOURCE = "https://sources.example/ledger"


def released(folder: Path, *builders: build.Builder) -> Sources:
    """Build these files of a release of the files as they are; afterwards their sources are gone."""
    return build.build_release(folder, builders=builders, may_be_uncommitted=True)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is built without uv and npm."""
    folder = tmp_path_factory.mktemp("quick")
    released(folder, *build.QUICK)
    return folder


# The same bytes ---------------------------------------------------------------------------------------


def test_an_archive_says_nothing_of_where_and_when_it_was_made(tmp_path: Path) -> None:
    digests = set()
    for number, mode in enumerate((0o644, 0o664)):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = ["b", "a", "run"] if number else ["run", "a", "b"]
        for name in names:
            (folder / name).write_text(name)
            (folder / name).chmod(mode | (0o110 if name == "run" else 0))
            os.utime(folder / name, (number, number))
        write_archive(folder / "x.tgz", {name: folder / name for name in names}, top="x", seconds=AT)
        digests.add(hashlib.sha256((folder / "x.tgz").read_bytes()).hexdigest())
    assert len(digests) == 1
    with tarfile.open(tmp_path / "0/x.tgz") as archive:
        found = [(each.name, each.mode, each.mtime, each.uid, each.uname) for each in archive]
    assert found == [("x/a", 0o644, AT, 0, ""), ("x/b", 0o644, AT, 0, ""), ("x/run", 0o755, AT, 0, "")]


@pytest.mark.slow
def test_a_release_has_the_same_bytes_in_another_folder_at_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _require_npm()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(AT))
    released(tmp_path / "first", *build.BUILDERS)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.umask(0o077)
    try:
        released(tmp_path / "a folder" / "second", *build.BUILDERS)
    finally:
        os.umask(before)
    sums = (tmp_path / "first" / build.SUMS).read_text()
    assert sums == (tmp_path / "a folder" / "second" / build.SUMS).read_text()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {line.split()[1].replace(version, "V") for line in sums.splitlines()} == {
        "CHANGELOG-V.md", "credit-ledger-V-image.tar.gz", "credit-ledger-V.cdx.json", "credit-ledger-V.tgz",
        "credit-ledger-client-V.tgz", "credit_ledger-V-py3-none-any.whl", "credit_ledger-V.tar.gz",
        "credit_ledger_client-V-py3-none-any.whl", "credit_ledger_client-V.tar.gz",
    }  # fmt: skip
    subprocess.run(["sha256sum", "--check", "--quiet", build.SUMS], cwd=tmp_path / "first", check=True)
    _check_npm_package(next((tmp_path / "first").glob("credit-ledger-client-*.tgz")), tmp_path / "npm")
    for file in (tmp_path / "first").glob("*.whl"):
        _check_python_metadata(file)


@pytest.mark.slow
def test_the_quick_files_have_the_same_bytes_and_another_instant_changes_them(
    quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released(tmp_path / "again", *build.QUICK)
    assert (quick / build.SUMS).read_text() == (tmp_path / "again" / build.SUMS).read_text()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(AT - 1))
    released(tmp_path / "other", *build.QUICK)
    assert (quick / build.SUMS).read_text() != (tmp_path / "other" / build.SUMS).read_text()


# What registries ask for --------------------------------------------------------------------------------


def _require_npm() -> None:
    if shutil.which("npm") is None or not (ROOT / "clients/typescript/node_modules/publint").is_dir():
        pytest.skip("npm is not installed, or `npm ci` has not run in clients/typescript: make release runs it")


def _check_python_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(name))  # raises what is not valid
    assert set(metadata.classifiers or ()) <= classifiers
    assert not any(each.startswith("Private") for each in metadata.classifiers or ())
    assert set(metadata.project_urls or ()) == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert metadata.keywords
    assert metadata.description_content_type == "text/markdown"
    assert list(LINK.findall(metadata.description or "")) == []


def _check_npm_package(package: Path, folder: Path) -> None:
    """Modules of both kinds work, and both have types for TypeScript."""
    modules = folder / "node_modules" / "credit-ledger-client"
    with tarfile.open(package) as archive:
        archive.extractall(folder, filter="data")
    modules.parent.mkdir()
    (folder / "package").rename(modules)
    print_it = "console.log(JSON.stringify([typeof exactInteger, typeof Client]))"
    words = (
        ["--input-type=module", "--eval", f'import {{ Client, exactInteger }} from "credit-ledger-client"; {print_it}'],
        ["--input-type=commonjs", "--eval", f'const {{ Client, exactInteger }} = require("credit-ledger-client"); {print_it}'],
    )
    for each in words:
        done = subprocess.run(["node", *each], cwd=folder, check=True, capture_output=True, text=True)
        assert json.loads(done.stdout) == ["function", "function"]
    (folder / "program.cts").write_text(
        'import { Client } from "credit-ledger-client";\nexport const one: Client | null = null;\n'
    )
    (folder / "program.mts").write_text((folder / "program.cts").read_text())
    (folder / "wrong.cts").write_text('import { Client } from "credit-ledger-client";\nexport const one: Client = 7;\n')
    tsc = ROOT / "clients/typescript/node_modules/.bin/tsc"
    options = ["--strict", "--noEmit", "--module", "NodeNext", "--target", "ES2022", "--lib", "ES2022,DOM"]
    subprocess.run([tsc, *options, "program.cts", "program.mts"], cwd=folder, check=True)
    assert subprocess.run([tsc, *options, "wrong.cts"], cwd=folder, check=False, capture_output=True).returncode != 0
    described = json.loads((modules / "package.json").read_text())
    assert {"description", "keywords", "homepage", "repository", "bugs", "license", "engines"} <= described.keys()
    assert "private" not in described
    assert list(LINK.findall((modules / "README.md").read_text())) == []


@pytest.mark.slow
@pytest.mark.check
def test_the_python_packages_have_metadata_that_registries_accept(tmp_path: Path) -> None:
    released(tmp_path, build.build_python_packages)
    wheels = sorted(tmp_path.glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in wheels] == ["credit_ledger", "credit_ledger_client"]
    for wheel in wheels:
        _check_python_metadata(wheel)
    assert len(list(tmp_path.glob("*.tar.gz"))) == 2


def test_links_lead_to_the_files_of_the_version_where_the_sources_are_published() -> None:
    text = "[a](docs/x.md#b) ![p](docs/p.png) [![p](docs/p.png)](LICENSE) [`x.py`](../x.py) [s](#here) [w](https://w.example/)"
    found = with_absolute_links(text, "clients/README.md", source=SOURCE, version="1.2.3")
    blob, raw = f"{SOURCE}/blob/v1.2.3", f"{SOURCE}/raw/v1.2.3"
    assert found == (
        f"[a]({blob}/clients/docs/x.md#b) ![p]({raw}/clients/docs/p.png) [![p]({raw}/clients/docs/p.png)]({blob}/clients/LICENSE)"
        f" [`x.py`]({blob}/x.py) [s](#here) [w](https://w.example/)"
    )
    code = "`[a](b)`\n\n```markdown\n[a](b)\n```\n"
    assert with_absolute_links(code, "README.md", source=SOURCE, version="1.2.3") == code
    with pytest.raises(ValueError, match=r"README.md links to \.\./x.md, which is not in the sources"):
        with_absolute_links("[x](../x.md)", "README.md", source=SOURCE, version="1.2.3")


@pytest.mark.slow
@pytest.mark.check
def test_the_readmes_of_a_release_have_no_link_that_needs_the_files_beside_them(tmp_path: Path) -> None:
    sources = copy_sources(ROOT, tmp_path, seconds=AT, may_be_uncommitted=True)
    for page in ("README.md", "clients/python/README.md", "clients/typescript/README.md"):
        assert LINK.findall((ROOT / page).read_text()), page
        text = sources.read(page)
        assert LINK.findall(text) == [], page
        for path in re.findall(rf"\]\({re.escape(sources.address)}/(?:blob|raw)/v{sources.version}/([^)#]*)", text):
            assert (tmp_path / path).exists(), path


# What else is in it --------------------------------------------------------------------------------------


def test_the_entry_of_the_changelog_is_that_of_the_version() -> None:
    changelog = "# Changelog\n\n## 0.2.0 (2027-01-01)\n\n- [New](docs/new.md).\n\n## 0.1.0\n\n- First.\n\n## 0.0.1\n"
    assert notes_of(changelog, version="0.2.0", source=SOURCE) == f"# 0.2.0\n\n- [New]({SOURCE}/blob/v0.2.0/docs/new.md).\n"
    assert notes_of(changelog, version="0.1.0", source=SOURCE) == "# 0.1.0\n\n- First.\n"
    with pytest.raises(ValueError, match=r"CHANGELOG.md has no entry of 0.3.0"):
        notes_of(changelog, version="0.3.0", source=SOURCE)
    with pytest.raises(ValueError, match=r"CHANGELOG.md says nothing about 0.0.1"):
        notes_of(changelog, version="0.0.1", source=SOURCE)


def check_bill_of_materials(document: Mapping[str, Any]) -> None:
    """Raise what is wrong with it by the schema of CycloneDX."""
    folder = Path(sys.modules[SchemaVersion.__module__].__file__ or "").parent / "_res"
    schema = json.loads((folder / "bom-1.6.SNAPSHOT.schema.json").read_text())
    names = ("spdx.SNAPSHOT.schema.json", "jsf-0.82.SNAPSHOT.schema.json")
    parts = {f"http://cyclonedx.org/schema/{name}": json.loads((folder / name).read_text()) for name in names}
    registry: Registry[Any] = Registry().with_resources((url, Resource.from_contents(part)) for url, part in parts.items())
    Draft7Validator(schema, registry=registry).validate(document)


@pytest.mark.slow
@pytest.mark.check
def test_the_bill_of_materials_has_every_pinned_package_with_what_needs_it(quick: Path) -> None:
    (file,) = quick.glob("*.cdx.json")
    document = json.loads(file.read_text())
    check_bill_of_materials(document)
    pinned = set(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements-tracing.txt").read_text(), re.MULTILINE))
    assert {(each["name"], each["version"]) for each in document["components"]} == pinned
    components = {each["name"]: each for each in document["components"]}
    assert {components[name]["scope"] for name in ("django", "psycopg")} == {"required"}
    assert components["opentelemetry-api"]["scope"] == "optional"
    needs = {
        each["ref"].partition("@")[0]: {ref.partition("@")[0] for ref in each["dependsOn"]} for each in document["dependencies"]
    }
    assert needs["pkg:pypi/django"] >= {"pkg:pypi/asgiref", "pkg:pypi/sqlparse"}
    assert "pkg:pypi/django" in needs["pkg:pypi/credit-ledger"]
    assert set().union(*needs.values()) == set(needs) - {"pkg:pypi/credit-ledger"}, "each package is needed by something"
    with pytest.raises(Exception, match="'libary' is not one of"):
        check_bill_of_materials({**document, "components": [{**document["components"][0], "type": "libary"}]})


def test_the_bill_of_materials_is_the_same_by_each_process() -> None:
    """The order of a set differs from process to process."""
    program = (
        "from deploy.release.build import ROOT; from deploy.release.components import bill_of_materials, pins_of\n"
        "print(bill_of_materials(pins_of(ROOT), name='x', version='1', licence='MIT', seconds=1))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_package_without_one_version_or_without_hashes_is_refused() -> None:
    digest = f"    --hash=sha256:{'0' * 64}\n"
    (found,) = read_pins(f"x==1 \\\n{digest}    # via\n    #   -r requirements.in\n    #   y\n")
    assert (found.name, found.version, found.needed_by, found.is_named, len(found.digests)) == ("x", "1", {"y"}, True, 1)
    for text in (f"x>=1 \\\n{digest}", "x==1 \\\n    # via y\n"):
        with pytest.raises(ValueError, match="x is not pinned to one version with its hashes"):
            list(read_pins(text))
    assert len(pins_of(ROOT)) > 50


@pytest.mark.slow
@pytest.mark.check
def test_the_archive_of_the_image_has_what_compose_and_the_dockerfile_name(quick: Path, tmp_path: Path) -> None:
    (file,) = quick.glob("*-image.tar.gz")
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", (folder / "Dockerfile").read_text(), re.MULTILINE):
        assert all((folder / path).exists() for path in line.split()), line
    for path in re.findall(r"\./[\w./-]+", (folder / "docker-compose.yml").read_text()):
        assert (folder / path).exists() or path == "./deploy/nginx/tls", path
    assert (folder / "deploy/nginx/start").stat().st_mode & stat.S_IXUSR
    assert not (folder / "tests").exists()
    assert not (folder / "clients").exists()


@pytest.mark.slow
@pytest.mark.check
def test_files_that_no_commit_has_and_several_versions_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, root], check=True)
    (root / "README.md").write_text("Changed")
    with pytest.raises(UnfitSources, match=r"commit them first:\n M README.md"):
        build.build_release(tmp_path / "target", builders=(), root=root)
    package = root / "clients/typescript/package.json"
    package.write_text(re.sub(r'"version": ".*?"', '"version": "9.9.9"', package.read_text()))
    with pytest.raises(UnfitSources, match=r"these have another: \{'clients/typescript/package.json': '9.9.9'\}"):
        build.build_release(tmp_path / "target", builders=(), root=root, may_be_uncommitted=True)
    assert not (tmp_path / "target" / build.SUMS).exists()


@pytest.mark.slow
@pytest.mark.check
def test_the_instant_is_that_of_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert released(tmp_path).seconds == seconds_of_commit(ROOT) <= time.time()


DOCKER = """#!/bin/sh
echo "$@" >> "{log}"
case "$1" in
    info) exit {status} ;;
    build) test -f Dockerfile ;;
    save) echo image > "$3" ;;
esac
"""


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("status", [0, 1])
def test_images_are_built_of_the_archive_where_an_engine_runs(
    status: int, quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, log = tmp_path / "docker", tmp_path / "log"
    docker.write_text(DOCKER.format(log=log, status=status))
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (context,) = quick.glob("*-image.tar.gz")
    said = build.build_images(context, tmp_path, "1.2.3")
    if status:
        assert said.startswith("No engine of Docker runs here, so no image was built. Where one runs: unpack credit-ledger-")
        assert log.read_text() == "info\n"
    else:
        assert said == "Built the images credit-ledger:1.2.3, credit-ledger-pgbouncer:1.2.3, credit-ledger-proxy:1.2.3"
        assert {path.name for path in tmp_path.glob("*.tar")} == {f"{name}-1.2.3.docker.tar" for name in build.IMAGES.values()}
        stages = re.findall(r"--target (\S+)", log.read_text())
        assert stages == [name for name in build.IMAGES if f" AS {name}\n" in (ROOT / "Dockerfile").read_text()]
        assert stages == list(build.IMAGES)
