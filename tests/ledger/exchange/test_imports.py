"""Imports: each row once, history at its own times, and nothing of a file that has an invalid row."""

import json
import os
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import OutcomeUnknown
from ledger.exchange import imports
from ledger.exchange.files import read_lines
from ledger.exchange.imports import Importer
from ledger.models import Entry
from ledger.portal.usage import read_usage
from ledger.staff.holder_reads import pace
from ledger.staff.home_reads import lately
from ledger.testing import unique

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)


def at(days: float) -> str:
    """An instant, counted from 1 January 2026."""
    return (JANUARY + timedelta(days=days)).isoformat()


@pytest.fixture
def holder(db: None) -> str:
    return unique("imported")


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """`run(rows, …)`: what `import_ledger` prints as JSON, with its exit code."""

    def imported(rows: list[dict[str, Any]] | str, *options: str, suffix: str = ".ndjson") -> dict[str, Any]:
        file = tmp_path / f"rows{suffix}"
        file.write_text(rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows)))
        out = StringIO()
        code = 0
        try:
            call_command("import_ledger", str(file), "--format", "json", "--workers", "1", *options, stdout=out)
        except SystemExit as ended:
            code = int(str(ended.code))
        return {"exit_code": code, **json.loads(out.getvalue())}

    return imported


def grant(holder: str, row: str, amount: int, **more: Any) -> dict[str, Any]:
    return {"row": row, "holder": holder, "operation": "grant", "amount": amount, **more}


def spend(holder: str, row: str, amount: int, **more: Any) -> dict[str, Any]:
    return {"row": row, "holder": holder, "operation": "spend", "amount": amount, **more}


def entries(holder: str) -> list[tuple[str, int, int]]:
    """Kind, amount and balance of the holder's entries."""
    found = Entry.objects.filter(holder_id=holder).order_by("credit_type", "sequence")
    return [(entry.kind, entry.amount, entry.balance) for entry in found]


def laws_broken(holder: str) -> set[str]:
    """What the audit finds, in the transaction of the test."""
    return {finding.law for finding in audit([connection.connection], holder_id=holder).findings}


def is_clean(holder: str) -> bool:
    """Whether the audit finds nothing."""
    return not laws_broken(holder)


def test_live_grants_keep_their_terms(holder: str, run: Any) -> None:
    until = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    terms = {"source": "promotional", "effective_at": at(0), "expires_at": until, "priority": 7, "metadata": {"from": "before"}}
    assert run([grant(holder, "g-1", 100, **terms), grant(holder, "g-2", 50)])["rows"]["imported"] == 2
    entry = Entry.objects.get(holder_id=holder, sequence=1)
    assert (entry.idempotency_key, entry.actor.partition(":")[0], entry.metadata) == ("import/g-1", "import", {"from": "before"})
    assert entry.effective_at == JANUARY
    assert services.spend(holder_id=holder, amount=120, idempotency_key="s").drawn == ((1, 100), (2, 20))
    assert is_clean(holder)


def test_a_grant_for_some_things_only_is_imported(holder: str, run: Any) -> None:
    applies_to = {"labels": {"member": ["ada"]}}
    assert run([grant(holder, "g-1", 100, applies_to=applies_to), grant(holder, "g-2", 50)])["rows"]["imported"] == 2
    assert services.spend(holder_id=holder, amount=20, idempotency_key="s").drawn == ((2, 20),)
    assert services.spend(holder_id=holder, amount=20, idempotency_key="t", metadata={"member": "ada"}).drawn == ((1, 20),)
    with pytest.raises(CommandError, match="applies_to/rates: This must have 1 to 10 elements"):
        run([grant(holder, "g-3", 1, applies_to={"rates": []})])
    assert is_clean(holder)


def test_a_repeated_import_stores_nothing_and_a_continued_one_the_rest(holder: str, run: Any) -> None:
    first = [grant(holder, "g", 100), spend(holder, "s", 30)]
    assert run(first)["rows"] == {"imported": 2, "known": 0, "refused": 0, "changed": 0, "moved": 0, "invalid": 0}
    again = run([*first, spend(holder, "s-2", 20)])
    assert (again["exit_code"], again["rows"]["known"], again["rows"]["imported"]) == (0, 2, 1)
    assert again["credits"] == [{"credit_type": "credits", "kind": "spend", "amount": -20}]
    assert entries(holder) == [("grant", 100, 100), ("spend", -30, 70), ("spend", -20, 50)]


