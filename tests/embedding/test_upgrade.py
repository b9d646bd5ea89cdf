"""A project whose ledger's tables another version made: calls of the ledger are refused by name, and nothing else."""

from collections.abc import Callable

import pytest

from tests.embedding.installations import Project

OTHER_VERSION = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("UPDATE django_migrations SET name = 'schema 0123' WHERE name LIKE 'schema %' AND app = 'ledger'")
"""
LOG_IN = """
from django.contrib.auth.models import User
from django.test import Client
User.objects.create_user("ada", password="secret")
print(Client().login(username="ada", password="secret"), User.objects.count())
"""
CALLS = """
from django.db import transaction
from ledger.keys import api_keys
from ledger import reads, services
from ledger.errors import UnsafeDatabase

def in_own_transaction():
    with transaction.atomic():
        services.grant(holder_id="ada", amount=1, idempotency_key="g", actor="shop")

for call in (
    lambda: services.grant(holder_id="ada", amount=1, idempotency_key="g", actor="shop"),
    in_own_transaction,
    lambda: reads.balance("ada", "credits"),
    lambda: api_keys.create_api_key(name="shop", scopes=["ledger:spend"]),
):
    try:
        call()
        print("called")
    except UnsafeDatabase as refusal:
        print(refusal.facts["what"])
"""
STORED = """
from ledger.models import Entry
print(Entry.objects.count())
"""


@pytest.mark.slow
def test_calls_of_the_ledger_are_refused_and_the_projects_own_work_goes_on(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger")
    project.manage("migrate")
    assert "ledger.E007" not in project.manage("check", "--deploy")
    project.shell(OTHER_VERSION)

    said = project.manage("check", "--deploy", succeeds=False)
    assert "(ledger.E007) Calls of the ledger would be refused: another version made the schema of ledger" in said
    assert "ledger.W006" in project.manage("check", "--database", "default")
    assert "No migrations to apply" in project.manage("migrate")
    assert project.shell(LOG_IN) == "True 1"
    assert project.shell(CALLS).splitlines() == ["another version made the schema of ledger"] * 4
    assert project.shell(STORED) == "0"


@pytest.mark.slow
def test_control_with_its_own_tables_the_same_calls_succeed(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger", "ledger.rest", "ledger.keys")
    project.manage("migrate")
    assert project.shell(CALLS.replace('idempotency_key="g"', "idempotency_key=str(id(object()))")).splitlines() == ["called"] * 4
