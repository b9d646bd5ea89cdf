"""What every generated client does, with the one of openapi-generator for Python."""

import json
import os
import sys

from ledger_api import (
    ApiClient,
    Batch,
    BatchesApi,
    BatchModeEnum,
    BatchOperation,
    Capture,
    Configuration,
    CreditsApi,
    Grant,
    GrantOperation,
    HistoryApi,
    Hold,
    HoldsApi,
    InsufficientCredits,
    Refund,
    Spend,
    SpendOperation,
)
from ledger_api.exceptions import ApiException

holder = sys.argv[1]
configuration = Configuration(host=os.environ["LEDGER_URL"], access_token=os.environ["LEDGER_API_KEY"])


def key(name: str) -> str:
    """Return a key that no other holder uses."""
    return f"{holder}-{name}"


with ApiClient(configuration) as client:
    accounts, holds = CreditsApi(client), HoldsApi(client)
    granted = accounts.grant_credits(holder, Grant(amount=100), idempotency_key=key("grant"))
    spent = accounts.spend_credits(holder, Spend(amount=30), idempotency_key=key("spend"))
    try:
        accounts.spend_credits(holder, Spend(amount=1000), idempotency_key=key("refused"))
    except ApiException as error:
        problem = error.data
    assert problem is not None
    # One of the problems that this call may have with 402.
    refused = problem.actual_instance
    assert isinstance(refused, InsufficientCredits), refused
    refunded = accounts.refund_spend(holder, Refund(spend=spent.sequence, amount=10), idempotency_key=key("refund"))
    held = holds.hold_credits(holder, Hold(amount=20), idempotency_key=key("hold"))
    captured = holds.capture_hold(holder, held.sequence, Capture(amount=15), idempotency_key=key("capture"))
    operations = [
        BatchOperation(GrantOperation(operation="grant", holder=holder, amount=5)),
        BatchOperation(SpendOperation(operation="spend", holder=holder, amount=3)),
    ]
    batch = BatchesApi(client).run_batch(Batch(mode=BatchModeEnum.ATOMIC, operations=operations), idempotency_key=key("batch"))
    page = HistoryApi(client).list_entries(holder)
print(
    json.dumps(
        {
            "balances": [each.balance for each in (granted, spent, refunded, held, captured)],
            "shortfall": refused.shortfall,
            "failed": batch.failed,
            "kinds": [entry.kind for entry in page.results],
        }
    )
)
