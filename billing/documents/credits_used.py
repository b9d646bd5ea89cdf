"""Spends a holder's credits on units of usage, and gives them back: the ledger's side of `rating.prices.prepaid_units`.

An open usage claim names every spend, with the part that was not given back. So claims and ledger agree, and `generate_invoices
--check` verifies that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from billing.models import Claim, Invoice, Subscription
from billing.orders import plans
from billing.rating.prices.prepaid_units import CreditSpend, afford, covered_of, covered_snapshot, stretches_of
from ledger import journal
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.services import earlier_entries

MOST_AT_ONCE = 2**53 - 1
"""The most credits of one spend that the ledger accepts."""


@dataclass(frozen=True, slots=True)
class BilledUsage:
    """The purpose of a spend or refund, as the entry records it."""

    invoice_id: int
    subscription_ref: str
    price_key: str
    item_id: int
    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        """The key of the entry: each invoice spends on each period of an item once."""
        return f"usage/{self.invoice_id}/{self.item_id}/{self.start.isoformat()}"

    def entry_fields(self) -> dict[str, Any]:
        """Actor, reference and metadata of the entry."""
        return {
            "actor": "billing",
            "reference": f"usage of invoice {self.invoice_id}",
            "metadata": {
                "subscription": self.subscription_ref,
                "price": self.price_key,
                "starts_at": self.start.isoformat(),
                "ends_at": self.end.isoformat(),
            },
        }


def spendable(holder: Lock, holder_id: str, credit_type: str) -> int:
    """The credits that a spend can take now. They cannot change while the lock is held."""
    return min(ledger.available_under(holder, holder_id=holder_id, credit_type=credit_type), MOST_AT_ONCE)


def spend(holder: Lock, holder_id: str, credit_type: str, amount: int, usage: BilledUsage, key: str = "") -> CreditSpend:
    """Spend credits on units of a period, or raise and write nothing."""
    entry = ledger.spend_under(
        holder,
        holder_id=holder_id,
        amount=amount,
        credit_type=credit_type,
        idempotency_key=key or usage.key,
        reason=f"Usage of {usage.price_key}",
        **usage.entry_fields(),
    )
    return CreditSpend(holder_id, credit_type, entry.sequence, amount)


def give_back(holder: Lock, spent: CreditSpend, amount: int, usage: BilledUsage, reason: str, key: str = "") -> int | None:
    """Refund this amount of a spend, to the lots that the ledger chooses.

    Returns:
        The sequence of the refund; None if an operator has refunded the whole spend by hand.
    """
    account = journal.read(holder, spent.holder_id, spent.credit_type)
    entry = earlier_entries.entry(account, spent.sequence)
    assert entry is not None
    left = min(amount, entry.taken - earlier_entries.refunded(account, spent.sequence))
    if left <= 0:
        return None
    refund = ledger.refund_under(
        holder,
        holder_id=spent.holder_id,
        spend=spent.sequence,
        amount=left,
        credit_type=spent.credit_type,
        idempotency_key=key or f"{usage.key}/back/{spent.sequence}",
        reason=reason,
        **usage.entry_fields(),
    )
    return refund.sequence


# When an invoice is voided or deleted ----------------------------------------------------------------


def covered_claims(claims: QuerySet[Claim]) -> list[Claim]:
    """Return the claims among them whose usage credits pay for, in whole or in part."""
    return list(claims.filter(kind=Claim.Kind.USAGE, snapshot__has_key="covered").order_by("id"))


def undo(invoice: Invoice, released: Sequence[Claim], restored: Sequence[Claim]) -> None:
    """Give back what an invoice spent on usage, and spend again what it gave back, as far as credits are available.

    With too few credits, the claim keeps fewer covered units and stores the missing number; the next run bills those units.

    Args:
        released: the claims with coverage that the invoice had written.
        restored: the claims with coverage that it had corrected and that count again.
    """
    before, after = _by_spend(released), _by_spend(restored)
    holders = {holder_id for holder_id, _, _ in before.keys() | after.keys()}
    if before == after:
        return
    with holder_lock(*sorted(holders)) as holder:
        for claim in released:
            for spent in covered_of(claim.snapshot["covered"])[1]:
                amount = spent.credits - after.get(_name(spent), 0)
                key = f"usage/{invoice.pk}/undone/{spent.sequence}"
                if amount > 0:
                    give_back(holder, spent, amount, _billed_usage(invoice, claim), "Invoice voided or deleted", key)
        for claim in restored:
            _spend_again(holder, invoice, claim, before)


def _spend_again(holder: Lock, invoice: Invoice, claim: Claim, before: Mapping[tuple[str, str, int], int]) -> None:
    _, price = plans.price_of(claim.price_id)
    coverage, spends = covered_of(claim.snapshot["covered"])
    kept = [replace(one, credits=min(one.credits, before.get(_name(one), 0))) for one in spends]
    missing = coverage.credits - sum(one.credits for one in kept)
    if missing <= 0:
        return
    holder_id, credit_type = spends[-1].holder_id, spends[-1].credit_type
    left = afford(price, coverage, coverage.credits - missing + spendable(holder, holder_id, credit_type))
    again = left.credits - (coverage.credits - missing)
    if again > 0:
        key = f"usage/{invoice.pk}/restored/{claim.pk}"
        kept.append(spend(holder, holder_id, credit_type, again, _billed_usage(invoice, claim), key))
    spends = tuple(one for one in kept if one.credits)
    known = claim.snapshot["covered"]
    short_of = stretches_of(known.get("short_of", known["stretches"])) if left != coverage or "short_of" in known else ()
    snapshot = claim.snapshot | {"covered": covered_snapshot(left, spends, short_of)}
    Claim.objects.filter(pk=claim.pk).update(snapshot=snapshot)


def _by_spend(claims: Iterable[Claim]) -> dict[tuple[str, str, int], int]:
    return {_name(spent): spent.credits for claim in claims for spent in covered_of(claim.snapshot["covered"])[1]}


def _name(spent: CreditSpend) -> tuple[str, str, int]:
    return spent.holder_id, spent.credit_type, spent.sequence


def _billed_usage(invoice: Invoice, claim: Claim) -> BilledUsage:
    _, price = plans.price_of(claim.price_id)
    ref = invoice.subscription_ref or Subscription.objects.values_list("ref", flat=True).get(pk=claim.subscription_id)
    return BilledUsage(invoice.pk, ref, price.key, claim.item_id, claim.starts_at, claim.ends_at)
