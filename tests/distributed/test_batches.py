"""A batch for many holders is not refused because of the time that the calls to their nodes take."""

import pytest

from ledger import reads, services
from ledger.cluster import queries
from ledger.database import locks
from ledger.errors import HolderBusy
from ledger.rules.requests import GrantRequest


@pytest.mark.parametrize("has_time_for_calls", [True, False], ids=["as it is", "control: time for waits only"])
def test_a_batch_has_time_for_the_calls_to_its_holders_nodes(committed_db, new_holder, monkeypatch, has_time_for_calls):
    """Nobody has a lock of these holders, so there is nothing to wait for."""
    requests = [GrantRequest(holder_id=new_holder(), idempotency_key="g", amount=1) for _ in range(200)]
    key = requests[0].holder_id
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.02)
    if has_time_for_calls:
        assert not services.batch(requests, mode="atomic", idempotency_key=key).is_rejected
    else:
        monkeypatch.setattr(queries, "CALL_SECONDS", 0)
        with pytest.raises(HolderBusy):
            services.batch(requests, mode="atomic", idempotency_key=key)
    written = sum(reads.balance(request.holder_id).sequence for request in requests)
    assert written == (len(requests) if has_time_for_calls else 0)
