"""`earliest_sufficient_at` on a refusal: from when enough credits will be available if no request comes. By the rules alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.errors import InsufficientCredits
from ledger.rules.accounts import AccountState
from ledger.rules.decisions.credit_rules import grant, set_overdraft, spend
from ledger.rules.decisions.hold_rules import capture, hold
from ledger.rules.requests import CaptureRequest, GrantRequest, HoldRequest, OverdraftRequest, SpendRequest

DAY = 86_400_000_000
NOW = 20_000 * DAY


def at(us: int) -> datetime:
    """Return the time that is `us` microseconds after 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def after_grant(account: AccountState, amount: int, *, from_day: int = 0, until_day: int | None = None) -> AccountState:
    """Return the account after a grant. The lot is effective `from_day` days after NOW and expires `until_day` days after NOW."""
    request = GrantRequest(
        holder_id="ada",
        idempotency_key="g",
        amount=amount,
        effective_at=at(NOW + from_day * DAY),
        expires_at=None if until_day is None else at(NOW + until_day * DAY),
    )
    return account.after_all(grant(account, request))


def facts_of_refused_spend(account: AccountState, amount: int) -> dict[str, Any]:
    """Spend the amount; assert that it is refused, and return the facts of the refusal."""
    with pytest.raises(InsufficientCredits) as refused:
        spend(account, SpendRequest(holder_id="ada", idempotency_key="s", amount=amount))
    return refused.value.facts


def days_from_now(instant: str | None) -> float | None:
    """How many days after NOW a time lies."""
    return None if instant is None else (datetime.fromisoformat(instant) - at(NOW)) / timedelta(days=1)


EMPTY = AccountState("ada", "credits", NOW)


@pytest.mark.parametrize(("amount", "day"), [(11, 2), (30, 2), (31, 5), (55, 5), (56, None)])
def test_the_day_takes_into_account_lots_that_become_effective_and_lots_that_expire(amount: int, day: int | None) -> None:
    account = after_grant(EMPTY, 10)
    account = after_grant(account, 20, from_day=2, until_day=4)
    account = after_grant(account, 45, from_day=5)
    assert days_from_now(facts_of_refused_spend(account, amount)["earliest_sufficient_at"]) == day


def test_a_lot_that_expires_when_another_becomes_effective_does_not_add_to_it() -> None:
    account = after_grant(after_grant(EMPTY, 10, until_day=3), 10, from_day=3)
    assert facts_of_refused_spend(account, 11)["earliest_sufficient_at"] is None


def test_an_expiring_hold_gives_back_only_credits_that_have_not_expired_by_then() -> None:
    account = after_grant(after_grant(EMPTY, 10, until_day=2), 10)
    request = HoldRequest(holder_id="ada", idempotency_key="h", amount=15, expires_at=at(NOW + 3 * DAY))
    account = account.after_all(hold(account, request))
    assert days_from_now(facts_of_refused_spend(account, 10)["earliest_sufficient_at"]) == 3
    assert facts_of_refused_spend(account, 11)["earliest_sufficient_at"] is None


def test_the_overdraft_and_the_debt_count() -> None:
    account = account_with_overdraft()
    assert (
        facts_of_refused_spend(account, 11)["available"],
        days_from_now(facts_of_refused_spend(account, 30)["earliest_sufficient_at"]),
    ) == (10, 2)
    assert facts_of_refused_spend(account, 31)["earliest_sufficient_at"] is None


def account_with_overdraft() -> AccountState:
    """Return an account that has used 40 of an overdraft of 50, and gets 20 credits in two days."""
    account = EMPTY.after_all(set_overdraft(EMPTY, OverdraftRequest(holder_id="ada", idempotency_key="o", limit=50)))
    account = account.after_all(spend(account, SpendRequest(holder_id="ada", idempotency_key="s", amount=40)))
    return after_grant(account, 20, from_day=2)


def test_a_hold_cannot_use_the_overdraft() -> None:
    with pytest.raises(InsufficientCredits) as refused:
        hold(account_with_overdraft(), HoldRequest(holder_id="ada", idempotency_key="h", amount=1))
    assert (refused.value.facts["available"], refused.value.facts["earliest_sufficient_at"]) == (0, None)


@pytest.mark.parametrize(("hold_days", "enough_on"), [(3, 2), (1, None)])
def test_a_capture_has_no_day_after_its_hold_has_expired(hold_days: int, enough_on: int | None) -> None:
    account = after_grant(after_grant(EMPTY, 10), 20, from_day=2)
    request = HoldRequest(holder_id="ada", idempotency_key="h", amount=10, expires_at=at(NOW + hold_days * DAY))
    entries = hold(account, request)
    account = account.after_all(entries)
    asked = CaptureRequest(holder_id="ada", idempotency_key="c", hold=3, amount=25, over_capture="if_available")
    with pytest.raises(InsufficientCredits) as refused:
        capture(account, asked, hold_entry=entries[-1], last_closing=None)
    assert (refused.value.facts["available"], days_from_now(refused.value.facts["earliest_sufficient_at"])) == (10, enough_on)
