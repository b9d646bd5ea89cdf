"""Transfers between two holders, and whether a holder accepts them."""

from typing import Unpack

from ledger.rules import Entry, IncomingTransfersRequest, TransferRequest
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
        Refused: InsufficientCredits; TransfersRefused, LotLimit, BalanceLimit of the other holder. Other errors as for
            `execute_once`.
    """
    request = TransferRequest(holder_id=holder_id, to=to, amount=amount, idempotency_key=idempotency_key, **plain(circumstances))
    return execute_once(request)


def set_incoming_transfers(
    *, holder_id: str, accepted: bool, idempotency_key: str, **circumstances: Unpack[Circumstances]
) -> Entry:
    """Accept transfers from others into the account, as by default, or refuse them; or raise and write nothing.

    Returns:
        The `adjust` entry, amount 0, with the new `accepts_transfers`.

    Raises: as for `execute_once`.
    """
    request = IncomingTransfersRequest(
        holder_id=holder_id, accepted=accepted, idempotency_key=idempotency_key, **plain(circumstances)
    )
    return execute_once(request)
