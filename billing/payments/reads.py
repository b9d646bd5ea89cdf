"""Packs, and purchases with what became of their credits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from django.db.models import Max, Q
from django.utils import timezone

from billing.models import Customer
from billing.models.columns import first_of
from billing.payments.models import DuePurchase, Pack, Purchase, PurchaseGrant, PurchaseReturn, ReturnSettlement
from billing.rating.money import round_half_up
from billing.reads.pages import page, within
from ledger.services.claims import open_claims

STATES: Final = ("paid", "granted", "returned")
"""Of a purchase: its credits are not added yet; they are; all of its money was returned."""


def pack(code: str, version: int | None = None) -> Pack:
    """Return that version of a pack, the newest by default.

    Raises:
        NotFound: it does not exist.
    """
    rows = Pack.objects.filter(code=code) if version is None else Pack.objects.filter(code=code, version=version)
    return first_of(rows.order_by("-version"), "pack", code if version is None else f"{code} v{version}")


def packs(
    *,
    code: str | None = None,
    currency: str | None = None,
    on_sale: bool = False,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[Pack]:
    """Return versions of packs, the newest first, by keyset on the id.

    Args:
        on_sale: only the version of each pack that is on sale now.
        before, after: see `pages.page`.
    """
    rows = Pack.objects.all()
    if code is not None:
        rows = rows.filter(code=code)
    if currency is not None:
        rows = rows.filter(currency=currency)
    if on_sale:
        rows = rows.filter(packs_on_sale(timezone.now()))
    return page(rows, before=before, after=after, limit=limit)


def packs_on_sale(at: datetime) -> Q:
    """Return the condition for the versions on sale: the newest that has begun of each pack, unless it has ended."""
    begun = Pack.objects.filter(valid_from__lte=at).values("code").annotate(last=Max("id")).values("last")
    return Q(pk__in=begun) & (Q(valid_until=None) | Q(valid_until__gt=at))


# Purchases -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReturnRow:
    """A return of money and what it did to the credits; nothing yet if `settled` is None."""

    row: PurchaseReturn
    settled: ReturnSettlement | None
    open_credits: int = 0
    """Purchased credits that were gone, and have not come back since."""

    @property
    def open_minor(self) -> int:
        """The money for them."""
        if self.settled is None or not self.open_credits:
            return 0
        return round_half_up(Fraction(self.row.amount_minor * self.open_credits, self.settled.share_credits))


@dataclass(frozen=True, slots=True)
class PurchaseRow:
    """A purchase with its pack, and what became of its credits."""

    row: Purchase
    pack: Pack
    customer: str | None
    grant: PurchaseGrant | None
    returns: Sequence[ReturnRow]
    due: DuePurchase | None

    @property
    def pk(self) -> int:
        """The id."""
        return self.row.pk

    @property
    def returned_minor(self) -> int:
        """The money that was returned and did not come in again."""
        return sum(one.row.signed_minor for one in self.returns)

    @property
    def loss_minor(self) -> int:
        """The money that disputes took beyond that of the purchase, and that did not come in again."""
        return sum(one.row.signed_loss_minor for one in self.returns)

    @property
    def state(self) -> str:
        """One of STATES."""
        if self.returned_minor == self.row.paid_minor:
            return "returned"
        return "paid" if self.grant is None else "granted"

    @property
    def claim_credits(self) -> int:
        """Purchased credits that were gone when their money was returned, less those that came back since."""
        return sum(one.open_credits for one in self.returns)

    @property
    def claim_minor(self) -> int:
        """The money for them."""
        return sum(one.open_minor for one in self.returns)


def purchase(purchase_id: int) -> PurchaseRow:
    """Return the purchase of that id.

    Raises:
        NotFound: it does not exist.
    """
    [row] = purchase_rows([first_of(Purchase.objects.filter(pk=purchase_id), "purchase", purchase_id)])
    return row


def purchases(
    *,
    holder: str | None = None,
    customer: str | None = None,
    pack: str | None = None,
    provider: str | None = None,
    payment: str | None = None,
    waiting: bool | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[PurchaseRow]:
    """Return purchases, the newest first, by keyset on the id.

    Args:
        waiting: True: only those with a step to be done; False: only the others.
        since, until: paid in `[since, until)`.
        before, after: see `pages.page`.

    Raises:
        NotFound: the customer does not exist.
    """
    filters: dict[str, Any] = {"holder_id": holder, "provider": provider, "payment": payment}
    if customer is not None:
        filters["customer_id"] = first_of(Customer.objects.filter(ref=customer), "customer", customer).pk
    rows = Purchase.objects.filter(**{name: value for name, value in filters.items() if value is not None})
    if pack is not None:
        rows = rows.filter(pack_id__in=Pack.objects.filter(code=pack).values("pk"))
    if waiting is not None:
        due = Q(pk__in=DuePurchase.objects.values("purchase_id"))
        rows = rows.filter(due if waiting else ~due)
    return purchase_rows(page(within(rows, "paid_at", since=since, until=until), before=before, after=after, limit=limit))


def purchase_rows(rows: Sequence[Purchase]) -> list[PurchaseRow]:
    """Return the purchases with what became of them, by a few queries."""
    pks = [row.pk for row in rows]
    packs = Pack.objects.in_bulk({row.pack_id for row in rows})
    customers: dict[int | None, str] = dict(
        Customer.objects.filter(pk__in={row.customer_id for row in rows}).values_list("pk", "ref")
    )
    grants = {row.purchase_id: row for row in PurchaseGrant.objects.filter(purchase_id__in=pks)}
    due = {row.purchase_id: row for row in DuePurchase.objects.filter(purchase_id__in=pks)}
    settled = {row.purchase_return_id: row for row in ReturnSettlement.objects.filter(purchase_id__in=pks)}
    money = list(PurchaseReturn.objects.filter(purchase_id__in=pks).order_by("pk"))
    open_credits = _open_credits(rows, money, settled)
    returns: dict[int, list[ReturnRow]] = {}
    for one in money:
        returns.setdefault(one.purchase_id, []).append(ReturnRow(one, settled.get(one.pk), open_credits.get(one.pk, 0)))
    return [
        PurchaseRow(
            row, packs[row.pack_id], customers.get(row.customer_id), grants.get(row.pk), returns.get(row.pk, ()), due.get(row.pk)
        )
        for row in rows
    ]


def _open_credits(
    rows: Sequence[Purchase], returns: Sequence[PurchaseReturn], settled: Mapping[int, ReturnSettlement]
) -> dict[int, int]:
    """Return by return how many purchased credits are still claimed: 0 of a dispute that was won, and of what won it."""
    won = {(one.purchase_id, one.payment) for one in returns if one.kind == PurchaseReturn.Kind.REINSTATED and one.pk in settled}
    gone = {
        one.pk: settled[one.pk].share_credits - settled[one.pk].taken_credits
        for one in returns
        if one.pk in settled and (one.kind == PurchaseReturn.Kind.REFUND or (one.purchase_id, one.payment) not in won)
    }
    accounts = {row.pk: (row.holder_id, row.credit_type) for row in rows}
    claims = {
        pk: [each for each in settled[pk].entries if "claim" in each and each["source"] == "purchased"]
        for pk, missing in gone.items()
        if missing
    }
    there = open_claims({accounts[settled[pk].purchase_id] for pk, taken in claims.items() if taken})
    for pk, taken in claims.items():
        still = there.get(accounts[settled[pk].purchase_id], {})
        gone[pk] -= sum(each["claim"] - still.get(each["sequence"], 0) for each in taken)
    return gone
