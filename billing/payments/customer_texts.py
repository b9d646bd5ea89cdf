"""What the customer's page says about payments, packs, top-ups and cards, and the amounts that a customer reads and types."""

import re
from decimal import Decimal
from typing import Final

from billing.payments.declines import DECLINED, EXPIRED, FUNDS, UNCONFIRMED
from billing.payments.models import Pack
from billing.payments.providers.interface import CANCELED, FAILED, PROCESSING, REQUESTED, SUCCEEDED, WAITING
from billing.reads.money_words import money
from ledger.errors import Invalid
from ledger.typesetting.languages import Language
from ledger.units import CreditUnit, purpose_names

MAX_DIGITS: Final = 15

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "pay": "Pay",
        "packs": "Buy credits",
        "no_packs": "There is nothing on sale.",
        "pack": "Pack",
        "pays_for": "Pays for",
        "everything": "everything",
        "only": "only {names}",
        "credits": "Credits",
        "price": "Price",
        "paid": "The invoice is paid. Thank you.",
        "nothing_due": "This invoice needs no payment.",
        "order": "Order",
        "buy": "Buy",
        "buy_title": "Buy {pack}",
        "buy_and_save": "Buy {pack} and save the card",
        "pay_title": "Pay invoice {number}",
        "how": "The amount due is {amount}. How do you want to pay?",
        "by_card": "By card",
        "by_transfer": "By bank transfer",
        "transfer": "Please transfer {amount}. The payment counts when it arrives.",
        "holder": "To",
        "amount": "Amount",
        "reference": "Reference",
        "scan": "Scan it with your banking app.",
        "no_account": "Please ask us for the account.",
        REQUESTED: "The payment is being prepared. This page goes on by itself.",
        WAITING: "You can pay now.",
        "checking": "We are asking whether your payment has arrived. This page looks again by itself.",
        PROCESSING: "Your payment is on its way. This page looks again by itself; you may also close it.",
        SUCCEEDED: "Thank you. Your payment has arrived.",
        "not_yet": "No payment has arrived so far. You can go on to it. If you have paid, this page says so as soon as we know.",
        DECLINED: "The bank declined the card, and nothing was charged. Try another card, or ask your bank.",
        FUNDS: "The card has not enough money or has reached its limit, and nothing was charged. Try another card.",
        EXPIRED: "The card has expired, and nothing was charged. Try another card.",
        UNCONFIRMED: "Your bank asked you to confirm the payment, and got no confirmation. Nothing was charged."
        " Try again, and confirm it in your banking app or by the code that the bank sends.",
        "again": "Try again",
        FAILED: "The payment was declined, and nothing was charged. You can try it again.",
        CANCELED: "The payment was given up, and nothing was charged. You can try it again.",
        "next": "Go on to the payment",
        "top_ups": "Automatic top-up",
        "no_top_ups": "It is off.",
        "terms": "Terms",
        "change": "Change",
        "below": "When fewer than {threshold} {unit} are left, {pack} is bought",
        "paused": "Paused after declined payments: choose another card below, or turn it off and on again",
        "turn_off": "Turn off",
        "turn_on": "Turn on",
        "top_up_title": "Turn automatic top-up on",
        "top_up_text": "When your credits fall below an amount, a pack is bought with your saved card.",
        "no_method": "There is no saved card yet. Buy a pack first, and save the card with it.",
        "threshold": "When fewer credits are left than",
        "which_pack": "Buy this pack",
        "method": "With this card",
        "cards": "Cards",
        "cards_text": "Your saved cards",
        "cards_show": "Show and change",
        "cards_title": "Your saved cards",
        "cards_kept": "Our payment provider keeps them; we never see their numbers.",
        "cards_none": "There is no saved card.",
        "card_add": "Save a card",
        "card_add_title": "Save a card",
        "card_add_text": "The card is saved on the page of our payment provider. Nothing is charged.",
        "card_add_next": "Go on to it",
        "card_remove": "Remove {card}",
        "card_charge": "Pay automatic top-ups with {card}",
        "card_charged": "pays the automatic top-up",
        "card_saved": "saved",
    },
    "de": {
        "pay": "Bezahlen",
        "packs": "Guthaben kaufen",
        "no_packs": "Es wird nichts angeboten.",
        "pack": "Paket",
        "pays_for": "Gilt für",
        "everything": "alles",
        "only": "nur {names}",
        "credits": "Guthaben",
        "price": "Preis",
        "paid": "Die Rechnung ist bezahlt. Vielen Dank.",
        "nothing_due": "Für diese Rechnung ist nichts zu zahlen.",
        "order": "Bestellung",
        "buy": "Kaufen",
        "buy_title": "{pack} kaufen",
        "buy_and_save": "{pack} kaufen und die Karte speichern",
        "pay_title": "Rechnung {number} bezahlen",
        "how": "Es sind {amount} zu zahlen. Wie möchten Sie bezahlen?",
        "by_card": "Mit Karte",
        "by_transfer": "Mit Überweisung",
        "transfer": "Bitte überweisen Sie {amount}. Die Zahlung zählt, wenn sie eingegangen ist.",
        "holder": "An",
        "amount": "Betrag",
        "reference": "Verwendungszweck",
        "scan": "Mit Ihrer Banking-App scannen.",
        "no_account": "Bitte fragen Sie uns nach dem Konto.",
        REQUESTED: "Die Zahlung wird vorbereitet. Diese Seite geht von selbst weiter.",
        WAITING: "Sie können jetzt bezahlen.",
        "checking": "Wir fragen, ob Ihre Zahlung angekommen ist. Diese Seite sieht von selbst wieder nach.",
        PROCESSING: "Ihre Zahlung ist unterwegs. Diese Seite sieht von selbst wieder nach; Sie können sie auch schließen.",
        SUCCEEDED: "Vielen Dank. Ihre Zahlung ist angekommen.",
        "not_yet": "Bisher ist keine Zahlung angekommen. Sie können weiter zur Zahlung gehen. Wenn Sie bezahlt haben,"
        " steht es hier, sobald wir es wissen.",
        DECLINED: "Die Bank hat die Karte abgelehnt, und nichts wurde abgebucht. Versuchen Sie eine andere Karte, oder fragen Sie"
        " Ihre Bank.",
        FUNDS: "Die Karte hat nicht genug Guthaben oder ihr Limit erreicht, und nichts wurde abgebucht. Versuchen Sie eine andere"
        " Karte.",
        EXPIRED: "Die Karte ist abgelaufen, und nichts wurde abgebucht. Versuchen Sie eine andere Karte.",
        UNCONFIRMED: "Ihre Bank wollte die Zahlung bestätigt haben und hat keine Bestätigung bekommen. Nichts wurde abgebucht."
        " Versuchen Sie es noch einmal, und bestätigen Sie die Zahlung in Ihrer Banking-App oder mit dem Code der Bank.",
        "again": "Noch einmal versuchen",
        FAILED: "Die Zahlung wurde abgelehnt, und nichts wurde abgebucht. Sie können es noch einmal versuchen.",
        CANCELED: "Die Zahlung wurde abgebrochen, und nichts wurde abgebucht. Sie können es noch einmal versuchen.",
        "next": "Weiter zur Zahlung",
        "top_ups": "Automatisch aufladen",
        "no_top_ups": "Es ist ausgeschaltet.",
        "terms": "Bedingungen",
        "change": "Änderung",
        "below": "Wenn weniger als {threshold} {unit} übrig sind, wird {pack} gekauft",
        "paused": "Angehalten nach abgelehnten Zahlungen: wählen Sie unten eine andere Karte, oder schalten Sie es neu ein",
        "turn_off": "Ausschalten",
        "turn_on": "Einschalten",
        "top_up_title": "Automatisches Aufladen einschalten",
        "top_up_text": "Wenn Ihr Guthaben unter einen Betrag fällt, wird ein Paket mit Ihrer gespeicherten Karte gekauft.",
        "no_method": "Es ist noch keine Karte gespeichert. Kaufen Sie zuerst ein Paket, und speichern Sie dabei die Karte.",
        "threshold": "Wenn weniger Guthaben übrig ist als",
        "which_pack": "Dieses Paket kaufen",
        "method": "Mit dieser Karte",
        "cards": "Karten",
        "cards_text": "Ihre gespeicherten Karten",
        "cards_show": "Ansehen und ändern",
        "cards_title": "Ihre gespeicherten Karten",
        "cards_kept": "Sie liegen bei unserem Zahlungsdienst; wir sehen ihre Nummern nie.",
        "cards_none": "Es ist keine Karte gespeichert.",
        "card_add": "Karte speichern",
        "card_add_title": "Karte speichern",
        "card_add_text": "Die Karte wird auf der Seite unseres Zahlungsdienstes gespeichert. Es wird nichts abgebucht.",
        "card_add_next": "Weiter dorthin",
        "card_remove": "{card} entfernen",
        "card_charge": "Automatisches Aufladen mit {card} bezahlen",
        "card_charged": "bezahlt das automatische Aufladen",
        "card_saved": "gespeichert",
    },
}
"""In every language of `ledger.typesetting.languages`."""


