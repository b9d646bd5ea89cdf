"""The content of a printed invoice or credit note, in the language of its reader. Pure.

A PDF shows the document as it was issued. Later payments and credits are in other documents, so the bytes stay the same. Only a
void document says that it is void.
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, tzinfo
from decimal import Decimal
from typing import Any, Final

from billing.documents.brand import printed_brand
from billing.documents.printed_arithmetic import Notation, calculation
from billing.documents.printed_texts import COUNTRIES, buyer_line, texts_of
from billing.models import CREDIT_NOTE, INVOICE, DocumentKind
from billing.nouns import line_names
from billing.orders.customers import NewCustomer
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
class DocumentSource:
    """A document with its parts, as it was issued.

    Args:
        document: as `GET /v1/invoices/{id}` or `/v1/credit-notes/{id}` returns it.
        seller, buyer: their details at the issue; see `billing.documents.sellers.NewSeller`.
        zone: the customer's time zone, for periods.
        credits, credit_type: how many prepaid credits paid a part of it, or went back with it, and their type.
        units: of the credit types on it that have one, as shown at the issue.
        corrects: the number and day of the invoice that a credit note corrects.
        pay_url: the address at which the buyer pays it; empty if there is none.
    """

    document: Mapping[str, Any]
    seller: Mapping[str, Any]
    buyer: Mapping[str, Any]
    zone: tzinfo
    credits: int = 0
    credit_type: str = "credits"
    units: Mapping[str, CreditUnit] = field(default_factory=dict)
    corrects: tuple[str, date] | None = None
    pay_url: str = ""

    @property
    def kind(self) -> DocumentKind:
        """The kind of the document."""
        return INVOICE if self.corrects is None else CREDIT_NOTE

    @property
    def title(self) -> str:
        """The title in the reader's language; a draft is called a draft."""
        is_draft = self.document["state"] == "draft"
        return self.notation.texts["draft" if is_draft else self.kind.word.replace(" ", "_")]

    @property
    def language(self) -> Language:
        """The buyer's language if there are texts in it, otherwise English."""
        return language_of(str(self.buyer.get("language") or "en"))

    @property
    def notation(self) -> Notation:
        """The notation of its numbers."""
        named = any("name" in tax for tax in self.document["taxes"])
        texts = texts_of(self.language.code, seller=self.seller, buyer=self.buyer.get("address") or {}, names_taxes=named)
        return Notation(self.language, texts, self.document["currency"], self.units)

    def in_language(self, name: str) -> str:
        """Return one of the seller's texts in the reader's language, or else in the first language that it has."""
        return text_in(self.language.code, self.seller.get(name) or {})

    @property
    def is_valid(self) -> bool:
        """Whether the document is neither a draft nor void."""
        return self.document["state"] not in ("draft", "void")

    def day(self, name: str) -> date | None:
        """Return one of the document's days."""
        text = self.document.get(name)
        return date.fromisoformat(text) if text else None


def invoice_page(source: DocumentSource) -> dict[str, Any]:
    """Return the data of invoice.typ for an invoice."""
    document, texts = source.document, source.notation.texts
    facts = [
        (texts["invoice_number"], document["number"] or ""),
        (texts["invoice_date"], _day(source, "issue_date")),
        (texts["payable_until"], _day(source, "due_date") if document["amount_due_minor"] else ""),
    ]
    return {
        **_letter(source, source.title, facts),
        "columns": [texts[name] for name in ("position", "description", "quantity", "unit_price", "tax")]
        + [texts["amount"].format(currency=document["currency"])],
        "lines": _under_headings(source, _line),
        "sums": _invoice_sums(source),
        "notes": [*_notes(source), *filter(None, [document["note"]])],
        "payment": _payment(source),
    }


def credit_note_page(source: DocumentSource) -> dict[str, Any]:
    """Return the data of invoice.typ for a credit note."""
    document, texts = source.document, source.notation.texts
    assert source.corrects is not None
    number, dated = source.corrects
    facts = [
        (texts["credit_note_number"], document["number"] or ""),
        (texts["credit_note_date"], _day(source, "issue_date")),
        (texts["corrects"], number),
        (texts["dated"], source.language.day(dated)),
    ]
    return {
        **_letter(source, source.title, facts),
        "columns": [
            texts["position"],
            texts["description"],
            "",
            "",
            texts["tax"],
            texts["amount"].format(currency=document["currency"]),
        ],
        "lines": _under_headings(source, _credited_line),
        "sums": _credit_note_sums(source, number),
        "notes": [texts["reason"].format(reason=document["reason"]), *_notes(source)],
        "payment": None,
    }