def test_a_row_that_has_changed_is_not_imported(holder: str, run: Any) -> None:
    run([grant(holder, "g", 100)])
    found = run([grant(holder, "g", 200)])
    assert (found["exit_code"], found["rows"]["changed"]) == (1, 1)
    assert entries(holder) == [("grant", 100, 100)]


def test_a_row_whose_holder_was_corrected_is_not_imported_again(holder: str, run: Any, tmp_path: Path) -> None:
    corrected = f"{holder}-corrected"
    run([grant(holder, "g", 100), spend(holder, "s", 1000)])
    for options in ([], ["--dry-run"]):
        found = run([grant(corrected, "g", 100), spend(corrected, "s", 1), grant(corrected, "g-2", 5)], *options)
        assert (found["exit_code"], found["rows"]["moved"]) == (1, 2)
        assert [error["result"] for error in found["errors"]] == ["moved", "moved"]
        assert found["errors"][0]["error"] == (
            f"row: was imported for {holder}; transfer the credits, or give the corrected row an id of its own "
            "(imported-for-another)."
        )
    assert entries(corrected) == [("grant", 5, 5)]
    assert [kind for kind, _, _ in entries(holder)] == ["grant", "refusal"]
    # The API's keys are kept per holder, as ever.
    assert not services.grant(holder_id=corrected, amount=1, idempotency_key="import/g").replayed


@pytest.mark.parametrize("other", [{}, {"amount": 70}, {"holder": "someone-else"}])
def test_a_file_with_an_id_twice_is_not_begun(holder: str, run: Any, other: dict[str, Any]) -> None:
    rows = [grant(holder, "g", 100), grant(holder, "g-2", 1), grant(holder, "g", 100) | other]
    for options in ([], ["--dry-run"]):
        with pytest.raises(CommandError, match=r"line 3: row: g is the id of line 1 too\.\n1 of 3 rows are invalid") as ended:
            run(rows, *options)
        assert ended.value.returncode == 2
    assert entries(holder) == []


def test_history_is_decided_at_its_own_times(holder: str, run: Any) -> None:
    rows = [
        grant(holder, "g-1", 100, occurred_at=at(0), expires_at=at(31)),
        grant(holder, "g-2", 100, occurred_at=at(1)),
        spend(holder, "s-1", 30, occurred_at=at(10)),
        spend(holder, "s-2", 30, occurred_at=at(40)),
        {"row": "r", "holder": holder, "operation": "refund", "of": "s-2", "amount": 10, "occurred_at": at(41)},
        {"row": "v", "holder": holder, "operation": "revoke", "of": "g-2", "amount": 5, "occurred_at": at(42)},
    ]
    assert run(rows)["exit_code"] == 0
    assert entries(holder) == [
        ("grant", 100, 100),
        ("grant", 100, 200),
        ("spend", -30, 170),
        ("expire", -70, 100),
        ("spend", -30, 70),
        ("refund", 10, 80),
        ("revoke", -5, 75),
    ]
    stored = {entry.idempotency_key: entry for entry in Entry.objects.filter(holder_id=holder)}
    assert stored["import/s-1"].drawn == [[1, 30]]
    assert stored["import/s-2"].drawn == [[2, 30]]
    assert stored["import/s-1"].effective_at == JANUARY + timedelta(days=10)
    assert stored["import/s-1"].recorded_at > datetime.now(UTC) - timedelta(hours=1)
    assert stored[None].effective_at == JANUARY + timedelta(days=31)
    assert is_clean(holder)


