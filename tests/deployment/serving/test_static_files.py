"""The names that static files are linked by, and how long a browser may keep them."""

import hashlib
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.templatetags.static import static

from tests.asgi_client import AsgiClient

FOR_GOOD = "max-age=315360000, public, immutable"
FOR_A_MINUTE = "max-age=60, public"
PLAIN = "/static/admin/js/core.js"


def test_a_file_is_linked_by_a_name_that_changes_with_its_content() -> None:
    content = Path(str(finders.find("admin/js/core.js"))).read_bytes()
    assert static("admin/js/core.js") == f"/static/admin/js/core.{hashlib.sha256(content).hexdigest()[:12]}.js"


def test_a_missing_file_keeps_its_name() -> None:
    assert static("ledger/missing.js") == "/static/ledger/missing.js"


def test_what_is_named_by_its_content_is_kept_for_good_and_the_plain_name_for_a_minute() -> None:
    client = AsgiClient()
    named, plain = client.get(static("admin/js/core.js")), client.get(PLAIN)
    assert (named.status_code, named["Cache-Control"]) == (200, FOR_GOOD)
    assert (plain.status_code, plain["Cache-Control"]) == (200, FOR_A_MINUTE)
    assert named.content == plain.content


def test_a_name_with_another_digest_is_not_found(db: None) -> None:
    assert AsgiClient().get("/static/admin/js/core.000000000000.js").status_code == 404


@pytest.mark.parametrize("page", ["/admin/login/", "/docs/api"])
def test_every_file_of_a_page_is_kept_for_good(db: None, page: str) -> None:
    client = AsgiClient()
    links = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get(page).content.decode()))
    assert links
    assert {link: client.get(link).get("Cache-Control") for link in links} == dict.fromkeys(links, FOR_GOOD)


def test_djangos_checks_have_nothing_to_say() -> None:
    call_command("check", "--tag", "staticfiles", fail_level="WARNING")
