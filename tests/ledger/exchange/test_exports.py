"""Exports: every value as it is stored, safe in spreadsheets, of one snapshot; and the script by which others verify them."""

import csv
import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ledger import services
from ledger.database.copies import BYTE_ORDER_MARK, FileColumn, cell, select
from ledger.errors import InsufficientCredits, Invalid
from ledger.exports import EXPORTS, export
from ledger.models import Entry
from ledger.testing import unique

SCRIPT = re.search(
    r"^```python\n(.*?)^```$", (settings.BASE_DIR / "docs/how-to/take-data-out.md").read_text(), re.MULTILINE | re.DOTALL
)
FORMULAS = [
    '=HYPERLINK("https://evil.example","x")',
    "+1",
    "-2",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "  =1",
    "\u00a0=1",
    "＝1",
    "＠x",
]


def lines(name: str, **filters: Any) -> list[dict[str, Any]]:
    """The rows of an export as NDJSON."""
    return [json.loads(line) for line in b"".join(export(name, file_format="ndjson", **filters)).splitlines()]


def rows(name: str, **filters: Any) -> list[dict[str, str]]:
    """The rows of an export as CSV."""
    text = b"".join(export(name, file_format="csv", **filters)).decode()
    assert text.startswith(BYTE_ORDER_MARK)
    return list(csv.DictReader(io.StringIO(text.removeprefix(BYTE_ORDER_MARK), newline="")))


@pytest.fixture
def holder(db: None) -> str:
    """A holder with entries of several kinds, texts of every kind, and a refusal."""
    holder_id = unique("exported")
    soon = datetime.now(UTC) + timedelta(days=30)
    metadata = {"n": 1.5e300, "é": ["\u2028", {"deep": None}], "big": 2**60, "q": 'say "hi"\\ \x01'}
    services.grant(
        holder_id=holder_id,
        amount=100,
        idempotency_key="g1",
        reason="=1+1",
        reference='a,b\n"c"',
        metadata=metadata,
        expires_at=soon,
        paid_minor=4900,
        currency="EUR",
        document="=INV-1",
    )
    services.grant(
        holder_id=holder_id,
        amount=50,
        idempotency_key="g2",
        source="promotional",
        priority=7,
        applies_to={"labels": {"to": ["wörld"]}},
    )
    services.set_budget(holder_id=holder_id, idempotency_key="b", budget="daily", limit=1000, window="day")
    services.spend(holder_id=holder_id, amount=500, partial=True, idempotency_key="s1", metadata={"to": "wörld"})
    services.refund(holder_id=holder_id, spend=4, amount=60, idempotency_key="r1")
    services.hold(holder_id=holder_id, amount=20, idempotency_key="h1")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder_id, amount=10_000, idempotency_key="s2")
    return holder_id


def test_entries_are_exported_with_every_column_as_it_is_stored(holder: str) -> None:
    exported = lines("entries", holder=holder)
    stored = list(Entry.objects.filter(holder_id=holder).order_by("sequence"))
    assert [line["sequence"] for line in exported] == list(range(1, 8))
    for line, entry in zip(exported, stored, strict=True):
        assert (line["kind"], line["amount"], line["balance"], line["held"]) == (
            entry.kind,
            entry.amount,
            entry.balance,
            entry.held,
        )
        assert line["digest"] == entry.digest.hex()
        assert datetime.fromisoformat(line["recorded_at"]) == entry.recorded_at
        assert (line["metadata"] or {}) == (entry.metadata or {})
    assert exported[0]["reason"] == "=1+1"
    assert exported[6]["refusal"]["code"] == "insufficient-credits"


def test_a_csv_is_safe_in_spreadsheets_and_has_the_same_values(holder: str) -> None:
    found = rows("entries", holder=holder)
    assert found[0]["reason"] == "'=1+1"
    assert found[0]["reference"] == 'a,b\n"c"'
    assert [row["amount"] for row in found] == [str(line["amount"]) for line in lines("entries", holder=holder)]
    assert json.loads(found[0]["metadata"])["big"] == 2**60


