"""The functions of a cluster that replace those of one node are well-formed: PostgreSQL without Citus takes them too."""

import re

import pytest
from django.db import connection

from ledger.cluster.distribution import FUNCTIONS_FILES

pytestmark = [pytest.mark.django_db, pytest.mark.one_node("it replaces them on one node, in a transaction that is rolled back")]

SQL = "".join(path.read_text() for path in FUNCTIONS_FILES)
FUNCTIONS = re.findall(r"^CREATE (?:OR REPLACE )?FUNCTION (\w+)(.*?)^END \$\$;", SQL, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "rest"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_postgresql_reads_it(name: str, rest: str) -> None:
    # Only Citus has its settings.
    rest = re.sub(r"^SET citus\..*$", "", rest, flags=re.MULTILINE)
    connection.ensure_connection()
    with connection.connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE FUNCTION {name}{rest}END $$;")


def test_all_are_read() -> None:
    assert len(FUNCTIONS) == len(re.findall(r"^CREATE (?:OR REPLACE )?FUNCTION ", SQL, re.MULTILINE)) > 5
