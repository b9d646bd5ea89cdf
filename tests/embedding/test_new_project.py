"""A Django project of somebody else, on a PostgreSQL that nobody prepared: from `startproject` to the first spend and invoice."""

from collections.abc import Callable

import pytest

from tests.embedding.installations import ROOT, Project

PAGES = ("unfold", "unfold.contrib.filters")
"""What the operators' pages are built on."""
OTHERS = (
    "ledger.cluster",
    "ledger.exchange",
    "ledger.keys",
    "ledger.portal",
    "ledger.rest",
    "ledger.shadow",
    "ledger.signals",
    "ledger.statements",
    "ledger.totals",
)
"""The applications of credits that a project may leave out, beside the operators' pages."""
OF_BILLING = ("billing.books", "billing.dunning", "billing.payments", "billing.statements_in", "billing.tax_services")
"""Those of billing."""

SPEND = """
from ledger.keys import api_keys
from ledger import services
services.grant(holder_id="jane", amount=100, idempotency_key="order-1", actor="shell")
entry = services.spend(holder_id="jane", amount=10, idempotency_key="job-1")
print(entry.balance, services.spend(holder_id="jane", amount=10, idempotency_key="job-1").replayed)
"""

REFUSED = """
from ledger import services
from ledger.errors import InsufficientCredits
try:
    services.spend(holder_id="jane", amount=1000, idempotency_key="job-2")
except InsufficientCredits as refusal:
    print(refusal.facts["available"])
"""

SUBSCRIBE = """
from datetime import datetime, UTC
from billing.orders.customers import create_customer
from billing.orders.plans import create_plan
from billing.orders.subscriptions import create_subscription
from billing.rating.periods import Interval, IntervalUnit
price = {"key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "10.00"}
create_plan(code="basic", name="Basic", currency="EUR", interval=Interval(IntervalUnit.MONTH), prices=[price])
create_customer(ref="ada", name="Ada", currency="EUR")
create_subscription(ref="SUB-1", customer="ada", plan="basic", started_at=datetime(2026, 1, 1, tzinfo=UTC))
"""

SHOW_HOME = """
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.get())
print(client.get("/admin/").text)
"""

OPEN_PDF = """
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.get())
print("PDFs are not installed on this server" in client.get("{}", follow=True).text)
"""

SERVE_CALLS = """
from django.test import Client
from ledger import services
from ledger.keys import api_keys
_, key = api_keys.create_api_key(name="shop", scopes=["ledger:grant", "ledger:spend"])
client = Client(headers={"Authorization": f"Bearer {key}"})

def post(path, body, key):
    response = client.post(path, body, content_type="application/json", headers={"Idempotency-Key": key})
    return response.status_code, response.json().get("balance")

print(post("/v1/holders/jane/grants", {"amount": 100}, "order-1"), post("/v1/holders/jane/spends", {"amount": 10}, "job-1"))
print(post("/v1/holders/jane/spends", {"amount": 1000}, "job-2")[0], post("/v1/plans", {}, "plan-1")[0])
"""

SHOW_PAGE = """
import re
from django.test import Client
from ledger.portal import links
page = Client().get(links.link(holder_id="jane").url)
style = re.search('stylesheet" href="([^"]*)', page.text)[1]
print(page.status_code, "90" in page.text, style, Client().get("/c/?link=wrong").status_code)
"""

COUNT_PAGES = """
from django.contrib import admin
print(sum(model._meta.app_label == "ledger" for model in admin.site._registry))
"""

