"""Overage under contention: what is used is the cap, never more. test_spend_races has the race of two spends, and its twins."""

from collections.abc import Callable
from typing import Any

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import InsufficientCredits

NewHolder = Callable[[], str]
RunThreads = Callable[..., list[Any]]
THREADS = 8
CAP = 60


def test_contested_spends_holds_and_refunds_use_exactly_the_cap(
    new_holder: NewHolder, run_threads: RunThreads, raw_connection: Callable[..., Any]
) -> None:
    holder = new_holder()
    services.set_overage(holder_id=holder, limit=CAP, idempotency_key="overage")
    services.grant(holder_id=holder, amount=20, idempotency_key="grant")

    def work(thread: int) -> int:
        taken = 0
        for number in range(8):
            asked = {"holder_id": holder, "idempotency_key": f"{thread}/{number}"}
            try:
                if number == 2:
                    hold = services.hold(**asked, amount=3).sequence
                    services.capture(holder_id=holder, hold=hold, amount=2, idempotency_key=f"{thread}/{number}/c")
                    taken += 2
                elif number == 4:
                    spent = services.spend(**asked, amount=2).sequence
                    services.refund(holder_id=holder, spend=spent, idempotency_key=f"{thread}/{number}/r")
                else:
                    taken -= services.spend(**asked, amount=3, partial=True).amount
            except InsufficientCredits:
                pass
        return taken

    taken = sum(run_threads(work, THREADS))
    while taken < 20 + CAP:  # what refunds gave back last
        taken -= services.spend(holder_id=holder, amount=3, partial=True, idempotency_key=f"rest/{taken}").amount

    balance = reads.balance(holder)
    assert balance.overage is not None
    assert (taken, balance.balance, balance.held, balance.overage.used, balance.overage.left) == (20 + CAP, 0, 0, CAP, 0)
    assert audit([raw_connection("superuser")], holder_id=holder).findings == []
