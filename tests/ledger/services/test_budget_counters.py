"""Counters of budgets: read for the subjects of a request alone, and written only as the entries say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from ledger import journal, reads, services
from ledger.audit.auditing import audit
from ledger.database.locks import holder_lock
from ledger.errors import BudgetExceeded
from ledger.previews import preview
from ledger.rules.decisions import credit_rules
from ledger.rules.entries import Entry
from ledger.rules.requests import CaptureRequest, GrantRequest, ReleaseRequest, Request, SpendRequest
from ledger.testing import FixedClock, unique

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(db: None) -> str:
    """A holder with 1,000 credits, and a budget of 10 a month for each member."""
    services.grant(holder_id="team", amount=1_000, idempotency_key="g")
    services.set_budget(holder_id="team", budget="m", limit=10, window="month", by="label", label="member", idempotency_key="b")
    return "team"


def spend(amount: int, member: str) -> Entry:
    return services.spend(holder_id="team", amount=amount, metadata={"member": member}, idempotency_key=unique("s"))


def used() -> dict[str | None, int]:
    return {use.subject: use.used for use in reads.budgets("team")[0].usage}


def counters() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT subject, used, sequence FROM ledger_budget_counter ORDER BY subject")
        return cursor.fetchall()


def test_any_number_of_invented_members_leaves_room_for_an_honest_one(pool: str) -> None:
    invented = [
        SpendRequest(holder_id=pool, amount=1, metadata={"member": f"x{number}"}, idempotency_key=f"x{number}")
        for number in range(250)
    ]
    outcomes = services.batch(invented, mode="each", idempotency_key="batch").outcomes
    assert all(each.entry for each in outcomes)
    entry = spend(10, "ann")
    assert len(entry.counts) == 1
    [shown] = reads.budgets(pool)
    assert (len(shown.usage), shown.subjects, shown.usage[0].subject, shown.usage[0].used) == (100, 251, "ann", 10)
    page = reads.budget_usage(pool, "credits", "m", limit=200)
    assert page is not None
    rest = reads.budget_usage(pool, "credits", "m", after=(page[-1].key,), limit=200)
    assert rest is not None
    assert [use.subject for use in (*page, *rest)] == sorted(["ann", *(f"x{number}" for number in range(250))])
    assert audit([connection.connection], holder_id=pool).findings == []


def test_a_batch_counts_what_its_earlier_operations_did_and_a_replay_counts_nothing(pool: str) -> None:
    requests = [
        SpendRequest(holder_id=pool, amount=4, metadata={"member": "ann"}, idempotency_key=f"k{number}") for number in range(3)
    ]
    outcomes = services.batch(requests, mode="each", idempotency_key="b1").outcomes
    assert [type(each.error) for each in outcomes] == [type(None), type(None), BudgetExceeded]
    services.batch(requests, mode="each", idempotency_key="b2")
    assert counters() == [("ann", 8, 4)]


def test_a_preview_counts_in_memory_and_writes_nothing(pool: str) -> None:
    spend(5, "ann")
    before = counters()
    with preview():
        spend(3, "ann")
        with pytest.raises(BudgetExceeded) as refused:
            spend(3, "ann")
        assert refused.value.used == 8
    assert counters() == before
    spend(5, "ann")


def test_a_released_hold_gives_back_to_its_member(pool: str) -> None:
    services.hold(holder_id=pool, amount=9, metadata={"member": "ann"}, idempotency_key="h")
    assert used() == {"ann": 9}
    released = services.release(holder_id=pool, hold=3, idempotency_key="r")
    assert [(each.subject, each.amount, each.used) for each in released.counts] == [("ann", -9, 0)]
    assert used() == {}
    assert counters() == [("ann", 0, 4)]


def test_only_an_account_with_budgets_reads_counters(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    services.grant(holder_id="plain", amount=10, idempotency_key="g")
    monkeypatch.setattr(journal, "COUNTERS", None)
    services.spend(holder_id="plain", amount=1, idempotency_key="s")
    with pytest.raises(AttributeError):
        spend(1, "ann")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda count: count._replace(used=count.used - 1, total=count.used - 1),
        lambda count: count._replace(amount=1),
        lambda count: count._replace(subject="ben"),
        lambda count: count._replace(setting=1),
        lambda count: count._replace(start_us=count.start_us - 1),
    ],
    ids=["less is used", "another amount", "another subject", "no such budget", "another step"],
)
def test_the_database_refuses_an_entry_that_counts_something_else(pool: str, wrong: Any) -> None:
    spend(3, "ann")
    before = counters()
    with transaction.atomic(), holder_lock(pool) as lock:
        state = journal.read(lock, pool, "credits").among.count_for((pool, "credits"), asked := request())
        [entry] = credit_rules.spend(state, asked)
        forged = entry._replace(counts=tuple(wrong(each) for each in entry.counts)).sealed(state.digest)
        with pytest.raises(DatabaseError) as refused, transaction.atomic():
            journal.append(lock, [forged])
    assert "does not count what its budgets do" in str(refused.value)
    assert counters() == before


def request() -> SpendRequest:
    return SpendRequest(holder_id="team", amount=4, metadata={"member": "ann"}, idempotency_key="forged")


def test_the_database_refuses_what_exceeds_a_hard_budget(pool: str) -> None:
    spend(3, "ann")
    with transaction.atomic(), holder_lock(pool) as lock:
        state = journal.read(lock, pool, "credits").among.count_for((pool, "credits"), asked := request())
        raised = state._replace(budgets=(state.budgets[0]._replace(limit=1_000),))
        [entry] = credit_rules.spend(raised, SpendRequest(**vars_of(asked) | {"amount": 8}))
        forged = entry._replace(budgets=state.budgets).sealed(state.digest)
        with pytest.raises(DatabaseError), transaction.atomic():
            journal.append(lock, [forged])
    assert counters() == [("ann", 3, 3)]


def test_the_database_refuses_what_a_budget_counts_before_it_is_in_force(pool: str) -> None:
    """As code of 0.2.1 might, which knows no instants."""
    starts_at = datetime.now(UTC) + timedelta(days=1)
    services.set_budget(holder_id=pool, budget="n", limit=50, window="day", starts_at=starts_at, idempotency_key="later")
    asked = SpendRequest(holder_id=pool, amount=4, idempotency_key="early")
    with transaction.atomic(), holder_lock(pool) as lock:
        state = journal.read(lock, pool, "credits").state
        begun = state._replace(budgets=tuple([each._replace(starts_us=None) for each in state.budgets if each.name == "n"]))
        [entry] = credit_rules.spend(begun, asked)
        forged = entry._replace(budgets=state.budgets).sealed(state.digest)
        with pytest.raises(DatabaseError) as refused, transaction.atomic():
            journal.append(lock, [forged])
    assert "does not count what its budgets do" in str(refused.value)
    assert counters() == []


def vars_of(asked: SpendRequest) -> dict[str, Any]:
    return {
        "holder_id": asked.holder_id,
        "amount": asked.amount,
        "metadata": asked.metadata,
        "idempotency_key": asked.idempotency_key,
    }


@pytest.mark.parametrize("between", ["a grant of the batch", "a recurring grant"])
def test_what_an_expired_hold_gives_back_counts_for_the_spend_behind_another_entry(db: None, between: str) -> None:
    with FixedClock(datetime(2025, 1, 1, 12, tzinfo=UTC)) as clock:
        services.grant(holder_id="team", amount=100, idempotency_key="g")
        services.set_budget(holder_id="team", budget="all", limit=10, window="month", by="holder", idempotency_key="b")
        if between == "a recurring grant":
            terms: dict[str, Any] = {"amount": 5, "interval": "week", "starts_at": datetime(2025, 1, 9, tzinfo=UTC)}
            services.set_recurring_grant(holder_id="team", recurring_grant="weekly", idempotency_key="r", **terms)
        services.hold(holder_id="team", amount=8, expires_at=datetime(2025, 1, 8, tzinfo=UTC), idempotency_key="h")
        clock.advance(days=9)
        spend = SpendRequest(holder_id="team", amount=9, idempotency_key="s")
        grant = GrantRequest(holder_id="team", amount=5, idempotency_key="g2")
        outcomes = services.batch([grant, spend] if "batch" in between else [spend], mode="each", idempotency_key="k").outcomes
        assert [each.error for each in outcomes] == [None] * len(outcomes)
        assert (counters()[0][:2], reads.balance("team").available) == (("", 9), 96)
    assert audit([connection.connection], holder_id="team").findings == []


def capture_1(clock: FixedClock) -> Request:
    """A release of the rest, then the capture."""
    return CaptureRequest(holder_id="team", hold=4, amount=1, idempotency_key="first")


def release_what_expires(clock: FixedClock) -> Request:
    """The release, then the expiry of the credits that come back."""
    clock.advance(hours=2)
    return ReleaseRequest(holder_id="team", hold=4, idempotency_key="first")


def spend_for_another(clock: FixedClock) -> Request:
    """The release of the hold that has expired, then the spend of another member."""
    clock.advance(hours=4)
    return SpendRequest(holder_id="team", amount=1, metadata={"member": "ben"}, idempotency_key="first")


# A spend that does not see what came back is refused by the budget of 10 if 9 were held, and by the database if 5 were.
@pytest.mark.parametrize(
    ("give_back", "held"), [(capture_1, 5), (capture_1, 9), (release_what_expires, 9), (spend_for_another, 5)]
)
def test_what_comes_back_before_the_last_entry_of_a_request_counts_for_the_next_of_its_batch(
    db: None, give_back: Callable[[FixedClock], Request], held: int
) -> None:
    began, ann = datetime(2026, 9, 1, tzinfo=UTC), {"member": "ann"}
    with FixedClock(began) as clock:
        services.grant(holder_id="team", amount=held, expires_at=began + timedelta(hours=1), idempotency_key="soon")
        services.grant(holder_id="team", amount=100, idempotency_key="g")
        services.set_budget(holder_id="team", budget="m", limit=10, window="day", by="label", label="member", idempotency_key="b")
        services.hold(holder_id="team", amount=held, metadata=ann, expires_at=began + timedelta(hours=3), idempotency_key="h")
        batch = [give_back(clock), SpendRequest(holder_id="team", amount=5, metadata=ann, idempotency_key="s")]
        outcomes = services.batch(batch, mode="each", idempotency_key="batch").outcomes
        assert [each.error for each in outcomes] == [None, None]
        assert used()["ann"] == 5 + (give_back is capture_1)
    assert audit([connection.connection], holder_id="team").findings == []
