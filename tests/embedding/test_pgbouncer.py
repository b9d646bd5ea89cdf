"""A project behind PgBouncer in transaction mode: what its own settings say about the pooler holds for the ledger too."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.deployment.servers import started_pgbouncer
from tests.embedding.installations import Project

pytestmark = pytest.mark.slow

PROCESSES = 5
GRANTS = """
from ledger import services
for holder in range(30):
    services.grant(holder_id=f"h{holder}", amount=10, idempotency_key=f"grant-{holder}", actor="test")
"""
SPENDS = """
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from django.db import connections, transaction
from ledger import services
together = Barrier(30)

def spend(holder):
    together.wait()
    try:
        with transaction.atomic():
            services.spend(holder_id=f"h{{holder}}", amount=1, idempotency_key=f"spend-{process}-{{holder}}")
        return "spent"
    except Exception as error:
        return type(error).__name__
    finally:
        connections.close_all()

with ThreadPoolExecutor(30) as pool:
    print(*pool.map(spend, range(30)))
"""
BALANCES = """
from ledger import reads
print({reads.balance(f"h{holder}", "credits").balance for holder in range(30)})
"""


@pytest.fixture(params=[False])
def project(
    request: pytest.FixtureRequest, new_project: Callable[..., Project], plain_database: dict[str, object]
) -> Iterator[Project]:
    """A project on a PgBouncer that its settings do not mention, and that keeps prepared statements if the parameter says so."""
    project = new_project("ledger")
    project.manage("migrate", "--verbosity", "0")
    named = {"port": "PORT", "dbname": "NAME", "user": "USER", "password": "PASSWORD"}
    with started_pgbouncer(**{name: str(plain_database[key]) for name, key in named.items()}, prepared=request.param) as port:
        project.add(f"DATABASES['default'] |= {{'HOST': '127.0.0.1', 'PORT': {port}}}")
        project.shell(GRANTS)
        yield project


def spend_in_parallel(project: Project) -> Counter[str]:
    """What came of 30 spends in each of five processes, each in a transaction of the caller's."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        printed = pool.map(lambda process: project.shell(SPENDS.format(process=process)), range(PROCESSES))
        return Counter(word for words in printed for word in words.split())


def test_150_of_150_parallel_spends_in_the_callers_transaction_succeed(project: Project) -> None:
    assert "(ledger.W005) The connection of 'default' goes through a pooler" in project.manage("check", "--database", "default")
    project.add("DATABASES['default']['DISABLE_SERVER_SIDE_CURSORS'] = True")
    assert "ledger.W005" not in project.manage("check", "--database", "default")
    assert spend_in_parallel(project) == {"spent": 150}
    assert project.shell(BALANCES) == "{5}"
    assert "Clean: no violations found." in project.manage("audit_ledger")


def test_control_with_statements_prepared_all_the_same_spends_fail(project: Project) -> None:
    """By a PgBouncer that does not keep them: older than 1.21, or without max_prepared_statements."""
    project.add("DATABASES['default']['DISABLE_SERVER_SIDE_CURSORS'] = True", "LEDGER = {'PREPARE_STATEMENTS': True}")
    assert spend_in_parallel(project)["spent"] < 150


@pytest.mark.parametrize("project", [True], indirect=True)
def test_with_statements_that_pgbouncer_keeps_prepared_all_of_them_succeed(project: Project) -> None:
    project.add("DATABASES['default']['DISABLE_SERVER_SIDE_CURSORS'] = True", "LEDGER = {'PREPARE_STATEMENTS': True}")
    assert spend_in_parallel(project) == {"spent": 150}
    assert project.shell(BALANCES) == "{5}"
    assert "Clean: no violations found." in project.manage("audit_ledger")
