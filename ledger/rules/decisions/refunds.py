"""Refunds: the credits of a spend or capture go back under the terms that they had.

Credits taken from a lot go back to that lot; if receipts shared it and it has closed, to the lot that receipts of the same
terms share now. Credits taken on an overdraft cancel the debt if it is still owed; if lots have repaid it since, they go back
to those lots. A lot's terms never change: credits of an expired lot form a new lot, or expire at once; claimed ones are taken
back. Postpaid credits go back to the overage while its period lasts; after it nobody can use them, and who invoices them
credits them. The cost that was recognised for credits goes back with them: a refund of a part gives back that part of it,
rounded down, and the last refund the rest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ledger.errors import EntryNotFound, NotRefundable, RefundExceedsSpend
from ledger.rules.accounts import AccountState
from ledger.rules.claims import Claims, lowered, parts_of
from ledger.rules.cost_shares import Cost, cost_of, part_of
from ledger.rules.decisions.credit_rules import check_room
from ledger.rules.decisions.settlement import Entries, settle_due, settle_now
from ledger.rules.entries import Entry
from ledger.rules.instants import DAY_US
from ledger.rules.lots import SINCE_ITS_GRANT, Drawn, Lot, Lots, postpaid, put_back, shared_by, total
from ledger.rules.requests import RefundRequest, decides

ExpiredLotPolicy = Literal["new-lot", "gone"]

ON_OVERDRAFT = 0
"""Used instead of a grant for credits that a spend took on the overdraft and that no lot has repaid."""


class Taken(NamedTuple):
    """Credits that a spend took from a lot, or with which a lot repaid its debt, and what they cost; None: they were not sold."""

    lot: int
    amount: int
    cost: Cost | None = None

    def part(self, amount: int, *, after: int) -> "Taken":
        """Return `amount` of the credits, with their share of the cost after a share for other parts of `after` credits."""
        if self.cost is None:
            return Taken(self.lot, amount)
        minor = part_of(self.cost.minor, of=self.amount, before=after, amount=amount)
        return Taken(self.lot, amount, Cost(minor, self.cost.currency))


def taken_by(entry: Entry) -> tuple[Taken, ...]:
    """Return what an entry took from each lot, in the order of taking."""
    return tuple([Taken(lot, amount, cost_of(entry.cost_changes, lot)) for lot, amount in entry.drawn])


class Debt(NamedTuple):
    """The debt of one spend on the overdraft. Debts are repaid in the order in which they were made.

    `ahead` is the unpaid debt of older spends, `unpaid` the unpaid debt of this spend. `repaid` lists what lots
    repaid of the rest, in the order of the repayments.
    """

    ahead: int
    unpaid: int
    repaid: tuple[Taken, ...] = ()

    def after(self, entry: Entry, spend: int) -> "Debt":
        """Return the debt of a spend after a later entry has repaid or lowered the account's debt."""
        if entry.kind == "refund":
            lowered = entry.amount - sum([amount for _, amount in entry.drawn])
            if entry.refers_to == spend:
                return self._replace(unpaid=self.unpaid - lowered)
            is_older = entry.refers_to is not None and entry.refers_to < spend
            return self._replace(ahead=self.ahead - lowered) if is_older else self
        if entry.kind == "adjust":
            return self._repaid_by(taken_by(entry))
        return self

    def _repaid_by(self, parts: Iterable[Taken]) -> "Debt":
        ahead, unpaid = self.ahead, self.unpaid
        repaid = list(self.repaid)
        for part in parts:
            older = min(ahead, part.amount)
            own = min(unpaid, part.amount - older)
            ahead -= older
            unpaid -= own
            if own:
                repaid.append(part.part(own, after=older))
        return Debt(ahead, unpaid, tuple(repaid))


