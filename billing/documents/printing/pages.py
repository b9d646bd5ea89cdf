"""The content of a printed invoice or credit note, in the language of its reader. Pure.

The paper shows the document as it was issued. Later payments and credits are in other documents, so the bytes stay the same. Only
a void document shows that it is void.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from billing.documents.printing.arithmetic import Notation, calculation
from billing.documents.printing.payment_code import epc_code
from billing.documents.printing.texts import COUNTRIES, texts_of
from billing.rating.money import minor_digits
from ledger.typesetting.languages import Language, language_of
from ledger.units import CreditUnit

ADDRESS: Final = ("line1", "line2", "line3")
PLACE: Final = ("postal_code", "city")
EURO: Final = "EUR"
MOST_BY_TRANSFER_MINOR: Final = 99_999_999_999
"""The largest amount of a transfer code. Source: EPC069-12."""
DOT: Final = " · "


@dataclass(frozen=True, slots=True)
class Paper:
    """A document with its parts, as it was issued.

    Args:
        document: as `GET /v1/invoices/{id}` or `/v1/credit-notes/{id}` has it.
        seller, buyer: their details then.
        zone: the customer's time zone, for periods.
        credits: how many prepaid credits paid a part of it, or went back with it; credit_type: of which type.
        units: of the credit types on it that have one, as they were then.
        corrects: of a credit note: the number and day of its invoice.
    """

    document: Mapping[str, Any]
    seller: Mapping[str, str]
    buyer: Mapping[str, Any]
    zone: tzinfo
    credits: int = 0
    credit_type: str = "credits"
    units: Mapping[str, CreditUnit] = field(default_factory=dict)
    corrects: tuple[str, date] | None = None

    @property
    def language(self) -> Language:
        """The buyer's language, where there are texts in it."""
        return language_of(str(self.buyer.get("language") or "en"))

    @property
    def notation(self) -> Notation:
        """How its numbers are written."""
        texts = texts_of(self.language.code, seller=self.seller, buyer=self.buyer.get("address") or {})
        return Notation(self.language, texts, self.document["currency"], self.units)

    @property
    def is_valid(self) -> bool:
        """True where the document is neither a draft nor void."""
        return self.document["state"] not in ("draft", "void")

    def day(self, name: str) -> date | None:
        """One of the document's days."""
        text = self.document.get(name)
        return date.fromisoformat(text) if text else None


def invoice_page(paper: Paper) -> dict[str, Any]:
    """The data of invoice.typ for an invoice."""
    document, texts = paper.document, paper.notation.texts
    kind = texts["draft" if document["state"] == "draft" else "invoice"]
    facts = [
        (texts["invoice_number"], document["number"] or ""),
        (texts["invoice_date"], _day(paper, "issue_date")),
        (texts["payable_until"], _day(paper, "due_date") if document["amount_due_minor"] else ""),
    ]
    return {
        **_letter(paper, kind, facts),
        "columns": [texts[name] for name in ("position", "description", "quantity", "unit_price", "tax")]
        + [texts["amount"].format(currency=document["currency"])],
        "lines": [_line(paper, line) for line in document["lines"]],
        "sums": _invoice_sums(paper),
        "notes": _notes(paper),
        "payment": _payment(paper),
    }


def credit_note_page(paper: Paper) -> dict[str, Any]:
    """The data of invoice.typ for a credit note."""
    document, texts = paper.document, paper.notation.texts
    assert paper.corrects is not None
    number, dated = paper.corrects
    facts = [
        (texts["credit_note_number"], document["number"] or ""),
        (texts["credit_note_date"], _day(paper, "issue_date")),
        (texts["corrects"], number),
        (texts["dated"], paper.language.day(dated)),
    ]
    return {
        **_letter(paper, texts["credit_note"], facts),
        "columns": [
            texts["position"],
            texts["description"],
            "",
            "",
            texts["tax"],
            texts["amount"].format(currency=document["currency"]),
        ],
        "lines": [_credited_line(paper, line) for line in document["lines"]],
        "sums": _credit_note_sums(paper, number),
        "notes": [texts["reason"].format(reason=document["reason"]), *_notes(paper)],
        "payment": None,
    }


