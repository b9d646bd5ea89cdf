"""Transfers: from one holder's account to another's, lot by lot.

Receipts of equal terms share a lot, so that an account with any number of receipts has few lots: docs/explanation/ledger.md.
"""

from collections.abc import Iterator, Mapping, Sequence

from ledger.errors import (
    ClocksDiffer,
    EntryNotFound,
    HolderFrozen,
    Invalid,
    NotReversible,
    ReversalExceedsTransfer,
    TransfersRefused,
)
from ledger.rules.accounts import AccountState
from ledger.rules.cost_shares import Cost, cost_of
from ledger.rules.decisions.budget_rules import counted
from ledger.rules.decisions.credit_rules import check_available, check_room
from ledger.rules.decisions.settlement import Entries, repay, settle_due
from ledger.rules.entries import Entry
from ledger.rules.holds import parts_of
from ledger.rules.lots import SINCE_ITS_GRANT, Lot, Lots, as_drawn, put_back, remove, shared_by, take
from ledger.rules.requests import IncomingTransfersRequest, ReversalRequest, TransferRequest, decides

ACCEPTED = {"incoming": "accepted"}
REFUSED = {"incoming": "refused"}
"""The member of `counterpart` in an `adjust` entry that accepts or refuses transfers from others."""


@decides(IncomingTransfersRequest)
def set_incoming_transfers(account: AccountState, request: IncomingTransfersRequest) -> Entries:
    """Accept or refuse transfers from others from now on, by an `adjust` entry of 0; no credits move."""
    booked, account = settle_due(account)
    counterpart = ACCEPTED if request.accepted else REFUSED
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, counterpart=counterpart, request=request)]


@decides(TransferRequest)
def transfer(
    source: AccountState, target: AccountState, request: TransferRequest, *, is_accepted: bool = True
) -> tuple[Entries, Entries]:
    """Take credits out of one account and put them into another, each part under the terms that it had.

    A part opens a lot, or joins the open or held lot of an earlier receipt whose terms are the same.

    The source cannot use its overdraft, nor credits that cannot pay for everything: they stay with the holder to whom they were
    given. The target's debt is repaid first.

    Args:
        is_accepted: False if the target refuses transfers from others.

    Returns:
        The source's entries, among them one `transfer_out` with the request's key, and the target's entries, with a `transfer_in`
        for each lot of the source. Each side names the other as its counterpart.

    Raises:
        ClocksDiffer: the holders' test clocks do.
        HolderFrozen: the source or the target is frozen.
        InsufficientCredits: the source has fewer credits available.
        BudgetExceeded: of the source, as for `credits.spend`.
        TransfersRefused: the target refuses them.
        LotLimit, BalanceLimit: the target would exceed the limits of received credits.
    """
    _check_clocks(source, target)
    if source.is_frozen:
        raise HolderFrozen(holder_id=source.holder_id)
    check_available(source, request.amount, source.own_available)
    if target.is_frozen:
        raise HolderFrozen(holder_id=target.holder_id)
    if not is_accepted:
        raise TransfersRefused(to=target.holder_id)
    given, source = settle_due(source)
    counts = counted(source, request, request.amount) if source.budgets else ()
    lots, drawn = take(source.lots, request.amount, source.now_us)
    entry = source.next_entry(
        "transfer_out",
        -request.amount,
        lots=lots,
        drawn=drawn,
        counterpart={"holder_id": target.holder_id},
        counts=counts,
        request=request,
    )
    return [*given, entry], _arrivals(target, request, entry, parts_of(source.lots, drawn))


def _check_clocks(one: AccountState, other: AccountState) -> None:
    if (one.server_us or other.server_us) and one.now_us != other.now_us:
        raise ClocksDiffer(holder_id=one.holder_id, to=other.holder_id)


def _arrivals(target: AccountState, request: TransferRequest, out: Entry, parts: Lots) -> Entries:
    entries, target = settle_due(target)
    for part in parts:
        # Credits that could be spent at the source can be spent at the target, from their arrival on.
        arriving = part._replace(grant=target.sequence + 1, effective_us=SINCE_ITS_GRANT, received=True)
        cost = cost_of(out.cost_changes, part.grant)
        shared = shared_by(_sold_in(target, cost), arriving)
        lot = arriving if shared is None else arriving._replace(grant=shared.grant)
        lots = put_back(target.lots, [lot])
        check_room(target, lots, is_from_others=True)
        entry = target.next_entry(
            "transfer_in",
            part.remaining,
            lots=lots,
            drawn=() if shared is None else as_drawn((lot,)),
            counterpart={"holder_id": out.holder_id, "sequence": out.sequence, "grant": part.grant},
            request=request,
            brought=None if cost is None else {lot.grant: cost},
            keyless=True,
        )
        entries.append(entry)
        target = target.after(entry)
    return entries + repay(target)


def _sold_in(account: AccountState, cost: Cost | None) -> list[Lot]:
    """Return the lots, open or held, that were sold in the currency of that cost; without a cost, those that were not sold."""
    currency = None if cost is None else cost.currency
    currencies = {known.lot: known.currency for known in account.costs}
    return [lot for lot in account.lots_and_held_parts if currencies.get(lot.grant) == currency]