OPEN_EVERY_PAGE = """
import logging, re
from collections import Counter
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import Resolver404, get_resolver, resolve
logging.disable(logging.CRITICAL)

def addresses(resolver, before=""):
    for each in resolver.url_patterns:
        address = before + str(each.pattern)
        if hasattr(each, "url_patterns"):
            yield from addresses(each, address)
        elif not set("<(?") & set(address):
            yield "/" + address

client = Client(raise_request_exception=False)
client.force_login(get_user_model().objects.create_superuser("ben"))
def view_of(page):
    try:
        return resolve(page).view_name
    except Resolver404:
        return page

waiting, seen, views, answers = sorted(addresses(get_resolver())), set(), Counter(), {}
while waiting:
    page = waiting.pop()
    if page in seen or "logout" in page or page.endswith("/plan/examples/") or views[view_of(page)] == 2:
        continue
    seen.add(page)
    views[view_of(page)] += 1
    answer = client.get(page)
    answers.setdefault(answer.status_code, []).append(page)
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        links = re.findall(r'href="(/admin/[^"#?]*)', answer.text)
        waiting += links
print(sum(map(len, answers.values())))
for status, pages in sorted(answers.items()):
    if status not in (200, 302, 403):
        print(status, *pages)
print(*sorted(page for page in answers[200] if "/ledger/" in page or "/billing/" in page))
"""
"""Opens every address that has no arguments, and what those pages link to: two pages of a view."""


def example(containing: str) -> str:
    """The example of docs/how-to/embedding.md that contains this."""
    blocks = (ROOT / "docs" / "how-to" / "embedding.md").read_text().split("```python\n")[1:]
    (found,) = (code for block in blocks if containing in (code := block.split("```")[0]))
    return found


def opened(project: Project) -> list[str]:
    """The pages of the ledger and of billing that open; fails when one is an error."""
    project.manage("migrate")
    number, *errors, pages = project.shell(OPEN_EVERY_PAGE).splitlines()
    assert errors == []
    assert int(number) > 20
    return pages.split()


@pytest.mark.slow
def test_only_the_ledger_migrates_grants_spends_and_audits(new_project: Callable[..., Project]) -> None:
    """Another database of the project may be anything."""
    project = new_project("ledger", "ledger.portal")
    project.add("DATABASES['old'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'old.sqlite3'}")
    project.manage("check", "--fail-level", "ERROR")
    project.manage("migrate")
    assert project.shell(SPEND) == "90 True"
    assert project.shell(REFUSED) == "90"
    assert "Clean: no violations found." in project.manage("audit_ledger")
    project.add_urls("from django.urls import include", 'urlpatterns += [path("c/", include("ledger.portal.urls"))]')
    # Django's log, which comes last, has no link.
    assert project.shell(SHOW_PAGE).splitlines() == ["200 True /static/ledger/customer_page.css 410", "Gone: /c/"]
    assert "ledger.W00" not in project.manage("check")
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")
    code = "from django.db import connections; print(connections['old'].cursor().execute('SELECT 7').fetchone())"
    assert project.shell(code) == "(7,)"