def title_of(line: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """The title of a line, in the language of the texts."""
    name, kind = line["price_key"], line["kind"]
    if kind in ("late_usage", "minimum", "maximum") and name:
        return texts[kind].format(name=name)
    if kind == "credit" and name:
        return texts["unused"].format(name=name)
    return texts["carried"] if kind == "carried" else str(line["description"])


# The letter ------------------------------------------------------------------------------------------


def _letter(paper: Paper, kind: str, facts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    document, texts = paper.document, paper.notation.texts
    number = document["number"] or ""
    address = paper.buyer.get("address") or {}
    country = str(address.get("country") or "")
    abroad = "" if country == paper.seller["country"] else country_name(country, paper.language.code).upper()
    facts = [
        *facts,
        (texts["customer"], document["customer"]),
        (texts["subscription"], document["subscription"]),
        (texts["buyer_vat_id"], str(paper.buyer.get("vat_id") or "")),
    ]
    return {
        "language": paper.language.code,
        "title": f"{kind} {number}".strip(),
        "stamp": _stamp(paper),
        "running": DOT.join(part for part in (f"{kind} {number}".strip(), _day(paper, "issue_date")) if part),
        "page": texts["page"],
        "sender": {"name": paper.seller["name"], "line": DOT.join(address_lines(paper.seller))},
        "recipient": address_lines(address, str(paper.buyer.get("name") or ""), country=abroad),
        "facts": [[label, value] for label, value in facts if value],
        "footer": seller_columns(paper.seller, texts, paper.language.code),
        "rows": len(document["lines"]),
    }


def address_lines(address: Mapping[str, Any], name: str = "", *, country: str = "") -> list[str]:
    """An address as on an envelope: name, street, postal code and city, other members, country.

    Args:
        country: as it is written; empty where it goes without saying.
    """
    known = {**address, "name": name or address.get("name", "")}
    place = " ".join(str(known[key]) for key in PLACE if known.get(key))
    others = [
        str(value) for key, value in sorted(address.items())
        if value and isinstance(value, str | int) and key not in (*ADDRESS, *PLACE, "name", "country", *_NOT_OF_THE_ADDRESS)
    ]  # fmt: skip
    lines = [known["name"], *(str(known[key]) for key in ADDRESS if known.get(key)), place, *others, country]
    return [str(line) for line in lines if line]


_NOT_OF_THE_ADDRESS: Final = ("vat_id", "tax_number", "register", "email", "phone", "website", "iban", "bic", "bank")


def country_name(code: str, language: str) -> str:
    """The name of a country; an unknown code stays as it is."""
    return COUNTRIES[language].get(code, code)


def seller_columns(seller: Mapping[str, str], texts: Mapping[str, str], language: str) -> list[list[str]]:
    """What a footer says of a seller: address, contact, bank and registers, a column each."""
    columns = [
        address_lines(seller, country=country_name(seller["country"], language)),
        [seller.get(key, "") for key in ("email", "phone", "website")],
        [
            seller.get("bank", ""),
            f"IBAN {grouped(seller['iban'])}" if "iban" in seller else "",
            f"BIC {seller['bic']}" if "bic" in seller else "",
        ],
        [
            f"{texts['vat_id']} {seller['vat_id']}" if "vat_id" in seller else "",
            f"{texts['tax_number']} {seller['tax_number']}" if "tax_number" in seller else "",
            seller.get("register", ""),
        ],
    ]
    return [lines for column in columns if (lines := [line for line in column if line])]


def _stamp(paper: Paper) -> dict[str, str] | None:
    texts = paper.notation.texts
    state = paper.document["state"]
    return None if paper.is_valid else {"word": texts[f"{state}_word"], "sentence": texts[f"{state}_sentence"]}


def _day(paper: Paper, name: str) -> str:
    day = paper.day(name)
    return "" if day is None else paper.language.day(day)


def grouped(iban: str) -> str:
    """An IBAN in groups of four, as people read it."""
    return " ".join(iban[start : start + 4] for start in range(0, len(iban), 4))


# Lines -----------------------------------------------------------------------------------------------


def _line(paper: Paper, line: Mapping[str, Any]) -> dict[str, Any]:
    notation = paper.notation
    return {
        "position": str(line["position"]),
        "title": title_of(line, notation.texts),
        "notes": [*_period(paper, line), *calculation(notation, line)],
        "quantity": notation.number(line["quantity"]),
        "price": "" if line["unit_amount"] is None else notation.price(line["unit_amount"]),
        "tax": _rate(notation, line["tax_category"], line["tax_rate"]),
        "amount": notation.money(line["amount_minor"]),
    }


def _credited_line(paper: Paper, line: Mapping[str, Any]) -> dict[str, Any]:
    notation = paper.notation
    return {
        "position": str(line["position"]),
        "title": line["description"],
        "notes": [],
        "quantity": "",
        "price": "",
        "tax": _rate(notation, line["tax_category"], line["tax_rate"]),
        "amount": notation.money(line["amount_minor"]),
    }


def _period(paper: Paper, line: Mapping[str, Any]) -> Iterable[str]:
    period = line["period"]
    if period is not None:
        start, end = datetime.fromisoformat(period["start"]), datetime.fromisoformat(period["end"])
        yield paper.language.period(start, end, paper.zone)


def _rate(notation: Notation, category: str, rate: str) -> str:
    return f"{notation.number(rate)} %" if Decimal(rate) else category


# Sums ------------------------------------------------------------------------------------------------


def _sum(label: str, value: str, *, strong: bool = False) -> dict[str, Any]:
    return {"label": label, "value": value, "strong": strong}


def _taxes(paper: Paper) -> list[dict[str, Any]]:
    notation = paper.notation
    return [
        _sum(
            notation.texts["tax_on"].format(rate=notation.number(tax["rate"]), base=notation.money(tax["base_minor"])),
            notation.money(tax["amount_minor"]),
        )
        for tax in paper.document["taxes"]
    ]


def _with_currency(paper: Paper, amount_minor: int) -> str:
    return f"{paper.document['currency']} {paper.notation.money(amount_minor)}"


def _invoice_sums(paper: Paper) -> list[dict[str, Any]]:
    document, notation = paper.document, paper.notation
    texts = notation.texts
    rows = [_sum(texts["subtotal"], notation.money(document["subtotal_minor"]))]
    if document["discount_minor"]:
        rows += [
            _sum(texts["discounts"], notation.money(-document["discount_minor"])),
            _sum(texts["net"], notation.money(document["subtotal_minor"] - document["discount_minor"])),
        ]
    rows += [*_taxes(paper), _sum(texts["total"], _with_currency(paper, document["total_minor"]), strong=True)]
    if document["credit_notes_minor"]:
        rows.append(_sum(texts["credit_notes"], notation.money(-document["credit_notes_minor"])))
    if document["credits_applied_minor"]:
        words = notation.with_credits("paid_with_credits", "paid_in_unit", paper.credits, paper.credit_type)
        rows.append(_sum(words, notation.money(-document["credits_applied_minor"])))
    if document["amount_due_minor"] != document["total_minor"]:
        rows.append(_sum(texts["amount_due"], _with_currency(paper, document["amount_due_minor"]), strong=True))
    return rows


def _credit_note_sums(paper: Paper, invoice_number: str) -> list[dict[str, Any]]:
    document, notation = paper.document, paper.notation
    texts = notation.texts
    goes = [
        (texts["lowers_due"].format(invoice=invoice_number), document["lowers_due_minor"]),
        (
            notation.with_credits("credits_returned", "returned_in_unit", document["credits_returned"], paper.credit_type),
            document["credits_returned_minor"],
        ),
        (texts["left"], document["left_minor"]),
    ]
    return [
        _sum(texts["subtotal"], notation.money(document["subtotal_minor"])),
        *_taxes(paper),
        _sum(texts["total"], _with_currency(paper, document["total_minor"]), strong=True),
        *(_sum(label, notation.money(amount)) for label, amount in goes if amount),
    ]


def _notes(paper: Paper) -> list[str]:
    """Why a category has no tax."""
    texts = paper.notation.texts
    names = dict.fromkeys(f"note_{tax['category']}" for tax in paper.document["taxes"])
    return [texts[name] for name in names if name in texts]


def _payment(paper: Paper) -> dict[str, Any] | None:
    document, texts, seller = paper.document, paper.notation.texts, paper.seller
    due_on = paper.day("due_date")
    if not paper.is_valid or due_on is None:
        return None
    due_minor = document["amount_due_minor"]
    if not due_minor:
        return {"sentence": texts["nothing_due"], "rows": [], "qr": None, "caption": ""}
    rows = [
        (texts["account_holder"], seller["name"] if "iban" in seller else ""),
        ("IBAN", grouped(seller.get("iban", ""))),
        ("BIC", seller.get("bic", "")),
        (texts["bank"], seller.get("bank", "")),
        (texts["reference"], document["number"]),
    ]
    amount = _with_currency(paper, due_minor)
    return {
        "sentence": texts["please_pay"].format(amount=amount, day=paper.language.day(due_on)),
        "rows": [[label, value] for label, value in rows if value],
        "qr": _code(paper, due_minor),
        "caption": texts["scan"],
    }


def _code(paper: Paper, due_minor: int) -> str | None:
    seller, currency = paper.seller, paper.document["currency"]
    if currency != EURO or "iban" not in seller or due_minor > MOST_BY_TRANSFER_MINOR:
        return None
    return epc_code(
        name=seller["name"],
        iban=seller["iban"],
        bic=seller.get("bic", ""),
        amount=Decimal(due_minor).scaleb(-minor_digits(currency)),
        reference=paper.document["number"],
    )
