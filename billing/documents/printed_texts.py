"""The words on documents, in every language of `ledger.typesetting.languages`. One template prints them all."""

from collections.abc import Mapping
from typing import Any, Final

from billing.nouns import line_names
from billing.orders.customers import NewCustomer
from billing.rating.names_of_codes import COUNTRY_NAMES

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "invoice": "Invoice",
        "draft": "Draft invoice",
        "credit_note": "Credit note",
        "invoice_number": "Invoice number",
        "credit_note_number": "Credit note number",
        "invoice_date": "Invoice date",
        "credit_note_date": "Date",
        "corrects": "Corrects invoice",
        "dated": "Invoice date",
        "payable_until": "Due",
        "customer": "Customer",
        "subscription": "Subscription",
        "vat_id": "{seller_id}",
        "tax_number": "Tax number",
        "position": "#",
        "description": "Description",
        "quantity": "Quantity",
        "unit_price": "Unit price",
        "tax": "{Tax}",
        "amount": "Amount ({currency})",
        "subtotal": "Subtotal",
        "discounts": "Discounts",
        "discount": "Discount: {name}",
        "net": "Total before {tax}",
        "tax_on": "{Tax} {rate} % on {base}",
        "named_tax_on": "{name} {rate} % on {base}",
        "total": "Total",
        "credit_notes": "Credit notes",
        "paid_with_credits": "Paid with {credits}",
        "paid_in_unit": "Paid with prepaid credits: {credits}",
        "credits": "credit|credits",
        "units": "unit|units",
        "rounding": "Rounding",
        "amount_due": "Amount due",
        "nothing_due": "Nothing to pay.",
        "paid_out": "We pay {amount} out to you.",
        "please_pay": "Please pay {amount} by {day}.",
        "account_holder": "Account holder",
        "bank": "Bank",
        "reference": "Reference",
        "scan": "Scan to pay",
        "pay_online": "Pay online",
        "scan_online": "Scan to pay online",
        "page": "Page {page} of {pages}",
        "draft_word": "DRAFT",
        "draft_sentence": "This is a draft, not an invoice. Do not pay it.",
        "void_word": "VOID",
        "void_sentence": "This document is void. Do not pay it.",
        "reason": "Reason: {reason}",
        "lowers_due": "Lowers the amount due of {invoice}",
        "credits_returned": "Returned as {credits}",
        "returned_in_unit": "Returned as prepaid credits: {credits}",
        "left": "Credited to later invoices",
        "free": "free",
        "upto": "up to {upper}",
        "beyond": "beyond {lower}",
        "between": "{lower} to {upper}",
        "days": "{used} of {of} days",
        "seconds": "{used} of {of} seconds",
        "line_discount": "Discount {amount}",
        "with_tax": "{amount} with {rate} % {tax}",
        "other": "other",
        "event_minimum": "Minimum per event",
        "event_maximum": "Maximum per event",
        "rounded_up": ", rounded up",
        "rounded_down": ", rounded down",
        "rounded_half_up": ", rounded",
        "rate": "Rate",
        "component": "Component",
        "by_rate": "By the rate {rate}",
        "by_component": "By the rate {rate}, component {component}",
        "by_rates": "Used by rate: {parts}",
        "no_rate": "without a rate",
        "negotiated": "Negotiated price",
        "negotiated_from": "Negotiated price; list price {price}",
        "in_credits": "{units} paid with {credits}",
        "credits_back": "{units}: {credits} returned",
        "billed_before": "less the amount billed before",
        "note_AE": "Reverse charge: {tax} is owed by the recipient.",
        "note_E": "Exempt from {tax}.",
        "note_G": "Export outside the EU: exempt from VAT.",
        "note_K": "Intra-community supply: exempt from VAT.",
        "note_O": "Not subject to {tax}.",
    },
    "de": {
        "invoice": "Rechnung",
        "draft": "Rechnungsentwurf",
        "credit_note": "Rechnungskorrektur",
        "invoice_number": "Rechnungsnummer",
        "credit_note_number": "Korrekturnummer",
        "invoice_date": "Rechnungsdatum",
        "credit_note_date": "Datum",
        "corrects": "Zu Rechnung",
        "dated": "Rechnungsdatum",
        "payable_until": "Zahlbar bis",
        "customer": "Kundennummer",
        "subscription": "Vertrag",
        "vat_id": "{seller_id}",
        "tax_number": "Steuernummer",
        "position": "Nr.",
        "description": "Bezeichnung",
        "quantity": "Menge",
        "unit_price": "Einzelpreis",
        "tax": "{Tax}",
        "amount": "Betrag ({currency})",
        "subtotal": "Zwischensumme",
        "discounts": "Rabatte",
        "discount": "Rabatt: {name}",
        "net": "Gesamt netto",
        "tax_on": "{Tax} {rate} % auf {base}",
        "named_tax_on": "{name} {rate} % auf {base}",
        "total": "Gesamtbetrag",
        "credit_notes": "Verrechnete Gutschriften",
        "paid_with_credits": "Bezahlt mit {credits}",
        "paid_in_unit": "Bezahlt mit Guthaben: {credits}",
        "credits": "Guthabeneinheit|Guthabeneinheiten",
        "units": "Einheit|Einheiten",
        "rounding": "Rundung",
        "amount_due": "Zu zahlen",
        "nothing_due": "Es ist nichts zu zahlen.",
        "paid_out": "Wir zahlen Ihnen {amount} aus.",
        "please_pay": "Bitte zahlen Sie {amount} bis zum {day}.",
        "account_holder": "Kontoinhaber",
        "bank": "Bank",
        "reference": "Verwendungszweck",
        "scan": "Zum Bezahlen scannen",
        "pay_online": "Online bezahlen",
        "scan_online": "Scannen und online bezahlen",
        "page": "Seite {page} von {pages}",
        "draft_word": "ENTWURF",
        "draft_sentence": "Dies ist ein Entwurf. Er ist keine Rechnung, und es ist nichts darauf zu zahlen.",
        "void_word": "UNGÜLTIG",
        "void_sentence": "Dieses Dokument ist ungültig. Es ist nichts darauf zu zahlen.",
        "reason": "Grund: {reason}",
        "lowers_due": "Verringert den offenen Betrag von {invoice}",
        "credits_returned": "Zurückgegeben als {credits}",
        "returned_in_unit": "Zurückgegeben als Guthaben: {credits}",
        "left": "Wird mit späteren Rechnungen verrechnet",
        "free": "frei",
        "upto": "bis {upper}",
        "beyond": "über {lower}",
        "between": "{lower} bis {upper}",
        "days": "{used} von {of} Tagen",
        "seconds": "{used} von {of} Sekunden",
        "line_discount": "Rabatt {amount}",
        "with_tax": "{amount} mit {rate} % {tax}",
        "other": "übrige",
        "event_minimum": "Mindestbetrag je Vorgang",
        "event_maximum": "Höchstbetrag je Vorgang",
        "rounded_up": ", aufgerundet",
        "rounded_down": ", abgerundet",
        "rounded_half_up": ", gerundet",
        "rate": "Tarif",
        "component": "Komponente",
        "by_rate": "Nach dem Tarif {rate}",
        "by_component": "Nach dem Tarif {rate}, Komponente {component}",
        "by_rates": "Verbraucht nach Tarif: {parts}",
        "no_rate": "ohne Tarif",
        "negotiated": "Vereinbarter Preis",
        "negotiated_from": "Vereinbarter Preis; Listenpreis {price}",
        "in_credits": "{units} bezahlt mit {credits}",
        "credits_back": "{units}: {credits} zurückgegeben",
        "billed_before": "abzüglich des schon Berechneten",
        "note_AE": "Steuerschuldnerschaft des Leistungsempfängers.",
        "note_E": "Von der Umsatzsteuer befreit.",
        "note_G": "Steuerfreie Ausfuhrlieferung.",
        "note_K": "Steuerfreie innergemeinschaftliche Lieferung.",
        "note_O": "Nicht steuerbar.",
    },
}

