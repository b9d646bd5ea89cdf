"""The rows to which fields of forms refer, by the names of the fields: what is typed, and words that people search by."""

from collections.abc import Sequence
from typing import Final

from billing.documents.sellers import current_sellers
from billing.models import Coupon, Customer, Meter, Plan

MOST: Final = 300
"""How many rows a page lists, the newest; a reference of an older row is typed."""


def list_customers() -> Sequence[tuple[str, str]]:
    """Return the newest customers, with their names."""
    return list(Customer.objects.order_by("-pk").values_list("ref", "name")[:MOST])


def list_plans() -> Sequence[tuple[str, str]]:
    """Return the newest plans on sale, then the retired ones, with the names of their newest versions."""
    newest = {plan.code: plan for plan in reversed(Plan.objects.order_by("-pk")[:MOST])}
    listed = sorted(newest.values(), key=lambda plan: not plan.on_sale)
    return [(plan.code, plan.name if plan.on_sale else f"{plan.name} (retired)") for plan in listed]


def list_coupons() -> Sequence[tuple[str, str]]:
    """Return the newest coupons, with their names."""
    return [(code, name or code) for code, name in Coupon.objects.order_by("-pk").values_list("code", "name")[:MOST]]


def list_sellers() -> Sequence[tuple[str, str]]:
    """Return the sellers, with their names."""
    return [(seller.ref, str(seller)) for seller in current_sellers()[:MOST]]


def list_meters() -> Sequence[tuple[str, str]]:
    """Return the newest meters."""
    return [(code, code) for code in dict.fromkeys(Meter.objects.order_by("-pk").values_list("code", flat=True)[:MOST])]


LISTS: Final = {
    "customer": list_customers, "plan": list_plans, "coupon": list_coupons, "seller": list_sellers, "meter": list_meters,
}  # fmt: skip
