"""The database that all applications' files make together, object by object, whichever application has which file.

The schema is divided among applications. `objects.txt` has what they make together; a test that fails writes the new file beside
the test's own, for a change of the schema that is wanted: `mv tests/schema/objects.new tests/schema/objects.txt`.
"""

import pytest
from django.db import connection

from tests.schema.objects import LISTING, lines_of


@pytest.mark.one_node("a cluster adds objects of its own")
def test_all_files_together_make_every_object_that_is_listed_and_no_other(db: None) -> None:
    if connection.pg_version // 10_000 != LISTED_ON:
        pytest.skip(f"the definitions are as PostgreSQL {LISTED_ON} writes them")
    found = lines_of(connection)
    if found != listed():
        LISTING.with_suffix(".new").write_text("\n".join([f"postgresql {LISTED_ON}", *found, ""]))
    assert sorted(set(found) ^ set(listed())) == [], f"if this is wanted: mv {LISTING.with_suffix('.new')} {LISTING}"


def test_control_an_object_more_is_noticed(db: None) -> None:
    before = lines_of(connection)
    with connection.cursor() as cursor:
        cursor.execute("CREATE FUNCTION ledger_forgotten() RETURNS int LANGUAGE sql RETURN 1")
    assert lines_of(connection) != before


def listed() -> list[str]:
    """The lines of the listing, without the first."""
    return LISTING.read_text().splitlines()[1:] if LISTING.exists() else []


LISTED_ON = int(LISTING.read_text().split("\n")[0].split()[1]) if LISTING.exists() else 0
