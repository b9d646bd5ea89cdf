"""Hold, capture, release, extend."""

from datetime import datetime
from typing import Unpack

from ledger.rules import CaptureRequest, Entry, ExtendRequest, HoldRequest, ReleaseRequest
from ledger.services.execute import Circumstances, execute_once, plain


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

    From `expires_at` on the hold withholds nothing; no job is needed for that.

    Args:
        amount, rate, quantity: as for `spend`.
        expires_at: within the next 31 days; an hour from now by default.

    Returns:
        The entry, amount below zero; its sequence names the hold.

    Raises:
        Refused: InsufficientCredits (an overdraft does not count), HoldLimit. Other errors as for `execute_once`.
    """
    request = HoldRequest(
        holder_id=holder_id,
        idempotency_key=idempotency_key,
        amount=amount,
        rate=rate,
        quantity=quantity,
        expires_at=expires_at,
        **plain(circumstances),
    )
    return execute_once(request)


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
    """Spend the credits of a hold, or a part of them, or raise and leave only the refusal on record.

    Args:
        hold: the sequence of the hold.
        amount: 1 .. 2^53-1; all held credits by default.
        final: True releases the rest; False keeps it held for more captures.
        over_capture: for more than is held: "refuse" the capture, or take the difference from the balance "if_available".

    Returns:
        The entry. Its amount is 0 or below: what it took from the balance beyond the hold.

    Raises:
        Refused: EntryNotFound, NotAHold, HoldClosed, CaptureExceedsHold, InsufficientCredits. Other errors as for `execute_once`.
    """
    request = CaptureRequest(
        holder_id=holder_id,
        hold=hold,
        idempotency_key=idempotency_key,
        amount=amount,
        final=final,
        over_capture=over_capture,
        **plain(circumstances),
    )
    return execute_once(request)


def release(*, holder_id: str, hold: int, idempotency_key: str, **circumstances: Unpack[Circumstances]) -> Entry:
    """Give all held credits of a hold back to their lots, or raise and leave only the refusal on record.

    Returns:
        The entry, amount above zero.

    Raises:
        Refused: EntryNotFound, NotAHold, HoldClosed. Others as `execute_once`.
    """
    return execute_once(ReleaseRequest(holder_id=holder_id, hold=hold, idempotency_key=idempotency_key, **plain(circumstances)))


def extend(
    *, holder_id: str, hold: int, expires_at: datetime, idempotency_key: str, **circumstances: Unpack[Circumstances]
) -> Entry:
    """Change the expiry of an open hold, or raise and leave only the refusal on record.

    Args:
        expires_at: within the next 31 days; may be earlier than before.

    Returns:
        A `hold` entry of amount 0 that refers to the hold.

    Raises:
        Refused: EntryNotFound, NotAHold, HoldClosed. Others as `execute_once`.
    """
    request = ExtendRequest(
        holder_id=holder_id, hold=hold, expires_at=expires_at, idempotency_key=idempotency_key, **plain(circumstances)
    )
    return execute_once(request)
