"""`--check` finds days that are paid and not granted, granted twice, or granted and not charged."""

from typing import Any

import pytest

from billing.auditing import consistency
from billing.models import Claim
from tests.billing.factories import amend
from tests.billing.generator.state.test_allowance_changes import CHANGES, MONTH, day, move, ordered, plan_of, run_at
from tests.parts import spread

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture
def subscription() -> Any:
    """Four months on one plan with a change to another on 10 February, billed and granted in each."""
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    for month in (1, 2):
        run_at(holder, subscription, day(month))
    move(holder, day(2, 10))
    amend(subscription, day(2, 10), plan=plan_of(300, "30.00", MONTH))
    run_at(holder, subscription, day(2, 10))
    for month in (3, 4):
        run_at(holder, subscription, day(month))
    assert found() == []
    return subscription


def found() -> list[str]:
    """The names of the findings about allowances."""
    return sorted({one["finding"] for one in consistency.check() if "credits" in one["finding"]})


def claims(subscription: Any) -> Any:
    """Those of allowances that count."""
    return Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE, released_at=None).order_by("starts_at")


TWICE = "credits of a span were granted twice"
MISSING = "credits of a paid day were not granted"
BEYOND = "credits for time that is not charged"


@pytest.mark.parametrize("number", range(5))
def test_a_claim_that_is_gone_leaves_paid_days_without_credits(subscription: Any, number: int) -> None:
    claims(subscription).filter(pk=claims(subscription)[number].pk).delete()
    # The last period is due until its next one, so that its days count too.
    assert found() == [MISSING]


def test_a_claim_that_is_shorter_leaves_days_without_credits(subscription: Any) -> None:
    claims(subscription).filter(starts_at=day(3)).update(ends_at=day(3, 31))
    assert found() == [MISSING]


def test_claims_that_overlap_are_found_also_of_other_items(subscription: Any) -> None:
    last = claims(subscription).last()
    last.pk, last.item_id, last.starts_at, last.snapshot = None, 999_999, day(4, 20), last.snapshot | {"grant": 1}
    last.save()
    assert TWICE in found()


def test_a_grant_that_two_claims_name_is_found(subscription: Any) -> None:
    first, second = claims(subscription)[:2]
    Claim.objects.filter(pk=second.pk).update(snapshot=second.snapshot | {"grant": first.snapshot["grant"]})
    assert found() == [TWICE]


def test_credits_for_a_pause_are_found() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), paused=True)
    run_at(holder, subscription, day(1, 10))
    move(holder, day(1, 20))
    amend(subscription, day(1, 20), paused=False)
    run_at(holder, subscription, day(2))
    assert found() == []
    claims(subscription).filter(ends_at=day(1, 10)).update(ends_at=day(1, 12))
    assert found() == [BEYOND]


@pytest.mark.parametrize("name", spread(CHANGES, test=[*CHANGES][:3], check=CHANGES))
def test_changes_break_no_law_before_or_after_their_run(name: str) -> None:
    amount, price, interval, wish, _ = CHANGES[name]
    holder, subscription = ordered(plan_of(amount, price, interval))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 10))
    amend(subscription, day(1, 10), **wish())
    assert found() == []
    for then in (day(1, 10), day(2, 20), day(4)):
        run_at(holder, subscription, then)
        assert found() == []
