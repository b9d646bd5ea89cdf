"""A shop on the wheel, with its own database: sold by two processes at once, under each kind of server."""

import ast
import http.client
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg
import pytest

from tests.conftest import Way, asgi_command, runserver_command, web_servers, wsgi_command
from tests.embedding.conftest import empty_database
from tests.embedding.installations import ROOT, run

SHOP = ROOT / "tests" / "embedding" / "shop"
PAGE = ROOT / "docs" / "how-to" / "embedding.md"
WSGI = "from django.core.wsgi import get_wsgi_application\napplication = get_wsgi_application()\n"
SHOPS_WSGI = partial(wsgi_command, target="project.wsgi:application")
WAYS = [SHOPS_WSGI, *(pytest.param(way, marks=pytest.mark.slow) for way in (runserver_command, asgi_command))]
"""`runserver` too has a thread for each request and a process for each of the two servers, as the WSGI server has."""

WITHOUT_LOCK = """
from django.db import connection, transaction
from django.http import HttpResponse
from django.urls import path
from ledger import reads
from shop.models import Order

def order(request, team):
    with transaction.atomic():
        if reads.balance(f"team-{team}").available <= Order.objects.filter(team=team).count():
            return HttpResponse(status=402)
        connection.cursor().execute("SELECT pg_advisory_xact_lock_shared(7)")
        Order.objects.create(team_id=team, item="pen", price=1)
    return HttpResponse(status=302)

urlpatterns = [path("teams/<int:team>/orders/", order)]
"""
"""An order that counts what is left and then writes, without the lock. The test lets it write once both requests have counted."""


@dataclass(frozen=True)
class Shop:
    """The shop's project on a database of its own."""

    python: Path
    folder: Path
    environment: dict[str, str]
    log_dir: Path

    def manage(self, *words: str) -> str:
        """What `manage.py` prints."""
        given = [f"{name}={value}" for name, value in self.environment.items()]
        return run("env", *given, self.python, "manage.py", *words, folder=self.folder)

    def shell(self, code: str) -> Any:
        """What code leaves in `found`, in `manage.py shell`."""
        before = "from shop import purchases; from shop.models import *; from ledger import reads, services as credits"
        after = "import json; print(json.dumps(found))"
        return json.loads(self.manage("shell", "--verbosity", "0", "--no-imports", "--command", f"{before}\n{code}\n{after}"))

    def team(self, amount: int) -> int:
        """A new team that has these credits."""
        made = "team = Team.objects.create(name='Rowers'); found = team.pk"
        grant = f"credits.grant(holder_id=team.holder_id, amount={amount}, idempotency_key='first')"
        return int(self.shell(f"{made}\n{grant}" if amount else made))

    def state(self, team: int) -> dict[str, Any]:
        """What the shop and the ledger have of a team."""
        found: dict[str, Any] = self.shell(
            f"team = Team.objects.get(pk={team}); balance = reads.balance(team.holder_id); found = dict("
            "balance=balance.balance, held=balance.held, is_pro=team.is_pro, orders=Order.objects.filter(team=team).count(),"
            "payments=[payment.is_settled for payment in Payment.objects.filter(team=team)],"
            "spends=sum(entry.kind == 'spend' for entry in reads.entries(team.holder_id, limit=100)))"
        )
        return found

    @contextmanager
    def served(self, way: Way) -> Iterator[list[str]]:
        """For the block, two processes serve the shop. Gives their addresses."""

        def command(**options: Any) -> list[str]:
            return [str(self.python), *way(**options)[1:]]

        with web_servers(self.log_dir) as start:
            yield [urlsplit(web.url).netloc for web in start(2, way=command, env=self.environment, folder=self.folder)]


