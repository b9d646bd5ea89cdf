"""Customers, sellers, taxes, meters, plans and coupons, by their references and as lists."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.db.models import Count, Max, QuerySet, Sum

from billing.models import Coupon, CouponUse, Customer, CustomerCoupon, Meter, Plan, Seller, Subscription, Tax, VatLookup
from billing.models.columns import first_of
from billing.reads.pages import page, within

ModelT = TypeVar("ModelT", Meter, Plan, Tax)
VersionT = TypeVar("VersionT", Meter, Plan)


def customer(ref: str) -> Customer:
    """Return the customer of that ref.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Customer.objects.filter(ref=ref), "customer", ref)


def customers(
    *,
    name: str | None = None,
    holder: str | None = None,
    currency: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[Customer]:
    """Return customers, the newest first, by keyset on the id.

    Args:
        name: the beginnings of words of their names. See `billing.models.columns.Named`.
        holder: the holder whose credits pay for them.
        since, until: created in `[since, until)`.
        before, after: see `pages.page`.
    """
    rows = _equal(Customer.objects.all(), {"name__named": name, "holder_id": holder, "currency": currency})
    page_rows = page(within(rows, "created_at", since=since, until=until), before=before, after=after, limit=limit)
    countries = seller_countries({row.seller for row in page_rows})
    for row in page_rows:
        row.seller_country = countries.get(row.seller, "")
    return page_rows


# Sellers ---------------------------------------------------------------------------------------------


def seller(ref: str) -> Seller:
    """Return the current version of a seller.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Seller.objects.filter(ref=ref).order_by("-pk"), "seller", ref)


def seller_countries(refs: Collection[str]) -> dict[str, str]:
    """Return the countries of these sellers in their current versions, by one query."""
    last = Seller.objects.filter(ref__in=refs).values("ref").annotate(last=Max("id")).values("last")
    return dict(Seller.objects.filter(pk__in=last).values_list("ref", "details__country"))


def sellers(*, before: int | None = None, after: int | None = None, limit: int) -> list[Seller]:
    """Return the current version of each seller, the newest first, by keyset on the id."""
    last = Seller.objects.values("ref").annotate(last=Max("id")).values("last")
    return page(Seller.objects.filter(pk__in=last), before=before, after=after, limit=limit)


# Taxes -----------------------------------------------------------------------------------------------


def taxes(
    *, code: str | None = None, country: str | None = None, before: int | None = None, after: int | None = None, limit: int
) -> list[Tax]:
    """Return the newest version of each declared tax, or all versions of one; the newest first, by keyset on the id."""
    rows = Tax.objects.filter(provider="", code=code) if code is not None else newest_of(Tax, provider="")
    return page(_equal(rows, {"country": country}), before=before, after=after, limit=limit)


def vat_lookups(
    *,
    customer: str | None = None,
    outcome: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[VatLookup]:
    """Return what VIES said about VAT ids, the newest first, by keyset on the id.

    Raises:
        NotFound: the customer does not exist.
    """
    rows = _equal(VatLookup.objects.select_related("customer"), {"outcome": outcome})
    if customer is not None:
        rows = rows.filter(customer_id=first_of(Customer.objects.filter(ref=customer), "customer", customer).pk)
    return page(within(rows, "recorded_at", since=since, until=until), before=before, after=after, limit=limit)


def vat_lookup(lookup_id: int) -> VatLookup:
    """Return what VIES said once. Raises: NotFound."""
    return first_of(VatLookup.objects.select_related("customer").filter(pk=lookup_id), "VAT lookup", lookup_id)


# Meters ----------------------------------------------------------------------------------------------


def meter(code: str, version: int | None = None) -> Meter:
    """Return that version of a meter, the newest by default.

    Raises:
        NotFound: it does not exist.
    """
    return _version_of(Meter, "meter", code, version)


def meters(
    *, code: str | None = None, newest: bool = False, before: int | None = None, after: int | None = None, limit: int
) -> list[Meter]:
    """Return versions of meters, the newest first, by keyset on the id. Args: as in `plans`."""
    rows = newest_of(Meter) if newest else Meter.objects.all()
    return page(_equal(rows, {"code": code}), before=before, after=after, limit=limit)


# Plans -----------------------------------------------------------------------------------------------


def plan(code: str, version: int | None = None) -> Plan:
    """Return that version of a plan, the newest by default.

    Raises:
        NotFound: it does not exist.
    """
    return _version_of(Plan, "plan", code, version)


def plans(
    *,
    code: str | None = None,
    name: str | None = None,
    currency: str | None = None,
    newest: bool = False,
    on_sale: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[Plan]:
    """Return versions of plans, the newest first, by keyset on the id.

    Args:
        newest: only the newest version of each plan.
        on_sale: only plans on sale, by their newest versions.
        name, since, until, before, after: see `customers`.
    """
    rows = newest_of(Plan) if newest or on_sale else Plan.objects.all()
    rows = rows.filter(on_sale=True) if on_sale else rows
    rows = _equal(rows, {"code": code, "name__named": name, "currency": currency})
    return page(within(rows, "created_at", since=since, until=until), before=before, after=after, limit=limit)


# Coupons ---------------------------------------------------------------------------------------------


def coupon(code: str) -> Coupon:
    """Return the coupon of that code.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Coupon.objects.filter(code=code), "coupon", code)


