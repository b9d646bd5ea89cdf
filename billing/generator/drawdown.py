"""Rating what a run has measured: first the credits that cover units of it, then the money for the rest.

The holder's credits are decided on under the holder's lock, read after it is taken and spent before it is let go, in the order in
which the usage became due. What a correction gives back comes first, so that it can cover what is rated in its place.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from billing.documents.credits_used import Occasion, give_back, spend, spendable
from billing.documents.invoices import invoice_key
from billing.generator import coupon_uses
from billing.generator.allowances import EarlyGrants
from billing.generator.draft import Moved, RatedUsage, moved_by, rate_usage
from billing.generator.load import Head
from billing.generator.reconcile import Credit, UsageDue
from billing.rating.aggregation import Usage
from billing.rating.prepaid_units import NOTHING_COVERED, Coverage, Spent, cut, extend, joined
from ledger.database.locks import Lock, holder_lock

Measured = tuple[UsageDue, Usage]


@dataclass(frozen=True, slots=True)
class Rated:
    """The usage of a run as it will be billed, in the order in which it was measured.

    Args:
        given_back: by the id of a claim that is given back, what of its credits was.
    """

    usages: Sequence[RatedUsage]
    given_back: Mapping[int, Moved]

    def credits(self) -> Counter[str]:
        """Credits that were spent, less what was given back, by credit type."""
        sums: Counter[str] = Counter()
        for moved in [*(one.moved for one in self.usages), *self.given_back.values()]:
            if moved is not None and moved.credits:
                sums[moved.credit_type] += moved.credits
        return sums


def rate_measured(
    lock: Lock,
    head: Head,
    unused: Sequence[Credit],
    measured: Sequence[Measured],
    *,
    as_of: datetime,
    invoice_of: Callable[[str], int],
    early: EarlyGrants,
) -> Rated:
    """Rate usage, spending credits on what they cover; or raise and leave nothing behind.

    Lock order: the subscription's is held; then the customer's coupons, which the invoice will ask for, and the holders'.

    Args:
        unused: claims that are given back, with the credits that covered them.
        as_of: when late usage became due.
        invoice_of: the id that the invoice in a currency will have.
        early: gives the allowances of periods that began before usage became due.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(head.ref))
    holders = _holders(head, unused, measured)
    if not holders:
        return Rated([rate_usage(due, usage) for due, usage in measured], {})
    coupon_uses.wait_turn(lock, head)
    with holder_lock(*sorted(holders)) as holder:
        given_back = {one.claim.id: _given_back(holder, head, one, invoice_of) for one in unused if one.claim.spends}
        rated: dict[int, RatedUsage] = {}
        in_order = sorted((as_of if _is_late(due) else due.part.end, n) for n, (due, _) in enumerate(measured))
        for due_at, n in in_order:
            due, usage = measured[n]
            held_back = 0
            if due.counted.price.credits is not None and head.holder_id:
                early.give_before(due_at)
                held_back = early.held_back(due_at, due.counted.price.credits.credit_type)
            rated[n] = _rated(holder, head, due, usage, invoice_of, held_back)
    return Rated([rated[n] for n in range(len(measured))], given_back)


def _holders(head: Head, unused: Sequence[Credit], measured: Sequence[Measured]) -> set[str]:
    """Whose credits are looked at or moved; all of their locks are taken at once."""
    claims = [one.claim for one in unused] + [claim for due, _ in measured for claim in due.continued]
    holders = {spent.holder_id for claim in claims for spent in claim.spends}
    if head.holder_id and any(due.counted.price.credits is not None for due, _ in measured):
        holders.add(head.holder_id)
    return holders


def _is_late(due: UsageDue) -> bool:
    """True where the period was billed before as it is, and has other usage now."""
    return [(claim.start, claim.end) for claim in due.continued] == [(due.part.start, due.part.end)]


def _rated(holder: Lock, head: Head, due: UsageDue, usage: Usage, invoice_of: Callable[[str], int], held_back: int) -> RatedUsage:
    price = due.counted.price
    if price.credits is None:
        return rate_usage(due, usage)
    total = max(usage.quantity, Fraction(0))
    before = _before(due, total)
    coverage = cut(price, before, total)
    if head.holder_id:
        available = max(spendable(holder, head.holder_id, price.credits.credit_type) - held_back, 0)
        coverage = extend(price, coverage, billed=min(_billed(due), total), total=total, available=available)
    spends, entries = _moved(holder, head, due, coverage, invoice_of)
    rated = rate_usage(due, usage, coverage)
    holder_id = spends[-1].holder_id if spends else head.holder_id
    return replace(rated, spends=spends, moved=moved_by(price, before, coverage, holder_id, entries))


def _before(due: UsageDue, total: Fraction) -> Coverage:
    """What earlier claims of the period cover."""
    coverages = [claim.coverage for claim in due.continued]
    if len(coverages) <= 1:
        return coverages[0] if coverages else NOTHING_COVERED
    whole = joined(due.counted.price, coverages, total)
    return replace(whole, credits=sum(one.credits for one in coverages))


def _billed(due: UsageDue) -> Fraction:
    """Up to which quantity the period was billed before, in money or credits."""
    return sum((max(claim.usage.quantity, Fraction(0)) for claim in due.continued if claim.usage is not None), Fraction(0))


def _moved(
    holder: Lock, head: Head, due: UsageDue, coverage: Coverage, invoice_of: Callable[[str], int]
) -> tuple[tuple[Spent, ...], tuple[int, ...]]:
    """Spend what the coverage takes more than before, or give back what it takes less, the last spend first.

    Returns:
        The spends that it stands on, and the entries that were made.
    """
    counted = due.counted
    assert counted.price.credits is not None
    spends = tuple(spent for claim in due.continued for spent in claim.spends)
    more = coverage.credits - sum(spent.credits for spent in spends)
    if not more:
        return spends, ()
    occasion = Occasion(invoice_of(counted.currency), head.ref, counted.price.key, counted.item_id, due.part.start, due.part.end)
    if more > 0:
        spent = spend(holder, head.holder_id, counted.price.credits.credit_type, more, occasion)
        return (*spends, spent), (spent.sequence,)
    kept, entries, back = list[Spent](), list[int | None](), -more
    for spent in reversed(spends):
        amount = min(spent.credits, back)
        if amount:
            entries.append(give_back(holder, spent, amount, occasion, "Usage was corrected downwards"))
        if spent.credits > amount:
            kept.insert(0, replace(spent, credits=spent.credits - amount))
        back -= amount
    return tuple(kept), tuple(entry for entry in entries if entry is not None)


def _given_back(holder: Lock, head: Head, credit: Credit, invoice_of: Callable[[str], int]) -> Moved:
    """Give back all the credits of a claim that is given back."""
    claim = credit.claim
    occasion = Occasion(invoice_of(claim.currency), head.ref, claim.price.key, claim.item_id, claim.start, claim.end)
    entries = [give_back(holder, spent, spent.credits, occasion, "Usage was rated again") for spent in claim.spends]
    made = tuple(entry for entry in entries if entry is not None)
    return moved_by(claim.price, claim.coverage, NOTHING_COVERED, claim.spends[-1].holder_id, made)
