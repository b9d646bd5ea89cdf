"""Rates the usage of a run: first the credits that cover units of it, then the money for the rest.

Credits are read and spent under the holder's lock, in the order in which the usage became due. Corrections give credits back
first, so that these can cover the usage that is rated again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

from billing.documents.credits_used import BilledUsage, give_back, spend, spendable
from billing.documents.invoice_locks import invoice_key
from billing.generator.difference import coupon_uses
from billing.generator.difference.draft_lines import CreditChange, RatedUsage, credit_change_between, rate_usage
from billing.generator.difference.reconcile import UsageDue
from billing.generator.state.allowances import EarlyGrants
from billing.generator.state.open_claims import Credit
from billing.generator.state.subscription_state import SubscriptionState
from billing.rating.aggregation import RatingInput
from billing.rating.prices.prepaid_units import NOTHING_COVERED, Coverage, CreditSpend, cut, extend, joined
from ledger.database.locks import Lock, holder_lock

Measured = tuple[UsageDue, RatingInput]


@dataclass(frozen=True, slots=True)
class RunUsage:
    """The rated usage of a run, in the order of its measurement.

    Args:
        given_back: the returned credits, by the id of the claim that is given back.
    """

    usages: Sequence[RatedUsage]
    given_back: Mapping[int, CreditChange]

    def credits(self) -> Counter[str]:
        """Credits spent, less credits given back, by credit type."""
        sums: Counter[str] = Counter()
        for change in [*(one.credit_change for one in self.usages), *self.given_back.values()]:
            if change is not None and change.credits:
                sums[change.credit_type] += change.credits
        return sums


def rate_measured(
    lock: Lock,
    subscription: SubscriptionState,
    unused: Sequence[Credit],
    measured: Sequence[Measured],
    *,
    as_of: datetime,
    invoice_of: Callable[[str], int],
    early: EarlyGrants,
) -> RunUsage:
    """Rate usage and spend the credits that cover it; or raise and leave nothing behind.

    Lock order: the caller has the subscription's lock. Then come those of the customer's account, which the invoice needs later,
        and of the holders.

    Args:
        unused: the claims that are given back, with the credits that covered them.
        as_of: the due instant of late usage.
        invoice_of: the id of the future invoice in a currency.
        early: grants the allowances of periods that began before the usage became due.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    holders = _holders(subscription, unused, measured)
    if not holders:
        return RunUsage([rate_usage(due, usage) for due, usage in measured], {})
    coupon_uses.wait_turn(lock, subscription)
    with holder_lock(*sorted(holders)) as holder:
        given_back = {one.claim.id: _given_back(holder, subscription, one, invoice_of) for one in unused if one.claim.spends}
        rated: dict[int, RatedUsage] = {}
        in_order = sorted((as_of if _is_late(due) else due.part.end, n) for n, (due, _) in enumerate(measured))
        for due_at, n in in_order:
            due, usage = measured[n]
            held_back = 0
            if due.span.price.credits is not None and subscription.holder_id:
                early.give_before(due_at)
                held_back = early.held_back(due_at, due.span.price.credits.credit_type)
            rated[n] = _rate_usage(holder, subscription, due, usage, invoice_of, held_back)
    return RunUsage([rated[n] for n in range(len(measured))], given_back)


def _holders(subscription: SubscriptionState, unused: Sequence[Credit], measured: Sequence[Measured]) -> set[str]:
    """Lock the holders whose credits are read or changed, all at once."""
    claims = [one.claim for one in unused] + [claim for due, _ in measured for claim in due.continued]
    holders = {spent.holder_id for claim in claims for spent in claim.spends}
    if subscription.holder_id and any(due.span.price.credits is not None for due, _ in measured):
        holders.add(subscription.holder_id)
    return holders


def _is_late(due: UsageDue) -> bool:
    """Return whether the period was billed with the same ends and now has other usage."""
    return [(claim.start, claim.end) for claim in due.continued] == [(due.part.start, due.part.end)]


def _rate_usage(
    holder: Lock,
    subscription: SubscriptionState,
    due: UsageDue,
    usage: RatingInput,
    invoice_of: Callable[[str], int],
    held_back: int,
) -> RatedUsage:
    price = due.span.price
    if price.credits is None:
        return rate_usage(due, usage)
    total = max(usage.quantity, Fraction(0))
    before = _before(due, total)
    coverage = cut(price, before, total)
    if subscription.holder_id:
        available = max(spendable(holder, subscription.holder_id, price.credits.credit_type) - held_back, 0)
        coverage = extend(price, coverage, billed=min(_billed_quantity(due), total), total=total, available=available)
    spends, entries = _settle_credits(holder, subscription, due, coverage, invoice_of)
    rated = rate_usage(due, usage, coverage)
    holder_id = spends[-1].holder_id if spends else subscription.holder_id
    return replace(rated, spends=spends, credit_change=credit_change_between(price, before, coverage, holder_id, entries))


def _before(due: UsageDue, total: Fraction) -> Coverage:
    """Return the coverage of the period's earlier claims."""
    coverages = [claim.coverage for claim in due.continued]
    if len(coverages) <= 1:
        return coverages[0] if coverages else NOTHING_COVERED
    whole = joined(due.span.price, coverages, total)
    return replace(whole, credits=sum(one.credits for one in coverages))


def _billed_quantity(due: UsageDue) -> Fraction:
    """Return the quantity of the period that earlier lines billed, in money or credits."""
    return sum((max(claim.usage.quantity, Fraction(0)) for claim in due.continued if claim.usage is not None), Fraction(0))


def _settle_credits(
    holder: Lock, subscription: SubscriptionState, due: UsageDue, coverage: Coverage, invoice_of: Callable[[str], int]
) -> tuple[tuple[CreditSpend, ...], tuple[int, ...]]:
    """Spend the credits that the coverage takes more than before, or give back those that it takes less, the last spend first.

    Returns:
        The spends that pay for the coverage, and the new entries.
    """
    span = due.span
    assert span.price.credits is not None
    spends = tuple(spent for claim in due.continued for spent in claim.spends)
    more = coverage.credits - sum(spent.credits for spent in spends)
    if not more:
        return spends, ()
    billed = BilledUsage(invoice_of(span.currency), subscription.ref, span.price.key, span.item_id, due.part.start, due.part.end)
    if more > 0:
        spent = spend(holder, subscription.holder_id, span.price.credits.credit_type, more, billed)
        return (*spends, spent), (spent.sequence,)
    kept, entries, back = list[CreditSpend](), list[int | None](), -more
    for spent in reversed(spends):
        amount = min(spent.credits, back)
        if amount:
            entries.append(give_back(holder, spent, amount, billed, "Usage was corrected downwards"))
        if spent.credits > amount:
            kept.insert(0, replace(spent, credits=spent.credits - amount))
        back -= amount
    return tuple(kept), tuple(entry for entry in entries if entry is not None)


def _given_back(holder: Lock, subscription: SubscriptionState, credit: Credit, invoice_of: Callable[[str], int]) -> CreditChange:
    """Give back all credits of a claim that is given back."""
    claim = credit.claim
    billed = BilledUsage(invoice_of(claim.currency), subscription.ref, claim.price.key, claim.item_id, claim.start, claim.end)
    entries = [give_back(holder, spent, spent.credits, billed, "Usage was rated again") for spent in claim.spends]
    made = tuple(entry for entry in entries if entry is not None)
    return credit_change_between(claim.price, claim.coverage, NOTHING_COVERED, claim.spends[-1].holder_id, made)
