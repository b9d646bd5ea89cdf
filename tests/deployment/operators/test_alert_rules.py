"""The admin explains each alert of the monitoring, from the rules and the docs themselves, and finds it by its name."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from django.conf import settings as project
from django.test import Client
from pytest_django import Settings

from ledger_project.operators import alert_rules
from tests.ledger.staff.admin_site import operator, text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/monitoring-alerts/"


@pytest.fixture(autouse=True)
def _read_again() -> Iterator[None]:
    alert_rules.alerts.cache_clear()
    yield
    alert_rules.alerts.cache_clear()


def names() -> list[str]:
    rules = yaml.safe_load((project.BASE_DIR / alert_rules.RULES).read_text())["groups"]
    return [rule["alert"] for group in rules for rule in group["rules"]]


def hits(client: Client, word: str) -> list[str]:
    return re.findall(r"monitoring-alerts/#(\w+)", client.get("/admin/search/", {"s": word}).content.decode())


def test_the_page_says_of_each_alert_what_it_means_and_what_to_do() -> None:
    page = operator().get(PAGE).content.decode()
    assert re.findall(r'<h2 id="(\w+)">', page) == names()
    part = text_of(page.partition('id="LedgerMailsWait"')[2].partition("</section>")[0])
    assert "On the next working day" in part
    assert "Either no worker runs manage.py deliver_mails" in part
    assert "Fires once this has been true for 30m: max(ledger_mail_oldest_waiting_seconds) > 3600" in html.unescape(part)
    assert "<table>" in page.partition('id="LedgerUnavailable"')[2].partition("</section>")[0]


@pytest.mark.products(most=2)
@pytest.mark.parametrize("typed", ["LedgerMailsWait", "ledgermailsw", "mails wait", "LedgerMailsWiat"])
def test_the_search_finds_an_alert_by_its_name(typed: str) -> None:
    assert "LedgerMailsWait" in hits(operator(), typed)


def test_who_may_not_see_the_locks_sees_no_alerts() -> None:
    client = operator("ledger.view_account", name="ben")
    assert client.get(PAGE).status_code == 403
    assert hits(client, "LedgerMailsWait") == []
    assert hits(operator("ledger.view_locks", name="eve"), "LedgerMailsWait") == ["LedgerMailsWait"]


def test_links_lead_to_the_site_of_the_docs_where_it_is_served(tmp_path: Path, settings: Settings) -> None:
    settings.DOCS_DIR = tmp_path
    assert 'href="/docs' not in _text("LedgerDown")
    (tmp_path / "index.html").write_text("")
    alert_rules.alerts.cache_clear()
    assert 'href="/docs/how-to/operations/run/#what-is-refused-at-the-start"' in _text("LedgerDown")
    assert 'href="/docs/reference/api/#what-does-the-outcome-unknown-mean"' in _text("LedgerUnavailable")
    assert ".md" not in "".join(each.text for each in alert_rules.alerts())


def _text(name: str) -> str:
    return next(each.text for each in alert_rules.alerts() if each.name == name)


def test_where_the_files_are_not_installed_the_page_says_so(tmp_path: Path, settings: Settings) -> None:
    settings.BASE_DIR = tmp_path
    assert "are not installed here" in text_of(operator().get(PAGE).content.decode())