def debt_of(spend: Entry, later: Iterable[Entry] = ()) -> Debt:
    """Return the debt of `spend`.

    Args:
        later: the entries after it, in order; only repayments and refunds matter.
    """
    on_overdraft = _on_overdraft(spend)
    owed = 0 if spend.overdraft is None else total(spend.lots) - spend.balance
    debt = Debt(owed - on_overdraft, on_overdraft)
    for entry in later:
        debt = debt.after(entry, spend.sequence)
    return debt


@decides(RefundRequest)
def refund(
    account: AccountState,
    request: RefundRequest,
    *,
    spend: Entry | None,
    refunded: int,
    later: Sequence[Entry] = (),
    terms: Mapping[int, Lot],
    expired_lot_policy: ExpiredLotPolicy,
    new_lot_days: int,
) -> Entries:
    """Give credits of a spend or capture back to the lots that they came from, the last drawn first.

    Credits taken on the overdraft count as drawn last. An entry opens at most one lot: if the credits need several new lots with
    different terms, each further lot is opened by a `refund` entry before the entry with the request's key.

    Args:
        spend: the entry that the request names, or None if it does not exist.
        refunded: how much of it was refunded before, 0 or more.
        later: for a spend on the overdraft, the account's repayments and refunds after it, until it was repaid.
        terms: each lot that the spend or a later repayment drew from, as the entry that opened it made it.
        expired_lot_policy: "new-lot" opens a lot with the same source, priority and purpose for credits of an expired lot,
            for `new_lot_days` from now; "gone" gives the credits back to the expired lot, where they expire at once.

    Raises:
        EntryNotFound, NotRefundable: no spend or capture has this sequence.
        RefundExceedsSpend: less of the spend, or nothing, can still be refunded.
        LotLimit, BalanceLimit: the account cannot have the additional lots or credits.
    """
    if spend is None:
        raise EntryNotFound(sequence=request.spend, credit_type=account.credit_type)
    if spend.kind not in ("spend", "capture"):
        raise NotRefundable(sequence=spend.sequence, kind=spend.kind)
    refundable = spend.taken - refunded
    amount = refundable if request.amount is None else request.amount
    if refundable == 0 or amount > refundable:
        raise RefundExceedsSpend(sequence=spend.sequence, refundable=refundable, requested=request.amount)
    held = [part for hold in account.holds for part in hold.parts]
    known = {**terms, **{lot.grant: lot for lot in (*account.lots, *held)}}
    entries, account = settle_due(account)
    repaid = debt_of(spend, [*later, *entries]).repaid
    on_overdraft = _on_overdraft(spend) - sum([part.amount for part in repaid])
    taken = (*taken_by(spend), *repaid, Taken(ON_OVERDRAFT, on_overdraft))
    parts = last_drawn_first(taken, skip=refunded, amount=amount)
    until_us = account.now_us + new_lot_days * DAY_US if expired_lot_policy == "new-lot" else None
    groups = list(_groups(parts, known, account, until_us))
    for number, group in enumerate(groups, start=1):
        entry = _entry(account, request, spend, group, refunded, keyless=number < len(groups))
        refunded += entry.amount
        entries.append(entry)
        account = account.after(entry)
    return [*entries, *settle_now(account)]


def last_drawn_first(taken: Sequence[Taken], *, skip: int, amount: int) -> tuple[Taken, ...]:
    """Return the lots that get `amount` back after `skip` was given back before, in the reverse order of taking."""
    parts: list[Taken] = []
    for each in reversed(taken):
        skipped = min(skip, each.amount)
        skip -= skipped
        part = min(amount, each.amount - skipped)
        amount -= part
        if part:
            parts.append(each.part(part, after=skipped))
    return tuple(parts)


class _Group(NamedTuple):
    """The part of a refund that one entry gives back."""

    returned: Lots
    """The credits for existing lots; several elements may be of the same lot."""
    opened: Lot | None
    """The new lot, which gets the sequence of the entry as its name."""
    lowered: int
    """How much of the debt it cancels."""
    costs: tuple[tuple[int, Cost], ...] = ()
    """What the credits cost, by lot: 0 for the new one."""

    @property
    def opened_currency(self) -> str | None:
        return next((cost.currency for lot, cost in self.costs if lot == 0), None)

    def with_cost(self, lot: int, cost: Cost | None) -> "_Group":
        return self if cost is None else self._replace(costs=(*self.costs, (lot, cost)))


