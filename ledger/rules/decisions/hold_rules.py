"""The rules of holds: hold, capture, release, extend. Holds use overage, and never an overdraft."""

from typing import Any

from ledger.errors import CaptureExceedsHold, EntryNotFound, HoldClosed, HolderFrozen, HoldLimit, Invalid, NotAHold
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import overage_rules
from ledger.rules.decisions.budget_rules import counted
from ledger.rules.decisions.credit_rules import check_available
from ledger.rules.decisions.settlement import Entries, counts_of_release, settle_due, settle_now
from ledger.rules.entries import Entry
from ledger.rules.holds import DEFAULT_HOLD_US, MAX_HOLD_PARTS, MAX_HOLD_US, Hold, Holds, parts_of
from ledger.rules.instants import to_us
from ledger.rules.lots import MAX_RECEIVED_LOTS, Drawn, Lots, as_drawn, postpaid, put_back, split, take
from ledger.rules.purposes import Use
from ledger.rules.requests import CaptureRequest, ExtendRequest, HoldRequest, ReleaseRequest, decides


@decides(HoldRequest)
def hold(
    account: AccountState, request: HoldRequest, *, amount: int | None = None, rating: dict[str, Any] | None = None
) -> Entries:
    """Take credits out of the balance and set them aside.

    Args: as for `credits.spend`.

    Raises:
        Invalid: `expires_at` is not within the next 31 days.
        HolderFrozen: nothing can be held.
        InsufficientCredits: fewer credits are available now, with overage and without the overdraft.
        BudgetExceeded: as for `credits.spend`.
        HoldLimit: the account has too many open holds.
    """
    expires_us = _expiry(account, account.now_us + DEFAULT_HOLD_US if request.expires_at is None else to_us(request.expires_at))
    amount = request.amount if amount is None else amount
    assert amount is not None
    if account.is_frozen:
        raise HolderFrozen(holder_id=account.holder_id)
    use = Use(request.rate, request.metadata)
    available = account.own_available_for(use)
    on_overage = overage_rules.left_for(account, request) if amount > available else 0
    check_available(account, amount, available + on_overage, use=use, on_overage=on_overage)
    booked, account = settle_due(account)
    granted, account, of_overage = overage_rules.grant_missing(account, amount, on_overage, use)
    counts = counted(account, request, amount) if account.budgets else ()
    lots, drawn = take(account.lots, amount, account.now_us, use)
    holds = (*account.holds, Hold(account.sequence + 1, expires_us, parts_of(account.lots, drawn)))
    if _counted_parts(holds) > MAX_HOLD_PARTS:
        raise HoldLimit(held_lots=_counted_parts(account.holds), limit=MAX_HOLD_PARTS)
    entry = account.next_entry(
        "hold",
        -amount,
        lots=lots,
        drawn=drawn,
        held=account.held + amount,
        holds=holds,
        counts=counts,
        request=request,
        rating=rating,
        postpaid=of_overage,
    )
    return [*booked, *granted, entry]


@decides(CaptureRequest)
def capture(
    account: AccountState,
    request: CaptureRequest,
    *,
    amount: int | None = None,
    rating: dict[str, Any] | None = None,
    hold_entry: Entry | None,
    last_closing: Entry | None,
) -> Entries:
    """Spend the held credits or a part of them. The rest goes back to its lots, or stays held if the capture is not final.

    Held credits whose lot has expired can still be captured; if they are released, they expire at once. What is taken beyond the
    hold can pay for the labels of the hold, and for the rate of the capture, by default that of the hold.

    Args:
        amount: the cost of the request's quantities; by default the request's amount.
        rating: rate, version and quantities, if a rate gave the amount.
        hold_entry: the entry that the request names, or None if it does not exist.
        last_closing: the last entry that refers to the hold, or None.

    Raises:
        EntryNotFound, NotAHold, HoldClosed: no open hold has this sequence.
        Invalid: the capture names another rate, for which credits of the hold cannot pay.
        CaptureExceedsHold: fewer credits are held, and `over_capture` is "refuse".
        HolderFrozen: fewer credits are held, and nothing else can be spent.
        InsufficientCredits: held and available credits together are fewer, and `over_capture` is "if_available".
        BudgetExceeded: as for `credits.spend`, for what is taken beyond the hold; it counts as the hold did.
    """
    held = _open_hold(account, request.hold, hold_entry, last_closing)
    assert hold_entry is not None
    use = Use((rating or hold_entry.rating or {}).get("rate"), hold_entry.metadata)
    if not all(part.covers(use) for part in held.parts):
        detail = "must be one that the held credits can pay for; release the hold, and spend instead"
        raise Invalid(pointer="/rate", rule="restricted", detail=detail)
    amount = request.amount if amount is None else amount
    amount = held.amount if amount is None else amount
    beyond = max(0, amount - held.amount)
    if beyond and request.over_capture == "refuse":
        raise CaptureExceedsHold(sequence=held.sequence, held=held.amount, requested=amount)
    if beyond and account.is_frozen:
        raise HolderFrozen(holder_id=account.holder_id)
    available = account.own_available_for(use)
    on_overage = overage_rules.left_for(account, request) if beyond > available else 0
    usable = held.amount + available + on_overage
    check_available(account, amount, usable, use=use, on_overage=on_overage, until_us=held.expires_us)
    entries, account = settle_due(account)
    taken, rest = split(held.parts, amount)
    if rest and request.final:
        entries.append(_release(account, held, taken, rest))
        account = account.after(entries[-1])
        freed = settle_now(account)
        entries += freed
        account = account.after_all(freed)
        rest = ()
    counts = counted(account, hold_entry, beyond) if account.budgets else ()
    granted, account, postpaid_beyond = overage_rules.grant_missing(account, beyond, on_overage, use)
    entries += granted
    lots, drawn_beyond = take(account.lots, beyond, account.now_us, use)
    entry = account.next_entry(
        "capture",
        -beyond,
        lots=lots,
        drawn=_add_drawn(as_drawn(taken), drawn_beyond),
        held=account.held - (amount - beyond),
        holds=_with_parts(account.holds, held, rest),
        counts=counts,
        refers_to=held.sequence,
        request=request,
        rating=rating,
        postpaid=postpaid(taken) + postpaid_beyond,
    )
    return [*entries, entry]


