"""The rows to which fields of forms refer, by the names of the fields: what is typed, and words that people search by."""

from collections.abc import Sequence
from typing import Any, Final

from django.db.models import QuerySet

from billing.documents.e_invoice import CATEGORIES
from billing.documents.sellers import current_sellers, usual_currency
from billing.models import Coupon, Customer, Meter, Plan, Price, Subscription, Tax
from billing.rating.names_of_codes import COUNTRY_NAMES, CURRENCY_NAMES
from billing.rating.tax_rules import STANDARD_CLASS
from ledger.operators.additions import Row
from ledger.staff.references import MOST_FOUND, MOST_LISTED, NAMES_READ
from ledger.staff.spelling import begins, words_of
from ledger.typesetting.languages import LANGUAGES

LANGUAGE_NAMES: Final = {"en": "English", "de": "German"}


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


def list_subscriptions(word: str) -> Sequence[Row]:
    """Return subscriptions by the beginning of their ref, by index; the newest ones without a text."""
    if not word:
        return [(ref, "") for ref in Subscription.objects.order_by("-pk").values_list("ref", flat=True)[:MOST_LISTED]]
    reads = [Subscription.objects.filter(ref__startswith=each).order_by("ref") for each in spellings(word)]
    refs = dict.fromkeys(ref for read in reads for ref in read.values_list("ref", flat=True)[:MOST_FOUND])
    return [(ref, "") for ref in list(refs)[:MOST_FOUND]]


def list_prices(word: str) -> Sequence[Row]:
    """Return the keys of the newest prices."""
    keys = dict.fromkeys(Price.objects.order_by("-pk").values_list("key", flat=True)[:NAMES_READ])
    return _fitting([(key, "") for key in keys], word)


def list_tax_classes(word: str) -> Sequence[Row]:
    """Return the usual class, and those of the newest taxes."""
    declared = Tax.objects.order_by("-pk").values_list("classes", flat=True)[:NAMES_READ]
    return _fitting(
        [(name, "") for name in dict.fromkeys([STANDARD_CLASS, *(name for names in declared for name in names)])], word
    )


def list_tax_categories(word: str) -> Sequence[Row]:
    """Return the categories that e-invoices know."""
    return _fitting(list(CATEGORIES.items()), word)


def list_countries(word: str) -> Sequence[Row]:
    """Return the countries by their two letters, with their names."""
    return _fitting(sorted(COUNTRY_NAMES.items(), key=lambda country: country[1]), word)


def list_currencies(word: str) -> Sequence[Row]:
    """Return the currencies by their three letters, with their names, the seller's first."""
    first = usual_currency()
    return _fitting(sorted(CURRENCY_NAMES.items(), key=lambda currency: (currency[0] != first, currency[0])), word)


def list_languages(word: str) -> Sequence[Row]:
    """Return the languages of documents."""
    return _fitting([(each.code, LANGUAGE_NAMES[each.code]) for each in LANGUAGES], word)


def _fitting(rows: Sequence[Row], word: str) -> Sequence[Row]:
    typed = words_of(word)
    return [row for row in rows if begins(typed, words_of(" ".join(row)))][: MOST_FOUND if word else MOST_LISTED]


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
    "subscription": list_subscriptions, "price_key": list_prices, "tax_class": list_tax_classes,
    "tax_category": list_tax_categories, "country": list_countries, "currency": list_currencies, "language": list_languages,
}  # fmt: skip