def _groups(parts: Iterable[Taken], terms: Mapping[int, Lot], account: AccountState, until_us: int | None) -> Iterator[_Group]:
    """Return the parts of the refund's entries, in order: a new part begins where another lot must be opened.

    Credits of a received lot that has closed join the one of equal terms and currency that has been opened since.

    Args:
        until_us: the expiry of new lots for credits of expired lots; None gives these credits back to the expired lots.
    """
    group = _Group((), None, 0)
    there = {lot.grant: lot for lot in account.lots_and_held_parts}
    currencies = {known.lot: known.currency for known in account.costs}
    for (grant, part, cost), is_claimed in _apart(parts, account.claims):
        currency = None if cost is None else cost.currency
        if grant == ON_OVERDRAFT:
            group = group._replace(lowered=group.lowered + part)
            continue
        lot = terms[grant]._replace(remaining=part)
        if is_claimed or until_us is None or not lot.is_expired(account.now_us):
            if lot.received and grant not in there:
                alike = [each for each in there.values() if currencies.get(each.grant) == currency]
                shared = shared_by(alike, lot)
                lot = lot if shared is None else lot._replace(grant=shared.grant)
            there.setdefault(lot.grant, lot)
            if currency is not None:
                currencies[lot.grant] = currency
            group = group._replace(returned=(*group.returned, lot)).with_cost(lot.grant, cost)
            continue
        opened = Lot(0, part, SINCE_ITS_GRANT, until_us, lot.priority, lot.source, applies_to=lot.applies_to)
        if group.opened is None:
            group = group._replace(opened=opened).with_cost(0, cost)
        elif (*group.opened[2:], group.opened_currency) == (*opened[2:], currency):
            group = group._replace(opened=opened._replace(remaining=part + group.opened.remaining)).with_cost(0, cost)
        else:
            yield group
            group = _Group((), opened, 0).with_cost(0, cost)
    yield group


def _apart(parts: Iterable[Taken], claims: Claims) -> Iterator[tuple[Taken, bool]]:
    """Yield the parts with whether they are claimed: those go back to their lot, expired or not, to be taken back at once."""
    for part in parts:
        claimed = 0
        for setting, amount in parts_of(claims, part.lot, part.amount):
            claims = lowered(claims, setting, amount)
            claimed += amount
        if claimed:
            yield part.part(claimed, after=0), True
        if claimed < part.amount:
            yield part.part(part.amount - claimed, after=claimed), False


def _entry(account: AccountState, request: RefundRequest, spend: Entry, group: _Group, refunded: int, *, keyless: bool) -> Entry:
    returned = group.returned if group.opened is None else (*group.returned, group.opened._replace(grant=account.sequence + 1))
    amount = total(returned) + group.lowered
    lots = put_back(account.lots, returned)
    check_room(account, lots)
    brought: dict[int, Cost] = {}
    for lot, cost in group.costs:
        known = brought.get(lot or account.sequence + 1, Cost(0, cost.currency))
        brought[lot or account.sequence + 1] = Cost(known.minor + cost.minor, cost.currency)
    return account.next_entry(
        "refund",
        amount,
        lots=lots,
        drawn=_merge_by_lot(returned),
        refers_to=spend.sequence,
        refunded_total=refunded + amount,
        request=request,
        brought=brought,
        postpaid=postpaid(returned),
        keyless=keyless,
    )


def _merge_by_lot(returned: Lots) -> Drawn:
    """Return what each lot got back, with one element per lot."""
    amounts: dict[int, int] = {}
    for lot in returned:
        amounts[lot.grant] = amounts.get(lot.grant, 0) + lot.remaining
    return tuple(amounts.items())


def _on_overdraft(spend: Entry) -> int:
    return spend.taken - sum([part for _, part in spend.drawn])
