"""The docs as a site in Chromium, built as `make docs` builds them and served with the headers of pages."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as project
from django.test import Client
from pytest_django import Settings

from tests.browser.chromium import Chromium, Site, Visit, site_of
from tests.browser.test_accessibility import violations

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

PAGES = [
    "/docs/", "/docs/tutorial/", "/docs/how-to/refund/", "/docs/how-to/sell-a-pack/", "/docs/reference/problems/", "/docs/adr/",
]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=project.BASE_DIR, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def site(built: Path, settings: Settings) -> Iterator[Site]:
    """It is served, beside the API reference."""
    settings.DOCS_DIR = built
    with site_of(Client()) as site:
        yield site


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("light", 390), ("dark", 1440), ("dark", 390)])
def test_the_pages_do_not_violate_wcag_aa_and_ask_no_other_host(site: Site, chromium: Chromium, theme: str, width: int) -> None:
    def look(visit: Visit) -> dict[str, object]:
        found: dict[str, object] = {}
        for page in PAGES:
            visit.open(site.url + page)
            visit.page.wait_for_load_state("networkidle")
            scheme = visit.page.evaluate("document.body.dataset.mdColorScheme")
            found[page] = (violations(visit), visit.is_wider_than_the_window, scheme)
        assert (visit.complaints, visit.elsewhere) == ([], [])
        return found

    scheme = "slate" if theme == "dark" else "default"
    expected = {page: ([], False, scheme) for page in PAGES}
    assert chromium.look(f"{site.url}/docs/", look, theme=theme, width=width) == expected


def test_the_search_finds_a_page(site: Site, chromium: Chromium) -> None:
    def look(visit: Visit) -> str:
        visit.page.fill("[data-md-component=search-query]", "capture-exceeds-hold")
        found = visit.page.locator(".md-search-result__link").first
        found.wait_for()
        assert (visit.complaints, visit.elsewhere) == ([], [])
        return str(found.get_attribute("href"))

    assert "/docs/reference/" in chromium.visit(f"{site.url}/docs/", look)


def test_the_search_finds_no_records_of_decisions_but_guides(site: Site, chromium: Chromium) -> None:
    def look(visit: Visit) -> list[str]:
        visit.page.fill("[data-md-component=search-query]", "refund")
        found = visit.page.locator(".md-search-result__link")
        found.first.wait_for()
        return [str(each.get_attribute("href")) for each in found.all()]

    found = chromium.visit(f"{site.url}/docs/", look)
    assert any("/how-to/refund/" in address for address in found)
    assert [address for address in found if "/adr/" in address] == []


def test_the_former_address_of_a_call_leads_to_it(site: Site, chromium: Chromium) -> None:
    def look(visit: Visit) -> str:
        visit.page.wait_for_url("**/docs/api**")
        return visit.page.url

    assert chromium.visit(f"{site.url}/docs#/Credits/spendCredits", look) == f"{site.url}/docs/api#/Credits/spendCredits"
