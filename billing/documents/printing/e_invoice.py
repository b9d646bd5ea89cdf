"""The e-invoice: Factur-X of profile EN 16931, an XML file inside the PDF, and the metadata of the PDF about it.

Source: EN 16931-1 (BT and BG are its numbers of terms), Factur-X 1.09 / ZUGFeRD 2.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

from billing.documents.printing.pages import EURO, PLACE, DocumentSource
from billing.models import CREDIT_NOTE
from billing.rating.money import minor_digits
from ledger.typesetting.typeset import AttachedFile

log = logging.getLogger(__name__)

FILE_NAME: Final = "factur-x.xml"
PROFILE: Final = "en16931"
TRANSFER: Final = "58"
"""SEPA credit transfer. Source: UNTDID 4461."""
ONE: Final = "C62"
"""Pieces. Source: UN/ECE Recommendation 20."""
CATEGORIES: Final = {"S", "Z", "E", "AE", "K", "G", "O", "L", "M"}
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


def e_invoice(source: DocumentSource) -> bytes | None:
    """Return the XML of a document, which keeps the schemas of Factur-X and the rules of EN 16931; None if it cannot have one.

    A document can have one if it is issued and valid, in euro, and has all data that EN 16931 requires: the countries of both
        sides, and the VAT ids for tax, reverse charge and intra-community supply. No line of it bears two VATs, and what is not
        subject to VAT does not stand beside what is.
    """
    if not is_complete(source):
        return None
    from facturx import generate_cii_xml

    try:
        xml: bytes = generate_cii_xml(_storable(_terms(source)), level=PROFILE, check_xsd=True, check_schematron=False)
    except Exception:  # the package's error for XML that the schemas refuse
        log.exception("%s has no e-invoice", source.document["number"])
        return None
    return xml


def is_complete(source: DocumentSource) -> bool:
    """Return whether the document has everything that an e-invoice needs."""
    document, seller = source.document, source.seller
    buyer_country = str((source.buyer.get("address") or {}).get("country") or "")
    categories = _categories(document)
    return (
        source.is_valid
        and document["currency"] == EURO
        and bool(document["lines"])
        and all(sum(not _is_other(tax) for tax in _declared(line)) <= 1 for line in document["lines"])
        and len(buyer_country) == 2
        and buyer_country.isascii()
        and buyer_country.isupper()
        and bool(source.buyer.get("name"))
        and _is_identified(seller, categories)
        and not (categories & VAT_IDS_OF_BOTH and not source.buyer.get("vat_id"))
        and not (NOT_VAT in categories and len(categories) > 1)
    )


def _is_identified(seller: Mapping[str, str], categories: set[str]) -> bool:
    """Return whether the seller has the id that the taxes need."""
    has_tax_number = bool(seller.get("tax_number")) and not categories & VAT_IDS_OF_BOTH
    return "vat_id" in seller or has_tax_number or categories <= {NOT_VAT}


def _categories(document: Mapping[str, Any]) -> set[str]:
    """Return the categories of all lines, and of the VAT on other taxes."""
    of_lines = {_vat_of(line)[0] for line in document["lines"]}
    return of_lines | {_vat_on(document, tax)[0] for tax in _other_taxes(document)}


def attachment(xml: bytes) -> AttachedFile:
    """Return the XML as a file for the PDF."""
    return AttachedFile(FILE_NAME, xml.decode(), "text/xml", "Factur-X: the same document for machines")


# The terms of EN 16931 -------------------------------------------------------------------------------


def _terms(source: DocumentSource) -> dict[str, Any]:
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
        "BT-10": document["customer"],
        "BT-12": document["subscription"],
        "BG-4": _seller(source.seller, has_vat=has_vat),
        "BG-7": _buyer(source.buyer, has_vat=has_vat),
        "BG-23": _taxes(source, minor),
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
    }
    if source.corrects is not None:
        number, dated = source.corrects
        terms |= {
            "BG-3": [{"BT-25": number, "BT-26": dated}],
            "BG-1": [{"BT-22": document["reason"]}],
            "BT-9": source.day("issue_date"),
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
    """Return the seller; without VAT its VAT id is not named as one (BR-O-02), but as what identifies it (BR-CO-26)."""
    vat_id = seller.get("vat_id")
    contact = {"name": seller["name"], "phone": seller.get("phone"), "email": seller.get("email")}
    return {
        "name": seller["name"],
        "identifiers": {} if has_vat else {"": vat_id or seller.get("tax_number") or seller["name"]},
        "legal_info": seller.get("register"),
        "vat_identifier": vat_id if has_vat else None,
        "tax_identifier": seller.get("tax_number"),
        **_address(seller),
        **_mail(seller.get("email")),
        "contacts": [contact] if contact["phone"] or contact["email"] else [],
    }


def _buyer(buyer: Mapping[str, Any], *, has_vat: bool) -> dict[str, Any]:
    return {
        "name": str(buyer["name"]),
        "vat_identifier": (buyer.get("vat_id") or None) if has_vat else None,
        **_address(buyer["address"]),
        **_mail(buyer["address"].get("email")),
    }


def _address(address: Mapping[str, Any]) -> dict[str, Any]:
    text = {key: str(address[key]) for key in ("line1", "line2", "line3", *PLACE) if address.get(key)}
    return {
        "addr_l1": text.get("line1"), "addr_l2": text.get("line2"), "addr_l3": text.get("line3"),
        "postcode": text.get("postal_code"), "city": text.get("city"), "country_code": address["country"],
    }  # fmt: skip


def _mail(address: Any) -> dict[str, str]:
    return {"einvoicing_addr": str(address), "einvoicing_addr_schemeid": "EM"} if address else {}


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


def _category(category: str, rate: str) -> str:
    """Return the category of EN 16931: what is standard-rated at 0 % is zero-rated there (BR-S-05)."""
    found = category if category in CATEGORIES else STANDARD
    return ZERO if found == STANDARD and not Decimal(rate) else found


def _declared(line: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
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
    lines = [line for line in document["lines"] if any(one["code"] == tax["code"] for one in _declared(line))]
    vats = [one for line in lines for one in _declared(line) if not _is_other(one)]
    if not vats:
        return NOT_VAT, "0"
    billed = next(one for one in document["taxes"] if one.get("code") == vats[0]["code"])
    nets = sum(_net_minor(line) for line in document["lines"] if any(one["code"] == billed["code"] for one in _declared(line)))
    if billed["base_minor"] == nets:
        return "E", "0"
    return _category(billed["category"], billed["rate"]), billed["rate"]


def _vat_of(line: Mapping[str, Any]) -> tuple[str, str]:
    """Return the category and rate of a line's VAT."""
    if not _declared(line):
        return _category(line["tax_category"], line["tax_rate"]), line["tax_rate"]
    vat = next((tax for tax in _declared(line) if not _is_other(tax)), None)
    return (NOT_VAT, "0") if vat is None else (_category(vat["category"], vat["rate"]), vat["rate"])


