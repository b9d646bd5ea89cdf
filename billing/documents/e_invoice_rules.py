"""The rules of EN 16931, XRechnung and Peppol BIS that a document can break, checked before its XML is made. Pure.

Rules about form, such as two decimals and lists of codes, are kept by what makes the terms. Tests compare with the Schematron.
Source: EN 16931-1, 6.4; XRechnung 3.0 (BR-DE); Peppol BIS Billing 3.0 (PEPPOL-EN16931).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from stdnum import ean, luhn
from stdnum.au import abn
from stdnum.be import vat as be_vat
from stdnum.dk import cvr
from stdnum.no import orgnr

Terms = Mapping[str, Any]
CENT: Final = Decimal("0.01")
UNIT: Final = Decimal(1)
WITHOUT_TAX: Final = {"Z": "Z", "E": "E", "AE": "AE", "K": "IC", "G": "G"}
"""Categories whose rate is 0, with the part of their rules' names."""
WITH_REASON: Final = {"E": "E", "AE": "AE", "K": "IC", "G": "G", "O": "O"}
ELECTRONIC: Final = re.compile(r"(EM|[0-9]{4}):(\S{1,100})")
"""An electronic address: the code of its scheme (EAS), a colon, and the address."""
NOT_AT_PEPPOL: Final = frozenset({"EM", "0219", "0220", "0244", "0242", "0245", "0246", "0248"})
"""Schemes of EAS that Peppol does not take."""
OWN_RULES: Final = frozenset({"DK", "GR", "IS", "IT", "NL", "NO", "SE"})
"""Countries whose sellers have rules of their own at Peppol, which need data that sellers here do not have."""
CHECKED: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "0007": ("PEPPOL-COMMON-R049", lambda number: bool(re.fullmatch("[0-9]{10}", number)) and luhn.is_valid(number)),
    "0088": ("PEPPOL-COMMON-R040", lambda number: number.isdigit() and len(number) == 13 and ean.is_valid(number)),
    "0151": ("PEPPOL-COMMON-R050", lambda number: bool(re.fullmatch("[0-9]{11}", number)) and abn.is_valid(number)),
    "0184": ("PEPPOL-COMMON-R042", lambda number: bool(re.fullmatch("(DK)?[0-9]{8}", number)) and cvr.is_valid(number[-8:])),
    "0192": ("PEPPOL-COMMON-R041", lambda number: bool(re.fullmatch("[0-9]{9}", number)) and orgnr.is_valid(number)),
    "0208": ("PEPPOL-COMMON-R043", lambda number: bool(re.fullmatch("[0-9]{10}", number)) and be_vat.is_valid(number)),
}
"""Schemes whose addresses have check digits: the rule, and whether an address keeps it."""


class Fault(NamedTuple):
    """A rule that a document breaks.

    Args:
        rule: as EN 16931, XRechnung or Peppol name it.
        detail: a sentence for people.
        is_lacking: data of a side lack; otherwise the document itself contradicts the rule.
    """

    rule: str
    detail: str
    is_lacking: bool = False

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


def broken_sums(terms: Terms) -> Iterator[Fault]:
    """Yield the rules about sums that the terms break."""
    lines = _sum(line["BT-131"] for line in terms["BG-25"])
    charges = _sum(charge["amount"] for charge in terms["BG-21"])
    taxes = _sum(tax["BT-117"] for tax in terms["BG-23"])
    net, total = _of(terms, "BT-106"), _of(terms, "BT-109")
    sums = (
        ("BR-CO-10", lines, net, "the lines add up to {} and the document says {}"),
        ("BR-CO-12", charges, _of(terms, "BT-108"), "the charges add up to {} and the document says {}"),
        ("BR-CO-13", net + _of(terms, "BT-108"), total, "lines and charges come to {}, the total without VAT is {}"),
        ("BR-CO-14", taxes, _of(terms, "BT-110"), "the taxes add up to {} and the document says {}"),
        ("BR-CO-15", total + _of(terms, "BT-110"), _of(terms, "BT-112"), "without and with VAT differ by {} more than {}"),
        (
            "BR-CO-16",
            _of(terms, "BT-112") - _of(terms, "BT-113") + _of(terms, "BT-114"),
            _of(terms, "BT-115"),
            "{} is left to pay, and the document says {}",
        ),
    )
    for rule, computed, said, detail in sums:
        if computed != said:
            yield Fault(rule, detail.format(computed, said) + ".")
    if _of(terms, "BT-115") > 0 and not (terms.get("BT-9") or terms.get("BT-20")):
        yield Fault("BR-CO-25", "something is to be paid, and neither a due date nor terms say when.")


def broken_taxes(terms: Terms) -> Iterator[Fault]:
    """Yield the rules about categories of VAT that the terms break."""
    bases: dict[tuple[str, str], Decimal] = {}
    for line in terms["BG-25"]:
        key = line["BT-151"], line["BT-152"] or ""
        bases[key] = bases.get(key, Decimal(0)) + Decimal(line["BT-131"])
    for charge in terms["BG-21"]:
        key = charge["vat_category_code"], charge["vat_rate"] or ""
        bases[key] = bases.get(key, Decimal(0)) + Decimal(charge["amount"])
    for tax in terms["BG-23"]:
        category, rate = tax["BT-118"], Decimal(tax["BT-119"] or 0)
        base, amount = Decimal(tax["BT-116"]), Decimal(tax["BT-117"])
        if abs(amount - base * rate / 100) >= UNIT:
            yield Fault("BR-CO-17", f"{rate} % of {base} is not {amount}.")
        name = WITHOUT_TAX.get(category, category)
        if bases.get(_group(tax), Decimal(0)) != base:
            yield Fault(f"BR-{name}-08", f"the lines of category {category} do not add up to {base}.")
        if category == "S" and rate <= 0:
            yield Fault("BR-S-05", "what is standard-rated has a rate above 0.")
        if category in WITHOUT_TAX and (rate or amount):
            yield Fault(f"BR-{name}-05", f"category {category} has no rate and no tax.")
        if (category in WITH_REASON) != bool(tax["BT-120"] or tax["BT-121"]):
            yield Fault(f"BR-{WITH_REASON.get(category, name)}-10", f"category {category} and the reason for no tax do not fit.")
    if set(bases) != {_group(tax) for tax in terms["BG-23"]}:
        yield Fault("BR-CO-18", "each category and rate of the lines has one row of VAT.")