@pytest.mark.slow
@pytest.mark.check
def test_without_the_pages_the_admin_has_none_of_the_ledger_and_nothing_is_reported(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger")
    assert "no issues" in project.manage("check")
    assert project.shell(COUNT_PAGES) == "0"


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize(
    ("installed", "lacked"), [((), '"unfold" and "unfold.contrib.filters"'), (("unfold",), '"unfold.contrib.filters"')]
)
def test_pages_without_what_they_are_built_on_are_refused_by_name(
    installed: tuple[str, ...], lacked: str, new_project: Callable[..., Project]
) -> None:
    said = new_project(*installed, "ledger", "ledger.staff", extras=("admin",)).manage("check", succeeds=False)
    assert f'"ledger.staff" needs {lacked} in INSTALLED_APPS' in said


@pytest.mark.slow
def test_unfold_behind_the_admin_is_reported(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger", "ledger.staff", extras=("admin",))
    project.add(f"INSTALLED_APPS += {list(PAGES)!r}")
    assert "(ledger.W002) 'unfold' stands behind 'django.contrib.admin'" in project.manage("check")


@pytest.mark.slow  # the next one opens these pages too
def test_with_unfold_every_page_of_the_ledger_opens(new_project: Callable[..., Project]) -> None:
    project = new_project(*PAGES, "ledger", "ledger.staff", *OTHERS, extras=("admin",))
    project.add(example("UNFOLD = {"))
    project.add_urls(example("admin.site.index_template"))
    assert "no issues" in project.manage("check")
    project.manage("migrate")
    assert project.shell(SPEND) == "90 True"
    project.shell(REFUSED)
    pages = opened(project)
    assert {"/admin/ledger/account/month-end/", "/admin/ledger/account/locks/"} <= set(pages)
    assert "No active holder runs out of credits" in project.shell(SHOW_HOME)
    assert project.shell(OPEN_PDF.format("/admin/ledger/account/holders/jane/statement/")) == "True"
    assert {"/admin/ledger/account/", "/admin/ledger/account/holders/jane/", "/admin/ledger/refusallisting/"} <= set(pages)
    assert "/admin/ledger/entrylisting/jane_2Fcredits_2F1/revoke/" in pages


PEOPLE = """
import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models

class Person(AbstractUser):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
"""


@pytest.mark.slow
def test_with_users_of_the_projects_own_whose_keys_are_uuids_every_page_opens(new_project: Callable[..., Project]) -> None:
    project = new_project("people", *PAGES, "ledger", "ledger.staff", *OTHERS, extras=("admin",))
    (project.folder / "people").mkdir()
    (project.folder / "people" / "__init__.py").touch()
    (project.folder / "people" / "models.py").write_text(PEOPLE)
    project.add("AUTH_USER_MODEL = 'people.Person'")
    project.manage("makemigrations", "people")
    project.manage("migrate")
    assert project.shell(SPEND) == "90 True"
    assert {"/admin/ledger/account/", "/admin/ledger/account/holders/jane/"} <= set(opened(project))
    assert "Clean: no violations found." in project.manage("audit_ledger")


@pytest.mark.slow
def test_with_billing_a_subscription_is_invoiced_and_every_page_opens(new_project: Callable[..., Project]) -> None:
    project = new_project(*PAGES, "ledger", "ledger.staff", *OTHERS, "billing", *OF_BILLING, extras=("admin", "billing"))
    project.manage("migrate")
    project.shell(SUBSCRIBE)
    said = project.manage("generate_invoices", "--as-of", "2026-03-01")
    assert "Billed         EUR 30.00 on 1 invoice" in said
    assert len(project.manage("usage_partitions").splitlines()) >= 5
    assert "can still get late usage" in project.manage("usage_partitions", "--drop", "2099-01", succeeds=False)
    for command in ("expire_credits", "update_totals"):
        project.manage(command)
    pages = opened(project)
    assert project.shell(OPEN_PDF.format("/admin/billing/invoice/1/pdf/")) == "True"
    assert {"/admin/billing/invoice/", "/admin/billing/invoice/1/change/", "/admin/billing/subscription/1/pause/"} <= set(pages)


@pytest.mark.slow
def test_the_calls_of_both_applications_are_views(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger", *OTHERS, "billing", *OF_BILLING, extras=("api", "billing"))
    project.add_urls(example('include("billing.api.urls")').replace("    ...,\n", "    *urlpatterns,\n"))
    project.manage("check", "--fail-level", "ERROR")
    project.manage("migrate")
    assert project.shell(SERVE_CALLS).splitlines()[:2] == ["(201, 100) (201, 90)", "402 403"]


@pytest.mark.slow
def test_billing_without_the_ledger_is_refused_by_name(new_project: Callable[..., Project]) -> None:
    said = new_project("billing", extras=("billing",)).manage("check", succeeds=False)
    assert 'ImproperlyConfigured: "billing" needs "ledger" in INSTALLED_APPS' in said


@pytest.mark.slow
def test_another_database_than_postgresql_is_refused_by_name(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger")
    project.add("DATABASES['default'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'new.sqlite3'}")
    assert "SQLite: the ledger needs PostgreSQL 15 or newer" in project.manage("migrate", succeeds=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "message"),
    [("LEDGER = {}", "no issues"), ("LEDGER = {'SHARD': 1}", "(ledger.E004) settings.LEDGER has no 'SHARD'; known are: ")],
)
def test_settings_may_be_empty_and_are_checked(line: str, message: str, new_project: Callable[..., Project]) -> None:
    project = new_project(*PAGES, "ledger", "ledger.staff", extras=("admin",))
    project.add(line)
    assert message in project.manage("check", succeeds=message == "no issues")