@decides(ReleaseRequest)
def release(account: AccountState, request: ReleaseRequest, *, hold_entry: Entry | None, last_closing: Entry | None) -> Entries:
    """Give all held credits back to their lots; credits of lots that have expired since expire at once.

    Args, Raises: as for `capture`.
    """
    held = _open_hold(account, request.hold, hold_entry, last_closing)
    booked, account = settle_due(account)
    entry = _release(account, held, (), held.parts, request)
    return [*booked, entry, *settle_now(account.after(entry))]


@decides(ExtendRequest)
def extend(account: AccountState, request: ExtendRequest, *, hold_entry: Entry | None, last_closing: Entry | None) -> Entries:
    """Change the expiry of an open hold, to an earlier or later time, by a `hold` entry of 0 that refers to the hold.

    Args, Raises: as for `capture`; also Invalid if `expires_at` is not within the next 31 days.
    """
    held = _open_hold(account, request.hold, hold_entry, last_closing)
    expires_us = _expiry(account, to_us(request.expires_at))
    booked, account = settle_due(account)
    holds = tuple(each._replace(expires_us=expires_us) if each.sequence == held.sequence else each for each in account.holds)
    return [*booked, account.next_entry("hold", 0, lots=account.lots, holds=holds, refers_to=held.sequence, request=request)]


def _counted_parts(holds: Holds) -> int:
    """Return how many parts of lots the holds have, without those that lots from others may make many of.

    A hold of 0 counts as one: it stands in the state too.
    """
    parts = [part for hold in holds for part in hold.parts]
    of_nothing = sum(not hold.parts for hold in holds)
    return of_nothing + len(parts) - min(MAX_RECEIVED_LOTS, sum(part.received for part in parts))


def _expiry(account: AccountState, expires_us: int) -> int:
    if expires_us <= account.now_us:
        raise Invalid(pointer="/expires_at", rule="past", detail="must be in the future")
    if expires_us > account.now_us + MAX_HOLD_US:
        raise Invalid(pointer="/expires_at", rule="range", detail="must be at most 31 days from now")
    return expires_us


def _open_hold(account: AccountState, sequence: int, hold_entry: Entry | None, last_closing: Entry | None) -> Hold:
    if hold_entry is None:
        raise EntryNotFound(sequence=sequence, credit_type=account.credit_type)
    if hold_entry.kind != "hold" or hold_entry.refers_to is not None:
        raise NotAHold(sequence=sequence, kind=hold_entry.kind)
    held = account.hold(sequence)
    if held is not None:
        return held
    if last_closing is None or last_closing.kind == "hold" or any(each.sequence == sequence for each in account.holds):
        raise HoldClosed(sequence=sequence, how="expired", closed_by=None)
    how = "captured" if last_closing.kind == "capture" else "expired" if last_closing.idempotency_key is None else "released"
    raise HoldClosed(sequence=sequence, how=how, closed_by=last_closing.sequence)


def _release(account: AccountState, held: Hold, kept: Lots, rest: Lots, request: ReleaseRequest | None = None) -> Entry:
    amount = sum(part.remaining for part in rest)
    return account.next_entry(
        "release",
        amount,
        lots=put_back(account.lots, rest),
        drawn=as_drawn(rest),
        held=account.held - amount,
        holds=_with_parts(account.holds, held, kept),
        counts=counts_of_release(account, held.sequence, amount, at_us=account.now_us) if account.budgets else (),
        refers_to=held.sequence,
        request=request,
        reason="captured less",
        postpaid=postpaid(rest),
    )


def _with_parts(holds: Holds, held: Hold, parts: Lots) -> Holds:
    """Return the holds after one of them is reduced to `parts`; without that hold if there are no parts."""
    changed = (each if each.sequence != held.sequence else each._replace(parts=parts) for each in holds)
    return tuple(each for each in changed if each.parts or each.sequence != held.sequence)


def _add_drawn(first: Drawn, second: Drawn) -> Drawn:
    """Return both together, with one part per lot."""
    amounts = dict(first)
    for grant, amount in second:
        amounts[grant] = amounts.get(grant, 0) + amount
    return tuple(amounts.items())
