"""Spending a holder's credits on units of usage, and giving them back: the ledger's side of `billing.rating.prepaid_units`.

Every spend is named by a usage claim that is not released, for as much of it as has not been given back. So what the claims say
and what the ledger has are the same, which `generate_invoices --check` looks at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from billing.models import Claim, Invoice
from billing.orders import plans
from billing.rating.prepaid_units import Spent, afford, covered_basis, covered_of, stretches_of
from ledger import journal
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock

MOST_AT_ONCE = 2**53 - 1
"""Credits of one spend; the ledger takes no more."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """What credits are moved for, as the entry tells it."""

    invoice_id: int
    subscription_ref: str
    price_key: str
    item_id: int
    start: datetime
    end: datetime

    @property
    def key(self) -> str:
        """Each period of an item is moved once by each invoice, which the ledger's idempotency key sees to as well."""
        return f"usage/{self.invoice_id}/{self.item_id}/{self.start.isoformat()}"

    def told(self) -> dict[str, Any]:
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
    """The credits that one spend can take now; the lock is the proof that it stays so."""
    return min(ledger.available_under(holder, holder_id=holder_id, credit_type=credit_type), MOST_AT_ONCE)


def spend(holder: Lock, holder_id: str, credit_type: str, amount: int, occasion: Occasion, key: str = "") -> Spent:
    """Spend credits on units of a period, or raise and write nothing."""
    entry = ledger.spend_under(
        holder,
        holder_id=holder_id,
        amount=amount,
        credit_type=credit_type,
        idempotency_key=key or occasion.key,
        reason=f"Usage of {occasion.price_key}",
        **occasion.told(),
    )
    return Spent(holder_id, credit_type, entry.sequence, amount)


def give_back(holder: Lock, spent: Spent, amount: int, occasion: Occasion, reason: str, key: str = "") -> int | None:
    """Refund so much of a spend, to the lots that the ledger decides on.

    Returns:
        The sequence of the refund; None where somebody has refunded all of the spend by hand.
    """
    account = journal.read(holder, spent.holder_id, spent.credit_type)
    entry = journal.entry(account, spent.sequence)
    assert entry is not None
    left = min(amount, entry.taken - journal.refunded(account, spent.sequence))
    if left <= 0:
        return None
    refund = ledger.refund_under(
        holder,
        holder_id=spent.holder_id,
        spend=spent.sequence,
        amount=left,
        credit_type=spent.credit_type,
        idempotency_key=key or f"{occasion.key}/back/{spent.sequence}",
        reason=reason,
        **occasion.told(),
    )
    return refund.sequence


# When an invoice is voided or deleted ----------------------------------------------------------------


def covered_claims(claims: QuerySet[Claim]) -> list[Claim]:
    """Those of them of whose usage something is paid in credits."""
    return list(claims.filter(kind=Claim.Kind.USAGE, basis__has_key="covered").order_by("id"))


def undo(invoice: Invoice, released: Sequence[Claim], restored: Sequence[Claim]) -> None:
    """Give back what an invoice spent on usage, and spend again what it gave back, as far as it is there still.

    A claim for which the credits are not there any more stands on fewer of them and says what it is short of: the next run
    bills the units that are not covered.

    Args:
        released: the claims with coverage that the invoice had written.
        restored: those with coverage that it had corrected and that stand again.
    """
    stood, stands = _by_spend(released), _by_spend(restored)
    holders = {holder_id for holder_id, _, _ in stood.keys() | stands.keys()}
    if stood == stands:
        return
    with holder_lock(*sorted(holders)) as holder:
        for claim in released:
            for spent in covered_of(claim.basis["covered"])[1]:
                amount = spent.credits - stands.get(_name(spent), 0)
                key = f"usage/{invoice.pk}/undone/{spent.sequence}"
                if amount > 0:
                    give_back(holder, spent, amount, _occasion(invoice, claim), "Invoice voided or deleted", key)
        for claim in restored:
            _spend_again(holder, invoice, claim, stood)


def _spend_again(holder: Lock, invoice: Invoice, claim: Claim, stood: Mapping[tuple[str, str, int], int]) -> None:
    _, price = plans.price_of(claim.price_id)
    coverage, spends = covered_of(claim.basis["covered"])
    kept = [replace(one, credits=min(one.credits, stood.get(_name(one), 0))) for one in spends]
    missing = coverage.credits - sum(one.credits for one in kept)
    if missing <= 0:
        return
    holder_id, credit_type = spends[-1].holder_id, spends[-1].credit_type
    left = afford(price, coverage, coverage.credits - missing + spendable(holder, holder_id, credit_type))
    again = left.credits - (coverage.credits - missing)
    if again > 0:
        key = f"usage/{invoice.pk}/restored/{claim.pk}"
        kept.append(spend(holder, holder_id, credit_type, again, _occasion(invoice, claim), key))
    standing = [one for one in kept if one.credits]
    known = claim.basis["covered"]
    short_of = stretches_of(known.get("short_of", known["stretches"])) if left != coverage or "short_of" in known else ()
    basis = claim.basis | {"covered": covered_basis(left, standing, short_of)}
    Claim.objects.filter(pk=claim.pk).update(basis=basis)


def _by_spend(claims: Iterable[Claim]) -> dict[tuple[str, str, int], int]:
    return {_name(spent): spent.credits for claim in claims for spent in covered_of(claim.basis["covered"])[1]}


def _name(spent: Spent) -> tuple[str, str, int]:
    return spent.holder_id, spent.credit_type, spent.sequence


def _occasion(invoice: Invoice, claim: Claim) -> Occasion:
    _, price = plans.price_of(claim.price_id)
    return Occasion(invoice.pk, invoice.subscription_ref, price.key, claim.item_id, claim.starts_at, claim.ends_at)
