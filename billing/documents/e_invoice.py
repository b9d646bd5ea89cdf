"""The e-invoice: the data of a document by EN 16931, in the form that its buyer takes, and the metadata of a PDF about it.

Inside a PDF it is Factur-X. By itself it is EN 16931 or XRechnung, both in CII, or Peppol BIS Billing 3 in UBL, as the
customer says.
A document that would break a rule has no XML.
Source: EN 16931-1 (BT and BG are its numbers of terms), Factur-X 1.09 / ZUGFeRD 2, XRechnung 3.0, Peppol BIS Billing 3.0.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

from billing.documents.e_invoice_rules import (
    ELECTRONIC,
    Fault,
    broken_lines,
    broken_sums,
    broken_taxes,
    lacking_for_peppol,
    lacking_for_xrechnung,
)
from billing.documents.printed_arithmetic import rates_of
from billing.documents.printed_pages import EURO, PLACE, DocumentSource
from billing.models import CREDIT_NOTE
from billing.nouns import e_invoice_terms
from billing.orders.customers import NewCustomer
from billing.rating.money import minor_digits
from ledger.typesetting.typeset import AttachedFile

log = logging.getLogger(__name__)

FILE_NAME: Final = "factur-x.xml"
PROFILE: Final = "en16931"
TRANSFER: Final = "58"
"""SEPA credit transfer. Source: UNTDID 4461."""
CLEARING: Final = "97"
"""Clearing between partners, of a credit note: it is set off or paid out. Source: UNTDID 4461."""
ONE: Final = "C62"
"""Pieces. Source: UN/ECE Recommendation 20."""
CATEGORIES: Final = {
    "S": "taxed", "Z": "zero rate", "E": "exempt", "AE": "reverse charge", "K": "supply to a business within the EU",
    "G": "export", "O": "not subject to VAT", "L": "tax of the Canary Islands", "M": "tax of Ceuta and Melilla",
}  # fmt: skip
"""The categories of EN 16931. A plan's own category is standard-rated at another rate. Source: UNTDID 5305."""
STANDARD: Final = "S"
ZERO: Final = "Z"
REASONS: Final = {
    "AE": ("Reverse charge", "VATEX-EU-AE"),
    "E": ("Exempt from VAT", None),
    "G": ("Export outside the EU", "VATEX-EU-G"),
    "K": ("Intra-community supply", "VATEX-EU-IC"),
    "O": ("Not subject to VAT", "VATEX-EU-O"),
}
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: XML 1.0, 2.2."""
VAT_IDS_OF_BOTH: Final = {"AE", "K"}
NOT_VAT: Final = "O"

MICROSECOND: Final = timedelta(microseconds=1)

NAMESPACE: Final = "urn:factur-x:pdfa:CrossIndustryDocument:invoice:1p0#"
PROPERTIES: Final = {
    "DocumentType": ("INVOICE", "The type of the document"),
    "DocumentFileName": (FILE_NAME, "The name of the embedded XML file"),
    "Version": ("1.0", "The version of the XML schema"),
    "ConformanceLevel": ("EN 16931", "The profile of the XML file"),
}


@dataclass(frozen=True, slots=True)
class EInvoiceProfile:
    """A form of e-invoices.

    Args:
        title: for people.
        guideline, process: BT-24 and BT-23.
        lacking: yields what it needs beyond EN 16931 and the terms do not have; None: nothing.
        is_ubl: in UBL; otherwise in CII.
    """

    title: str
    guideline: str
    process: str = ""
    lacking: Callable[[Mapping[str, Any]], Iterator[Fault]] | None = None
    is_ubl: bool = False


GUIDELINE: Final = "urn:cen.eu:en16931:2017"
BILLING: Final = "urn:fdc:peppol.eu:2017:poacc:billing:01:1.0"
PROFILES: Final = {
    "en16931": EInvoiceProfile("EN 16931 (CII)", GUIDELINE),
    "xrechnung": EInvoiceProfile(
        "XRechnung (CII)", f"{GUIDELINE}#compliant#urn:xeinkauf.de:kosit:xrechnung_3.0", BILLING, lacking_for_xrechnung
    ),
    "peppol": EInvoiceProfile(
        "Peppol BIS Billing 3 (UBL)",
        f"{GUIDELINE}#compliant#urn:fdc:peppol.eu:2017:poacc:billing:3.0",
        BILLING,
        lacking_for_peppol,
        is_ubl=True,
    ),
}
"""The forms of e-invoices that a customer can have, by their names."""


def profile_of(source: DocumentSource) -> EInvoiceProfile:
    """Return the form that the buyer takes."""
    return PROFILES[str(source.buyer.get("e_invoice_format") or "en16931")]


def e_invoice(source: DocumentSource, profile: EInvoiceProfile = PROFILES["en16931"]) -> bytes | None:
    """Return the XML of a document in a form; None if it breaks a rule, and so has none: see `faults_of`."""
    return None if faults_of(source, profile) else _xml(source, profile)


def faults_of(source: DocumentSource, profile: EInvoiceProfile = PROFILES["en16931"]) -> list[Fault]:
    """Return the rules of EN 16931, and of the form, that the XML of a document would break; empty if it can have one.

    A document can have one if it is issued and valid, in euro, and has all data that the rules require: the countries of both
    sides, and the VAT ids for tax, reverse charge and intra-community supply. No line of it bears two VATs, and what is not
    subject to VAT does not stand beside what is.
    """
    faults = list(_lacking(source))
    if faults:
        return faults
    terms = _terms(source, profile)
    return [
        *broken_sums(terms),
        *broken_taxes(terms),
        *broken_lines(terms),
        *([] if profile.lacking is None else profile.lacking(terms)),
    ]


def _xml(source: DocumentSource, profile: EInvoiceProfile) -> bytes | None:
    from facturx import generate_cii_xml, generate_ubl_xml

    make = generate_ubl_xml if profile.is_ubl else generate_cii_xml
    try:
        xml: bytes = make(_storable(_terms(source, profile)), level=PROFILE, check_xsd=True, check_schematron=False)
    except Exception:  # the package's error for XML that the schemas refuse
        log.exception("%s has no e-invoice", source.document["number"])
        return None
    xml = xml.replace(f">{GUIDELINE}<".encode(), f">{profile.guideline}<".encode(), 1)
    # No part of Peppol's form, and what it has is said by BT-24.
    return re.sub(rb"\s*<cbc:UBLVersionID>[^<]*</cbc:UBLVersionID>", b"", xml, count=1)


def _lacking(source: DocumentSource) -> Iterator[Fault]:
    """Yield why the terms of a document cannot be made, or would lack what each e-invoice needs."""
    document, seller, buyer = source.document, source.seller, source.buyer
    if not source.is_valid:
        yield Fault("BR-02", "a draft and a void document have no e-invoice.", is_lacking=True)
        return
    country = str((buyer.get("address") or {}).get("country") or "")
    categories = _categories(document)
    if document["currency"] != EURO:
        yield Fault("BR-53", f"an amount in {document['currency']} needs its taxes in euro too.", is_lacking=True)
    if not document["lines"]:
        yield Fault("BR-16", "it has no line.", is_lacking=True)
    if not (len(country) == 2 and country.isascii() and country.isupper()):
        yield Fault("BR-11", "the buyer's address has no country of two letters.", is_lacking=True)
    if not seller.get("name"):
        yield Fault("BR-06", "no seller was recorded.", is_lacking=True)
    if not buyer.get("name"):
        yield Fault("BR-07", "the buyer has no name.", is_lacking=True)
    if not _is_identified(seller, categories):
        yield Fault("BR-CO-26", "the seller has neither a VAT id nor a tax number for these taxes.", is_lacking=True)
    if categories & VAT_IDS_OF_BOTH and not buyer.get("vat_id"):
        yield Fault("BR-AE-03" if "AE" in categories else "BR-IC-03", "the buyer has no VAT id.", is_lacking=True)
    if NOT_VAT in categories and len(categories) > 1:
        yield Fault("BR-O-11", "what is not subject to VAT stands beside what is.", is_lacking=True)
    if any(sum(not _is_other(tax) for tax in _declared_taxes(line)) > 1 for line in document["lines"]):
        yield Fault("BR-CO-04", "a line bears two VATs.", is_lacking=True)


def _is_identified(seller: Mapping[str, str], categories: set[str]) -> bool:
    """Return whether the seller has the id that the taxes need."""
    has_tax_number = bool(seller.get("tax_number")) and not categories & VAT_IDS_OF_BOTH
    return "vat_id" in seller or has_tax_number or categories <= {NOT_VAT}


def _categories(document: Mapping[str, Any]) -> set[str]:
    """Return the categories of all lines, and of the VAT on other taxes."""
    of_lines = {_vat_of(line, document)[0] for line in document["lines"]}
    return of_lines | {_vat_on(document, tax)[0] for tax in _other_taxes(document)}


def attachment(xml: bytes) -> AttachedFile:
    """Return the XML as a file for the PDF."""
    return AttachedFile(FILE_NAME, xml.decode(), "text/xml", "Factur-X: the same document for machines")


# The terms of EN 16931 -------------------------------------------------------------------------------


def _terms(source: DocumentSource, profile: EInvoiceProfile) -> dict[str, Any]:
    document = source.document
    is_note = source.kind is CREDIT_NOTE
    minor = _Minor(document["currency"])
    net_minor = sum(_net_minor(line) for line in document["lines"])
    charges = _other_taxes(document)
    charged_minor = sum(tax["amount_minor"] for tax in charges)
    paid_minor = 0 if is_note else document["credit_notes_minor"] + document["credits_applied_minor"]
    has_vat = NOT_VAT not in _categories(document)
    with_tax_minor, rounding_minor = net_minor + document["tax_minor"], document["rounding_minor"]
    terms: dict[str, Any] = {
        "BT-1": document["number"],
        "BT-2": source.day("issue_date"),
        "BT-3": source.kind.e_invoice_code,
        "BT-5": document["currency"],
        "BT-10": document["customer"],  # unless the buyer has a reference
        "BT-23": profile.process or None,
        "BT-12": document["subscription"],
        "BG-4": _seller(source.seller, has_vat=has_vat),
        "BG-7": _buyer(source.buyer, has_vat=has_vat),
        "BG-23": _taxes(source, minor, rate_of_none="0" if profile.process else None),
        "BT-106": minor.text(net_minor),
        "BG-21": [_charge(document, tax, minor) for tax in charges],
        "BT-108": minor.text(charged_minor) if charges else None,
        "BT-109": minor.text(net_minor + charged_minor),
        "BT-110": minor.text(document["tax_minor"] - charged_minor),
        "BT-112": minor.text(with_tax_minor),
        "BT-113": minor.text(paid_minor) if paid_minor else None,
        "BT-114": minor.text(rounding_minor) if rounding_minor else None,
        "BT-115": minor.text(with_tax_minor - paid_minor + rounding_minor),
        "BG-25": [_line(source, line, minor) for line in document["lines"]],
        **_delivery(source),
        **_terms_of_buyer(source.buyer),
    }
    if source.corrects is not None:
        number, dated = source.corrects
        terms |= {
            "BG-3": [{"BT-25": number, "BT-26": dated}],
            "BG-1": [{"BT-22": document["reason"]}],
            "BT-9": source.day("issue_date"),
            "BT-81": CLEARING if profile.process else None,
        }
    else:
        terms["BT-9"] = source.day("due_date")
        terms["BT-20"] = source.in_language("payment_terms") or None
        terms["BG-1"] = [{"BT-22": document["note"]}] if document["note"] else None
        terms |= _payment(source)
    return terms


def _storable(value: Any) -> Any:
    """Return the terms with a space in place of each character that XML does not allow."""
    if isinstance(value, str):
        return FORBIDDEN.sub(" ", value)
    if isinstance(value, dict):
        return {name: _storable(part) for name, part in value.items()}
    return [_storable(part) for part in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Minor:
    """Return minor units of a currency in the notation of EN 16931."""

    currency: str

    def text(self, amount_minor: int) -> str:
        digits = minor_digits(self.currency)
        return f"{Decimal(amount_minor).scaleb(-digits):.{digits}f}"


def _seller(seller: Mapping[str, str], *, has_vat: bool) -> dict[str, Any]:
    """Return the seller; without VAT its VAT id is not named as one (BR-O-02), but as what identifies it (BR-CO-26).

    A seller without VAT id is identified by its tax number.
    """
    vat_id = seller.get("vat_id")
    contact = {"name": seller["name"], "phone": seller.get("phone"), "email": seller.get("email")}
    return {
        "name": seller["name"],
        "identifiers": {} if has_vat and vat_id else {"": vat_id or seller.get("tax_number") or seller["name"]},
        "legal_info": seller.get("register"),
        "vat_identifier": vat_id if has_vat else None,
        "tax_identifier": seller.get("tax_number"),
        **_address(seller),
        **_electronic(seller.get("electronic_address"), seller.get("email")),
        "contacts": [contact] if contact["phone"] or contact["email"] else [],
    }


def _buyer(buyer: Mapping[str, Any], *, has_vat: bool) -> dict[str, Any]:
    return {
        "name": str(buyer["name"]),
        "vat_identifier": (buyer.get("vat_id") or None) if has_vat else None,
        **_address(buyer["address"]),
        **_electronic(buyer.get("electronic_address"), buyer["address"].get("email")),
    }


def _terms_of_buyer(buyer: Mapping[str, Any]) -> dict[str, str]:
    """Return what the buyer has of the fields that are terms of the document itself."""
    return {term: str(buyer[name]) for name, term in e_invoice_terms(NewCustomer).items() if buyer.get(name)}


def _address(address: Mapping[str, Any]) -> dict[str, Any]:
    text = {key: str(address[key]) for key in ("line1", "line2", "line3", *PLACE) if address.get(key)}
    return {
        "addr_l1": text.get("line1"), "addr_l2": text.get("line2"), "addr_l3": text.get("line3"),
        "postcode": text.get("postal_code"), "city": text.get("city"), "country_code": address["country"],
    }  # fmt: skip


def _electronic(address: Any, email: Any) -> dict[str, str]:
    """Return BT-34 or BT-49: an electronic address with the code of its scheme, or else an e-mail address."""
    match = ELECTRONIC.fullmatch(str(address or ""))
    if match is None and email:
        match = ELECTRONIC.fullmatch(f"EM:{email}")
    return {} if match is None else {"einvoicing_addr": match[2], "einvoicing_addr_schemeid": match[1]}


def _delivery(source: DocumentSource) -> dict[str, Any]:
    """Return the recipient and the period of the delivery; within the EU the day of delivery if there is no period."""
    periods = [line["period"] for line in source.document["lines"] if line.get("period")]
    delivered: dict[str, Any] = {"BG-13": {"name": str(source.buyer["name"]), **_address(source.buyer["address"])}}
    if periods:
        delivered["BT-73"] = min(_local(source, period["start"]) for period in periods).date()
        delivered["BT-74"] = max(_last_day(source, period) for period in periods)
    else:
        delivered["BT-72"] = source.day("issue_date")
    return delivered


def _local(source: DocumentSource, text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(source.zone)


def _last_day(source: DocumentSource, period: Mapping[str, str]) -> date:
    """Return the day of the last instant before the end."""
    start, end = _local(source, period["start"]), _local(source, period["end"])
    return max(start.date(), (end - MICROSECOND).date())


def _category(category: str, rate: str, document: Mapping[str, Any]) -> str:
    """Return the category of EN 16931: what is standard-rated at 0 % is zero-rated there (BR-S-05).

    Where all else on the document is in one category without tax, such as O, it follows that: a charge says by default S at 0 %,
    and what is not subject to VAT stands alone (BR-O-11).
    """
    found = category if category in CATEGORIES else STANDARD
    if found != STANDARD or Decimal(rate):
        return found
    others = {(line["tax_category"], Decimal(line["tax_rate"])) for line in document["lines"] if not _declared_taxes(line)}
    others -= {(STANDARD, Decimal(0))}
    [only] = others if len(others) == 1 else [(ZERO, Decimal(0))]
    has_declared = any(_declared_taxes(line) for line in document["lines"])
    return only[0] if only[0] in REASONS and not only[1] and not has_declared else ZERO


def _declared_taxes(line: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the declared taxes that a line bears."""
    taxes: Sequence[Mapping[str, Any]] = line.get("taxes", ())
    return taxes


