"""`budget.exceeded` comes once for each window and subject, from soft budgets and from refusals by hard ones."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import services
from ledger.database.statements import fetch_rows
from ledger.errors import BudgetExceeded
from ledger.rules.budget_states import Budget, BudgetCount
from ledger.rules.entries import Entry
from ledger.rules.instants import to_us
from ledger.signals import feed as feeding
from ledger.signals.budget_reports import BudgetReports
from ledger.signals.feed import feed, forget
from ledger.testing import unique

MakeWebhook = Callable[..., dict[str, Any]]


@pytest.fixture
def ada(db: None, webhook: MakeWebhook) -> str:
    """A holder with credits, and a webhook for exceeded budgets."""
    webhook("budget.exceeded")
    services.grant(holder_id="ada", amount=1000, idempotency_key="g")
    return "ada"


def limit(name: str = "daily", **more: Any) -> Entry:
    settings = {"limit": 10, "window": "day", "mode": "soft"} | more
    return services.set_budget(holder_id="ada", budget=name, idempotency_key=unique("b"), **settings)


def spend(amount: int, **more: Any) -> Entry:
    return services.spend(holder_id="ada", amount=amount, idempotency_key=unique("s"), **more)


def refused(amount: int, **more: Any) -> None:
    with pytest.raises(BudgetExceeded):
        spend(amount, **more)


def told() -> list[dict[str, Any]]:
    sql = "SELECT data FROM ledger_signal WHERE type = 'budget.exceeded' ORDER BY number"
    return fetch_rows(lambda data: data, sql)


def reports() -> list[tuple[str, str]]:
    return fetch_rows(lambda *row: row, "SELECT budget, subject FROM ledger_budget_report ORDER BY 1, 2")


def test_a_soft_budget_is_reported_once_when_more_than_its_limit_is_used(ada: str) -> None:
    limit()
    spend(10)
    feed()
    assert told() == []
    entry = spend(1)
    spend(1)
    for _ in range(3):
        feed()
    spend(5)
    feed()
    [made] = told()
    assert made["resets_at"] > made["as_of"]
    del made["resets_at"], made["as_of"]
    assert made == {
        "holder_id": "ada", "credit_type": "credits", "budget": "daily", "subject": None, "mode": "soft", "limit": 10, "used": 11,
        "requested": None, "within": [], "window": "day", "hours": None, "time_zone": "UTC", "sequence": entry.sequence,
    }  # fmt: skip


def test_a_release_between_two_uses_makes_no_second_crossing(ada: str) -> None:
    limit()
    hold = services.hold(holder_id="ada", amount=11, idempotency_key="h")
    services.release(holder_id="ada", hold=hold.sequence, idempotency_key="r")
    spend(11)
    feed()
    assert [each["sequence"] for each in told()] == [hold.sequence]


def test_a_hard_budget_is_reported_once_when_it_refuses(ada: str) -> None:
    limit(mode="hard")
    spend(8)
    refused(3)
    refused(4)
    feed()
    refused(5)
    feed()
    [made] = told()
    assert (made["mode"], made["used"], made["requested"], made["limit"]) == ("hard", 8, 3, 10)


def test_each_subject_is_reported(ada: str) -> None:
    limit("member", by="label", label="member")
    limit("all", limit=20, mode="hard")
    for member, amount in (("ann", 11), ("bob", 5), ("ann", 1)):
        spend(amount, metadata={"member": member})
    refused(6, metadata={"member": "bob"})
    feed()
    assert [(each["budget"], each["subject"]) for each in told()] == [("member", "ann"), ("all", None)]
    assert reports() == [("all", ""), ("member", "ann")]


def test_where_no_webhook_wants_it_nothing_is_written(db: None, webhook: MakeWebhook) -> None:
    webhook("entry.recorded")
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    limit()
    spend(11)
    feed()
    assert (told(), reports()) == ([], [])


def test_a_limit_that_is_lowered_below_what_is_used_is_reported_for_each_subject(ada: str) -> None:
    limit("member", limit=100, by="label", label="member")
    for member, amount in (("ann", 11), ("bob", 12), ("cy", 10)):
        spend(amount, metadata={"member": member})
    feed()
    assert told() == []
    limit("member", limit=10, by="label", label="member")
    feed()
    assert [(each["subject"], each["used"]) for each in told()] == [("ann", 11), ("bob", 12)]


def test_the_next_window_is_reported_again(db: None) -> None:
    start = to_us(datetime(2026, 3, 1, 12, tzinfo=UTC))
    day_us = 86_400_000_000
    for budget, next_us in ((Budget("b", 10, "day", is_hard=False), day_us // 2), (rolling(hours=6), 6 * 3_600_000_000)):
        known = BudgetReports("ada")
        known._known = {}
        told_at = [
            at for at in (start, start + 1, start + next_us - 1, start + next_us) if list(known.exceeded_by(over(budget, at)))
        ]
        assert told_at == [start, start + next_us], budget.window


def rolling(hours: int) -> Budget:
    return Budget("b", 10, "rolling", hours, is_hard=False)


def over(budget: Budget, at_us: int) -> Entry:
    """An entry at that instant after which more than the limit is used."""
    count = BudgetCount(budget.setting, "", budget.step(at_us), 11, 11, 11)
    return Entry(
        "ada", "credits", 2, "spend", -11, 0, 0, (), (), (), None, None, None, None, None, at_us, at_us, "", "", "", {},
        None, None, None, None, (budget,), counts=(count,),
    )  # fmt: skip


@pytest.mark.parametrize("breaks", ["_store", "_spread_all"])
def test_a_worker_that_ends_before_commit_has_neither_lost_nor_doubled_a_report(
    ada: str, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    limit()
    spend(11)
    whole = getattr(feeding, breaks)

    def broken(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(feeding, breaks, broken)
    with pytest.raises(KeyboardInterrupt):
        feed()
    assert (told(), reports()) == ([], [])
    monkeypatch.setattr(feeding, breaks, whole)
    feed()
    feed()
    assert (len(told()), reports()) == (1, [("daily", "")])


def test_reports_are_deleted_when_their_windows_are_long_over(ada: str) -> None:
    limit()
    spend(11)
    feed()
    # Also where midnight passes in the middle of this test.
    forget(timedelta(minutes=10))
    assert reports() == [("daily", "")], "its day is not over"
    forget(timedelta(days=-2))
    assert reports() == []
