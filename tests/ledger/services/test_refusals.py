"""A refusal is an entry of amount 0: numbered, chained, unique by key, beside the state that made it so; lists pass it by."""

import random
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.database.statements import fetch_value
from ledger.errors import AccountMovedOn, EntryNotFound, InsufficientCredits
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules
from ledger.rules.entries import GENESIS, Entry
from ledger.rules.instants import SECOND_US, to_us
from ledger.rules.requests import GrantRequest, SpendRequest
from ledger.testing import FixedClock
from tests.benchmarks.histories import store

pytestmark = pytest.mark.django_db


def refuse_a_spend(holder_id: str = "ada", amount: int = 1_000, key: str = "too much", **circumstances: Any) -> None:
    """Spend more than the holder has; only the refusal is recorded."""
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder_id, amount=amount, idempotency_key=key, **circumstances)


def entry_at(sequence: int, holder_id: str = "ada") -> Entry:
    """The entry of that sequence."""
    found = reads.entry(holder_id, "credits", sequence)
    assert found is not None
    return found


def test_a_refusal_is_the_next_entry_and_changes_nothing():
    first = services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.hold(holder_id="ada", amount=4, idempotency_key="h")
    held = entry_at(2)
    refuse_a_spend(reason="a book", reference="order 7", metadata={"a": 1}, actor="key:shop", request_id="req_1")

    refusal = entry_at(3)
    assert (refusal.kind, refusal.amount, refusal.drawn, refusal.refers_to) == ("refusal", 0, (), None)
    assert (refusal.balance, refusal.held, refusal.lots, refusal.holds) == (6, 4, held.lots, held.holds)
    assert refusal.digest == refusal.computed_digest(held.digest)
    assert (refusal.actor, refusal.reason, refusal.reference, refusal.metadata) == ("key:shop", "a book", "order 7", {"a": 1})
    assert refusal.refusal is not None
    facts = refusal.refusal.pop("facts")
    assert (facts["available"], facts["requested"], facts["shortfall"]) == (6, 1_000, 994)
    assert refusal.refusal == {
        "after": 2,
        "code": "insufficient-credits",
        "operation": "spend",
        "request": {
            "holder_id": "ada", "credit_type": "credits", "amount": 1_000, "rate": None, "quantity": None, "reason": "a book",
            "reference": "order 7", "metadata": {"a": 1},
        },
        "request_id": "req_1",
    }  # fmt: skip
    assert reads.balance("ada").sequence == 3
    assert first.balance == 10
    assert audit([connection.connection]).findings == []


def test_an_account_may_begin_with_a_refusal():
    refuse_a_spend()
    with pytest.raises(EntryNotFound):
        services.refund(holder_id="ada", spend=7, idempotency_key="r")
    assert [(each.sequence, each.kind, each.balance) for each in (entry_at(1), entry_at(2))] == [
        (1, "refusal", 0),
        (2, "refusal", 0),
    ]
    assert entry_at(1).digest == entry_at(1).computed_digest(GENESIS)
    assert [each.refusal["after"] for each in (entry_at(1), entry_at(2)) if each.refusal] == [0, 0]
    assert services.grant(holder_id="ada", amount=5, idempotency_key="g").sequence == 3
    assert [(each.holder_id, each.balance) for each in reads.holders()] == [("ada", 5)]
    assert audit([connection.connection]).findings == []


def test_what_has_come_due_is_left_to_the_next_movement():
    expires_at = timezone.now() - timedelta(hours=1)
    with FixedClock(expires_at - timedelta(days=1)):
        services.grant(holder_id="ada", amount=10, idempotency_key="g", expires_at=expires_at)
    lots = entry_at(1).lots
    refuse_a_spend(amount=1)

    refusal = entry_at(2)
    assert (refusal.balance, refusal.lots) == (10, lots)
    assert refusal.refusal is not None
    assert (refusal.refusal["facts"]["available"], refusal.refusal["facts"]["expired"]) == (0, 10)
    assert services.grant(holder_id="ada", amount=3, idempotency_key="g2").sequence == 4
    assert [(each.sequence, each.kind, each.amount) for each in reads.entries("ada")] == [
        (4, "grant", 3), (3, "expire", -10), (1, "grant", 10),
    ]  # fmt: skip


def test_a_refusal_is_a_last_entry_that_requests_can_expect():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    refuse_a_spend(expected_sequence=1)
    with pytest.raises(AccountMovedOn) as refused:
        services.spend(holder_id="ada", amount=1, idempotency_key="s", expected_sequence=1)
    assert refused.value.facts == {"expected": 1, "sequence": 2}
    # A retry gets its first answer, whatever it expects.
    refuse_a_spend(expected_sequence=1)
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s", expected_sequence=2).sequence == 3