def _is_other(tax: Mapping[str, Any]) -> bool:
    """Return whether a declared tax is not VAT: EN 16931 has it as a charge on the document."""
    return bool(tax.get("code")) and tax["category"] == NOT_VAT and Decimal(tax["rate"]) > 0


def _other_taxes(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tax for tax in document["taxes"] if _is_other(tax)]


def _charge(document: Mapping[str, Any], tax: Mapping[str, Any], minor: _Minor) -> dict[str, Any]:
    """Return a tax that is not VAT as a charge, in the category of VAT that is due on it."""
    category, rate = _vat_on(document, tax)
    return {
        "base_amount": minor.text(tax["base_minor"]),
        "rate": tax["rate"],
        "amount": minor.text(tax["amount_minor"]),
        "reason": tax["name"],
        "vat_category_code": category,
        "vat_rate": None if category == NOT_VAT else rate,
    }


def _vat_on(document: Mapping[str, Any], tax: Mapping[str, Any]) -> tuple[str, str]:
    """Return the VAT that is computed on another tax; where VAT is due on the net amount alone, exempt; else no VAT at all."""
    lines = [line for line in document["lines"] if any(one["code"] == tax["code"] for one in _declared_taxes(line))]
    vats = [one for line in lines for one in _declared_taxes(line) if not _is_other(one)]
    if not vats:
        return NOT_VAT, "0"
    billed = next(one for one in document["taxes"] if one.get("code") == vats[0]["code"])
    nets = sum(
        _net_minor(line) for line in document["lines"] if any(one["code"] == billed["code"] for one in _declared_taxes(line))
    )
    if billed["base_minor"] == nets:
        return "E", "0"
    return _category(billed["category"], billed["rate"], document), billed["rate"]