def _taxes(source: DocumentSource, minor: _Minor) -> list[dict[str, Any]]:
    """Return the tax per category and rate of EN 16931; a plan's own categories are grouped by their rate."""
    sums: dict[tuple[str, str], list[int]] = {}
    for tax in source.document["taxes"]:
        if _is_other(tax):
            sums.setdefault(_vat_on(source.document, tax), [0, 0])[0] += tax["amount_minor"]
        else:
            category = _category(tax["category"], tax["rate"])
            sums.setdefault((category, tax["rate"]), [0, 0])[1] += tax["amount_minor"]
    for line in source.document["lines"]:
        sums.setdefault(_vat_of(line), [0, 0])[0] += _net_minor(line)
    return [
        {
            "BT-116": minor.text(base),
            "BT-117": minor.text(amount),
            "BT-118": category,
            "BT-119": None if category == NOT_VAT else rate,
            "BT-120": REASONS.get(category, (None, None))[0],
            "BT-121": REASONS.get(category, (None, None))[1],
        }
        for (category, rate), (base, amount) in sums.items()
    ]


def _net_minor(line: Mapping[str, Any]) -> int:
    net: int = line["amount_minor"] - line.get("discount_minor", 0)
    return net


def _line(source: DocumentSource, line: Mapping[str, Any], minor: _Minor) -> dict[str, Any]:
    category, rate = _vat_of(line)
    period = line.get("period")
    return {
        "BT-126": str(line["position"]),
        "BT-153": line["title"] or "–",
        **_subscription(source, line),
        **_priced(line, minor),
        "BT-130": ONE,
        "BT-131": minor.text(_net_minor(line)),
        "BT-134": _local(source, period["start"]).date() if period else None,
        "BT-135": _last_day(source, period) if period else None,
        "BT-151": category,
        "BT-152": None if category == NOT_VAT else rate,
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


def _discount_reason(source: DocumentSource) -> str:
    """Return the coupons of the invoice by their names; without one, a maximum has lowered the line."""
    names, texts = ", ".join(each["name"] for each in source.document["discounts"]), source.notation.texts
    return texts["discount"].format(name=names) if names else texts["discounts"]


def _priced(line: Mapping[str, Any], minor: _Minor) -> dict[str, str]:
    """Return quantity and price if their product is the amount, otherwise one unit at the amount: EN 16931 has no tiers."""
    quantity, unit_amount = Decimal(line.get("quantity") or 0), line.get("unit_amount")
    amount = Decimal(minor.text(line["amount_minor"]))
    if unit_amount is not None and quantity and quantity * Decimal(unit_amount) == amount:
        return {"BT-129": f"{quantity:f}", "BT-146": f"{Decimal(unit_amount):f}"}
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