@decides(ReversalRequest)
def reverse(
    account: AccountState,
    other: AccountState,
    request: ReversalRequest,
    *,
    transfer: Entry | None,
    arrivals: Sequence[Entry],
    reversed_before: Mapping[int, int],
    terms: Mapping[int, Lot],
) -> tuple[Entries, Entries]:
    """Take credits of a transfer out of the lots in which they arrived, and give them back to the lots that they came from.

    A freeze of either holder does not refuse it, nor does the account's refusal of transfers from others.

    Args:
        account: of the holder who made the transfer. other: of the one who got it.
        transfer: the entry that the request names, or None if it does not exist.
        arrivals: what the transfer became on the other side, in order.
        reversed_before: by the sequence of an arrival, how much of it earlier reversals took back.
        terms: each lot that the transfer drew from, as the entry that opened it made it.

    Returns:
        For each part a `transfer_in` of the account, which refers to the transfer, and a `transfer_out` of the other account,
        which refers to the arrival. The account's last `transfer_in` has the request's key.

    Raises:
        EntryNotFound, NotReversible: no transfer to another holder has this sequence.
        Invalid: another holder got it.
        ClocksDiffer: the holders' test clocks do.
        ReversalExceedsTransfer: the other holder has less of it, or nothing, in open lots that have not expired.
        LotLimit: the account cannot have the lots that would open again.
    """
    if transfer is None:
        raise EntryNotFound(sequence=request.transfer, credit_type=account.credit_type)
    if transfer.kind != "transfer_out" or transfer.refers_to is not None:
        raise NotReversible(sequence=transfer.sequence, kind=transfer.kind)
    if transfer.counterpart is None or transfer.counterpart["holder_id"] != request.to:
        raise Invalid(pointer="/to", rule="other", detail="must be the holder who got the credits")
    _check_clocks(account, other)
    given, account = settle_due(account)
    taken, other = settle_due(other)
    parts = list(_reversible(other, arrivals, reversed_before, request.amount))
    reversible = sum(amount for _, amount in parts)
    if reversible < (request.amount or 1):
        raise ReversalExceedsTransfer(sequence=transfer.sequence, reversible=reversible, requested=request.amount)
    for number, (arrival, amount) in enumerate(parts, 1):
        out = _taken_back(other, account, request, arrival, amount)
        taken.append(out)
        other = other.after(out)
        back = _given_back(account, request, transfer, out, arrival, terms, keyless=number < len(parts))
        given.append(back)
        account = account.after(back)
    return given + repay(account), taken


def _reversible(
    other: AccountState, arrivals: Sequence[Entry], reversed_before: Mapping[int, int], wanted: int | None
) -> Iterator[tuple[Entry, int]]:
    """Yield the arrivals of which something can be taken back, the last one first, each with how much, up to what is wanted."""
    left = {lot.grant: lot.remaining for lot in other.lots}
    for arrival in reversed(arrivals):
        lot = _arrived_in(arrival)
        amount = min(arrival.amount - reversed_before.get(arrival.sequence, 0), left.get(lot, 0))
        if wanted is not None:
            amount = min(amount, wanted)
            wanted -= amount
        if amount > 0:
            left[lot] -= amount
            yield arrival, amount


def _arrived_in(arrival: Entry) -> int:
    """Return the lot that the arrival joined or opened."""
    return arrival.drawn[0][0] if arrival.drawn else arrival.sequence


def _taken_back(other: AccountState, account: AccountState, request: ReversalRequest, arrival: Entry, amount: int) -> Entry:
    lot = _arrived_in(arrival)
    return other.next_entry(
        "transfer_out",
        -amount,
        lots=remove(other.lots, lot, amount),
        drawn=((lot, amount),),
        refers_to=arrival.sequence,
        counterpart={"holder_id": account.holder_id},
        request=request,
        keyless=True,
    )


def _given_back(
    account: AccountState,
    request: ReversalRequest,
    transfer: Entry,
    out: Entry,
    arrival: Entry,
    terms: Mapping[int, Lot],
    *,
    keyless: bool,
) -> Entry:
    there = account.lots_and_held_parts
    grant = 0 if arrival.counterpart is None else int(arrival.counterpart["grant"])
    lot = next((each for each in there if each.grant == grant), terms[grant])._replace(remaining=-out.amount)
    cost = cost_of(out.cost_changes, out.drawn[0][0])
    shared = shared_by(_sold_in(account, cost), lot) if lot.received else None
    lot = lot if shared is None else lot._replace(grant=shared.grant)
    lots = put_back(account.lots, [lot])
    check_room(account, lots)
    return account.next_entry(
        "transfer_in",
        lot.remaining,
        lots=lots,
        drawn=as_drawn((lot,)),
        refers_to=transfer.sequence,
        counterpart={"holder_id": out.holder_id, "sequence": out.sequence, "grant": out.drawn[0][0]},
        request=request,
        brought=None if cost is None else {lot.grant: cost},
        keyless=keyless,
    )