def _group(tax: Terms) -> tuple[str, str]:
    return tax["BT-118"], "" if tax["BT-118"] == "O" else tax["BT-119"] or ""


def broken_lines(terms: Terms) -> Iterator[Fault]:
    """Yield the rules about lines that the terms break."""
    for line in terms["BG-25"]:
        position, price = line["BT-126"], Decimal(line["BT-146"])
        if price < 0:
            yield Fault("BR-27", f"the price of line {position} is below 0.")
        discount = _sum(each["amount"] for each in line["BG-27"])
        if abs(Decimal(line["BT-129"]) * price - discount - Decimal(line["BT-131"])) > CENT:
            yield Fault("PEPPOL-EN16931-R120", f"quantity and price of line {position} do not make its amount.")
        if line["BT-134"] and line["BT-135"] and line["BT-135"] < line["BT-134"]:
            yield Fault("BR-30", f"the period of line {position} ends before it begins.")


class Needed(NamedTuple):
    """What German invoices need beyond EN 16931: the rule of XRechnung, and of Peppol between Germans."""

    xrechnung: str
    peppol: str
    value: Any
    words: str


def lacking_for_xrechnung(terms: Terms) -> Iterator[Fault]:
    """Yield what XRechnung needs and the terms do not have."""
    for needed in _needed_in_germany(terms):
        if not needed.value:
            yield Fault(needed.xrechnung, f"XRechnung needs {needed.words}.", is_lacking=True)
    yield from lacking_addresses(terms)


def lacking_for_peppol(terms: Terms) -> Iterator[Fault]:
    """Yield what Peppol BIS needs and the terms do not have."""
    seller, buyer = terms["BG-4"], terms["BG-7"]
    if seller["country_code"] in OWN_RULES:
        detail = f"the rules of Peppol for sellers in {seller['country_code']} need data that sellers here do not have."
        yield Fault(f"{seller['country_code']}-R", detail, is_lacking=True)
    if seller["country_code"] == "DE" == buyer["country_code"]:
        for needed in _needed_in_germany(terms):
            if needed.peppol and not needed.value:
                yield Fault(needed.peppol, f"Peppol between Germans needs {needed.words}.", is_lacking=True)
    for party, name in ((seller, "seller"), (buyer, "buyer")):
        scheme, address = party.get("einvoicing_addr_schemeid", ""), party.get("einvoicing_addr", "")
        rule, is_right = CHECKED.get(scheme, ("", bool))
        if scheme in NOT_AT_PEPPOL:
            detail = f"the scheme of the {name}'s electronic address is none of Peppol."
            yield Fault("PEPPOL-EN16931-CL008", detail, is_lacking=True)
        if rule and not is_right(address):
            yield Fault(rule, f"the electronic address of the {name} has a wrong form or wrong check digits.", is_lacking=True)
    yield from lacking_addresses(terms)


def lacking_addresses(terms: Terms) -> Iterator[Fault]:
    """Yield which side has no electronic address."""
    for rule, party, name in (("R020", "BG-4", "seller"), ("R010", "BG-7", "buyer")):
        if not terms[party].get("einvoicing_addr"):
            yield Fault(f"PEPPOL-EN16931-{rule}", f"the {name} has no electronic address.", is_lacking=True)


def _needed_in_germany(terms: Terms) -> tuple[Needed, ...]:
    seller, buyer = terms["BG-4"], terms["BG-7"]
    contact: Mapping[str, Any] = (seller["contacts"] or [{}])[0]
    tax_id = seller.get("vat_identifier") or seller.get("tax_identifier")
    has_tax = any(tax["BT-118"] != "O" for tax in terms["BG-23"])
    return (
        Needed("BR-DE-1", "DE-R-001", terms.get("BT-81"), "a way to pay: give the seller an IBAN"),
        Needed("BR-DE-2", "DE-R-002", contact, "a phone and an e-mail of the seller"),
        Needed("BR-DE-3", "DE-R-003", seller.get("city"), "the seller's city"),
        Needed("BR-DE-4", "DE-R-004", seller.get("postcode"), "the seller's postal code"),
        Needed("BR-DE-6", "DE-R-006", contact.get("phone") or not contact, "the seller's phone"),
        Needed("BR-DE-7", "DE-R-007", contact.get("email") or not contact, "the seller's e-mail"),
        Needed("BR-DE-8", "DE-R-008", buyer.get("city"), "the buyer's city"),
        Needed("BR-DE-9", "DE-R-009", buyer.get("postcode"), "the buyer's postal code"),
        Needed("BR-DE-15", "DE-R-015", terms.get("BT-10"), "the buyer's reference, such as a Leitweg-ID"),
        Needed("BR-DE-16", "DE-R-016", tax_id or not has_tax, "the seller's VAT id or tax number"),
    )


def _of(terms: Terms, name: str) -> Decimal:
    return Decimal(terms.get(name) or 0)


def _sum(amounts: Iterator[str] | Sequence[str]) -> Decimal:
    return sum((Decimal(amount) for amount in amounts), Decimal(0))