def test_imported_history_counts_at_its_own_times(holder: str, run: Any) -> None:
    now = datetime.now(UTC)
    days = [(now - timedelta(days=ago)).isoformat() for ago in (40, 20, 10, 4)]
    rows = [
        grant(holder, "g", 100, occurred_at=days[0], paid_minor=1000, currency="EUR"),
        spend(holder, "s", 60, occurred_at=days[1]),
        {"row": "r", "holder": holder, "operation": "refund", "of": "s", "amount": 20, "occurred_at": days[2]},
        {"row": "v", "holder": holder, "operation": "revoke", "of": "g", "amount": 50, "occurred_at": days[3]},
    ]
    assert run(rows)["exit_code"] == 0
    late = services.grant(holder_id=holder, amount=5, idempotency_key="late", effective_at=now - timedelta(days=30))
    with CaptureQueriesContext(connection) as queries:
        found = [reads.balance_by_effective_time(holder, at=now - timedelta(days=ago)) for ago in (41, 39, 29, 19, 9, 3, 0)]
    assert [balance.balance for balance in found] == [0, 100, 105, 45, 65, 15, 15]
    assert [len(balance.costs) for balance in found] == [0, 1, 1, 1, 1, 1, 1]
    assert [lot.cost and lot.cost.left for lot in found[3].shown_lots] == [400, None]
    assert len(queries) <= 2 * len(found)
    assert late.sequence == 5
    used = {each.day: each.used for each in read_usage(holder, "credits", zone=ZoneInfo("UTC"), now=now).days}
    assert {day: amount for day, amount in used.items() if amount} == {
        (now - timedelta(days=20)).date(): 60,
        (now - timedelta(days=10)).date(): -20,
    }
    # 60 less 20 in the last 30 days, though all was recorded today.
    assert pace(holder, "credits", first_at=now, now=now).a_day == pytest.approx(40 / 20, rel=0.01)
    [account] = [each for each in lately(now=datetime.now(UTC)).accounts if each.balance.holder_id == holder]
    assert account.pace.used == 0


def test_control_without_their_times_the_same_rows_leave_other_credits(holder: str, run: Any) -> None:
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    run(
        [
            grant(holder, "g-1", 100, expires_at=until),
            grant(holder, "g-2", 100),
            spend(holder, "s-1", 30),
            spend(holder, "s-2", 30),
        ]
    )
    assert [kind for kind, _, _ in entries(holder)] == ["grant", "grant", "spend", "spend"]


