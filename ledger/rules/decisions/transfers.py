"""Transfers: from one holder's account to another's, lot by lot.

Receipts of equal terms share a lot, so that an account with any number of receipts has few lots: docs/adr/0051.
"""

from ledger.errors import TransfersRefused
from ledger.rules.accounts import Account
from ledger.rules.decisions.credits import check_available, check_room
from ledger.rules.decisions.settlement import Entries, repay, settle_due
from ledger.rules.entries import Entry
from ledger.rules.holds import parts_of
from ledger.rules.lots import SINCE_ITS_GRANT, Lots, as_drawn, put_back, shared_by, take
from ledger.rules.requests import IncomingTransfersRequest, TransferRequest

ACCEPTED = {"incoming": "accepted"}
REFUSED = {"incoming": "refused"}
"""What an `adjust` entry has in `counterpart` that accepts or refuses transfers from others."""


def set_incoming_transfers(account: Account, request: IncomingTransfersRequest) -> Entries:
    """Accept or refuse transfers from others from now on, by an `adjust` entry of 0; no credits move."""
    booked, account = settle_due(account)
    counterpart = ACCEPTED if request.accepted else REFUSED
    return [*booked, account.next_entry("adjust", 0, lots=account.lots, counterpart=counterpart, request=request)]


def transfer(source: Account, target: Account, request: TransferRequest, *, is_accepted: bool = True) -> tuple[Entries, Entries]:
    """Take credits out of one account and put them into another, each part under the terms that it had.

    A part opens a lot, or joins the open or held lot of an earlier receipt whose terms are the same.

    The source cannot use its overdraft. The target's debt is repaid first.

    Args:
        is_accepted: False if the target refuses transfers from others.

    Returns:
        The source's entries, among them one `transfer_out` with the request's key, and the target's entries, with a `transfer_in`
        for each lot of the source. Each side names the other as its counterpart.

    Raises:
        InsufficientCredits: the source has fewer credits available.
        TransfersRefused: the target refuses them.
        LotLimit, BalanceLimit: the target has no room for what others send.
    """
    check_available(source, request.amount, source.own_available)
    if not is_accepted:
        raise TransfersRefused(to=target.holder_id)
    given, source = settle_due(source)
    lots, drawn = take(source.lots, request.amount, source.now_us)
    entry = source.next_entry(
        "transfer_out",
        -request.amount,
        lots=lots,
        drawn=drawn,
        counterpart={"holder_id": target.holder_id},
        request=request,
    )
    return [*given, entry], _arrivals(target, request, entry, parts_of(source.lots, drawn))


def _arrivals(target: Account, request: TransferRequest, out: Entry, parts: Lots) -> Entries:
    entries, target = settle_due(target)
    for part in parts:
        # Credits that could be spent at the source can be spent at the target, from their arrival on.
        arriving = part._replace(grant=target.sequence + 1, effective_us=SINCE_ITS_GRANT, received=True)
        shared = shared_by(target.lots_and_held_parts, arriving)
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
            keyless=True,
        )
        entries.append(entry)
        target = target.after(entry)
    return entries + repay(target)
