"""Transfers between two holders."""

from typing import Unpack

from ledger.rules import Entry, TransferRequest
from ledger.services.execute import Circumstances, execute_once, plain


def transfer(*, holder_id: str, to: str, amount: int, idempotency_key: str, **circumstances: Unpack[Circumstances]) -> Entry:
    """Move credits to another holder, lot by lot, or raise and leave only the refusal on record.

    Both locks are taken in the order of their numbers, and both sides are written in one transaction.

    Args:
        to: the other holder.
        amount: 1 .. 2^53-1; an overdraft does not count.

    Returns:
        The `transfer_out` entry, amount below zero, whose counterpart is the other holder.

    Raises:
        Refused: InsufficientCredits, or LotLimit of the other holder. Other errors as for `execute_once`.
    """
    request = TransferRequest(holder_id=holder_id, to=to, amount=amount, idempotency_key=idempotency_key, **plain(circumstances))
    return execute_once(request)
