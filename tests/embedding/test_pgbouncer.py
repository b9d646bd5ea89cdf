"""A project behind PgBouncer in transaction mode: what its own settings say about the pooler holds for the ledger too."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.deployment.servers import started_pgbouncer
from tests.embedding.installations import Project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") is None, reason="there is no pgbouncer"),
]

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


@pytest.fixture
def project(new_project: Callable[..., Project], plain_database: dict[str, object]) -> Iterator[Project]:
    """A project whose database is reached through PgBouncer, which its settings do not say."""
    project = new_project("ledger")
    project.manage("migrate", "--verbosity", "0")
    named = {"port": "PORT", "dbname": "NAME", "user": "USER", "password": "PASSWORD"}
    with started_pgbouncer(**{name: str(plain_database[key]) for name, key in named.items()}) as port:
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
    project.add("LEDGER = {'PREPARE_STATEMENTS': True}")
    assert spend_in_parallel(project)["spent"] < 150
