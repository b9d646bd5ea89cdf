"""The rows to which fields of forms refer, by the names of the fields: what is typed, and words that people search by."""

from collections.abc import Sequence
from typing import Any, Final

from django.db.models import QuerySet

from billing.documents.sellers import current_sellers
from billing.models import Coupon, Customer, Meter, Plan
from ledger.operators.additions import Row
from ledger.staff.references import MOST_FOUND, MOST_LISTED, NAMES_READ
from ledger.staff.spelling import begins, words_of


def list_customers(word: str) -> Sequence[Row]:
    """Return customers by the beginning of their ref, then by words of their name, by index; the newest ones without a text."""
    if not word:
        return list(Customer.objects.order_by("-pk").values_list("ref", "name")[:MOST_LISTED])
    reads = [Customer.objects.filter(ref__startswith=each).order_by("ref") for each in spellings(word)]
    reads.append(Customer.objects.filter(name__named=word).order_by("-pk"))
    rows = {row.pk: (row.ref, row.name) for read in reads for row in read[:MOST_FOUND]}
    return list(rows.values())[:MOST_FOUND]


def list_plans(word: str) -> Sequence[Row]:
    """Return plans on sale, the newest first, then the retired ones, with the names of their newest versions."""
    newest = newest_by_code(Plan.objects.all(), word)
    return [(plan.code, plan.name if plan.on_sale else f"{plan.name} (retired)") for plan in sorted(newest, key=_is_retired)]


def list_coupons(word: str) -> Sequence[Row]:
    """Return coupons with their names, the newest first."""
    return [(coupon.code, coupon.name or coupon.code) for coupon in newest_by_code(Coupon.objects.all(), word)]


def list_sellers(word: str) -> Sequence[Row]:
    """Return the sellers, with their names."""
    typed = words_of(word)
    rows = [(seller.ref, str(seller)) for seller in current_sellers()[:MOST_LISTED]]
    return [row for row in rows if begins(typed, words_of(" ".join(row)))]


def list_meters(word: str) -> Sequence[Row]:
    """Return meters, the newest first."""
    return [(meter.code, "") for meter in newest_by_code(Meter.objects.all(), word)]


def newest_by_code(rows: QuerySet[Any], word: str) -> list[Any]:
    """Return the newest version of rows that fit the word, the newest first: those of that very code, then by words.

    Words of codes and names are sought among the newest NAMES_READ versions.
    """
    if not word:
        return _versions(rows.order_by("-pk")[:MOST_LISTED])
    by_code = [row for each in spellings(word) for row in rows.filter(code__startswith=each).order_by("code", "-pk")[:MOST_FOUND]]
    typed = words_of(word)
    read = _versions(rows.order_by("-pk")[:NAMES_READ])
    named = [row for row in read if typed and begins(typed, words_of(f"{row.code} {getattr(row, 'name', '')}"))]
    return _versions([*by_code, *named])[:MOST_FOUND]


def spellings(word: str) -> list[str]:
    """Return the word as typed, and in capitals, which most numbers and references use."""
    return list(dict.fromkeys((word, word.upper())))


def _versions(rows: Any) -> list[Any]:
    """Return the first row of each code, in their order."""
    versions: dict[str, Any] = {}
    for row in rows:
        versions.setdefault(row.code, row)
    return list(versions.values())


def _is_retired(plan: Plan) -> bool:
    return not plan.on_sale


LISTS: Final = {
    "customer": list_customers, "plan": list_plans, "coupon": list_coupons, "seller": list_sellers, "meter": list_meters,
}  # fmt: skip