def text_in(language: str, texts: Mapping[str, str]) -> str:
    """Return a text in a language, or else in English or the first language that it has; empty without any."""
    return texts.get(language) or texts.get("en") or next(iter(texts.values()), "")


# The letter ------------------------------------------------------------------------------------------


def _letter(source: DocumentSource, kind: str, facts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    document, texts = source.document, source.notation.texts
    number = document["number"] or ""
    address = source.buyer.get("address") or {}
    country = str(address.get("country") or "")
    abroad = "" if country == source.seller["country"] else country_name(country, source.language.code).upper()
    facts = [
        *facts,
        (texts["customer"], document["customer"]),
        (texts["subscription"], document["subscription"] or ""),
        *((texts[buyer_line(name)], str(source.buyer.get(name) or "")) for name in line_names(NewCustomer, source.language.code)),
    ]
    return {
        "language": source.language.code,
        "title": f"{kind} {number}".strip(),
        "stamp": _stamp(source),
        "running": DOT.join(part for part in (f"{kind} {number}".strip(), _day(source, "issue_date")) if part),
        "page": texts["page"],
        "sender": {
            "name": source.seller["name"],
            "line": DOT.join(seller_lines(source.seller)),
            "footer": source.in_language("footer"),
            **printed_brand(source.seller),
        },
        "recipient": address_lines(address, str(source.buyer.get("name") or ""), country=abroad),
        "facts": [[label, value] for label, value in facts if value],
        "footer": seller_columns(source.seller, texts, source.language.code),
        "rows": len(document["lines"]),
    }


def address_lines(address: Mapping[str, Any], name: str = "", *, country: str = "") -> list[str]:
    """Return an address as on an envelope: name, street, postal code and city, other members, country.

    Args:
        country: its printed name; empty if the country is the seller's.
    """
    known = {**address, "name": name or address.get("name", "")}
    place = " ".join(str(known[key]) for key in PLACE if known.get(key))
    others = [
        str(value) for key, value in sorted(address.items())
        if value and isinstance(value, str | int) and key not in (*ADDRESS, *PLACE, "name", "country")
    ]  # fmt: skip
    lines = [known["name"], *(str(known[key]) for key in ADDRESS if known.get(key)), place, *others, country]
    return [str(line) for line in lines if line]


def seller_lines(seller: Mapping[str, Any], *, country: str = "") -> list[str]:
    """Return the address of a seller as on an envelope. Args: as `address_lines`."""
    return address_lines({name: seller[name] for name in ("name", *ADDRESS, *PLACE) if name in seller}, country=country)


def country_name(code: str, language: str) -> str:
    """Return the name of a country; an unknown code stays as it is."""
    return COUNTRIES[language].get(code, code)


def seller_columns(seller: Mapping[str, Any], texts: Mapping[str, str], language: str) -> list[list[str]]:
    """Return the footer about a seller: address, contact, bank and registers, a column each."""
    columns = [
        seller_lines(seller, country=country_name(seller["country"], language)),
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


def _stamp(source: DocumentSource) -> dict[str, str] | None:
    texts = source.notation.texts
    state = source.document["state"]
    return None if source.is_valid else {"word": texts[f"{state}_word"], "sentence": texts[f"{state}_sentence"]}


def _day(source: DocumentSource, name: str) -> str:
    day = source.day(name)
    return "" if day is None else source.language.day(day)


def grouped(iban: str) -> str:
    """Return an IBAN in groups of four."""
    return " ".join(iban[start : start + 4] for start in range(0, len(iban), 4))


# Lines -----------------------------------------------------------------------------------------------


def _under_headings(
    source: DocumentSource, shown: Callable[[DocumentSource, Mapping[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the lines; on a document of several subscriptions the first line of each has its subscription as a heading."""
    headings: list[dict[str, Any]] = []
    before = source.document["subscription"]
    for line in source.document["lines"]:
        of = line.get("subscription") or before
        heading = f"{source.notation.texts['subscription']} {of}" if of != before else ""
        headings.append(shown(source, line) | {"heading": heading})
        before = of
    return headings


def _line(source: DocumentSource, line: Mapping[str, Any]) -> dict[str, Any]:
    notation = source.notation
    return {
        "position": str(line["position"]),
        "title": line["title"],
        "notes": [*_period(source, line), *calculation(notation, line)],
        "quantity": notation.number(line["quantity"]),
        "price": "" if line["unit_amount"] is None or "included_tax" in line["rating"] else notation.price(line["unit_amount"]),
        "tax": _rate(notation, line["tax_category"], line["tax_rate"]),
        "amount": notation.money(line["amount_minor"]),
    }


def _credited_line(source: DocumentSource, line: Mapping[str, Any]) -> dict[str, Any]:
    notation = source.notation
    return {
        "position": str(line["position"]),
        "title": line["title"],
        "notes": [],
        "quantity": "",
        "price": "",
        "tax": _rate(notation, line["tax_category"], line["tax_rate"]),
        "amount": notation.money(line["amount_minor"]),
    }


def _period(source: DocumentSource, line: Mapping[str, Any]) -> Iterable[str]:
    period = line["period"]
    if period is not None:
        start, end = datetime.fromisoformat(period["start"]), datetime.fromisoformat(period["end"])
        yield source.language.period(start, end, source.zone)


def _rate(notation: Notation, category: str, rate: str) -> str:
    return f"{notation.number(rate)} %" if Decimal(rate) else category


# Sums ------------------------------------------------------------------------------------------------


def _sum(label: str, value: str, *, strong: bool = False) -> dict[str, Any]:
    return {"label": label, "value": value, "strong": strong}


def _taxes(source: DocumentSource) -> list[dict[str, Any]]:
    notation = source.notation
    return [
        _sum(
            notation.texts["named_tax_on" if "name" in tax else "tax_on"].format(
                name=tax.get("name"), rate=notation.number(tax["rate"]), base=notation.money(tax["base_minor"])
            ),
            notation.money(tax["amount_minor"]),
        )
        for tax in source.document["taxes"]
    ]


def _rounding(source: DocumentSource) -> list[dict[str, Any]]:
    notation, rounding_minor = source.notation, source.document["rounding_minor"]
    return [_sum(notation.texts["rounding"], notation.money(rounding_minor))] if rounding_minor else []


def _with_currency(source: DocumentSource, amount_minor: int) -> str:
    return f"{source.document['currency']} {source.notation.money(amount_minor)}"


def _invoice_sums(source: DocumentSource) -> list[dict[str, Any]]:
    document, notation = source.document, source.notation
    texts = notation.texts
    rows = [_sum(texts["subtotal"], notation.money(document["subtotal_minor"]))]
    if document["discount_minor"]:
        rows += [
            *_discounts(source),
            _sum(texts["net"], notation.money(document["subtotal_minor"] - document["discount_minor"])),
        ]
    rows += [*_taxes(source), _sum(texts["total"], _with_currency(source, document["total_minor"]), strong=True)]
    if document["credit_notes_minor"]:
        rows.append(_sum(texts["credit_notes"], notation.money(-document["credit_notes_minor"])))
    if document["credits_applied_minor"]:
        words = notation.with_credits("paid_with_credits", "paid_in_unit", source.credits, source.credit_type)
        rows.append(_sum(words, notation.money(-document["credits_applied_minor"])))
    rows += _rounding(source)
    if document["amount_due_minor"] != document["total_minor"] or document["rounding_minor"]:
        rows.append(_sum(texts["amount_due"], _with_currency(source, document["amount_due_minor"]), strong=True))
    return rows


def _discounts(source: DocumentSource) -> list[dict[str, Any]]:
    """Return what each coupon took off, and what the maximums of prices did."""
    document, notation = source.document, source.notation
    texts = notation.texts
    # Coupons lower amounts as priced; here are discounts without the tax that prices include.
    named = [] if any("included_tax" in line["rating"] for line in document["lines"]) else document["discounts"]
    rows = [(texts["discount"].format(name=each["name"]), each["amount_minor"]) for each in named]
    by_maximums = document["discount_minor"] - sum(amount for _, amount in rows)
    rows += [(texts["discounts"], by_maximums)] if by_maximums else []
    return [_sum(label, notation.money(-amount)) for label, amount in rows]


def _credit_note_sums(source: DocumentSource, invoice_number: str) -> list[dict[str, Any]]:
    document, notation = source.document, source.notation
    texts = notation.texts
    goes = [
        (texts["lowers_due"].format(invoice=invoice_number), document["lowers_due_minor"]),
        (
            notation.with_credits("credits_returned", "returned_in_unit", document["credits_returned"], source.credit_type),
            document["credits_returned_minor"],
        ),
        (texts["left"], document["left_minor"]),
    ]
    return [
        _sum(texts["subtotal"], notation.money(document["subtotal_minor"])),
        *_taxes(source),
        *_rounding(source),
        _sum(texts["total"], _with_currency(source, document["total_minor"]), strong=True),
        *(_sum(label, notation.money(amount)) for label, amount in goes if amount),
    ]


def _notes(source: DocumentSource) -> list[str]:
    """Return the reason why a category bears no tax."""
    texts = source.notation.texts
    names = dict.fromkeys(f"note_{tax['category']}" for tax in source.document["taxes"] if tax.get("note"))
    return [texts[name] for name in names if name in texts]


def _payment(source: DocumentSource) -> dict[str, Any] | None:
    document, texts, seller = source.document, source.notation.texts, source.seller
    due_on = source.day("due_date")
    if not source.is_valid or due_on is None:
        return None
    due_minor = document["amount_due_minor"]
    if not due_minor:
        refunded = document["refunded_minor"]
        paid_out = texts["paid_out"].format(amount=_with_currency(source, refunded)) if refunded else ""
        return {"sentence": f"{texts['nothing_due']} {paid_out}".rstrip(), "terms": "", "rows": [], "codes": [], "online": None}
    rows = [
        (texts["account_holder"], seller["name"] if "iban" in seller else ""),
        ("IBAN", grouped(seller.get("iban", ""))),
        ("BIC", seller.get("bic", "")),
        (texts["bank"], seller.get("bank", "")),
        (texts["reference"], document["number"]),
    ]
    amount = _with_currency(source, due_minor)
    return {
        "sentence": texts["please_pay"].format(amount=amount, day=source.language.day(due_on)),
        "terms": source.in_language("payment_terms"),
        "rows": [[label, value] for label, value in rows if value],
        "codes": [[code, caption] for code, caption in _codes(source, due_minor) if code],
        "online": [source.pay_url, texts["pay_online"]] if source.pay_url else None,
    }


def _codes(source: DocumentSource, due_minor: int) -> list[tuple[str | None, str]]:
    """Return the codes to scan with their captions: the transfer for a banking app, and the address for a camera."""
    texts = source.notation.texts
    return [(_code(source, due_minor), texts["scan"]), (_online_code(source.pay_url), texts["scan_online"])]


def _online_code(pay_url: str) -> str | None:
    if not pay_url:
        return None
    from segno import make  # of the extra [pdf]

    return _picture(make(pay_url, error="l", micro=False))


def _code(source: DocumentSource, due_minor: int) -> str | None:
    seller, currency = source.seller, source.document["currency"]
    if currency != EURO or "iban" not in seller or due_minor > MOST_BY_TRANSFER_MINOR:
        return None
    return epc_code(
        name=seller["name"],
        iban=seller["iban"],
        bic=seller.get("bic", ""),
        amount=Decimal(due_minor).scaleb(-minor_digits(currency)),
        reference=source.document["number"],
    )


def epc_code(*, name: str, iban: str, bic: str, amount: Decimal, reference: str) -> str | None:
    """Return the QR code from which a banking app reads a transfer in euro, as SVG; None if the details do not fit (331 bytes).

    Source: EPC069-12, version 002.

    Args:
        name: the account's holder, at most 70 characters.
        bic: may be empty, because the IBAN is enough within the euro area.
        amount: 0.01 to 999,999,999.99 euro.
        reference: the purpose of the transfer, at most 140 characters.
    """
    from segno.helpers import make_epc_qr

    try:
        code = make_epc_qr(name=name, iban=iban, amount=amount, text=reference, bic=bic or None, encoding="utf-8")
    except ValueError:
        return None
    return _picture(code)


def _picture(code: Any) -> str:
    """Return a code as SVG."""
    picture = io.BytesIO()
    code.save(picture, kind="svg", border=0, xmldecl=False, nl=False, omitsize=True)
    return picture.getvalue().decode()
