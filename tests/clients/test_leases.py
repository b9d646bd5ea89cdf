"""Leases against a running server: what is decided locally is what the ledger has in the end."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from credit_ledger import (
    AsyncClient,
    Client,
    InsufficientCredits,
    JournalInUse,
    LeaseClosed,
    LeaseExhausted,
    Retries,
    Uncharged,
    Unreachable,
)
from credit_ledger.journal import Journal
from credit_ledger.lease_state import Held, LeaseState, Terms, Use
from credit_ledger.problems import BudgetExceeded, HolderFrozen, IdempotencyKeyReused, Unauthenticated
from tests.clients.conftest import RunningServer
from tests.clients.losing_proxy import Do, LosingProxy
from tests.nodes import pause
from tests.ports import free_port

NEVER_S = 3_600.0
"""Such a lease sends nothing in the background unless it must."""


@pytest.fixture
def client(running_server: RunningServer) -> Iterator[Client]:
    """A client of the server itself."""
    with Client(running_server.url, running_server.api_key) as client:
        yield client


@pytest.mark.slow
@pytest.mark.check
def test_what_was_decided_is_captured_in_groups_and_the_rest_goes_back(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=1_000)
    with client.lease(jane, amount=100, flush_every_s=60, metadata={"gateway": "eu-1"}) as lease:
        for _ in range(10):
            lease.spend(3, metadata={"model": "small"})
        for number in range(2):
            lease.spend(5, reference=f"call-{number}")
        assert (lease.left, lease.decided, lease.captured) == (60, 40, 0)
        assert client.balance(jane)["held"] == 100
        with pytest.raises(LeaseExhausted) as refused:
            lease.spend(61)
        assert (refused.value.requested, refused.value.left, refused.value.problem) == (61, 60, None)
    balance = client.balance(jane)
    assert (balance["balance"], balance["held"], lease.captured) == (960, 0, 40)
    captures = [
        (each["drawn"][0]["amount"], each["reason"], each["reference"], each["metadata"])
        for each in client.entries(jane, kind="capture")
    ]
    assert captures == [
        (5, "1 decision", "call-1", {}),
        (5, "1 decision", "call-0", {}),
        (30, "10 decisions", "", {"model": "small"}),
    ]


def used(client: Client, holder: str) -> list[tuple[str, int]]:
    """What captures and spends took, the oldest first."""
    entries = [each for each in client.entries(holder) if each["kind"] in ("capture", "spend")]
    return [(each["kind"], sum(lot["amount"] for lot in each["drawn"])) for each in reversed(entries)]


def test_quantities_are_priced_as_the_ledger_prices_their_capture(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    rate = f"chat.{jane[-20:]}"
    prices = {"input": {"price": 1, "per": 1000}, "output": {"price": 3, "per": 7}}
    client.publish_rate(ref=rate, components=prices)
    client.grant(jane, amount=1_000)
    with client.lease(jane, amount=100, rate=rate, flush_every_s=NEVER_S) as lease:
        taken = [lease.spend(quantities={"input": 400, "output": "0.5"}).amount for _ in range(7)]
        client.publish_rate(ref=rate, components={"input": {"price": 9, "per": 1}, "output": {"price": 9, "per": 1}})
        assert taken == [1, 1, 0, 1, 1, 0, 1], "0.614 each, and each group is rounded up once"
        lease.spend(2)
        with pytest.raises(ValueError, match="no component 'cached'"):
            lease.spend(quantities={"cached": 1})
        with pytest.raises(ValueError, match="0 or more"):
            lease.spend(quantities={"input": -1})
        lease.refill(96)
        assert lease.spend(quantities={"input": 1, "output": 1}).amount == 18, "the next hold has the new prices"
    assert used(client, jane) == [("capture", 5), ("capture", 2), ("capture", 18)]
    capture = next(each for each in client.entries(jane, kind="capture") if each.get("rating", {}).get("version") == 1)
    assert capture["rating"]["quantities"] == {"input": "2800", "output": "3.5"}
    assert lease.decided == lease.captured == 25


def test_a_rate_that_is_free_for_a_while_stops_no_lease(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    rate = f"chat.{jane[-20:]}"
    client.publish_rate(ref=rate, price=1, per=1)
    client.grant(jane, amount=100)
    with client.lease(jane, amount=10, rate=rate, flush_every_s=NEVER_S) as lease:
        client.publish_rate(ref=rate, price=0, per=1)
        assert lease.spend(quantities={"quantity": 9}).amount == 9, "the price of the hold"
        with pytest.raises(LeaseExhausted):
            lease.spend(quantities={"quantity": 5})
        lease.refill(5)
        with pytest.raises(LeaseExhausted, match="costs nothing") as refused:
            lease.spend(quantities={"quantity": 5})
        assert (refused.value.requested, lease.refill(5)) == (0, 1)
        client.publish_rate(ref=rate, price=2, per=1)
        lease.refill(10)
        lease.refill(10)
        assert lease.spend(quantities={"quantity": 5}).amount == 10
    assert used(client, jane) == [("capture", 9), ("capture", 10)]
    client.publish_rate(ref=rate, price=0, per=1)
    with pytest.raises(LeaseExhausted, match="costs nothing"):
        client.lease(jane, amount=10, rate=rate)
    assert client.balance(jane)["available"] == 81


def test_a_key_is_decided_once_and_charged_once(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)
    uncharged: list[Uncharged] = []
    with client.lease(jane, amount=50, flush_every_s=NEVER_S) as lease:
        first, again = lease.spend(7, idempotency_key="order-1"), lease.spend(7, idempotency_key="order-1")
        assert (first.repeated, first.left, again.repeated, again.left) == (False, 43, True, 43)
    with client.lease(jane, amount=50, flush_every_s=NEVER_S, on_uncharged=uncharged.append) as other:
        other.spend(7, idempotency_key="order-1")
    assert used(client, jane) == [("capture", 7)]
    assert [type(each.problem) for each in uncharged] == [IdempotencyKeyReused]
    assert client.balance(jane)["available"] == 93


def test_what_the_ledger_would_refuse_is_not_decided(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)
    with client.lease(jane, amount=50, flush_every_s=NEVER_S) as lease:
        for wrong in (0, -1, True, 2**53, 1.0, None):
            with pytest.raises(ValueError, match="amount"):
                lease.spend(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="lease with a rate"):
            lease.spend(quantities={"input": 1})
        for fields in ({"reason": "x" * 501}, {"reference": "x" * 201}, {"metadata": {"x" * 65: 1}}, {"idempotency_key": "é"}):
            with pytest.raises(ValueError, match=r"at most|printable"):
                lease.spend(1, **fields)  # type: ignore[arg-type]
        assert (lease.decided, lease.left) == (0, 50)
    with pytest.raises(LeaseClosed):
        lease.spend(1)
    assert used(client, jane) == []
    too_long: list[dict[str, float]] = [{"amount": 1, "expires_in_s": 10, "margin_s": 5}, {"amount": 1, "expires_in_s": 1e12}]
    for terms in ({"amount": 0}, {"amount": 2, "most": 1}, *too_long):
        with pytest.raises(ValueError, match=r"amount|expires_in_s"):
            client.lease(jane, **terms)  # type: ignore[arg-type]


def test_a_lease_takes_what_is_there_and_says_why_it_gets_no_more(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    with pytest.raises(InsufficientCredits):
        client.lease(jane, amount=50)
    client.grant(jane, amount=30)
    with client.lease(jane, amount=50, flush_every_s=NEVER_S) as lease:
        assert lease.spend(28).left == 2
        assert lease.refill(3) == 2
        with pytest.raises(LeaseExhausted) as refused:
            lease.spend(3)
        assert isinstance(refused.value.problem, InsufficientCredits)
        client.grant(jane, amount=100)
        assert lease.refill(3) >= 3
        lease.spend(3)
    assert used(client, jane) == [("capture", 28), ("capture", 3)]


def test_budgets_count_by_the_labels_of_the_lease(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=1_000)
    client.set_budget(jane, "member", limit=60, window="day", by="label", label="member")
    with client.lease(jane, amount=40, metadata={"member": "ada"}, flush_every_s=NEVER_S) as lease:
        lease.spend(30)
        assert lease.refill(40) == 30, "60 of the day, less 30"
        with pytest.raises(LeaseExhausted) as refused:
            lease.spend(31)
        assert isinstance(refused.value.problem, BudgetExceeded)
        lease.spend(30)
    assert used(client, jane) == [("capture", 30), ("capture", 30)]


def test_threads_share_a_lease(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=1_000)
    together = threading.Barrier(8)

    def work(_: int) -> int:
        together.wait(30)
        taken = 0
        with suppress(LeaseExhausted):
            while True:
                try:
                    taken += lease.spend(1).amount
                except LeaseExhausted:
                    if lease.refill() < 1:
                        raise
        return taken

    with client.lease(jane, amount=100, most=400, flush_every_s=0.01) as lease, ThreadPoolExecutor(8) as threads:
        taken = sum(threads.map(work, range(8)))
    assert taken == lease.decided == lease.captured == sum(amount for _, amount in used(client, jane))
    assert client.balance(jane)["available"] == 1_000 - taken


def test_without_its_lock_two_threads_take_the_same_credits() -> None:
    """The control of the test above: both decide before one of them takes."""
    state = LeaseState(Terms("jane", 10, 10, 60_000, 10_000), "lease")
    state.holds.append(Held(1, 10, 60_000, 60_000))
    decided = [state.decide(0, Use(), amount=10) for _ in range(2)]
    for held, decision in decided:
        assert held is not None
        state.take(held, Use(), decision.amount)
    assert state.decided == 20


def test_a_lease_is_of_the_process_that_opened_it(
    client: Client, new_holder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)
    with client.lease(jane, amount=50, flush_every_s=NEVER_S) as lease:
        with monkeypatch.context() as forked:
            forked.setattr("credit_ledger.leases.os.getpid", lambda: -1)
            with pytest.raises(RuntimeError, match="after the fork"):
                lease.spend(1)
        assert lease.decided == 0


def test_overage_that_a_lease_does_not_use_goes_back(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=10)
    client.set_overage(jane, limit=60, time_zone="UTC", reference="SUB-1")
    with client.lease(jane, amount=50, flush_every_s=NEVER_S) as lease:
        assert client.balance(jane)["overage"]["used"] == 40  # type: ignore[index]
        lease.spend(15)
        assert lease.refill(50) == 50
        lease.spend(50)
        assert lease.refill(6) == 5, "10 credits and 60 of overage, less 65"
        with pytest.raises(LeaseExhausted):
            lease.spend(6)
        lease.spend(1)
    assert client.balance(jane)["overage"]["used"] == 15 + 50 + 1 - 10  # type: ignore[index]


def test_a_frozen_holder_pays_what_was_decided_and_leases_no_more(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)
    with client.lease(jane, amount=40, flush_every_s=NEVER_S) as lease:
        lease.spend(30)
        client.freeze_holder(jane, frozen=True, reason="card stolen")
        lease.refill(40)
        with pytest.raises(LeaseExhausted) as refused:
            lease.spend(40)
        assert isinstance(refused.value.problem, HolderFrozen)
    assert used(client, jane) == [("capture", 30)]


def test_a_hold_that_was_ended_by_others_is_charged_as_a_spend(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)
    uncharged: list[Uncharged] = []
    with client.lease(jane, amount=100, flush_every_s=NEVER_S, on_uncharged=uncharged.append) as lease:
        lease.spend(30, reference="call-1")
        lease.spend(9, reference="call-2")
        [hold] = client.holds(jane)
        client.release(jane, hold["hold"], reason="stop")
        client.spend(jane, amount=70)
    assert used(client, jane) == [("spend", 70), ("spend", 30)]
    assert [(each.operation["amount"], type(each.problem)) for each in uncharged] == [(9, InsufficientCredits)]
    assert client.balance(jane)["available"] == 0


@pytest.mark.slow
def test_a_revoked_key_ends_decisions(client: Client, running_server: RunningServer, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=10_000)
    made = client.create_key(name=f"gateway-{jane}", scopes=["ledger:hold"])
    with Client(running_server.url, made["secret"] or "") as gateway:
        lease = gateway.lease(jane, amount=5_000, flush_every_s=NEVER_S)
        client.revoke_key(made["id"])
        while lease.left:
            lease.spend(1)
            with suppress(Unauthenticated):
                lease.flush()
            pause()
        with pytest.raises(LeaseExhausted) as refused:
            lease.spend(1)
        assert isinstance(refused.value.problem, Unauthenticated)
        with pytest.raises(Unauthenticated):
            lease.close()
    assert client.balance(jane)["held"] == 5_000 - lease.captured, "until the hold expires"


@pytest.mark.slow
def test_lost_answers_charge_nothing_twice(
    client: Client, running_server: RunningServer, losing_proxy: LosingProxy, new_holder: Callable[[], str]
) -> None:
    jane = new_holder()
    client.grant(jane, amount=1_000)
    losing_proxy.plan.extend((Do.PASS, Do.LOSE, Do.PASS, Do.HALVE, Do.GATEWAY, Do.PASS, Do.UNKNOWN, Do.BUSY, Do.CUT) * 3)
    retries = Retries(total_s=20, attempt_s=1.0, first_wait_s=0.01)
    with (
        Client(losing_proxy.url, running_server.api_key, retries=retries) as losing,
        losing.lease(jane, amount=100, flush_every_s=NEVER_S) as lease,
    ):
        for _ in range(6):
            lease.spend(10)
            lease.flush()
    assert used(client, jane) == [("capture", 10)] * 6
    assert client.balance(jane)["held"] == 0
    assert len({each.key for each in losing_proxy.seen}) < len(losing_proxy.seen)


def test_gateways_that_decide_by_the_balance_decide_beyond_it(client: Client, new_holder: Callable[[], str]) -> None:
    """The control of test_lease_gateways.py: what a hold prevents."""
    jane = new_holder()
    client.grant(jane, amount=50)
    seen = [client.balance(jane)["available"] for _ in range(3)]
    refused = 0
    for available in seen:
        for _ in range(available // 10):
            try:
                client.spend(jane, amount=10)
            except InsufficientCredits:
                refused += 1
    assert refused == 10, "decided by a gateway, and never paid"


def test_a_lease_of_an_event_loop(running_server: RunningServer, client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=1_000)

    async def work(error: type[BaseException] | None) -> None:
        async with (
            AsyncClient(running_server.url, running_server.api_key) as gateway,
            gateway.lease(jane, amount=50, flush_every_s=NEVER_S) as lease,
        ):
            for _ in range(5):
                lease.spend(10)
            with pytest.raises(LeaseExhausted):
                lease.spend(10)
            assert await lease.refill(10) >= 10
            lease.spend(10)
            if error is not None:
                raise error

    asyncio.run(work(None))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(work(ZeroDivisionError))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work(asyncio.CancelledError))
    assert sum(amount for _, amount in used(client, jane)) == 180
    assert (client.balance(jane)["available"], client.balance(jane)["held"]) == (820, 0)


def test_what_a_dead_process_decided_is_captured_from_its_journal(
    client: Client, running_server: RunningServer, new_holder: Callable[[], str], tmp_path: Path
) -> None:
    jane, path = new_holder(), tmp_path / "journal"
    client.grant(jane, amount=1_000)
    nowhere = Client(f"http://127.0.0.1:{free_port()}", running_server.api_key, retries=Retries(total_s=0.01))
    lease = client.lease(jane, amount=50, flush_every_s=NEVER_S, journal=path)
    lease.spend(10, reference="call-1")
    lease.flush()
    with pytest.raises(JournalInUse):
        client.lease(jane, amount=50, journal=path)
    lease._client = nowhere
    lease.spend(4, reference="call-2")
    with pytest.raises(Unreachable):
        lease.flush()
    lease.spend(5, reference="call-3")
    with path.open("ab") as torn:
        torn.write(b'["spend",2')
    assert client.balance(jane)["held"] == 40
    with pytest.raises(Unreachable):
        lease.close()
    nowhere.close()
    with pytest.raises(ValueError, match="another lease"):
        client.lease("somebody-else", amount=50, journal=path)
    with client.lease(jane, amount=50, flush_every_s=NEVER_S, journal=path) as lease:
        assert used(client, jane) == [("capture", 10), ("capture", 4), ("capture", 5)]
        assert client.balance(jane)["held"] == 50
        lease.spend(6)
    assert client.balance(jane)["held"] == 0
    assert [amount for _, amount in used(client, jane)] == [10, 4, 5, 6]


@pytest.mark.slow
def test_an_unused_hold_is_given_back_and_a_used_one_lives_on(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=1_000)
    with client.lease(jane, amount=100, expires_in_s=4.0, margin_s=1.0, flush_every_s=0.05) as lease:
        [first] = client.holds(jane)
        lease.spend(1)
        while client.holds(jane).first()["expires_at"] == first["expires_at"]:  # type: ignore[index]
            pause()
        [used_hold] = client.holds(jane)
        assert used_hold["hold"] == first["hold"], "it was extended"
        while client.balance(jane)["held"]:
            assert client.balance(jane)["as_of"] < used_hold["expires_at"], "before it expires"
            pause()
        with pytest.raises(LeaseExhausted):
            lease.spend(1)
        assert lease.refill() >= 1
        lease.spend(1)
    assert sum(amount for _, amount in used(client, jane)) == lease.decided


def test_a_journal_that_cannot_be_written_decides_and_sends_nothing(
    client: Client, new_holder: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)

    def full(*_: object) -> None:
        raise OSError("no space")

    with client.lease(jane, amount=50, flush_every_s=NEVER_S, journal=tmp_path / "journal") as lease:
        lease.spend(5)
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "_append", full)
            with pytest.raises(OSError, match="no space"):
                lease.spend(7)
            with pytest.raises(OSError, match="no space"):
                lease.flush()
        assert (lease.decided, lease.captured, used(client, jane)) == (5, 0, [])
    assert used(client, jane) == [("capture", 5)]


def test_what_was_not_charged_is_told_although_the_journal_cannot_be_written(
    client: Client, new_holder: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jane, told = new_holder(), []
    client.grant(jane, amount=100)
    client.spend(jane, amount=1, idempotency_key="order-1")

    def full(*_: object) -> None:
        raise OSError("no space")

    path = tmp_path / "journal"
    with client.lease(jane, amount=50, flush_every_s=NEVER_S, journal=path, on_uncharged=told.append) as lease:
        lease.spend(7, idempotency_key="order-1")
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "settled", full)
            with pytest.raises(OSError, match="no space"):
                lease.flush()
        assert [each.operation["idempotency_key"] for each in told] == ["order-1"]
    assert used(client, jane) == [("spend", 1)]


def test_a_callback_that_fails_does_not_end_the_lease(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=100)
    client.spend(jane, amount=1, idempotency_key="order-1")

    def fails(_: Uncharged) -> None:
        raise ZeroDivisionError

    with client.lease(jane, amount=50, flush_every_s=NEVER_S, on_uncharged=fails) as lease:
        lease.spend(7, idempotency_key="order-1")
        lease.flush()
        assert lease.left == 50, "what was not charged is still held"
        lease.spend(3)
    assert used(client, jane) == [("spend", 1), ("capture", 3)]


def test_a_long_journal_is_written_again_with_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("credit_ledger.journal.LONGEST_BYTES", 2_000)
    path, terms = tmp_path / "journal", Terms("jane", 100, 100, 60_000, 10_000)
    journal = Journal(path)
    state = journal.begin(terms, lambda: "lease")
    for number in range(1, 40):
        state.number = number
        journal.settled(state)
    assert path.stat().st_size < 2_100
    assert json.loads(path.read_text().splitlines()[0])[0] == "lease"
    journal.close()
    again = Journal(path)
    recovered = again.begin(terms, lambda: "other")
    assert (recovered.key, recovered.number, recovered.holds) == ("lease", 39, [])
    again.close()
    assert Use() == Use("{}")