def _vat_of(line: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the category and rate of a line's VAT."""
    if not _declared_taxes(line):
        return _category(line["tax_category"], line["tax_rate"], document), line["tax_rate"]
    vat = next((tax for tax in _declared_taxes(line) if not _is_other(tax)), None)
    return (NOT_VAT, "0") if vat is None else (_category(vat["category"], vat["rate"], document), vat["rate"])


def _taxes(source: DocumentSource, minor: _Minor, *, rate_of_none: str | None) -> list[dict[str, Any]]:
    """Return the tax per category and rate of EN 16931; a plan's own categories are grouped by their rate.

    Args:
        rate_of_none: the rate of what is not subject to VAT: XRechnung and German rules of Peppol want one (BR-DE-14).
    """
    sums: dict[tuple[str, str], list[int]] = {}
    for tax in source.document["taxes"]:
        if _is_other(tax):
            sums.setdefault(_vat_on(source.document, tax), [0, 0])[0] += tax["amount_minor"]
        else:
            category = _category(tax["category"], tax["rate"], source.document)
            sums.setdefault((category, tax["rate"]), [0, 0])[1] += tax["amount_minor"]
    for line in source.document["lines"]:
        sums.setdefault(_vat_of(line, source.document), [0, 0])[0] += _net_minor(line)
    return [
        {
            "BT-116": minor.text(base),
            "BT-117": minor.text(amount),
            "BT-118": category,
            "BT-119": rate_of_none if category == NOT_VAT else rate,
            "BT-120": REASONS.get(category, (None, None))[0],
            "BT-121": REASONS.get(category, (None, None))[1],
        }
        for (category, rate), (base, amount) in sums.items()
    ]


def _net_minor(line: Mapping[str, Any]) -> int:
    net: int = line["amount_minor"] - line.get("discount_minor", 0)
    return net


def _line(source: DocumentSource, line: Mapping[str, Any], minor: _Minor) -> dict[str, Any]:
    category, rate = _vat_of(line, source.document)
    period = line.get("period")
    return {
        "BT-126": str(line["position"]),
        "BT-153": line["title"] or "–",
        **_subscription(source, line),
        **_price_fields(line, minor),
        "BT-130": ONE,
        "BT-131": minor.text(_net_minor(line)),
        "BT-134": _local(source, period["start"]).date() if period else None,
        "BT-135": _last_day(source, period) if period else None,
        "BT-151": category,
        "BT-152": None if category == NOT_VAT else rate,
        "BG-32": _attributes(source, line),
        "BG-27": [{"amount": minor.text(line["discount_minor"]), "reason": _discount_reason(source), "reason_code": "95"}]
        if line.get("discount_minor")
        else [],
    }


def _subscription(source: DocumentSource, line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the subscription of a line, as a note, where the document does not say it for all."""
    of = line.get("subscription")
    if not of or source.document["subscription"]:
        return {}
    return {"BT-127-00": [{"BT-127": f"{source.notation.texts['subscription']} {of}"}]}


def _attributes(source: DocumentSource, line: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the rates of what entries tell, and the component of a price that bills one, as attributes of the item."""
    texts, entries = source.notation.texts, (line.get("rating") or {}).get("entries") or {}
    rates = [{"BT-160": texts["rate"], "BT-161": rate} for rate in rates_of(line)]
    return rates + ([{"BT-160": texts["component"], "BT-161": entries["component"]}] if entries.get("component") else [])


def _discount_reason(source: DocumentSource) -> str:
    """Return the coupons of the invoice by their names; without one, a maximum has lowered the line."""
    names, texts = ", ".join(each["name"] for each in source.document["discounts"]), source.notation.texts
    return texts["discount"].format(name=names) if names else texts["discounts"]


def _price_fields(line: Mapping[str, Any], minor: _Minor) -> dict[str, str]:
    """Return quantity and price if their product is the amount, otherwise one unit at the amount: EN 16931 has no tiers."""
    quantity, unit_amount = Decimal(line.get("quantity") or 0), line.get("unit_amount")
    amount = Decimal(minor.text(line["amount_minor"]))
    if unit_amount is not None and quantity and quantity * Decimal(unit_amount) == amount:
        # A price is never below 0 (BR-27): what gives back has a quantity below 0.
        sign = -1 if Decimal(unit_amount) < 0 else 1
        return {"BT-129": f"{sign * quantity:f}", "BT-146": f"{abs(Decimal(unit_amount)):f}"}
    return {"BT-129": "-1" if amount < 0 else "1", "BT-146": f"{abs(amount):f}"}


def _payment(source: DocumentSource) -> dict[str, Any]:
    seller = source.seller
    if "iban" not in seller:
        return {}
    return {
        "BT-81": TRANSFER,
        "BT-83": source.document["number"],
        "BT-84": seller["iban"],
        "BT-85": seller["name"],
        "BT-86": seller.get("bic"),
    }


# What the PDF says about it --------------------------------------------------------------------------


def declare(pdf: bytes) -> bytes:
    """Return the PDF with the properties of Factur-X in its metadata. Without them, readers do not find the XML.

    The rest of the file stays byte for byte: the new metadata is appended (ISO 32000-1, 7.5.6).
    """
    from pypdf import PdfWriter

    writer = PdfWriter(BytesIO(pdf), incremental=True)
    metadata: Any = writer.root_object["/Metadata"]
    metadata.set_data(_with_properties(metadata.get_data()))
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def _with_properties(metadata: bytes) -> bytes:
    properties = "".join(f"<fx:{name}>{value}</fx:{name}>" for name, (value, _) in PROPERTIES.items())
    described = "".join(
        '<rdf:li rdf:parseType="Resource">'
        f"<pdfaProperty:category>external</pdfaProperty:category><pdfaProperty:description>{what}</pdfaProperty:description>"
        f"<pdfaProperty:name>{name}</pdfaProperty:name><pdfaProperty:valueType>Text</pdfaProperty:valueType></rdf:li>"
        for name, (_, what) in PROPERTIES.items()
    )
    schema = (
        '<rdf:li rdf:parseType="Resource"><pdfaSchema:schema>Factur-X PDFA Extension Schema</pdfaSchema:schema>'
        f"<pdfaSchema:namespaceURI>{NAMESPACE}</pdfaSchema:namespaceURI><pdfaSchema:prefix>fx</pdfaSchema:prefix>"
        f"<pdfaSchema:property><rdf:Seq>{described}</rdf:Seq></pdfaSchema:property></rdf:li>"
    )
    text = metadata.decode()
    for mark in (_SCHEMAS, _END):
        if text.count(mark) != 1:
            raise ValueError(f"the metadata of the PDF has no place for that of Factur-X: {mark}")
    text = text.replace(_SCHEMAS, _SCHEMAS + schema)
    return text.replace(
        _END, f'<rdf:Description rdf:about="" xmlns:fx="{NAMESPACE}">{properties}</rdf:Description>{_END}'
    ).encode()


_SCHEMAS: Final = "<pdfaExtension:schemas><rdf:Bag>"
_END: Final = "</rdf:RDF>"
