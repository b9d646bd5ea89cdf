"""When there will be enough, if nobody does anything: by the rules alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.errors import InsufficientCredits
from ledger.rules import (
    Account,
    CaptureRequest,
    GrantRequest,
    HoldRequest,
    OverdraftRequest,
    SpendRequest,
    capture,
    grant,
    hold,
    set_overdraft,
    spend,
)

DAY = 86_400_000_000
NOW = 20_000 * DAY


def at(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def granted(account: Account, amount: int, *, from_day: int = 0, until_day: int | None = None) -> Account:
    request = GrantRequest(
        holder_id="ada",
        idempotency_key="g",
        amount=amount,
        effective_at=at(NOW + from_day * DAY),
        expires_at=None if until_day is None else at(NOW + until_day * DAY),
    )
    return account.after_all(grant(account, request))


def facts(account: Account, amount: int) -> dict[str, Any]:
    with pytest.raises(InsufficientCredits) as refused:
        spend(account, SpendRequest(holder_id="ada", idempotency_key="s", amount=amount))
    return refused.value.facts


def days(instant: str | None) -> float | None:
    return None if instant is None else (datetime.fromisoformat(instant) - at(NOW)) / timedelta(days=1)


EMPTY = Account("ada", "credits", NOW)


@pytest.mark.parametrize(("amount", "day"), [(11, 2), (30, 2), (31, 5), (55, 5), (56, None)])
def test_lots_that_become_effective_and_expire_are_weighed_against_each_other(amount: int, day: int | None) -> None:
    account = granted(EMPTY, 10)
    account = granted(account, 20, from_day=2, until_day=4)
    account = granted(account, 45, from_day=5)
    assert days(facts(account, amount)["earliest_sufficient_at"]) == day


def test_what_comes_as_another_lot_goes_is_not_enough_together() -> None:
    account = granted(granted(EMPTY, 10, until_day=3), 10, from_day=3)
    assert facts(account, 11)["earliest_sufficient_at"] is None


def test_a_hold_that_expires_gives_back_only_what_is_still_good_then() -> None:
    account = granted(granted(EMPTY, 10, until_day=2), 10)
    request = HoldRequest(holder_id="ada", idempotency_key="h", amount=15, expires_at=at(NOW + 3 * DAY))
    account = account.after_all(hold(account, request))
    assert days(facts(account, 10)["earliest_sufficient_at"]) == 3
    assert facts(account, 11)["earliest_sufficient_at"] is None


def test_an_overdraft_and_what_is_owed_count() -> None:
    account = account_with_overdraft()
    assert (facts(account, 11)["available"], days(facts(account, 30)["earliest_sufficient_at"])) == (10, 2)
    assert facts(account, 31)["earliest_sufficient_at"] is None


def account_with_overdraft() -> Account:
    """Owes 40 of 50, and gets 20 in two days."""
    account = EMPTY.after_all(set_overdraft(EMPTY, OverdraftRequest(holder_id="ada", idempotency_key="o", limit=50)))
    account = account.after_all(spend(account, SpendRequest(holder_id="ada", idempotency_key="s", amount=40)))
    return granted(account, 20, from_day=2)


def test_a_hold_counts_on_no_overdraft() -> None:
    with pytest.raises(InsufficientCredits) as refused:
        hold(account_with_overdraft(), HoldRequest(holder_id="ada", idempotency_key="h", amount=1))
    assert (refused.value.facts["available"], refused.value.facts["earliest_sufficient_at"]) == (0, None)


@pytest.mark.parametrize(("hold_days", "enough_on"), [(3, 2), (1, None)])
def test_a_capture_can_wait_only_as_long_as_its_hold(hold_days: int, enough_on: int | None) -> None:
    account = granted(granted(EMPTY, 10), 20, from_day=2)
    request = HoldRequest(holder_id="ada", idempotency_key="h", amount=10, expires_at=at(NOW + hold_days * DAY))
    entries = hold(account, request)
    account = account.after_all(entries)
    asked = CaptureRequest(holder_id="ada", idempotency_key="c", hold=3, amount=25, over_capture="if_available")
    with pytest.raises(InsufficientCredits) as refused:
        capture(account, asked, hold_entry=entries[-1], last_closing=None)
    assert (refused.value.facts["available"], days(refused.value.facts["earliest_sufficient_at"])) == (10, enough_on)
