"""The docs as a site are served at /docs/ where they have been built, beside the API reference at /docs/api."""

from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from ledger_project.serving.static_files import HAS_DIGEST
from tests.deployment.serving.test_static_files import FOR_A_MINUTE, FOR_GOOD


@pytest.fixture
def site(tmp_path: Path, settings: Settings) -> Client:
    """A client of an application for which a small site has been built."""
    files = {
        "index.html": "<h1>Docs</h1>",
        "how-to/clients/index.html": "<h1>Clients</h1>",
        "assets/site.0123456789ab.css": "p {}",
        "assets/javascripts/bundle.a5f9d56c.min.js": "0",
        "search/search_index.json": "{}",
    }
    for name, text in files.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings.DOCS_DIR = tmp_path / "site"
    return Client()


def body(client: Client, path: str) -> bytes:
    response = client.get(path)
    assert response.status_code == 200, path
    return b"".join(response.streaming_content)


def test_each_page_is_served_under_the_address_of_its_folder(site: Client) -> None:
    assert body(site, "/docs/") == b"<h1>Docs</h1>"
    assert body(site, "/docs/how-to/clients/") == b"<h1>Clients</h1>"


@pytest.mark.parametrize(
    ("path", "to"), [("/docs", "docs/"), ("/docs/how-to/clients", "clients/"), ("/docs/how-to/clients/index.html", "./")]
)
def test_other_spellings_of_an_address_lead_to_it(site: Client, path: str, to: str) -> None:
    response = site.get(path)
    assert (response.status_code, response["Location"]) == (302, to)


def test_the_api_reference_has_its_place_beside_the_site(site: Client) -> None:
    assert b"swagger-ui" in site.get("/docs/api").content


@pytest.mark.parametrize("path", ["/docs/nothing", "/docs/how-to/", "/docs/../settings.py", "/docs/%2e%2e/manage.py"])
def test_what_the_site_does_not_have_is_not_found(db: None, site: Client, path: str) -> None:
    assert site.get(path).status_code == 404


def test_a_name_with_a_digest_is_kept_for_good_and_any_other_for_a_minute(site: Client) -> None:
    kept = {
        "/docs/": FOR_A_MINUTE,
        "/docs/search/search_index.json": FOR_A_MINUTE,
        "/docs/assets/site.0123456789ab.css": FOR_GOOD,
        "/docs/assets/javascripts/bundle.a5f9d56c.min.js": FOR_GOOD,
        "/static/admin/js/core.js": FOR_A_MINUTE,
    }
    found = {path: site.head(path)["Cache-Control"] for path in kept}
    assert found == kept
    assert not HAS_DIGEST.search("/docs/images/admin-home.png")


def test_a_page_of_the_site_has_the_policy_of_pages_that_evaluate_nothing(site: Client) -> None:
    page, reference = site.head("/docs/"), site.get("/docs/api")
    for name in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy"):
        assert page[name] == reference[name], name
    policies = [set(response["Content-Security-Policy"].split("; ")) for response in (page, reference)]
    assert policies[0] == policies[1]
    assert "script-src 'self'" in policies[0]


@pytest.mark.parametrize("path", ["/docs", "/docs/"])
def test_without_a_site_the_docs_are_the_api_reference(path: str, settings: Settings, tmp_path: Path) -> None:
    settings.DOCS_DIR = tmp_path
    response = Client().get(path)
    assert (response.status_code, response["Location"]) == (302, "/docs/api")


def test_without_a_site_its_pages_are_not_found(db: None, settings: Settings, tmp_path: Path) -> None:
    settings.DOCS_DIR = tmp_path
    assert Client().get("/docs/how-to/clients/").status_code == 404