def pack_name(pack: Pack, language: Language) -> str:
    """Return the name of a pack in a language, if it has one there."""
    return str(pack.names.get(language.code) or pack.name)


def purpose_text(pack: Pack, language: Language) -> str:
    """Return what the credits of a pack can pay for."""
    texts = TEXTS[language.code]
    return texts["only"].format(names=purpose_names(pack.applies_to)) if pack.applies_to else texts["everything"]


def offer_text(pack: Pack, language: Language) -> str:
    """Return a pack with its price."""
    return f"{pack_name(pack, language)}, {money(pack.price_minor, pack.currency, language)}"


def number_text(amount: int, unit: CreditUnit, language: Language) -> str:
    """Return a number of credits, given in the smallest unit."""
    return language.number(Decimal(amount).scaleb(-unit.scale), decimals=unit.scale)


def credits_text(amount: int, unit: CreditUnit, language: Language) -> str:
    """Return the same with the unit."""
    return f"{number_text(amount, unit, language)} {unit.unit}"


def smallest_units(text: str, unit: CreditUnit, language: Language) -> int:
    """Return the credits that a customer typed, in the smallest unit.

    Raises:
        Invalid: it is no number of the language with at most the decimals of the unit, or not above 0.
    """
    group, decimal = (re.escape(sign) for sign in (language.group, language.decimal))
    fraction = rf"(?:{decimal}[0-9]{{1,{unit.scale}}})?" if unit.scale else ""
    if len(text) > MAX_DIGITS or not re.fullmatch(rf"(?:[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]+){fraction}", text.strip()):
        raise Invalid(pointer="/threshold", rule="type", detail="must be a number of credits")
    plain = text.strip().replace(language.group, "").replace(language.decimal, ".")
    return int(Decimal(plain).scaleb(unit.scale))