def test_the_audit_finds_an_entry_that_is_dated_back_without_an_import(
    holder: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception of the law holds for imports only. Two of them, since entries of one instant may follow a clock set back."""
    monkeypatch.setattr("ledger.exchange.management.commands.import_ledger.BY_AN_IMPORT", "key:")
    run([grant(holder, "g", 100)])
    services.spend(holder_id=holder, amount=1, idempotency_key="own")
    monkeypatch.setattr(Importer, "_last_times", lambda *_: {})
    run([spend(holder, "s", 30, occurred_at=at(1))])
    assert laws_broken(holder) == {"time"}


def test_history_goes_forward_also_over_several_imports(holder: str, run: Any) -> None:
    run([grant(holder, "g", 100, occurred_at=at(0)), spend(holder, "s-1", 10, occurred_at=at(5))])
    found = run([spend(holder, "s-2", 10, occurred_at=at(4)), spend(holder, "s-3", 10, occurred_at=at(6))])
    assert (found["exit_code"], found["rows"]["invalid"], found["rows"]["imported"]) == (1, 1, 1)
    assert "is earlier than the account's last entry" in found["errors"][0]["error"]
    assert [balance for _, _, balance in entries(holder)] == [100, 90, 80]


@pytest.mark.parametrize("at_once", [True, False])
def test_history_after_a_row_without_a_time_is_refused_in_one_import_as_in_two(holder: str, run: Any, *, at_once: bool) -> None:
    rows = [grant(holder, "g", 100, occurred_at=at(0)), spend(holder, "s-1", 10)]
    late = spend(holder, "s-2", 10, occurred_at=at(5))
    found = run([*rows, late]) if at_once else (run(rows), run([*rows, late]))[1]
    assert (found["exit_code"], found["rows"]["invalid"]) == (1, 1)
    assert "is earlier than the account's last entry" in found["errors"][0]["error"]
    assert entries(holder) == [("grant", 100, 100), ("spend", -10, 90)]
    assert is_clean(holder)


def test_history_goes_on_after_a_row_without_a_time_that_was_imported_before(holder: str, run: Any) -> None:
    rows = [grant(holder, "g", 100, occurred_at=at(0)), spend(holder, "s-1", 10)]
    run(rows)
    later = datetime.now(UTC).isoformat()
    assert run([*rows, spend(holder, "s-2", 10, occurred_at=later)])["exit_code"] == 0
    assert entries(holder) == [("grant", 100, 100), ("spend", -10, 90), ("spend", -10, 80)]


def test_history_after_what_was_written_here_is_refused(holder: str, run: Any) -> None:
    services.grant(holder_id=holder, amount=100, idempotency_key="own")
    found = run([spend(holder, "s", 10, occurred_at=at(1))])
    assert (found["exit_code"], found["rows"]["invalid"]) == (1, 1)
    assert entries(holder) == [("grant", 100, 100)]


def test_a_row_of_the_future_is_refused(holder: str, run: Any) -> None:
    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert run([grant(holder, "g", 100, occurred_at=soon)])["rows"]["invalid"] == 1
    assert entries(holder) == []


def test_a_refused_row_is_on_record_and_stays_refused(holder: str, run: Any) -> None:
    rows = [grant(holder, "g", 10), spend(holder, "s", 30)]
    found = run(rows)
    assert (found["exit_code"], found["rows"]["refused"]) == (1, 1)
    assert found["errors"][0]["line"] == 2
    assert run(rows)["rows"]["refused"] == 1
    assert entries(holder) == [("grant", 10, 10), ("refusal", 0, 10)]


INVALID = [
    ({"operation": "pay"}, "operation: This must be one of grant, spend, refund, revoke, recurring_grant."),
    ({"operation": ["grant"]}, "operation: This must be one of grant, spend, refund, revoke, recurring_grant."),
    ({"operation": {}}, "operation: This must be one of grant, spend, refund, revoke, recurring_grant."),
    ({"holder": "h", "operation": "grant", "amount": 1}, "row: This is required."),
    ({"row": "é", "holder": "h", "operation": "grant", "amount": 1}, "row: This must match"),
    ({"row": "1", "holder": " h", "operation": "grant", "amount": 1}, "holder: "),
    (
        {"row": "1", "holder": "h", "operation": "recurring_grant", "recurring_grant": "m", "interval": "month", "amount": 5}
        | {"occurred_at": "2026-01-01T00:00:00Z"},
        "occurred_at: This",
    ),
    ({"row": "1", "holder": "h", "operation": "grant", "amount": 1.5}, "amount: This must be a JSON integer"),
    ({"row": "1", "holder": "h", "operation": "grant", "amount": "1"}, "amount: This must be a JSON integer"),
    ({"row": "1", "holder": "h", "operation": "grant", "amount": 0}, "amount: This must be at least 1."),
    ({"row": "1", "holder": "h", "operation": "grant", "amount": 1, "balance": 5}, "balance: "),
    ({"row": "1", "holder": "h", "operation": "grant", "amount": 1, "occurred_at": "2026-01-01"}, "occurred_at: "),
    ({"row": "1", "holder": "h", "operation": "refund"}, "of: This is required."),
    ({"row": "1", "holder": "h", "operation": "spend", "amount": 1, "of": "x"}, "of: "),
]


@pytest.mark.parametrize(("row", "error"), INVALID, ids=range(len(INVALID)))
def test_a_file_with_an_invalid_row_is_not_begun(holder: str, run: Any, row: dict[str, Any], error: str) -> None:
    with pytest.raises(CommandError) as ended:
        run([grant(holder, "g", 100), row])
    assert ended.value.returncode == 2
    assert f"line 2: {error}" in str(ended.value)
    assert "1 of 2 rows are invalid. Nothing was imported." in str(ended.value)
    assert entries(holder) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"row": 1, "row": 2}', "contains a key twice"),
        ('{"amount": NaN}', "is not JSON: NaN"),
        ('{"row": "\\u0000"}', "contains NUL"),
        ('{"row": "\\ud800"}', "contains NUL or half of a surrogate pair"),
        ("[1]", "is not an object"),
        ("{", "is not JSON at character 1"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(db: None, run: Any, text: str, error: str) -> None:
    with pytest.raises(CommandError, match="line 1: the row: ") as ended:
        run(text)
    assert error in str(ended.value)


def test_a_csv_has_the_same_rows(holder: str, run: Any) -> None:
    text = (
        "row,holder,operation,amount,source,reason,metadata,occurred_at\r\n"
        f'g,{holder},grant,100,promotional,"hello, world","{{""a"": 1}}",{at(0)}\r\n'
        f"s,{holder},spend,30,,,,{at(1)}\r\n"
    )
    assert run("\ufeff" + text, suffix=".csv")["rows"]["imported"] == 2
    entry = Entry.objects.get(holder_id=holder, sequence=1)
    assert (entry.reason, entry.metadata, entry.effective_at) == ("hello, world", {"a": 1}, JANUARY)
    with pytest.raises(CommandError, match="line 2: amount: This must be a JSON integer, not a string"):
        run(f"row,holder,operation,amount\r\nx,{holder},spend,ten\r\n", suffix=".csv")
    with pytest.raises(CommandError, match="another number of cells than the headings"):
        run(f"row,holder,operation,amount\r\nx,{holder},spend\r\n", suffix=".csv")
    with pytest.raises(CommandError, match="line 1: the row: has two columns amount"):
        run(f"row,holder,operation,amount,amount\r\nx,{holder},spend,1,2\r\n", suffix=".csv")
    with pytest.raises(CommandError, match="line 2: metadata: "):
        run(f"row,holder,operation,amount,metadata\r\nx,{holder},spend,1,{'[' * 100_000}\r\n", suffix=".csv")


def test_a_dry_run_says_the_same_and_writes_nothing(holder: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "ROWS_AT_ONCE", 2)
    rows = [
        grant(holder, "g-1", 100, occurred_at=at(0), expires_at=at(31)),
        grant(holder, "g-2", 100, occurred_at=at(1)),
        spend(holder, "s-1", 30, occurred_at=at(40)),
        {"row": "r", "holder": holder, "operation": "refund", "of": "s-1", "occurred_at": at(41)},
        spend(holder, "s-2", 500, occurred_at=at(42)),
        spend(holder, "s-3", 1, occurred_at=at(3)),
    ]
    tried = run(rows, "--dry-run")
    assert entries(holder) == []
    done = run(rows)
    assert tried == done
    assert done["rows"] == {"imported": 4, "known": 0, "refused": 1, "changed": 0, "moved": 0, "invalid": 1}
    assert is_clean(holder)


def test_accounts_that_differ_from_the_totals_are_named(holder: str, run: Any, tmp_path: Path) -> None:
    totals = tmp_path / "totals.csv"
    totals.write_text(f"holder,credit_type,available\r\n{holder},credits,70\r\n{holder},sms,0\r\n")
    rows = [grant(holder, "g", 100), spend(holder, "s", 30)]
    assert run(rows, "--totals", str(totals))["differences"] == []
    totals.write_text(f"holder,credit_type,available\r\n{holder},credits,71\r\n")
    found = run(rows, "--totals", str(totals))
    assert found["exit_code"] == 1
    assert found["differences"] == [{"holder_id": holder, "credit_type": "credits", "expected": 71, "available": 70}]


@pytest.mark.parametrize(
    "row",
    [
        {"holder": "h", "available": "Infinity"}, {"holder": "h", "available": "1e999999999"}, {"holder": "h", "available": 1.5},
        {"holder": 5, "available": 1}, {"holder": "h", "credit_type": ["credits"], "available": 1}, {"holder": "h"},
    ],
)  # fmt: skip
def test_totals_that_cannot_be_read_are_named_and_nothing_is_imported(
    holder: str, run: Any, tmp_path: Path, row: dict[str, Any]
) -> None:
    totals = tmp_path / "totals.ndjson"
    totals.write_text(json.dumps(row))
    with pytest.raises(CommandError, match="line 1: ") as ended:
        run([grant(holder, "g", 100)], "--totals", str(totals))
    assert ended.value.returncode == 2
    assert entries(holder) == []


def test_a_pipe_is_refused_because_it_can_be_read_only_once(holder: str, tmp_path: Path) -> None:
    pipe = tmp_path / "rows.ndjson"
    os.mkfifo(pipe)
    with pytest.raises(CommandError, match="cannot be a pipe") as ended:
        call_command("import_ledger", str(pipe))
    assert ended.value.returncode == 2


def test_a_lost_commit_says_to_run_the_import_again(holder: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown

    monkeypatch.setattr(imports, "in_transaction", lost)
    with pytest.raises(CommandError, match="Run the same import again: it continues") as ended:
        run([grant(holder, "g", 100)])
    assert ended.value.returncode == 4


def test_rows_of_an_import_cost_a_bounded_number_of_statements(holder: str, tmp_path: Path) -> None:
    def statements(count: int) -> int:
        file = tmp_path / "many.ndjson"
        rows = [grant(f"{holder}-{count}-{n % 10}", f"{count}-{n}", 5, occurred_at=at(n)) for n in range(count)]
        file.write_text("\n".join(map(json.dumps, rows)))
        with CaptureQueriesContext(connection) as captured:
            call_command("import_ledger", str(file), "--workers", "1", stdout=StringIO())
        return len(captured)

    assert statements(20) == statements(60)


def test_rows_are_read_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.ndjson"
    file.write_text('{"a": 1}\n\n{"b": 2}\nbroken')
    lines = read_lines(file)
    assert (next(lines).value, next(lines).value) == ({"a": 1}, {"b": 2})
    assert next(lines).error
