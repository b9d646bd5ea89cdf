"""Hold, capture, release, extend."""

from datetime import datetime
from typing import Unpack

from ledger.rules import CaptureRequest, Entry, ExtendRequest, HoldRequest, ReleaseRequest
from ledger.services.answering import Circumstances, answer, given


def hold(
    *,
    holder_id: str,
    idempotency_key: str,
    amount: int | None = None,
    rate: str | None = None,
    quantity: int | None = None,
    expires_at: datetime | None = None,
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Set credits of a holder aside, or raise and leave only the refusal on record.

    From `expires_at` on the hold withholds nothing any more, without a job.

    Args:
        amount, rate, quantity: as `spend`.
        expires_at: within the next 31 days; an hour from now by default.

    Returns:
        The entry, amount below zero; its sequence names the hold.

    Raises:
        Refused: InsufficientCredits (an overdraft does not count), HoldLimit. Others as `answering.answer`.
    """
    request = HoldRequest(
        holder_id=holder_id,
        idempotency_key=idempotency_key,
        amount=amount,
        rate=rate,
        quantity=quantity,
        expires_at=expires_at,
        **given(circumstances),
    )
    return answer(request)


def capture(
    *,
    holder_id: str,
    hold: int,
    idempotency_key: str,
    amount: int | None = None,
    final: bool = True,
    over_capture: str = "refuse",
    **circumstances: Unpack[Circumstances],
) -> Entry:
    """Spend what a hold sets aside, or a part of it, or raise and leave only the refusal on record.

    Args:
        hold: the sequence of the hold.
        amount: 1 .. 2^53-1; all that is held by default.
        final: release the rest; else it stays held, for more captures.
        over_capture: "refuse" more than is held, or take the difference from the balance "if_available".

    Returns:
        The entry, amount 0 or below: what it took from the balance beyond the hold.

    Raises:
        Refused: EntryNotFound, NotAHold, HoldClosed, CaptureExceedsHold, InsufficientCredits. Others as `answering.answer`.
    """
    request = CaptureRequest(
        holder_id=holder_id,
        hold=hold,
        idempotency_key=idempotency_key,
        amount=amount,
        final=final,
        over_capture=over_capture,
        **given(circumstances),
    )
    return answer(request)


def release(*, holder_id: str, hold: int, idempotency_key: str, **circumstances: Unpack[Circumstances]) -> Entry:
    """Give back all that a hold still sets aside, or raise and leave only the refusal on record.

    Returns:
        The entry, amount above zero.

    Raises:
        Refused: EntryNotFound, NotAHold, HoldClosed. Others as `answering.answer`.
    """
    return answer(ReleaseRequest(holder_id=holder_id, hold=hold, idempotency_key=idempotency_key, **given(circumstances)))


def extend(
    *, holder_id: str, hold: int, expires_at: datetime, idempotency_key: str, **circumstances: Unpack[Circumstances]
) -> Entry:
    """Let an open hold expire at another instant, or raise and leave only the refusal on record.

    Args:
        expires_at: within the next 31 days; may be sooner than before.

    Returns:
        The `hold` entry, amount 0, that refers to the first one.

    Raises:
        Refused: EntryNotFound, NotAHold, HoldClosed. Others as `answering.answer`.
    """
    request = ExtendRequest(
        holder_id=holder_id, hold=hold, expires_at=expires_at, idempotency_key=idempotency_key, **given(circumstances)
    )
    return answer(request)