TAXES: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "en": {
        "": ("VAT", "VAT id"),
        "AU": ("GST", "ABN"),
        "CA": ("GST/HST", "GST/HST number"),
        "IN": ("GST", "GSTIN"),
        "JP": ("consumption tax", "registration number"),
        "NZ": ("GST", "GST number"),
        "SG": ("GST", "GST registration number"),
        "US": ("sales tax", "tax id"),
    },
    "de": {
        "": ("USt.", "USt-IdNr."),
        "AU": ("GST", "ABN"),
        "CA": ("GST/HST", "GST/HST-Nummer"),
        "CH": ("MWST", "MWST-Nummer"),
        "IN": ("GST", "GSTIN"),
        "JP": ("Verbrauchsteuer", "Registrierungsnummer"),
        "LI": ("MWST", "MWST-Nummer"),
        "NZ": ("GST", "GST-Nummer"),
        "SG": ("GST", "GST-Nummer"),
        "US": ("Sales Tax", "Steuernummer"),
    },
}
"""The names of the sales tax and of a business number in a country; "" is for every other country."""


NAMED_TAXES: Final = {"en": "tax", "de": "Steuer"}
"""The name of all taxes of a document that names each of them."""


def texts_of(language: str, *, seller: Mapping[str, Any], buyer: Mapping[str, Any], names_taxes: bool = False) -> dict[str, str]:
    """Return the texts of a document between these two, with the tax's name in the buyer's country, where the tax is due.

    Args:
        seller, buyer: their addresses; a missing country of the buyer is the seller's.
        names_taxes: the document names each of its taxes, so all together are just "tax".
    """
    names = TAXES[language]
    country = str(seller.get("country") or "")
    tax, buyer_id = names.get(str(buyer.get("country") or country), names[""])
    seller_id = names.get(country, names[""])[1]
    tax = NAMED_TAXES[language] if names_taxes else tax
    filled = {"{tax}": tax, "{Tax}": _capital(tax), "{buyer_id}": buyer_id, "{seller_id}": _capital(seller_id)}
    lines = {buyer_line(name): title for name, title in line_names(NewCustomer, language).items()}
    return {name: _fill_text(text, filled) for name, text in (TEXTS[language] | lines).items()}


