"""Transfers between two holders."""

from functools import partial
from typing import Unpack

from ledger import journal, rules
from ledger.database.locks import Lock, holder_lock
from ledger.database.transactions import in_transaction
from ledger.rules import Entry, TransferRequest
from ledger.services.answering import Circumstances, given


def transfer(*, holder_id: str, to: str, amount: int, idempotency_key: str, **circumstances: Unpack[Circumstances]) -> Entry:
    """Move credits to another holder, lot by lot, or raise and leave only the refusal on record.

    Both locks are taken in the order of their numbers, and both sides are written in one transaction.

    Args:
        to: the other holder.
        amount: 1 .. 2^53-1; an overdraft does not count.

    Returns:
        The `transfer_out` entry, amount below zero, whose counterpart is the other holder.

    Raises:
        Refused: InsufficientCredits, or LotLimit of the other holder. Others as `answering.answer`.
    """
    request = TransferRequest(holder_id=holder_id, to=to, amount=amount, idempotency_key=idempotency_key, **given(circumstances))

    def once() -> journal.Recorded:
        with holder_lock(holder_id, to) as lock:
            return transfer_under(lock, request)

    return in_transaction(once, holder_id=holder_id).unwrap()


def transfer_under(lock: Lock, request: TransferRequest) -> journal.Recorded:
    """Answer the transfer inside the caller's transaction, under a lock of both holders."""
    source = journal.read(lock, request.holder_id, request.credit_type, request.idempotency_key)
    target = journal.read(lock, request.to, request.credit_type)
    return journal.answer(source, request, partial(decide_transfer, request, target.state))


def decide_transfer(request: TransferRequest, target: rules.Account, source: journal.OpenAccount) -> list[Entry]:
    """The entries of both sides, by the rules: the source's, then the target's."""
    given_away, arrived = rules.transfer(source.state, target, request)
    return [*given_away, *arrived]