def test_a_key_has_one_result_whether_an_entry_or_a_refusal():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    refuse_a_spend(key="s")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indisunique FROM pg_index WHERE indexrelid = 'ledger_entry_key'::regclass"
            " AND pg_get_expr(indpred, indrelid) = '(idempotency_key IS NOT NULL)'"
        )
        assert cursor.fetchall() == [(True,)]
    services.grant(holder_id="ada", amount=10_000, idempotency_key="top-up")
    refuse_a_spend(key="s")
    assert reads.balance("ada").sequence == 3


def test_entries_are_listed_without_refusals_and_refusals_by_their_kind():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    refuse_a_spend(key="1")
    services.spend(holder_id="ada", amount=1, idempotency_key="s")
    refuse_a_spend(key="2")
    refuse_a_spend(key="3", credit_type="sms")
    assert [each.sequence for each in reads.entries("ada")] == [3, 1]
    assert [(each.credit_type, each.sequence) for each in reads.entries("ada", kind="refusal")] == [
        ("sms", 1), ("credits", 4), ("credits", 2),
    ]  # fmt: skip
    assert [(each.idempotency_key, each.code) for each in reads.refusals("ada")] == [
        ("3", "insufficient-credits"), ("2", "insufficient-credits"), ("1", "insufficient-credits"),
    ]  # fmt: skip
    last = reads.refusals("ada")[0]
    position = (last.recorded_at, last.credit_type, last.sequence)
    assert [each.idempotency_key for each in reads.refusals("ada", before=position, limit=1)] == ["2"]


def test_an_explanation_says_what_was_refused():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    refuse_a_spend()
    explanation = reads.explanation("ada", "credits", 2)
    assert explanation is not None
    assert explanation["text"] == "The ledger refused the spend: insufficient-credits. No credits moved."
    assert explanation["before"] | {"sequence": 2} == explanation["after"]
    assert explanation["lots"] == []


# Pages -------------------------------------------------------------------------------------------------


def write_history(pattern: str) -> list[Entry]:
    """An account's entries: a movement for `m`, a refusal for `r`; three at a time at the same instant."""
    account = AccountState("ada", "credits", to_us(timezone.now()) - 86_400 * SECOND_US)
    made: list[Entry] = []
    for place, kind in enumerate(pattern):
        account = account._replace(now_us=account.now_us + (SECOND_US if place % 3 == 0 else 0))
        if kind == "m":
            made += credit_rules.grant(account, GrantRequest(holder_id="ada", idempotency_key=f"{place}", amount=1))
        else:
            request = SpendRequest(holder_id="ada", idempotency_key=f"{place}", amount=1_000)
            made.append(account.refused(request, InsufficientCredits(available=0, requested=1_000, shortfall=1_000)))
        account = account.after(made[-1])
    store(connection.connection, made)
    return made


@pytest.mark.parametrize("pattern", ["", "m", "r", "rrrr", "rm", "mr", "mrrrrrrrrm", "random"])
def test_pages_pass_refusals_by_in_both_directions(pattern):
    chance = random.Random(pattern)
    made = write_history(
        "".join(chance.choice(["m", "rrr", "r" * 17, "mm"]) for _ in range(25)) if pattern == "random" else pattern
    )
    expected = [each.sequence for each in reversed(made) if each.kind != "refusal"]
    assert [each.sequence for each in reads.entries("ada", limit=1_000)] == expected
    for limit in (1, 2, 7):
        for each in made:
            position = (each.recorded_at, each.credit_type, each.sequence)
            older = [number for number in expected if number < each.sequence]
            newer = [number for number in expected if number > each.sequence]
            assert [one.sequence for one in reads.entries("ada", before=position, limit=limit)] == older[:limit]
            assert [one.sequence for one in reads.entries("ada", after=position, limit=limit)] == newer[-limit:]
    for each in made[::5]:
        at = each.recorded_at
        since = [number for number in expected if made[number - 1].recorded_at >= at]
        until = [number for number in expected if made[number - 1].recorded_at < at]
        assert [one.sequence for one in reads.entries("ada", since=at, limit=1_000)] == since
        assert [one.sequence for one in reads.entries("ada", until=at, limit=1_000)] == until


def rows_read() -> int:
    """How many rows of ledger_entry this transaction has fetched by an index."""
    return fetch_value(int, "SELECT coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'ledger_entry'")


@pytest.mark.one_node("counts the rows that one server reads")
@pytest.mark.parametrize("refusals", [20, 2_000])
def test_what_a_page_reads_does_not_grow_with_the_refusals_between(refusals):
    made = write_history("m" * 5 + "r" * refusals + "m" * 5)
    first = made[0]
    with connection.cursor() as cursor:  # where autovacuum saw the table empty, plans are sequential scans, and kept
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("DISCARD PLANS")
    for arguments in ({}, {"after": (first.recorded_at, first.credit_type, first.sequence)}):
        before = rows_read()
        assert len(reads.entries("ada", **arguments)) == 10 - bool(arguments)
        # Twice the page, what a cursor fetches ahead into the run, and the halving of the run and of the times.
        assert 10 - bool(arguments) <= rows_read() - before < 100