def buyer_line(field: str) -> str:
    """Return the name of the text that is the title of a document's line about its buyer."""
    return f"buyer_{field}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fill_text(text: str, values: Mapping[str, str]) -> str:
    """Return the text with these values; values that are still missing stay."""
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


_GERMAN_COUNTRIES: Final = {
    "AT": "Österreich",
    "BE": "Belgien",
    "BG": "Bulgarien",
    "CA": "Kanada",
    "CH": "Schweiz",
    "CY": "Zypern",
    "CZ": "Tschechien",
    "DE": "Deutschland",
    "DK": "Dänemark",
    "EE": "Estland",
    "ES": "Spanien",
    "FI": "Finnland",
    "FR": "Frankreich",
    "GB": "Vereinigtes Königreich",
    "GR": "Griechenland",
    "HR": "Kroatien",
    "HU": "Ungarn",
    "IE": "Irland",
    "IS": "Island",
    "IT": "Italien",
    "LI": "Liechtenstein",
    "LT": "Litauen",
    "LU": "Luxemburg",
    "LV": "Lettland",
    "MT": "Malta",
    "NL": "Niederlande",
    "NO": "Norwegen",
    "PL": "Polen",
    "PT": "Portugal",
    "RO": "Rumänien",
    "SE": "Schweden",
    "SI": "Slowenien",
    "SK": "Slowakei",
    "US": "Vereinigte Staaten",
}
COUNTRIES: Final[dict[str, dict[str, str]]] = {
    "en": {code: COUNTRY_NAMES[code] for code in _GERMAN_COUNTRIES},
    "de": _GERMAN_COUNTRIES,
}
"""The names of countries in addresses, by their ISO 3166 codes. Other countries keep their code."""
