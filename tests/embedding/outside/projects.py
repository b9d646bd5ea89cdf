"""A Django project that uses what projects use: users whose keys are UUIDs, ATOMIC_REQUESTS, a second database, and Celery."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deployment.traffic import wait_until
from tests.embedding.installations import Project, start_project
from tests.embedding.outside.processes import Program, call
from tests.embedding.outside.releases import HERE

PEOPLE = """
import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models

class Person(AbstractUser):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
"""
CLEAN = "Clean: no violations found."
CREDITS = 100_000
FIRST_ORDER = "order-0"
"""That of `order_first`: the traffic reads where its number is a multiple of 5."""
BEGIN = f"""
from django.contrib.auth import get_user_model
from ledger import services
ada = get_user_model().objects.create_user("ada", password="secret")
services.grant(holder_id=str(ada.pk), amount={CREDITS}, idempotency_key="grant")
"""
RESULTS = """
from django.contrib.auth.models import Group
import json
from django.test import Client
from ledger.models import Entry
keys = set(Entry.objects.filter(kind="spend").values_list("idempotency_key", flat=True))
rows = set(Group.objects.values_list("name", flat=True))
print(json.dumps({
    "keys": sorted(keys),
    "rows_without_entry": sorted(rows - keys),
    "analysed": sorted(Group.objects.using("analytics").values_list("name", flat=True)) == sorted(rows),
    "entries": Entry.objects.count(),
    "logs_in": Client().login(username="ada", password="secret"),
}))
"""


@dataclass(frozen=True)
class Shop:
    """The project, whose database its file `database.json` names."""

    project: Project

    def on(self, python: Path) -> "Shop":
        """The same project in another environment."""
        return Shop(self.project.on(python))

    def use_database(self, settings: Mapping[str, Any]) -> None:
        """Have processes that start from now on use this database."""
        said = {**settings, "ATOMIC_REQUESTS": True}
        (self.project.folder / "database.json").write_text(json.dumps(said))

    def web(self) -> Program:
        """A web server."""
        words = [
            self.project.python,
            "-m",
            "uvicorn",
            "site_of_ours.asgi:application",
            "--port",
            "{port}",
            "--log-level",
            "warning",
        ]
        return Program([*words], self.project.folder)

    def worker(self) -> Program:
        """A worker of Celery."""
        words = [self.project.python, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "1", "--loglevel", "warning"]
        return Program([*words], self.project.folder, serves=False)

    def results(self) -> dict[str, Any]:
        """What there is now: of spends, of the rows and lines of orders, of entries; and whether ada can log in."""
        found: dict[str, Any] = json.loads(self.project.shell(RESULTS).splitlines()[-1])
        return found


def start_shop(python: Path, folder: Path, settings: Mapping[str, Any], *, prepares: bool = False) -> Shop:
    """Make the project with its tables and a user who has credits.

    Args:
        prepares: it keeps prepared statements, by a PgBouncer that can.
    """
    project = start_project(python, folder, {}, ["people", "ledger"])
    for file in (HERE / "django_project").glob("*.py"):
        shutil.copy(file, project.folder)
    (project.folder / "people").mkdir()
    (project.folder / "people" / "__init__.py").touch()
    (project.folder / "people" / "models.py").write_text(PEOPLE)
    project.add(
        "import json",
        "AUTH_USER_MODEL = 'people.Person'",
        "ROOT_URLCONF = 'views'",
        "ALLOWED_HOSTS = ['testserver', '127.0.0.1']",
        "DATABASES['default'] |= json.loads((BASE_DIR / 'database.json').read_text())",
        "DATABASES['analytics'] = {",
        "    'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'analytics.sqlite3', 'OPTIONS': {'timeout': 60},",
        "}",
        *(["LEDGER = {'PREPARE_STATEMENTS': True}"] if prepares else []),
    )
    shop = Shop(project)
    shop.use_database(settings)
    project.manage("makemigrations", "people")
    project.manage("migrate")
    project.manage("migrate", "--database", "analytics")
    project.shell(BEGIN)
    return shop


def send_order(url: str, number: int) -> str:
    """Order now, mostly, or later, or read; return the answer if it is no success."""
    path = "/balance/" if number % 5 == 0 else f"/orders/{number}/later/" if number % 5 == 1 else f"/orders/{number}/"
    status, answer = call(url + path)
    return "" if status in (200, 202) else f"{status} {answer}"


def order_first(url: str) -> tuple[int, dict[str, Any]]:
    """Place the first order, or have its answer again."""
    return call(f"{url}/orders/0/")


def assert_orders_are_whole(shop: Shop, count: int) -> None:
    """Every order of this many calls has its row and one spend, as soon as the workers are done, and the audit finds nothing."""
    ordered = {FIRST_ORDER, *(f"order-{number}" for number in range(count) if number % 5)}
    wait_until(lambda: ordered <= {*shop.results()["keys"]})
    results = shop.results()
    assert {*results["keys"]} == ordered
    assert results["rows_without_entry"] == []
    assert results["analysed"] is True
    assert results["entries"] == 1 + len(ordered)
    assert results["logs_in"] is True
    assert CLEAN in shop.project.manage("audit_ledger")