def coupons(
    *,
    kind: str | None = None,
    currency: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[Coupon]:
    """Return coupons, the newest first, by keyset on the id. Args: as in `customers`; `kind` is amount or percentage."""
    rows = _equal(Coupon.objects.all(), {"kind": kind, "currency": currency})
    return page(within(rows, "created_at", since=since, until=until), before=before, after=after, limit=limit)


class GivenCoupon(NamedTuple):
    """A coupon of a customer or of one of its subscriptions, and its discounts so far.

    Args:
        subscription: the reference of the only subscription that uses it; None: each of the customer's does.
    """

    row: CustomerCoupon
    code: str
    customer: str
    subscription: str | None
    used_minor: int
    used_invoices: int


def customer_coupons(ref: str, *, before: int | None = None, after: int | None = None, limit: int) -> list[GivenCoupon]:
    """Return the coupons that a customer and its subscriptions got, the newest first, including those that were taken away.

    Raises:
        NotFound: the customer does not exist.
    """
    given = CustomerCoupon.objects.filter(customer_id=customer(ref).pk)
    return _given_coupons(page(given, before=before, after=after, limit=limit))


def subscription_coupons(ref: str, *, before: int | None = None, after: int | None = None, limit: int) -> list[GivenCoupon]:
    """Return the coupons that a subscription got, the newest first, including those that were taken away.

    Raises:
        NotFound: the subscription does not exist.
    """
    given = CustomerCoupon.objects.filter(subscription_id=first_of(Subscription.objects.filter(ref=ref), "subscription", ref).pk)
    return _given_coupons(page(given, before=before, after=after, limit=limit))


def _given_coupons(rows: Sequence[CustomerCoupon]) -> list[GivenCoupon]:
    codes: dict[int, str] = dict(Coupon.objects.filter(pk__in=[row.coupon_id for row in rows]).values_list("id", "code"))
    uses = CouponUse.objects.filter(customer_coupon_id__in=[row.pk for row in rows], released_at=None)
    totals = uses.values_list("customer_coupon_id").annotate(Sum("amount_minor"), Count("id"))
    used: dict[int, tuple[int, int]] = {given: (minor, invoices) for given, minor, invoices in totals}
    owners = dict(Customer.objects.filter(pk__in={row.customer_id for row in rows}).values_list("pk", "ref"))
    refs = Subscription.objects.in_bulk({row.subscription_id for row in rows if row.subscription_id is not None})
    return [
        GivenCoupon(
            row,
            codes[row.coupon_id],
            owners[row.customer_id],
            refs[row.subscription_id].ref if row.subscription_id in refs else None,
            *used.get(row.pk, (0, 0)),
        )
        for row in rows
    ]


def newest_of(model: type[ModelT], **only: Any) -> QuerySet[ModelT]:
    """Return the newest version of each row that has a code, among those with these values."""
    rows: QuerySet[ModelT] = model._default_manager.filter(**only)
    return rows.filter(pk__in=rows.values("code").annotate(last=Max("pk")).values("last"))


def _version_of(model: type[VersionT], resource: str, code: str, version: int | None) -> VersionT:
    rows: QuerySet[VersionT] = _equal(model._default_manager.filter(code=code), {"version": version})
    return first_of(rows.order_by("-version"), resource, code if version is None else f"{code} v{version}")


def _equal(rows: QuerySet[Any], filters: Mapping[str, Any]) -> QuerySet[Any]:
    return rows.filter(**{name: value for name, value in filters.items() if value is not None})
