"""The Python client against a running server whose answers are lost."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import httpx
import pytest

from credit_ledger import AsyncClient, Client, InsufficientCredits, OutcomeUnknown, Problem, Retries, Unreachable
from credit_ledger.call import Call
from credit_ledger.problems import (
    AccountMovedOn,
    BatchRejected,
    HoldClosed,
    IdempotencyKeyReused,
    InvalidRequest,
    NotFound,
    Unauthenticated,
)
from tests.clients.conftest import RunningServer
from tests.clients.losing_proxy import Do, LosingProxy
from tests.nodes import pause
from tests.ports import free_port

QUICK = Retries(total_s=20, attempt_s=1.0, first_wait_s=0.01)


@pytest.fixture
def client(running_server: RunningServer) -> Iterator[Client]:
    """A client of the server itself."""
    with Client(running_server.url, running_server.api_key) as client:
        yield client


@pytest.fixture
def losing(losing_proxy: LosingProxy, running_server: RunningServer) -> Iterator[Client]:
    """A client behind the proxy that loses answers."""
    with Client(losing_proxy.url, running_server.api_key, retries=QUICK) as client:
        yield client


@pytest.mark.slow
def test_a_balance_beyond_what_every_reader_of_json_takes(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    client.grant(jane, amount=2**53 - 1)
    entry = client.grant(jane, amount=2**53 - 1, priority=1)
    assert (entry["balance"], entry["exact_integers"]) == (2**54 - 2, {"balance": str(2**54 - 2)})
    assert client.balance(jane)["available"] == 2**54 - 2


def test_the_calls_of_the_ledger(client: Client, new_holder: Callable[[], str]) -> None:
    jane, team = new_holder(), new_holder()
    granted = client.grant(jane, amount=100, reason="welcome", metadata={"order": 1}, idempotency_key="order-1")
    assert (granted["kind"], granted["amount"], granted["metadata"]) == ("grant", 100, {"order": 1})
    spent = client.spend(jane, amount=30)
    assert client.refund(jane, spend=spent["sequence"], amount=10)["refunded_total"] == 10
    assert client.transfer(jane, to=team, amount=5)["counterpart"] == {"holder_id": team}
    assert client.set_overdraft(jane, limit=50)["overdraft"] == 50
    hold = client.place_hold(jane, amount=20)
    later = datetime.now(UTC) + timedelta(days=2)
    assert client.extend(jane, hold["sequence"], expires_at=later)["expires_at"] == later.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert client.capture(jane, hold["sequence"], amount=15)["drawn"] == [{"grant": 1, "amount": 15}]
    assert client.revoke(jane, grant=1, amount=1)["amount"] == -1
    batch = client.batch(
        mode="each",
        operations=[
            {"operation": "spend", "holder": jane, "amount": 1},
            {"operation": "spend", "holder": team, "amount": 999},
        ],
    )
    assert [each["status"] for each in batch["results"]] == [201, 402]
    with pytest.raises(BatchRejected) as rejected:
        client.batch(mode="atomic", operations=[{"operation": "spend", "holder": team, "amount": 999}])
    assert isinstance(rejected.value.problem, InsufficientCredits)
    assert (rejected.value.problem.requested, rejected.value.problem.status) == (999, 402)
    assert [each["status"] for each in rejected.value.results] == [402]
    rate = f"gpt.{jane[-20:]}"
    assert client.publish_rate(ref=rate, price=3, per=1000)["version"] == 1
    assert client.quote(rate=rate, quantity=1250)["amount"] == 4
    assert client.spend(jane, rate=rate, quantity=1250)["amount"] == -4

    balance = client.balance(jane)
    assert (balance["balance"], balance["held"], balance["overdraft"]) == (100 - 30 + 10 - 5 - 15 - 1 - 1 - 4, 0, 50)
    assert client.entry(jane, spent["sequence"]) == spent
    assert client.explain(jane, spent["sequence"])["lots"][0]["decision"] == "drawn"
    assert client.holder(jane)["holder_id"] == jane
    assert [each["holder_id"] for each in client.holders(prefix=jane)] == [jane]
    assert [each["problem"]["shortfall"] for each in client.refusals(team)] == [994]
    assert list(client.holds(jane)) == []
    assert client.statement_pdf(jane, time.strftime("%Y-%m", time.gmtime())).startswith(b"%PDF")


def test_the_calls_of_billing(client: Client, new_holder: Callable[[], str]) -> None:
    ref = new_holder()
    client.create_plan(
        ref=f"plan-{ref}", name="Basic", currency="EUR", interval={"unit": "month", "count": 1},
        prices=[{"key": "calls", "kind": "usage", "model": "unit", "unit_amount": "0.5", "meter": "calls", "aggregation": "sum"}],
    )  # fmt: skip
    assert client.create_customer(ref=ref, name="Jane", currency="EUR", holder_id=None)["holder_id"] is None
    assert client.change_customer(ref, name="Jane Doe")["name"] == "Jane Doe"
    client.create_subscription(ref=ref, customer=ref, plan=f"plan-{ref}", started_at="2026-01-01T00:00:00Z")
    taken = client.record_usage(
        events=[
            {"idempotency_key": ref, "subscription": ref, "meter": "calls", "value": 3, "occurred_at": "2026-01-10T00:00:00Z"}
        ]
    )
    assert [each["result"] for each in taken["results"]] == ["accepted"]
    assert [each["value"] for each in client.usage_events(subscription=ref)] == ["3"]
    (made,) = client.generate_invoices(ref, as_of="2026-02-01T00:00:00Z", finalize=False)["invoices"]
    assert made["total_minor"] == 150
    assert [each["id"] for each in client.invoices(subscription=ref)] == [made["id"]]
    assert client.delete_draft(made["id"], reason="wrong")["transition"] == "delete"


def test_a_list_is_read_to_its_end(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    for _ in range(6):
        client.spend(holder, amount=1)
    entries = client.entries(holder, limit=3)
    assert [each["sequence"] for each in entries] == [7, 6, 5, 4, 3, 2, 1]
    assert [len(page) for page in entries.pages()] == [3, 3, 1]
    first = entries.first()
    assert first is not None
    assert first["sequence"] == 7
    assert client.entries(new_holder()).first() is None


def test_entries_are_found_and_read_by_id_and_balances_together(client: Client, new_holder: Callable[[], str]) -> None:
    jane, team = new_holder(), new_holder()
    made = [client.grant(jane, amount=number, reference=f"r-{jane}", metadata={"n": number}) for number in (1, 2, 3)]
    ids = [entry["id"] for entry in made]
    assert [entry["id"] for entry in client.find_entries(reference=f"r-{jane}", order="oldest", limit=1)] == ids
    assert [entry["id"] for entry in client.find_entries(holder=jane, metadata="n:2")] == [f"{jane}/credits/2"]
    assert client.entry_by_id(jane, "credits", 2) == made[1]
    assert [each["balance"] for each in client.balances(accounts=f"{team},{jane},{jane}/sms")["results"]] == [0, 6, 0]


@pytest.mark.slow
def test_a_feed_has_every_entry_once_through_lost_answers(
    losing: Client, losing_proxy: LosingProxy, client: Client, new_holder: Callable[[], str]
) -> None:
    begun = client.follow("end")
    begun.find_place()
    holders = [new_holder(), new_holder()]
    ids = [client.grant(holder, amount=1)["id"] for _ in range(4) for holder in holders]
    losing_proxy.plan.extend([Do.LOSE, Do.HALVE, Do.BUSY, Do.GATEWAY, Do.STALL])
    seen = []
    for page in losing.follow(begun.position, limit=3).pages():
        seen += [entry["id"] for entry in page]
        if len(seen) >= len(ids):
            break
    assert seen == ids


def test_a_feed_goes_on_from_its_position(client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    granted = client.grant(jane, amount=9)
    ids = [granted["id"], *[client.spend(jane, amount=1)["id"] for _ in range(4)]]
    feed = client.follow(granted["recorded_at"], holder=jane, limit=2)
    seen = [entry["id"] for entry in islice(feed, 3)]
    assert seen == ids[:3]
    # The loop ended within its second page, which comes again.
    assert [entry["id"] for entry in islice(client.follow(feed.position, holder=jane), 3)] == ids[2:]


def test_errors_have_their_facts(client: Client, running_server: RunningServer, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=10, idempotency_key="g")
    with pytest.raises(InsufficientCredits) as short:
        client.spend(holder, amount=25, idempotency_key="s")
    assert (short.value.available, short.value.shortfall, short.value.requested) == (10, 15, 25)
    assert short.value.status == 402
    assert short.value.lots is not None
    assert short.value.lots[0]["remaining"] == 10
    with pytest.raises(IdempotencyKeyReused):
        client.spend(holder, amount=1, idempotency_key="s")
    with pytest.raises(InvalidRequest) as invalid:
        client.spend(holder, amount=0)
    assert invalid.value.errors[0]["pointer"] == "/amount"
    with pytest.raises(AccountMovedOn) as moved:
        client.spend(holder, amount=1, if_match=1)
    assert (moved.value.expected, moved.value.sequence) == (1, 2)
    with pytest.raises(NotFound):
        client.holder(new_holder())
    with Client(running_server.url, "wrong") as stranger, pytest.raises(Unauthenticated):
        stranger.balance(holder)
    assert client.balance(holder)["balance"] == 10


def test_a_name_in_a_path_stays_one_segment(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=10)
    with pytest.raises(Problem) as caught:
        client.balance(f"{holder}/entries?x=")
    assert caught.value.status == 404


def test_a_dry_run_writes_nothing(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    assert client.grant(holder, amount=10, dry_run=True)["balance"] == 10
    assert client.balance(holder)["sequence"] == 0


# Lost answers ----------------------------------------------------------------------------------------


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("plan", "attempts"),
    [
        ([Do.LOSE], 2),
        ([Do.HALVE], 2),
        ([Do.CUT], 2),
        ([Do.UNKNOWN], 2),
        ([Do.GATEWAY], 2),
        ([Do.STALL], 2),
        ([Do.BUSY, Do.BUSY], 3),
        ([Do.LOSE, Do.BUSY, Do.CUT, Do.HALVE], 5),
    ],
    ids=lambda value: "+".join(each.name for each in value) if isinstance(value, list) else "",
)
def test_a_spend_takes_effect_once(
    losing: Client, losing_proxy: LosingProxy, client: Client, new_holder: Callable[[], str], plan: list[Do], attempts: int
) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    losing_proxy.plan.extend(plan)
    spent = losing.spend(holder, amount=10)
    assert (spent["sequence"], spent["balance"]) == (2, 90)
    assert client.balance(holder)["balance"] == 90
    keys = [each.key for each in losing_proxy.seen]
    assert len(keys) == attempts
    assert len(set(keys)) == 1


def test_control_with_a_new_key_the_spend_is_doubled(
    losing: Client, losing_proxy: LosingProxy, client: Client, new_holder: Callable[[], str]
) -> None:
    """Twin of the above: what repeats with another key spends twice."""
    holder = new_holder()
    client.grant(holder, amount=100)
    losing_proxy.plan.append(Do.LOSE)

    class ForgetsTheKey(Client):
        def _attempt(self, call: Call[Any], time_s: float) -> Any:
            return super()._attempt(replace(call, idempotency_key=str(uuid.uuid4())), time_s)

    with ForgetsTheKey(losing_proxy.url, losing._headers["Authorization"].split()[1], retries=QUICK) as forgetful:
        forgetful.spend(holder, amount=10)
    assert client.balance(holder)["balance"] == 80


def test_a_refusal_after_a_lost_answer_is_the_first_one(
    losing: Client, losing_proxy: LosingProxy, client: Client, new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    losing_proxy.plan.append(Do.LOSE)
    with pytest.raises(InsufficientCredits):
        losing.spend(holder, amount=10)
    assert len(list(client.refusals(holder))) == 1


@pytest.mark.slow
def test_the_outcome_is_unknown_when_the_time_is_over_and_the_key_settles_it(
    losing_proxy: LosingProxy, running_server: RunningServer, client: Client, new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    losing_proxy.plan.extend([Do.LOSE] * 1000)
    hasty = Retries(total_s=3, attempt_s=2, first_wait_s=0.01)
    with Client(losing_proxy.url, running_server.api_key, retries=hasty) as losing:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown) as caught:
            losing.spend(holder, amount=10)
        assert time.monotonic() - began < 60, "there are answers to lose for hours"
        assert caught.value.attempts > 1
        losing_proxy.plan.clear()
        assert losing.spend(holder, amount=10, idempotency_key=caught.value.idempotency_key)["balance"] == 90
    assert client.balance(holder)["balance"] == 90


@pytest.mark.slow
@pytest.mark.check
def test_without_a_server_nothing_is_unknown(running_server: RunningServer) -> None:
    retries = Retries(total_s=0.3, first_wait_s=0.01)
    with Client(f"http://127.0.0.1:{free_port()}", "key", retries=retries) as client:
        with pytest.raises(Unreachable):
            client.spend("jane", amount=10)
        with pytest.raises(Unreachable):
            client.balance("jane")


def test_an_answer_that_trickles_ends_with_the_time_of_the_attempt() -> None:
    def trickle() -> Iterator[bytes]:
        while True:
            time.sleep(0.01)
            yield b" "

    http = httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=trickle())))
    with Client("http://server", "key", http=http, retries=Retries(total_s=0.2, attempt_s=0.1, first_wait_s=0.01)) as client:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            client.spend("jane", amount=10)
        assert time.monotonic() - began < 60, "the answer itself never ends"


@pytest.mark.slow
def test_writes_through_broken_commits_take_effect_once(
    running_server: RunningServer, client: Client, new_holder: Callable[[], str]
) -> None:
    """Connections between the web process and PostgreSQL break around COMMIT; the server itself answers `unknown`."""
    holder = new_holder()
    client.grant(holder, amount=1000)
    running_server.faults.is_breaking = True
    try:
        with Client(running_server.url, running_server.api_key, retries=Retries(total_s=60)) as through:
            sequences = [through.spend(holder, amount=1)["sequence"] for _ in range(3)]
            # Chance decides which connection breaks.
            while not running_server.faults.cuts and len(sequences) < 1_000:
                sequences.append(through.spend(holder, amount=1)["sequence"])
    finally:
        running_server.faults.is_breaking = False
    assert running_server.faults.cuts
    assert sequences == list(range(2, 2 + len(sequences)))
    assert client.balance(holder)["balance"] == 1_000 - len(sequences)


# Holds -----------------------------------------------------------------------------------------------


def test_a_hold_is_captured_at_the_end_of_its_block(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    with client.hold(holder, amount=40):
        assert client.balance(holder)["held"] == 40
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (60, 0)


def test_a_hold_is_captured_by_what_the_work_did_cost(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    with client.hold(holder, amount=40) as hold:
        hold.capture(10, final=False)
        hold.capture(5)
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (85, 0)


def test_a_hold_is_released_when_its_block_raises(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    with pytest.raises(KeyError), client.hold(holder, amount=40):
        raise KeyError
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (100, 0)


def test_a_hold_that_is_done_again_with_its_key_is_the_same_hold(client: Client, new_holder: Callable[[], str]) -> None:
    """As a job that is run again after its process died."""
    holder = new_holder()
    client.grant(holder, amount=100)
    for _ in range(2):
        with client.hold(holder, amount=40, idempotency_key="job-1") as hold:
            hold.capture(10)
    assert client.balance(holder)["balance"] == 90


@pytest.mark.slow
def test_a_hold_without_its_process_ends_by_itself(client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    # On a busy machine the request alone may take a second.
    ends_at = datetime.now(UTC) + timedelta(seconds=2)
    hold = client.hold(holder, amount=40, expires_at=ends_at)
    while client.balance(holder)["available"] != 100:
        assert datetime.now(UTC) < ends_at + timedelta(seconds=30)
        pause()
    with pytest.raises(HoldClosed) as closed:
        hold.capture()
    assert closed.value.how == "expired"


def test_a_hold_survives_lost_answers(
    losing: Client, losing_proxy: LosingProxy, client: Client, new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)
    losing_proxy.plan.extend([Do.LOSE, Do.PASS, Do.LOSE, Do.PASS])
    with losing.hold(holder, amount=40) as hold:
        hold.capture(10)
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (90, 0)


# The client for an event loop ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_the_async_client_keeps_the_same_promises(
    losing_proxy: LosingProxy, running_server: RunningServer, client: Client, new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)

    async def play() -> None:
        async with AsyncClient(losing_proxy.url, running_server.api_key, retries=QUICK) as losing:
            losing_proxy.plan.extend([Do.LOSE, Do.BUSY, Do.STALL, Do.CUT, Do.HALVE])
            assert (await losing.spend(holder, amount=10))["balance"] == 90
            async with losing.hold(holder, amount=40) as hold:
                losing_proxy.plan.append(Do.LOSE)
                await hold.capture(15)
            with pytest.raises(KeyError):
                async with losing.hold(holder, amount=40):
                    raise KeyError
            kept = await losing.hold(holder, amount=5)
            await kept.release()
            entries = losing.entries(holder, limit=2)
            assert [each["kind"] async for each in entries][-2:] == ["spend", "grant"]
            assert (await entries.first() or {})["kind"] == "release"
            with pytest.raises(InsufficientCredits) as caught:
                await losing.spend(holder, amount=1000)
            assert caught.value.available == 75

    asyncio.run(play())
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (75, 0)


def test_the_async_client_follows_too(running_server: RunningServer, client: Client, new_holder: Callable[[], str]) -> None:
    jane = new_holder()
    granted = client.grant(jane, amount=9)

    async def follow() -> list[str]:
        ids = []
        async with AsyncClient(running_server.url, running_server.api_key) as asynchronous:
            feed = asynchronous.follow("end", holder=jane)
            await feed.find_place()
            spent = await asynchronous.spend(jane, amount=1)
            async for entry in feed:
                ids.append(entry["id"])
                break
            async for page in asynchronous.follow(granted["recorded_at"], holder=jane).pages():
                ids += [entry["id"] for entry in page]
                break
        assert ids == [spent["id"], granted["id"], spent["id"]]
        return ids

    assert len(asyncio.run(follow())) == 3


def test_a_cancelled_task_releases_its_hold(running_server: RunningServer, client: Client, new_holder: Callable[[], str]) -> None:
    holder = new_holder()
    client.grant(holder, amount=100)

    async def play() -> None:
        async with AsyncClient(running_server.url, running_server.api_key) as loop_client:
            is_held = asyncio.Event()

            async def work() -> None:
                async with loop_client.hold(holder, amount=40):
                    is_held.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await is_held.wait()
            assert (await loop_client.balance(holder))["held"] == 40
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(play())
    assert (client.balance(holder)["balance"], client.balance(holder)["held"]) == (100, 0)


@pytest.mark.slow
@pytest.mark.check
def test_one_client_serves_many_threads(
    losing: Client, losing_proxy: LosingProxy, client: Client, new_holder: Callable[[], str]
) -> None:
    holder = new_holder()
    client.grant(holder, amount=1000)
    losing_proxy.plan.extend([Do.LOSE, Do.PASS, Do.BUSY, Do.HALVE] * 8)
    threads = [threading.Thread(target=lambda: [losing.spend(holder, amount=1) for _ in range(5)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.balance(holder)["balance"] == 960