@pytest.fixture(scope="module")
def shop(python_with: Callable[..., Path], django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop, with its tables. The extra `server` brings the servers; the shop's settings have two applications."""
    folder = tmp_path_factory.mktemp("shop") / "shop"
    shutil.copytree(SHOP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "project" / "without_lock.py").write_text(WITHOUT_LOCK)
    (folder / "project" / "wsgi.py").write_text(WSGI)
    with empty_database() as database:
        names = {"NAME": "PGDATABASE", "USER": "PGUSER", "PASSWORD": "PGPASSWORD", "HOST": "PGHOST", "PORT": "PGPORT"}
        environment = {names[name]: str(value) for name, value in database.items()}
        environment["DJANGO_SETTINGS_MODULE"] = "project.settings"
        made = Shop(python_with("server"), folder, environment, tmp_path_factory.mktemp("logs"))
        made.manage("migrate")
        yield made


def sent(address: str, path: str, headers: dict[str, str] | None = None, **fields: object) -> tuple[int, str]:
    """The status and the text of the response to a form, with the cookie that a browser would have."""
    token = "a" * 32
    given = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"csrftoken={token}", "X-CSRFToken": token}
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", path, urlencode(fields), given | (headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def together(calls: list[Callable[[], tuple[int, str]]]) -> list[tuple[int, str]]:
    """What calls return that are made at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_sell_what_there_is_and_no_more(shop: Shop, way: Way) -> None:
    team = shop.team(45)
    with shop.served(way) as addresses:
        orders = [
            lambda address=address: sent(address, f"/teams/{team}/orders/", item="pen", price=3)
            for address, _ in zip(cycle(addresses), range(24), strict=False)
        ]
        assert Counter(status for status, _ in together(orders)) == {302: 15, 402: 9}
        assert shop.state(team) | {"spends": 15, "orders": 15, "balance": 0} == shop.state(team)

        rich = shop.team(100)
        upgrades = [lambda address=address: sent(address, f"/teams/{rich}/upgrade/") for address in addresses * 2]
        assert Counter(together(upgrades)) == {(200, "Welcome to pro."): 1, (200, "You are pro."): 3}
        claims = [lambda address=address: sent(address, f"/teams/{rich}/bonus/") for address in addresses * 2]
        assert Counter(together(claims)) == {(200, "Enjoy!"): 1, (200, "Come back tomorrow."): 3}
        questions = [("what is this", (200, "this is what")), ("overload", 500), ("one two", (200, "two one"))]
        for number, (question, expected) in enumerate(questions):
            answer = sent(addresses[0], f"/teams/{rich}/questions/", {"Idempotency-Key": f"q{number}"}, question=question)
            assert expected in (answer, answer[0])
        state = shop.state(rich)
        assert (state["balance"], state["held"], state["is_pro"], state["spends"]) == (100 - 30 + 5 - 3 - 2, 0, True, 1)
        assert sent(addresses[1], f"/teams/{team}/questions/", {"Idempotency-Key": "q"}, question="why") == (
            402,
            "You have 0 credits.",
        )
    assert "Clean: no violations found." in shop.manage("audit_ledger")


@pytest.mark.slow
def test_control_without_the_lock_two_processes_sell_the_last_credit_twice(shop: Shop) -> None:
    team = shop.team(1)
    unprotected = replace(shop, environment={**shop.environment, "SHOP_URLS": "project.without_lock"})
    at = {name: shop.environment[f"PG{name.upper()}"] for name in ("user", "password", "host", "port")}
    with (
        unprotected.served(SHOPS_WSGI) as addresses,
        psycopg.connect(dbname=shop.environment["PGDATABASE"], **at, autocommit=True) as test,
        ThreadPoolExecutor(2) as pool,
    ):
        test.execute("SELECT pg_advisory_lock(7)")
        orders = [pool.submit(sent, address, f"/teams/{team}/orders/") for address in addresses]
        while test.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND objid = 7").fetchone() != (2,):
            assert not any(order.done() for order in orders)
        test.execute("SELECT pg_advisory_unlock(7)")
        assert [order.result()[0] for order in orders] == [302, 302]
    assert shop.state(team)["orders"] == 2


@pytest.mark.slow
def test_an_order_that_is_refused_leaves_nothing(shop: Shop) -> None:
    team = shop.team(2)
    order = f"""
from ledger.errors import InsufficientCredits
team = Team.objects.get(pk={team})
try:
    purchases.place_order(team, "boat", 3)
except InsufficientCredits as refusal:
    found = [refusal.facts["available"], reads.balance(team.holder_id).sequence, Order.objects.filter(team=team).count()]
"""
    assert shop.shell(order) == [2, 1, 0]


FILL_UP = """
from ledger.rules.requests import GrantRequest
found = Team.objects.create(name="Collectors").pk
grants = [dict(holder_id=f"team-{found}", amount=1, actor="shop", idempotency_key=f"lot-{number}") for number in range(500)]
credits.batch([GrantRequest(**grant) for grant in grants], mode="each", idempotency_key=f"lots-{found}")
"""
"""A team whose account has as many lots as it can have: the ledger refuses another grant, until a lot is spent."""


@pytest.mark.slow
def test_a_payment_stays_where_its_credits_fail_and_they_are_added_once(shop: Shop) -> None:
    team = shop.shell(FILL_UP)
    with shop.served(SHOPS_WSGI) as addresses:
        for address in addresses:  # the provider repeats itself
            status, _ = sent(address, "/payments/", {"Cookie": ""}, team=team, reference=f"paid-{team}", credits=70)
            assert status == 200
    state = shop.state(team)
    assert (state["payments"], state["balance"]) == ([False], 500)
    spend = f"credits.spend(holder_id='team-{team}', amount=1, idempotency_key='s')"
    settled = f"purchases.settle_payments(); found = reads.balance('team-{team}').balance"
    assert shop.shell(f"{spend}\n{settled}\n{settled}") == 499 + 70
    assert shop.state(team)["payments"] == [True]


@pytest.mark.slow
def test_the_teams_page_shows_its_balance_and_orders(shop: Shop) -> None:
    team = shop.team(10)
    page = f"""
from django.test import Client
purchases.place_order(Team.objects.get(pk={team}), "pen", 3)
found = Client().get("/teams/{team}/").text
"""
    found = shop.shell(page)
    assert "<p>7 credits</p>" in found
    assert "<li>pen: 3</li>" in found
    assert f'<a href="/teams/{team}/credits/">' in found
    credits_page = f'from django.test import Client\nfound = Client().get("/teams/{team}/credits/", follow=True).text'
    assert "Your credits" in shop.shell(credits_page)


@pytest.mark.slow
def test_the_shop_has_its_migrations_and_no_warnings(shop: Shop) -> None:
    assert "No changes detected" in shop.manage("makemigrations", "--check", "--dry-run")
    assert "no issues" in shop.manage("check")


SHOWN = re.compile(r"^<!-- (tests/embedding/shop/\S+): ([\w, ]+) -->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def source_of(path: Path, names: list[str]) -> str:
    """The source of these functions and classes of a file."""
    text = path.read_text()
    lines = text.splitlines()
    found = {
        node.name: "\n".join(lines[min(each.lineno for each in (*node.decorator_list, node)) - 1 : node.end_lineno])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return "\n\n\n".join(found[name] for name in names) + "\n"


def test_the_page_shows_the_code_of_the_shop() -> None:
    shown = SHOWN.findall(PAGE.read_text())
    assert len(shown) >= 4
    for path, names, code in shown:
        assert code == source_of(ROOT / path, names.split(", "))
