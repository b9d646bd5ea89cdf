"""What every generated client does, with the one of openapi-python-client."""

import json
import os
import sys
from http import HTTPStatus

from ledger_api.api.batches import run_batch
from ledger_api.api.credits_ import grant_credits, refund_spend, spend_credits
from ledger_api.api.history import list_entries
from ledger_api.api.holds import capture_hold, hold_credits
from ledger_api.client import AuthenticatedClient
from ledger_api.models.batch import Batch
from ledger_api.models.batch_body import BatchBody
from ledger_api.models.batch_mode_enum import BatchModeEnum
from ledger_api.models.capture import Capture
from ledger_api.models.entry import Entry
from ledger_api.models.entry_page import EntryPage
from ledger_api.models.grant import Grant
from ledger_api.models.grant_operation import GrantOperation
from ledger_api.models.hold import Hold
from ledger_api.models.insufficient_credits import InsufficientCredits
from ledger_api.models.refund import Refund
from ledger_api.models.spend import Spend
from ledger_api.models.spend_operation import SpendOperation

holder = sys.argv[1]
client = AuthenticatedClient(base_url=os.environ["LEDGER_URL"], token=os.environ["LEDGER_API_KEY"])


def key(name: str) -> str:
    """Return a key that no other holder uses."""
    return f"{holder}-{name}"


granted = grant_credits.sync(holder, client=client, body=Grant(amount=100), idempotency_key=key("grant"))
assert isinstance(granted, Entry), granted
spent = spend_credits.sync(holder, client=client, body=Spend(amount=30), idempotency_key=key("spend"))
assert isinstance(spent, Entry), spent
answer = spend_credits.sync_detailed(holder, client=client, body=Spend(amount=1000), idempotency_key=key("refused"))
assert answer.status_code == HTTPStatus.PAYMENT_REQUIRED
refused = answer.parsed
assert isinstance(refused, InsufficientCredits), refused
refunded = refund_spend.sync(holder, client=client, body=Refund(spend=spent.sequence, amount=10), idempotency_key=key("refund"))
assert isinstance(refunded, Entry), refunded
held = hold_credits.sync(holder, client=client, body=Hold(amount=20), idempotency_key=key("hold"))
assert isinstance(held, Entry), held
captured = capture_hold.sync(holder, held.sequence, client=client, body=Capture(amount=15), idempotency_key=key("capture"))
assert isinstance(captured, Entry), captured
batch = run_batch.sync(
    client=client,
    body=Batch(
        mode=BatchModeEnum.ATOMIC,
        operations=[
            GrantOperation(operation="grant", holder=holder, amount=5),
            SpendOperation(operation="spend", holder=holder, amount=3),
        ],
    ),
    idempotency_key=key("batch"),
)
assert isinstance(batch, BatchBody), batch
page = list_entries.sync(holder, client=client)
assert isinstance(page, EntryPage), page
print(
    json.dumps(
        {
            "balances": [each.balance for each in (granted, spent, refunded, held, captured)],
            "shortfall": refused.shortfall,
            "failed": batch.failed,
            "kinds": [entry.kind.value for entry in page.results],
        }
    )
)
