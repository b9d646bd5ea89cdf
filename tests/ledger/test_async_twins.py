"""The async twins of the use-cases and reads: `aspend` does what `spend` does, in the thread that Django keeps for it."""

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.db.backends.signals import connection_created

from ledger import reads, services
from ledger.errors import InsufficientCredits

pytestmark = pytest.mark.usefixtures("committed_db")


def run(coroutine):
    """Run it in an event loop of its own; the connection of its thread is closed at the end."""

    async def whole():
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(whole())


def test_a_twin_returns_what_its_function_returns_and_raises_what_it_raises(new_holder):
    holder = new_holder()

    async def buy():
        await services.agrant(holder_id=holder, amount=10, idempotency_key="g")
        spent = await services.aspend(holder_id=holder, amount=4, idempotency_key="s")
        with pytest.raises(InsufficientCredits):
            await services.aspend(holder_id=holder, amount=7, idempotency_key="too much")
        return spent.balance, (await reads.abalance(holder)).balance

    assert run(buy()) == (6, 6)
    assert reads.balance(holder).sequence == 3, "the refusal is on record"


def test_calls_that_are_awaited_together_run_in_one_thread_one_after_the_other(new_holder):
    holder, threads = new_holder(), []
    services.grant(holder_id=holder, amount=10, idempotency_key="g")

    def note(**facts):
        threads.append(threading.current_thread())

    connection_created.connect(note, weak=False, dispatch_uid=__name__)

    async def buy():
        return await asyncio.gather(
            *(services.aspend(holder_id=holder, amount=1, idempotency_key=f"s{number}") for number in range(5))
        )

    try:
        assert [entry.balance for entry in run(buy())] == [9, 8, 7, 6, 5]
    finally:
        connection_created.disconnect(dispatch_uid=__name__)
    assert len(threads) == 1


@pytest.mark.parametrize("is_joined", [True, False], ids=["one function in the thread", "control: awaited calls"])
def test_async_code_joins_by_a_function_that_opens_the_transaction_in_the_thread(new_holder, is_joined):
    """An event loop cannot open `atomic()`, so each awaited call has a transaction of its own."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")

    class Failed(Exception):
        pass

    @transaction.atomic
    def buy():
        services.spend(holder_id=holder, amount=1, idempotency_key="s")
        raise Failed

    async def order():
        with pytest.raises(SynchronousOnlyOperation), transaction.atomic():
            pass
        if is_joined:
            await sync_to_async(buy)()
        await services.aspend(holder_id=holder, amount=1, idempotency_key="s")
        raise Failed

    with pytest.raises(Failed):
        run(order())
    assert reads.balance(holder).balance == (10 if is_joined else 9)


@pytest.mark.parametrize(
    "name", ["aspend_under", "aholder_lock", "apreview", "aavailable_under", "aBatchResult", "aGROUP_COMMIT", "ano"]
)
def test_what_works_only_inside_a_with_of_its_own_thread_has_no_twin(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(services, name)
    assert not hasattr(reads, "aBalance")
