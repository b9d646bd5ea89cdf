"""Entries as rows: what is sent, as lines of COPY and as parameters, comes back as it was, whatever is in the texts."""

from collections.abc import Callable

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import services
from ledger.entry_rows import COLUMNS, READ_COLUMNS, TYPES, copy_line, entry_from_row, parameters
from ledger.journal import FEW
from ledger.models import Entry as StoredEntry
from ledger.rules.entries import Entry
from ledger.rules.requests import SpendRequest
from tests.ledger.test_digest import DIGESTS, ENTRIES

pytestmark = pytest.mark.django_db

AWKWARD = [
    "\\",
    r"\N",
    r"\.",
    "\\\\",
    "a\tb",
    "a\nb",
    "a\r\nb",
    "\b\f\v",
    "\x01\x7f",
    "é ✓ \U0001f600",
    "\u2028",
    r"\x41",
    "'",
    "",
    " ",
]


def store_by_copy(entry: Entry) -> None:
    """Store the entry by COPY."""
    with connection.cursor() as cursor, cursor.copy(f"COPY scratch ({COLUMNS}) FROM STDIN") as copy:
        copy.write(copy_line(entry))


def store_by_insert(entry: Entry) -> None:
    """Store the entry by INSERT."""
    values = [None if value is None else value.decode() for value in parameters(entry)]
    with connection.cursor() as cursor:
        places = ", ".join(f"%s::{type_}" for type_ in TYPES.values())
        cursor.execute(f"INSERT INTO scratch ({COLUMNS}) VALUES ({places})", values)


def read_back() -> list[Entry]:
    """Read the stored entries, and empty the table."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {READ_COLUMNS} FROM scratch")
        rows = cursor.fetchall()
        cursor.execute("TRUNCATE scratch")
    return [entry_from_row(found) for found in rows]


@pytest.fixture
def scratch() -> None:
    """A table of the same columns, without a rule that would refuse what hypothesis thinks of."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE scratch (LIKE ledger_entry) ON COMMIT DROP")
        for column in COLUMNS.split(", "):
            cursor.execute(f"ALTER TABLE scratch ALTER COLUMN {column} DROP NOT NULL")


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("store", [store_by_copy, store_by_insert])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(entry=ENTRIES, digest=DIGESTS)
def test_an_entry_comes_back_as_it_was_sent(scratch: None, store: Callable[[Entry], None], entry: Entry, digest: bytes) -> None:
    entry = entry._replace(digest=digest, replayed=False)
    store(entry)
    assert read_back() == [entry]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(entries=st.lists(ENTRIES, max_size=5))
def test_each_entry_is_one_line_of_copy(entries: list[Entry]) -> None:
    assert "".join(map(copy_line, entries)).count("\n") == len(entries)


def test_a_large_batch_stores_awkward_texts_as_they_are() -> None:
    services.grant(holder_id="ada", amount=10_000, idempotency_key="g")
    texts = AWKWARD * (FEW // len(AWKWARD) + 1)
    requests = [
        SpendRequest(
            holder_id="ada", amount=1, idempotency_key=rf"\N{number}\t", reason=text, reference=text, metadata={text: text}
        )
        for number, text in enumerate(texts)
    ]
    answered = services.batch(requests, mode="atomic", idempotency_key="b")
    assert len(requests) > FEW
    assert [outcome.entry.reason for outcome in answered.outcomes if outcome.entry] == texts
    stored = StoredEntry.objects.filter(holder_id="ada", kind="spend").order_by("sequence")
    found = [(each.idempotency_key, each.reason, each.reference, each.metadata) for each in stored]
    assert found == [(rf"\N{number}\t", text, text, {text: text}) for number, text in enumerate(texts)]