@hypothesis_settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.one_of(
        st.sampled_from(FORMULAS), st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs", "Cn")), max_size=8)
    )
)
def test_the_server_guards_the_texts_that_pages_guard(db: None, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(select({"t": FileColumn("given.t", "text")}, "FROM (SELECT %s::text AS t) AS given", "csv"), [text])
        [(guarded,)] = cursor.fetchall()
    assert guarded == cell(text)


def test_every_export_is_written_in_both_forms_with_the_same_number_of_rows(holder: str) -> None:
    applies_to = {"labels": {"member": ["=ada"]}}
    services.grant(holder_id=holder, amount=5, idempotency_key="for ada", applies_to=applies_to)
    for name in EXPORTS:
        assert len(rows(name)) == len(lines(name)), name
    [restricted] = [row["applies_to"] for row in rows("lots", holder=holder) if row["applies_to"]]
    assert json.loads(restricted) == {"labels": {"member": ["=ada"]}}


def test_lots_add_up_to_the_balance_and_to_what_is_held(holder: str) -> None:
    [account] = lines("balances", holder=holder)
    lots = lines("lots", holder=holder)
    assert sum(lot["remaining"] for lot in lots if lot["hold"] is None) == account["balance"] == 40
    assert [(lot["hold"], lot["remaining"]) for lot in lots if lot["hold"]] == [(6, 20)]
    assert {(lot["grant"], lot["source"], lot["priority"]) for lot in lots} <= {(1, "purchased", 100), (2, "promotional", 7)}
    opened = {entry.sequence: entry for entry in Entry.objects.filter(holder_id=holder, kind="grant")}
    assert [(lot["cost_minor"], lot["currency"]) for lot in lots if lot["grant"] == 1 and lot["hold"] is None] == [
        (sold_left(holder), "EUR")
    ]
    for lot in lots:
        assert datetime.fromisoformat(lot["effective_at"]) == opened[lot["grant"]].recorded_at
        is_first = lot["grant"] == 1
        assert (lot["expires_at"] is not None) == is_first
    assert (account["owed"], account["overdraft"], account["sequence"]) == (0, None, 7)


def sold_left(holder: str) -> int:
    """What the lot that was sold still costs, by the last entry."""
    [[_, left, *_]] = Entry.objects.filter(holder_id=holder).latest("sequence").costs
    return int(left)


def test_balances_and_lots_of_an_earlier_instant(holder: str) -> None:
    after_grants = Entry.objects.get(holder_id=holder, sequence=2).recorded_at
    [account] = lines("balances", holder=holder, at=after_grants)
    assert (account["balance"], account["sequence"]) == (150, 2)
    assert [lot["remaining"] for lot in lines("lots", holder=holder, at=after_grants)] == [100, 50]
    assert lines("balances", holder=holder, at=after_grants - timedelta(days=1)) == []


def test_an_account_with_refusals_only_has_no_balance(db: None) -> None:
    holder = unique("never")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder, amount=1, idempotency_key="s")
    assert len(lines("entries", holder=holder)) == 1
    assert lines("balances", holder=holder) == []


def test_a_debt_is_exported_as_owed(db: None) -> None:
    holder = unique("owes")
    services.set_overdraft(holder_id=holder, limit=100, idempotency_key="o")
    services.spend(holder_id=holder, amount=30, idempotency_key="s")
    [account] = lines("balances", holder=holder)
    assert (account["balance"], account["owed"], account["overdraft"]) == (-30, 30, 100)


def test_a_filter_that_an_export_lacks_is_refused_by_name(db: None, tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        export("balances", file_format="csv", since=datetime.now(UTC))
    assert refused.value.facts["pointer"] == "/since"
    target = tmp_path / "balances.csv"
    with pytest.raises(
        CommandError, match=r"--since does not apply to balances, which can be chosen by: holder, credit_type, at\."
    ) as ended:
        call_command("export_ledger", "balances", "--since", "2026-01-01", "--output", str(target))
    assert ended.value.returncode == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:00:00-05:00", "2026-01-31T12:00", "1999-12-31", "noon"]
)
def test_a_wrong_instant_is_refused_by_name_and_no_file_is_begun(db: None, tmp_path: Path, at: str) -> None:
    with pytest.raises(CommandError, match=f"--at: '{re.escape(at)}' "):
        call_command("export_ledger", "balances", "--at", at, "--output", str(tmp_path / "balances.csv"))
    assert not list(tmp_path.iterdir())


def verified(file: Path) -> "subprocess.CompletedProcess[str]":
    """What the script of the docs prints about a file."""
    assert SCRIPT
    script = file.with_name("verify_ledger.py")
    script.write_text(SCRIPT[1])
    return subprocess.run([sys.executable, "-I", str(script), str(file)], capture_output=True, text=True, check=False)


def test_others_verify_an_export_with_the_script_of_the_docs(holder: str, tmp_path: Path) -> None:
    file = tmp_path / "entries.ndjson"
    call_command("export_ledger", "entries", "--format", "ndjson", "--holder", holder, "--output", str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["entries.ndjson"]
    assert verified(file).stdout == "7 entries of 1 accounts follow from each other.\n"


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('"amount":100,"balance":100', '"amount":200,"balance":200', "entry 1 has another digest than its content"),
        ('"amount":50,', '"amount":51,', "entry 2 does not follow from entry 1"),
        ('"reason":"=1+1"', '"reason":"=1+2"', "entry 1 has another digest than its content"),
        ('"big":1152921504606846976', '"big":1152921504606846977', "entry 1 has another digest than its content"),
        ("1.5e+300", "1.6e+300", "entry 1 has another digest than its content"),
    ],
)
def test_the_script_finds_what_was_changed(holder: str, tmp_path: Path, old: str, new: str, finding: str) -> None:
    content = b"".join(export("entries", file_format="ndjson", holder=holder)).decode()
    assert old in content
    file = tmp_path / "entries.ndjson"
    file.write_text(content.replace(old, new, 1))
    ended = verified(file)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.strip() == f"{holder}/credits: {finding}"
