"""Operators, and what they see: a client that is logged in, the queries of a page, and long histories made by the rules."""

import html
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client

from ledger import journal, models
from ledger.database.locks import holder_lock
from ledger.rules.entries import Entry
from tests.benchmarks.histories import Plan, generate

ROWS_PER_APPEND = 500


def operator(*permissions: str, name: str = "mara") -> Client:
    """A client logged in as a superuser; or, with permissions given (`ledger.refund_spend`), as somebody who has just these."""
    user = User.objects.create_user(name, password=None, is_staff=True, is_superuser=not permissions)
    for permission in permissions:
        app, codename = permission.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client


def load_history(*, holders: int, entries: int, first_holder: int = 1) -> list[Entry]:
    """Store so that all triggers run, with statistics and summaries as autovacuum would have them."""
    made = list(generate(Plan(holders=holders, entries=entries, first_holder=first_holder)))
    by_holder: dict[str, list[Entry]] = defaultdict(list)
    for entry in made:
        by_holder[entry.holder_id].append(entry)
    for holder_id, own in by_holder.items():
        with transaction.atomic(), holder_lock(holder_id) as lock:
            for start in range(0, len(own), ROWS_PER_APPEND):
                journal.append(lock, own[start : start + ROWS_PER_APPEND])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE ledger_entry")
        cursor.execute("SELECT brin_summarize_new_values('ledger_entry_reference')")
    return made


@dataclass
class Cost:
    """The statements that showing a page took, and how the server carried out those that read the ledger."""

    statements: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)

    def __call__(self, execute: Callable[..., Any], sql: str, parameters: Any, many: bool, context: Any) -> Any:
        self.statements.append(sql)
        if sql.lstrip().startswith(("SELECT", "WITH")) and "ledger_" in sql:
            if context["cursor"] is None:  # a prepared statement
                plan = context["connection"].connection.pgconn.exec_params(f"EXPLAIN {sql}".encode(), parameters)
                self.plans.append("\n".join(plan.get_value(row, 0).decode() for row in range(plan.ntuples)))
            else:
                execute(f"EXPLAIN {sql}", parameters, many, context)
                self.plans.append("\n".join(row[0] for row in context["cursor"].fetchall()))
        return execute(sql, parameters, many, context)


def cost_of(client: Client, url: str) -> Cost:
    """What showing the page costs."""
    cost = Cost()
    # A process looks a page's content type up once: whether an earlier page did makes no difference.
    ContentType.objects.get_for_models(*apps.get_models(), for_concrete_models=False)
    with connection.execute_wrapper(cost):
        response = client.get(url)
    assert response.status_code == 200
    return cost


def shown_entries(page: str) -> list[tuple[str, str]]:
    """Holder and number of each entry in a list, in the order shown."""
    rows = re.findall(r"field-entry.*?>#(\d+)</a>.*?field-holder.*?account/holders/([^/]+)/", page, re.DOTALL)
    return [(holder, number) for number, holder in rows]


def older_url(page: str) -> str | None:
    """Where the link to the next page leads, as a query string; None when there is none."""
    found = re.search(r'rel="next" href="([^"]+)"', page)
    return html.unescape(found[1]) if found else None


def hidden_key(page: str) -> str:
    """The idempotency key of the form on the page."""
    found = re.search(r'name="idempotency_key" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def hidden_values(page: str) -> dict[str, str]:
    """The hidden fields of the form on the page, by name: what its button sends again."""
    return {name: html.unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)}


def text_of(page: str) -> str:
    """The page without its tags, every run of spaces as one."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def submit_form(client: Client, address: str, **values: Any) -> HttpResponse:
    """Open the form, send it filled in, and skip the page that shows its dry run."""
    key = hidden_key(client.get(address).content.decode())
    return client.post(address, {"idempotency_key": key, "confirmed": "yes", **values})


def entries_and_refusals() -> tuple[int, int]:
    """How many entries and how many refusals there are."""
    refusals = models.Entry.objects.filter(kind="refusal").count()
    return models.Entry.objects.count() - refusals, refusals


def shown_time(at: datetime, clock: str = "%H:%M:%S") -> str:
    """A time as pages write it, in its own zone; its spaces as `text_of` has them."""
    return f"{at.day} {at:%b} {at.year}, {at:{clock}} {at:%Z}"
