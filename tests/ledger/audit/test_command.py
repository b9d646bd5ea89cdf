"""`manage.py audit_ledger`: its arguments, output and exit codes; and all its sessions see one snapshot while writers go on."""

import json
from datetime import UTC, datetime
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command

from ledger import services
from ledger.audit.auditing import audit
from ledger.audit.reports import Finding, Report
from ledger.audit.sessions import connector, one_snapshot
from ledger.errors import InsufficientCredits
from ledger.management.commands import audit_ledger
from tests.conftest import on_fresh_database

OF_ONE_SNAPSHOT = pytest.mark.one_node("there is no snapshot of all nodes; a cluster's audit reads shard by shard")


def run_audit(*arguments: str) -> tuple[int, str]:
    """Run the command, and return its exit code and output."""
    output = StringIO()
    try:
        call_command("audit_ledger", *arguments, stdout=output)
    except SystemExit as ended:
        return int(ended.code or 0), output.getvalue()
    return 0, output.getvalue()


@pytest.fixture
def holder(committed_db, new_holder):
    """See `with_entries`."""
    return with_entries(new_holder())


@pytest.fixture
def only_holder(django_db_setup, django_db_blocker, new_holder):
    """See `with_entries`; no other holder is in the database, so that all of it can be audited."""
    with django_db_blocker.unblock(), on_fresh_database("_audit"):
        yield with_entries(new_holder())


def with_entries(holder: str) -> str:
    """Give a holder a grant of 100, a spend of 30 and a refusal: 70 credits, 3 entries."""
    services.grant(holder_id=holder, amount=100, idempotency_key="g")
    services.spend(holder_id=holder, amount=30, idempotency_key="s")
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder, amount=300, idempotency_key="too much")
    return holder


def test_a_clean_ledger_exits_0_and_reports_what_was_audited(holder):
    code, output = run_audit("--holder", holder, "--format", "json")
    report = json.loads(output)
    assert code == 0
    assert report["clean"] is True
    assert (report["holders"], report["accounts"], report["entries"], report["refusals"]) == (1, 1, 3, 1)
    assert report["findings"] == {"total": 0, "by_law": {}, "listed": []}
    assert report["identities"] == [
        {
            "credit_type": "credits", "granted": 100, "spent": 30, "refunded": 0, "expired": 0, "revoked": 0, "transferred_in": 0,
            "transferred_out": 0, "balance": 70, "held": 0,
        }
    ]  # fmt: skip
    code, text = run_audit("--holder", holder)
    assert code == 0
    assert f"Audit of holder {holder}" in text
    assert text.endswith("Clean: no violations found.\n")


def test_a_finding_exits_1(committed_db, monkeypatch):
    found = Report(as_of=datetime(2026, 1, 31, tzinfo=UTC), entries=2, accounts=1, holders=1)
    found.add([Finding("balance", "ada", "credits", 2, "70", "71")])
    monkeypatch.setattr(audit_ledger, "audit_ledger", lambda *sessions, **options: found)
    code, output = run_audit("--format", "json")
    assert code == 1
    assert json.loads(output)["findings"] == {
        "total": 1,
        "by_law": {"balance": 1},
        "listed": [
            {"law": "balance", "holder_id": "ada", "credit_type": "credits", "sequence": 2, "found": "70", "expected": "71"}
        ],
    }
    code, text = run_audit()
    assert code == 1
    assert text.endswith(
        "1 findings:\n  balance (1): A balance is the one before it plus the amount.\n    ada/credits/2: found 70, expected 71\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workers", "0"),
        ("--workers", "33"),
        ("--findings", "-1"),
        ("--holder", "not a holder"),
        ("--holder", "ada", "--anchor-write", f"{__file__}/anchor"),
        ("--anchor-write", f"{__file__}/anchor"),
        ("--anchor-check", f"{__file__}/anchor"),
        ("--anchor-check", __file__),
        ("--anchor-write", __file__),
    ],
)
def test_audit_ledger_with_bad_arguments_exits_with_2(committed_db, arguments):
    with pytest.raises(CommandError) as refused:
        run_audit(*arguments)
    assert refused.value.returncode == 2


def test_an_unknown_holder_exits_2(committed_db, new_holder):
    nobody = new_holder()
    with pytest.raises(CommandError, match=f"--holder: holder '{nobody}' does not exist") as refused:
        call_command("audit_ledger", "--holder", nobody, stdout=StringIO())
    assert refused.value.returncode == 2


@pytest.mark.slow
@pytest.mark.check
def test_an_anchor_is_written_and_checked(only_holder, tmp_path):
    holder = only_holder
    path = tmp_path / "anchor"
    code, output = run_audit("--anchor-write", str(path), "--format", "json")
    assert code == 0, output
    assert json.loads(output)["anchor"]["written_to"] == str(path)
    services.spend(holder_id=holder, amount=1, idempotency_key="later")
    code, output = run_audit("--holder", holder, "--anchor-check", str(path), "--format", "json")
    assert code == 0
    assert json.loads(output)["anchor"]["checked"] == str(path)


@OF_ONE_SNAPSHOT
def test_all_sessions_see_the_snapshot_of_the_first_while_writers_go_on(holder):
    with one_snapshot(connector(), 3) as sessions:
        services.spend(holder_id=holder, amount=10, idempotency_key="after the snapshot")
        seen = [
            session.execute("SELECT max(sequence) FROM ledger_entry WHERE holder_id = %s", [holder]).fetchone()
            for session in sessions
        ]
        report = audit(sessions, holder_id=holder)
    assert seen == [(3,)] * 3
    assert (report.is_clean, report.entries) == (True, 3)
    with one_snapshot(connector(), 1) as sessions:
        assert audit(sessions, holder_id=holder).entries == 4


def test_the_sessions_of_an_audit_cannot_write(committed_db):
    with one_snapshot(connector(), 2) as sessions:
        for session in sessions:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                session.execute("INSERT INTO ledger_entry (holder_id) VALUES ('x')")


@OF_ONE_SNAPSHOT
def test_progress_counts_every_entry_once(holder):
    calls = []
    with one_snapshot(connector(), 2) as sessions:
        audit(sessions, holder_id=holder, slice_entries=1, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 3), (1, 3), (2, 3), (3, 3)]
