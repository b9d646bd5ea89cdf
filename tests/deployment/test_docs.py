"""The links in the README and under docs/ lead to files and headings, and the files and functions that the pages name exist."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import resolve

from ledger import conf
from ledger.rest.kit.problems import problems_by_slug

ROOT: Path = settings.BASE_DIR
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

LINK = re.compile(r"\]\((?!https?:|/)([^)#\s]*)(?:#([^)\s]+))?\)")
ADDRESS = re.compile(r"\]\((/[^)#\s]*)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
NAMED_FILE = re.compile(r"`((?:ledger|billing|ledger_project|tests|docs|deploy)/[\w./-]*)`")
NAMED_MODULE = re.compile(r"`(\w+\.py)`")
RECORDS = ROOT / "docs" / "adr"
RECORD = re.compile(r"\b(?:adr/|ADR )(\d+(?:(?:, | and )\d{4})*)")
NAMED_FUNCTION = re.compile(r"`([\w/]+\.py)`, `(\w+)`")


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page in links."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(page.read_text()))
    return {word.replace(" ", "-") for word in words}


def dead_links(page: Path) -> Iterator[str]:
    """Yield the links of a page whose file or heading does not exist."""
    for target, anchor in LINK.findall(page.read_text()):
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            yield f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert list(dead_links(page)) == []


def records_named_in(text: str) -> set[int]:
    """Return the numbers of the records of decisions that a text names."""
    return {int(number) for numbers in RECORD.findall(text) for number in re.findall(r"\d+", numbers)}


def test_every_record_of_a_decision_that_code_and_docs_name_exists() -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    texts = [ROOT / name for name in files if Path(name).suffix in (".md", ".py", ".sql", ".toml", ".yml", ".ts", ".html")]
    known = {int(path.name[:4]) for path in RECORDS.glob("[0-9]*.md")}
    unknown = {path: found - known for path in texts if path.is_file() and (found := records_named_in(path.read_text())) - known}
    assert unknown == {Path(__file__): {9998, 9997, 9996, 9995}}


def test_control_a_record_is_named_in_each_of_these_ways() -> None:
    text = "see docs/adr/9998, [ADR 9998](../adr/9998-x.md), ADR 9998, adr/9998; ledger/42; ADR 9997, 9996 and 9995"
    assert records_named_in(text) == {9998, 9997, 9996, 9995}


def name_of(title: str) -> str:
    """The file of a record with this title."""
    return f"{re.sub(r'[^a-z0-9]+', '-', title.lower().replace(chr(39), '')).strip('-')}.md"


def test_a_record_is_titled_by_noun_and_decision_and_its_file_is_named_by_its_title() -> None:
    for path in RECORDS.glob("[0-9]*.md"):
        title = path.read_text().partition("\n")[0]
        assert re.match(rf"# {path.name[:4]}\. [^:]+: \S", title), path
        assert path.name == name_of(title), f"{title} belongs into {name_of(title)}"


def test_every_link_to_an_address_of_the_server_leads_to_a_page() -> None:
    addresses = {address for page in PAGES for address in ADDRESS.findall(page.read_text())}
    assert "/docs/api" in addresses
    for address in addresses:
        resolve(address)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_named_file_exists(page: Path) -> None:
    # `ledger/42` is the name of a lock: the name of a file has a suffix, the name of a folder ends in a slash.
    named = [name for name in NAMED_FILE.findall(page.read_text()) if name.endswith("/") or "." in name.rsplit("/", 1)[1]]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.products(most=20)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_named_without_its_folder_exists_somewhere(page: Path) -> None:
    folders = ("ledger", "billing", "ledger_project", "tests")
    modules = {"manage.py", *(module.name for folder in folders for module in (ROOT / folder).rglob("*.py"))}
    assert [name for name in NAMED_MODULE.findall(page.read_text()) if name not in modules] == []


def test_the_functions_that_the_architecture_names_are_in_their_files() -> None:
    named = NAMED_FUNCTION.findall((ROOT / "docs" / "explanation" / "architecture.md").read_text())
    assert ("ledger/periods.py", "add_months") in named
    missing = [
        (file, name)
        for file, name in named
        if not re.search(rf"^(?:def |class )?{name}\b", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_the_generated_pages_have_every_setting_command_and_problem() -> None:
    spec = importlib.util.spec_from_file_location("generated_pages", ROOT / "docs" / "site" / "generated_pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    names = {each.name for each in conf.SETTINGS}
    assert {row.split("`")[1] for row in pages.settings().splitlines()[2:]} == names
    commands = set(re.findall(r"^## (\S+)$", pages.commands(), re.MULTILINE))
    statuses = {slug: {error_class.answer.status for error_class in classes} for slug, classes in problems_by_slug().items()}
    sections = re.findall(r"^## (\S+)\n\n\*\*(\d{3}) · ", pages.problems(), re.MULTILINE)
    assert {slug: {int(status)} for slug, status in sections} == statuses
    assert {"audit_ledger", "generate_invoices", "serve", "doctor"} <= commands
    assert "| `shortfall` | integer | How many credits are missing. |" in pages.problems()
    for name in pages.PAGES:
        assert f"<!-- generated: {name} -->" in (ROOT / "docs" / "reference" / f"{name}.md").read_text()


def features() -> Any:
    """The module with the features of the comparison."""
    spec = importlib.util.spec_from_file_location("features", ROOT / "docs" / "site" / "features.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where its dataclasses look for their module.
    sys.modules["features"] = module
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_comparison_are_the_declared_features() -> None:
    module = features()
    page = (ROOT / module.PAGE).read_text()
    assert page == module.with_tables(page), "python docs/site/features.py writes them"
    assert page.count("<!-- table: ") == page.count("<!-- end of the table -->") == len(module.TABLES)


def unshown(feature: Any) -> str | None:
    """What is wrong with what a feature names as its proof."""
    if feature.here == "no":
        return "a no is shown by something" if feature.shown_by else None
    file, _, heading = feature.shown_by.partition("#")
    if not file or not (ROOT / file).is_file():
        return f"{file} is missing"
    if heading and heading not in anchors(ROOT / file):
        return f"{file} has no heading {heading}"
    return None


def test_each_feature_of_this_project_names_what_shows_it() -> None:
    module = features()
    assert {each.name: found for each in module.FEATURES if (found := unshown(each))} == {}
    named = {product for each in module.FEATURES for product in each.others}
    assert named == {*module.BILLING_PLATFORMS, *module.LEDGERS}
    assert {"Orb", "Metronome", "Autumn", "Polar", "Kill Bill"} <= named


@pytest.mark.parametrize(
    ("here", "shown_by", "fault"),
    [
        ("yes", "", "is missing"),
        ("yes", "docs/nothing.md", "is missing"),
        ("yes", "docs/tutorial.md#nothing", "has no heading"),
        ("no", "docs/tutorial.md", "a no is shown"),
    ],
)
def test_control_a_feature_that_nothing_shows_is_found(here: str, shown_by: str, fault: str) -> None:
    assert fault in (unshown(features().Feature(name="x", here=here, shown_by=shown_by)) or "")


def test_control_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`?\n[a](#one-two) [b](#three) [c](none.md) [d](page.md#one-two) [e](https://example.com/none.md)\n"
    )
    assert list(dead_links(page)) == ["#three", "none.md#"]


# The guides ------------------------------------------------------------------------------------------

GUIDES = ROOT / "docs" / "how-to"
TASKS = (
    "upgrade-or-downgrade", "cancel-or-pause", "free-trial", "coupons", "refund", "close-a-month", "mail-when-credits-run-low",
    "rate-card", "limits", "my-balance-is-wrong",
)  # fmt: skip
"""Guides for what people ask for most, each of which must exist under its own name."""


def guides_of_the_navigation() -> list[str]:
    """Return the guides in the order of the site, without the pages of operations, which have an index of their own."""
    names = re.findall(r"how-to/([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    return [name for name in names if name != "index.md"]


def test_every_guide_is_in_the_index_and_in_the_navigation_in_the_same_order() -> None:
    files = {path.name for path in GUIDES.glob("*.md")} - {"index.md"}
    before_the_rules = (GUIDES / "index.md").read_text().partition("## What do the examples need")[0]
    indexed = list(re.findall(r"\]\(([\w-]+\.md)\)", before_the_rules))
    assert (set(indexed), len(indexed)) == (files, len(files)), "each once"
    assert indexed == guides_of_the_navigation()


def test_the_operations_index_names_each_of_its_pages() -> None:
    folder = GUIDES / "operations"
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (folder / "index.md").read_text()))
    assert {path.name for path in folder.glob("*.md")} - {"index.md"} <= linked


@pytest.mark.parametrize("task", TASKS)
def test_each_task_that_people_ask_for_has_a_guide_that_begins_with_what_it_does(task: str) -> None:
    title, purpose = re.match(r"# (.+)\n\n(.+)\n", (GUIDES / f"{task}.md").read_text()).groups()  # type: ignore[union-attr]
    assert title.replace('"', "")
    assert purpose.endswith((".", ":")), purpose


LANGUAGES = ["curl", "Python", "TypeScript", "Django"]
TABS = re.compile(r'(?:^=== "[^"]+"\n\n(?:(?: {4}.*)?\n)+)+', re.MULTILINE)


@pytest.mark.parametrize("task", TASKS)
def test_each_example_with_tabs_of_such_a_guide_has_all_languages(task: str) -> None:
    """`tests/clients/test_guides.py` runs them."""
    examples = [re.findall(r'^=== "([^"]+)"', tabs, re.MULTILINE) for tabs in TABS.findall((GUIDES / f"{task}.md").read_text())]
    assert examples
    assert [languages for languages in examples if languages != LANGUAGES] == []


def test_the_first_screen_of_the_readme_says_what_it_is_shows_it_and_starts_it() -> None:
    readme = (ROOT / "README.md").read_text()
    first = "\n".join(readme.splitlines()[:40])
    parts = [re.search(part, first, re.MULTILINE) for part in (r"^\*\*.+\*\*$", r"^!\[.+\]\(.+\.png\)$", r"^\$ make run\b")]
    places = [part.start() for part in parts if part is not None]
    assert (len(places), places) == (3, sorted(places))
    headings = re.findall(r"^## (.+)$", readme, re.MULTILINE)
    assert headings[-2:] == ["How fast", "Four designs that it builds on"], "benchmarks and lineage come last"
