"""The words of documents that come from the catalogue: the titles of lines, and the coupons by their names."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from billing.models import CouponUse, CreditNoteTax, Invoice, InvoiceTax, Line, Plan, Price, Tax
from billing.rating.names import name_in
from billing.rating.prices.wording import group_words
from ledger.typesetting.languages import language_of

TITLES: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "recurring": "{plan}: {price}",
        "usage": "{plan}: {price}{group}",
        "late_usage": "{plan}: {price}{group}, late usage",
        "credit": "Unused: {price}",
        "minimum": "Minimum: {of}",
        "maximum": "Maximum: {of}",
        "carried": "Credit carried to later invoices",
    },
    "de": {
        "recurring": "{plan}: {price}",
        "usage": "{plan}: {price}{group}",
        "late_usage": "{plan}: {price}{group}, nachträglich gemeldet",
        "credit": "Nicht genutzt: {price}",
        "minimum": "Mindestbetrag: {of}",
        "maximum": "Höchstbetrag: {of}",
        "carried": "Guthaben für spätere Rechnungen",
    },
}
"""The title of each kind of line that the generator makes; a charge has the words of the request."""
WITHOUT: Final[Mapping[str, str]] = {"en": "without {name}", "de": "ohne {name}"}
"""The words for a property that the usage of a line does not have."""


def document_language(invoice: Invoice) -> str:
    """Return the code of the language of an invoice and its credit notes: the buyer's if there are texts in it."""
    return language_of(str(invoice.buyer.get("language") or "en")).code


class LineTitles:
    """The titles of these lines, by at most two queries."""

    def __init__(self, lines: Iterable[Line]) -> None:
        known = list(lines)
        prices = Price.objects.filter(pk__in={line.price_id for line in known if line.price_id is not None})
        self._prices = {price.pk: price for price in prices.select_related("plan")}
        self._versions: dict[str, list[Plan]] = defaultdict(list)
        bounded = {line.rating["plan"] for line in known if "plan" in line.rating}
        if bounded:
            for plan in Plan.objects.filter(code__in=bounded).order_by("version"):
                self._versions[plan.code].append(plan)

    def of(self, line: Line, invoice: Invoice, language: str) -> str:
        """Return the title of one of the lines in a language, by its code."""
        title = TITLES[language].get(line.kind)
        if title is None:
            return line.description
        price = self._prices.get(line.price_id) if line.price_id is not None else None
        plan = price.plan if price is not None else self._plan_at(line.rating.get("plan", ""), invoice.created_at)
        names = {
            "plan": "" if plan is None else _plan_name(plan, language),
            "price": "" if price is None else _price_name(price, language),
        }
        group = ""
        if price is not None and "group" in line.rating:
            named = {name: line.rating["group"][name] for name in price.definition["group_by"]}
            group = f": {group_words(named, WITHOUT[language])}"
        return title.format(**names, of=names["price"] or names["plan"], group=group)

    def _plan_at(self, code: str, made_at: datetime) -> Plan | None:
        """Return the version that was the newest when the invoice was made, so that its title stays the same."""
        versions = [plan for plan in self._versions.get(code, ()) if plan.created_at <= made_at]
        return versions[-1] if versions else None


class TaxNames:
    """The names of the declared taxes of documents, by one query if there are any."""

    def __init__(self, rows: Iterable[InvoiceTax | CreditNoteTax]) -> None:
        ids = {row.tax_id for row in rows if row.tax_id is not None}
        self._taxes = Tax.objects.in_bulk(ids) if ids else {}

    def of(self, row: InvoiceTax | CreditNoteTax, language: str) -> str | None:
        """Return the name of a tax in a language, by its code; None: the rate of prices has none."""
        tax = None if row.tax_id is None else self._taxes[row.tax_id]
        return None if tax is None else name_in(language, key=tax.code, name=tax.name, names=tax.names)


def plan_names(ids: Iterable[int], language: str) -> dict[int, str]:
    """Return the names of versions of plans in a language, by their ids."""
    return {pk: _plan_name(plan, language) for pk, plan in Plan.objects.in_bulk(list(ids)).items()}


def _plan_name(plan: Plan, language: str) -> str:
    return name_in(language, key=plan.code, name=plan.name, names=plan.names)


def _price_name(price: Price, language: str) -> str:
    return name_in(language, key=price.key, name=price.definition.get("name"), names=price.definition.get("names", {}))


class NamedDiscount(NamedTuple):
    """What a coupon took off, with the coupon's name in the document's language."""

    coupon: str
    name: str
    amount_minor: int


def discounts_of(invoices: Sequence[Invoice], languages: Mapping[int, str]) -> dict[int, list[NamedDiscount]]:
    """Return what each coupon took off each invoice, by the invoices' ids, in the order of the uses; voided ones included."""
    uses = CouponUse.objects.filter(invoice_id__in=[invoice.pk for invoice in invoices], amount_minor__gt=0)
    discounts: dict[int, list[NamedDiscount]] = {invoice.pk: [] for invoice in invoices}
    taken: dict[tuple[int, int], NamedDiscount] = {}
    for use in uses.select_related("customer_coupon__coupon").order_by("pk"):
        coupon = use.customer_coupon.coupon
        name = name_in(languages[use.invoice_id], key=coupon.code, name=coupon.name, names=coupon.names)
        # On a consolidated invoice several subscriptions may use it.
        key = use.invoice_id, coupon.pk
        before_minor = taken[key].amount_minor if key in taken else 0
        taken[key] = NamedDiscount(coupon.code, name, before_minor + use.amount_minor)
    for (invoice_id, _), discount in taken.items():
        discounts[invoice_id].append(discount)
    return discounts
