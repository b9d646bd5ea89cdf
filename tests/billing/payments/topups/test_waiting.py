"""A spend or hold that waits for a top-up: nothing is recorded until it is decided, and no credits are missed."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger import services
from ledger.errors import InsufficientCredits
from ledger.models import Entry
from ledger.rules.requests import SpendRequest
from ledger.services import coming_credits, execute, waiting
from ledger.services.coming_credits import Lack, UnderWay

pytestmark = pytest.mark.django_db

TOP_UP = {"id": 7, "state": "processing", "credits": 100}


class Clock:
    """The time of the waits: each pause moves it on, after doing what happens then."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.happens: list[Callable[[], Any]] = []
        self.pauses = 0

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        if self.happens:
            self.happens.pop(0)()
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(waiting, "pause", clock.pause)
    return clock


def comes(monkeypatch: pytest.MonkeyPatch, state: str = "processing", does: Callable[[], Any] = lambda: None) -> list[Lack]:
    """Have a top-up in this state; return who asks for it."""
    asked: list[Lack] = []

    def source(lack: Lack) -> UnderWay:
        asked.append(lack)
        does()
        return UnderWay({"id": 7, "state": state, "credits": 100}, 5)

    monkeypatch.setattr(coming_credits, "_sources", [source])
    return asked


def grant(amount: int, key: str = "g") -> None:
    services.grant(holder_id="ada", amount=amount, idempotency_key=key)


def spend(**fields: Any) -> Any:
    return services.spend(**{"holder_id": "ada", "amount": 50, "idempotency_key": "1", "wait_s": 4} | fields)


def refusals() -> int:
    return Entry.objects.filter(kind="refusal").count()


def test_credits_that_come_are_spent_under_the_same_key_and_no_refusal_is_recorded(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    comes(monkeypatch)
    clock.happens = [lambda: None, lambda: grant(60)]
    made = spend()
    assert (made.amount, made.balance, clock.pauses, refusals()) == (-50, 10, 2, 0)
    assert spend().replayed


def test_a_hold_waits_alike(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    comes(monkeypatch)
    clock.happens = [lambda: grant(60)]
    assert services.hold(holder_id="ada", amount=50, idempotency_key="1", wait_s=4).kind == "hold"


def test_after_the_time_the_refusal_is_recorded_and_stays_after_the_credits_came(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    asked = comes(monkeypatch)
    with pytest.raises(InsufficientCredits) as error:
        spend()
    assert (error.value.top_up, error.value.facts["available"], refusals()) == (TOP_UP, 0, 1)
    assert 40 <= clock.pauses <= 42
    assert len(asked) <= 6
    grant(60)
    with pytest.raises(InsufficientCredits) as again:
        spend()
    assert (again.value.replayed, again.value.facts) == (True, error.value.facts)
    assert spend(idempotency_key="2").amount == -50


def test_what_others_spend_first_is_waited_for_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    comes(monkeypatch)
    clock.happens = [
        lambda: (grant(60), services.spend(holder_id="ada", amount=20, idempotency_key="other")),
        lambda: grant(20, "h"),
    ]
    assert (spend().balance, clock.pauses, refusals()) == (10, 2, 0)


@pytest.mark.parametrize("state", ["waiting", "paused"])
def test_what_waits_for_a_person_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Clock, state: str) -> None:
    comes(monkeypatch, state)
    with pytest.raises(InsufficientCredits):
        spend()
    assert (clock.pauses, refusals()) == (0, 1)


def test_without_a_top_up_and_in_a_dry_run_nobody_waits(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(coming_credits, "_sources", [lambda lack: None])
    with pytest.raises(InsufficientCredits):
        spend()
    comes(monkeypatch)
    with pytest.raises(InsufficientCredits):
        spend(idempotency_key="2", dry_run=True)
    assert (clock.pauses, refusals()) == (0, 1)


@pytest.mark.parametrize("is_from_refusal", [True, False], ids=["from the refusal on", "control: from the first look on"])
def test_credits_that_come_between_the_refusal_and_the_first_look_are_not_missed(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, is_from_refusal: bool
) -> None:
    real = waiting.Wait.begin

    def begin(self: waiting.Wait, refusal: InsufficientCredits) -> None:
        grant(60)
        if not is_from_refusal:
            refusal.last_sequence = 1
        real(self, refusal)

    comes(monkeypatch)
    monkeypatch.setattr(waiting.Wait, "begin", begin)
    made = waiting.executed_in_steps(
        SpendRequest(holder_id="ada", amount=50, idempotency_key="1", wait_s=4), execute.execute_and_log
    )
    assert made.entry is not None
    assert (made.entry.balance, clock.pauses > 0) == (10, not is_from_refusal)
