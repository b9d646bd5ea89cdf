"""What a customer does on the customer's page: pays an invoice, buys a pack, sets an automatic top-up.

A button records an intent or a top-up, by the same use-cases as the API, and a step shows what follows: the checkout of a
provider, or the account to which to transfer. The page waits for no provider but for the list of saved methods.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

from django.db.models import QuerySet
from django.utils import timezone

from billing.documents.pay_links import is_payable
from billing.documents.printing.pages import epc_code, grouped
from billing.documents.sellers import seller_of
from billing.models import Customer, Invoice
from billing.payments.collecting import reads as collecting
from billing.payments.collecting.advancing import refresh
from billing.payments.collecting.methods import forget_method, methods_of, start_saving_method
from billing.payments.collecting.orders import order_payment
from billing.payments.models import OPEN_INTENT, Pack, PaymentIntent, TopUp
from billing.payments.providers.configured import declared, is_configured, provider
from billing.payments.providers.interface import (
    CANCELED,
    FAILED,
    PROCESSING,
    REQUESTED,
    SUCCEEDED,
    WAITING,
    KeepsMethods,
    Method,
)
from billing.payments.reads import packs_on_sale
from billing.payments.topups.declaring import charge_other_method, end_top_up, set_top_up
from billing.rating.money import minor_digits
from billing.rating.values import MANUAL
from billing.reads.money_words import money
from ledger.errors import Invalid
from ledger.portal.links import step_link
from ledger.portal.parts import Cell, Field, Section, Shown, Step
from ledger.typesetting.languages import Language, language_of
from ledger.units import CreditUnit, units_of

ACTOR: Final = "customer page"
PACKS_SHOWN: Final = 20
MAX_DIGITS: Final = 15
SOON_S: Final = 1
"""After how many seconds a step looks again for the address of the checkout."""
LATER_S: Final = 4
EURO: Final = "EUR"
PAY_LINK_DAYS: Final = 90
"""How long after its due day an invoice can be paid by the link of its mail."""

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "pay": "Pay",
        "packs": "Buy credits",
        "no_packs": "There is nothing on sale.",
        "pack": "Pack",
        "credits": "Credits",
        "price": "Price",
        "paid": "The invoice is paid. Thank you.",
        "nothing_due": "Nothing is to be paid for this invoice.",
        "order": "Order",
        "buy": "Buy",
        "buy_title": "Buy {pack}",
        "buy_and_save": "Buy {pack} and save the card",
        "pay_title": "Pay invoice {number}",
        "how": "{amount} is to be paid. How do you want to pay?",
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
        FAILED: "The payment was declined, and nothing was charged. You can try it again.",
        CANCELED: "The payment was given up, and nothing was charged. You can try it again.",
        "next": "Go on to the payment",
        "top_ups": "Automatic top-up",
        "no_top_ups": "It is off.",
        "terms": "Terms",
        "below": "When fewer than {threshold} {unit} are left, {pack} is bought",
        "paused": "Paused after declined payments",
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
        "credits": "Guthaben",
        "price": "Preis",
        "paid": "Die Rechnung ist bezahlt. Vielen Dank.",
        "nothing_due": "Für diese Rechnung ist nichts zu zahlen.",
        "order": "Auftrag",
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
        FAILED: "Die Zahlung wurde abgelehnt, und nichts wurde abgebucht. Sie können es noch einmal versuchen.",
        CANCELED: "Die Zahlung wurde abgebrochen, und nichts wurde abgebucht. Sie können es noch einmal versuchen.",
        "next": "Weiter zur Zahlung",
        "top_ups": "Automatisch aufladen",
        "no_top_ups": "Es ist ausgeschaltet.",
        "terms": "Bedingungen",
        "below": "Wenn weniger als {threshold} {unit} übrig sind, wird {pack} gekauft",
        "paused": "Angehalten nach abgelehnten Zahlungen",
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


class _Name(NamedTuple):
    """The name of an action or step, such as pay-12: what it does, and to which row."""

    verb: str
    subject: str

    @property
    def number(self) -> int | None:
        """The id of the row; None if the name has no number."""
        is_number = self.subject.isascii() and self.subject.isdecimal() and len(self.subject) <= MAX_DIGITS
        return int(self.subject) if is_number else None


PAY, CARD, TRANSFER, BUY, SAVE, INTENT = "pay", "card", "transfer", "buy", "save", "payment"
TOP_UP, TOP_UP_OFF = "top_up", "top_up_off"
CARDS, CARD_ADD, CARD_REMOVE, CARD_CHARGE = "cards", "card_add", "card_remove", "card_charge"


def card_provider() -> str | None:
    """Return the provider with a checkout, the first that is declared; None if there is none."""
    return next((name for name in declared() if provider(name).has_page), None)


def card_keeper() -> str | None:
    """Return the provider that saves cards, the first that is declared; None if there is none."""
    return next((name for name in declared() if is_configured(name, KeepsMethods)), None)


class CustomerPayments:
    """The payments of one customer on the page."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer

    # Buttons and lists -------------------------------------------------------------------------------

    def pay_cell(self, invoice: Invoice, shown: Shown) -> Cell:
        """Return the button that pays an invoice; an empty cell where nothing is to be paid."""
        if not is_payable(invoice):
            return Cell("")
        return Cell(TEXTS[shown.language.code]["pay"], action=shown.action_url(f"{PAY}-{invoice.pk}"))

    def sections(self, shown: Shown) -> Sequence[Section]:
        """Return the packs on sale, and the automatic top-ups, with their buttons."""
        packs = self._packs()
        return [self._pack_list(packs, shown), *self._top_up_list(packs, shown), *self._card_list(shown)]

    def _packs(self) -> list[Pack]:
        rows = Pack.objects.filter(packs_on_sale(timezone.now()), currency=self._customer.currency)
        return list(rows.order_by("credit_type", "price_minor", "pk")[:PACKS_SHOWN])

    def _pack_list(self, packs: Sequence[Pack], shown: Shown) -> Section:
        texts, language = TEXTS[shown.language.code], shown.language
        units = units_of(pack.credit_type for pack in packs)
        rows = [
            {
                "ref": pack.code,
                "name": _pack_name(pack, language),
                "credit_type": pack.credit_type,
                "credits": pack.credits + pack.bonus,
                "currency": pack.currency,
                "price_minor": pack.price_minor,
            }
            for pack in packs
        ]
        cells = [
            [
                Cell(_pack_name(pack, language)),
                Cell(_credits(pack.credits + pack.bonus, units[pack.credit_type], language), is_number=True),
                Cell(money(pack.price_minor, pack.currency, language), is_number=True),
                Cell(texts["buy"], action=shown.action_url(f"{BUY}-{pack.pk}")),
            ]
            for pack in packs
        ]
        headers = [Cell(texts[name], is_number=name in ("credits", "price")) for name in ("pack", "credits", "price", "order")]
        return Section(name="packs", title=texts["packs"], empty=texts["no_packs"], headers=headers, cells=cells, rows=rows)

    def _top_up_list(self, packs: Sequence[Pack], shown: Shown) -> list[Section]:
        """Return the list of top-ups; no list where no provider keeps cards, or there is nothing to buy."""
        if not packs or card_keeper() is None:
            return []
        texts, language = TEXTS[shown.language.code], shown.language
        rows = list(self._top_ups())
        units = units_of(row.credit_type for row in rows)
        names = {pack.code: _pack_name(pack, language) for pack in packs}
        cells = []
        for row in rows:
            unit = units[row.credit_type]
            below = texts["below"].format(
                threshold=_number(row.threshold, unit, language), unit=unit.unit, pack=names.get(row.pack_ref, row.pack_ref)
            )
            text = below if row.paused_at is None else f"{below}. {texts['paused']}"
            cells.append([Cell(text), Cell(texts["turn_off"], action=shown.action_url(f"{TOP_UP_OFF}-{row.pk}"))])
        if not rows:
            cells.append([Cell(texts["no_top_ups"]), Cell(texts["turn_on"], action=shown.action_url(f"{TOP_UP}-new"))])
        data = [
            {
                "credit_type": row.credit_type,
                "threshold": row.threshold,
                "pack": row.pack_ref,
                "is_paused": row.paused_at is not None,
            }
            for row in rows
        ]
        headers = [Cell(texts["terms"]), Cell(texts["order"])]
        title = texts["top_ups"]
        return [Section(name="top_ups", title=title, empty=texts["no_top_ups"], headers=headers, cells=cells, rows=data)]

    def _top_ups(self) -> QuerySet[TopUp]:
        return TopUp.objects.filter(holder_id=self._customer.holder_id, ended_at=None).order_by("pk")

    def _card_list(self, shown: Shown) -> list[Section]:
        """Return where the saved cards are shown. The page itself does not ask for them: it waits for no provider."""
        if card_keeper() is None:
            return []
        texts = TEXTS[shown.language.code]
        cells = [[Cell(texts["cards_text"]), Cell(texts["cards_show"], action=shown.action_url(f"{CARDS}-all"))]]
        headers = [Cell(texts["cards"]), Cell(texts["order"])]
        return [Section(name="cards", title=texts["cards"], empty=texts["cards_none"], headers=headers, cells=cells, rows=[])]

    # Actions -----------------------------------------------------------------------------------------

    def act(self, name: str, given: Mapping[str, str], shown: Shown) -> Step | str | None:
        """See `ledger.portal.parts.Customer`."""
        verb, _, subject = name.partition("-")
        act, parts = self._actions().get(verb), _Name(verb, subject)
        return None if act is None or not _opens(parts, shown) else act(parts, given, shown)

    def _actions(self) -> dict[str, Callable[[_Name, Mapping[str, str], Shown], Step | str | None]]:
        return {
            PAY: self._choose_how,
            CARD: self._pay_by_card,
            BUY: self._buy,
            SAVE: self._buy,
            TOP_UP: self._ask_or_set_top_up,
            TOP_UP_OFF: self._end_top_up,
            CARDS: lambda name, given, shown: f"{CARDS}-all",
            CARD_ADD: self._add_card,
            CARD_REMOVE: self._remove_card,
            CARD_CHARGE: self._charge_card,
        }

    def _choose_how(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        """Without a provider there is one way to pay, and with a payment under way it is that one."""
        invoice = self._invoice(name)
        if invoice is None:
            return None
        under_way = PaymentIntent.objects.filter(invoice_id=invoice.pk, state__in=OPEN_INTENT, is_canceled=False).first()
        if under_way is not None:
            return f"{INTENT}-{under_way.pk}"
        return f"{TRANSFER}-{invoice.pk}" if card_provider() is None else f"{PAY}-{invoice.pk}"

    def _pay_by_card(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        invoice, provider_name = self._invoice(name), card_provider()
        if invoice is None or provider_name is None:
            return None
        step = f"{CARD}-{invoice.pk}"
        made = order_payment(invoice=invoice.pk, provider=provider_name, return_url=shown.back_url(step), actor=ACTOR)
        return f"{INTENT}-{made.pk}"

    def _buy(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        """Order a pack; a second press of the button leads to the payment that waits already."""
        pack = next((each for each in self._packs() if each.pk == name.number), None)
        if pack is None:
            return None
        provider_name, saves = card_provider(), name.verb == SAVE
        waiting = PaymentIntent.objects.filter(
            pack_id=pack.pk, holder_id=self._customer.holder_id, customer_id=self._customer.pk, actor=ACTOR,
            state__in=OPEN_INTENT, is_canceled=False, saves_method=saves,
        ).order_by("-pk").first()  # fmt: skip
        if waiting is None:
            waiting = order_payment(
                pack=pack.code,
                version=pack.version,
                holder_id=self._customer.holder_id,
                customer=self._customer.ref,
                provider=provider_name or MANUAL,
                saves_method=saves and provider_name is not None,
                return_url=None if provider_name is None else shown.back_url(f"{name.verb}-{pack.pk}"),
                actor=ACTOR,
            )
        return f"{INTENT}-{waiting.pk}"

    def _ask_or_set_top_up(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        if "threshold" not in given:
            return f"{TOP_UP}-new"
        pack = next((each for each in self._packs() if str(each.pk) == given.get("pack")), None)
        method = next((each for each in self._methods() if each.id == given.get("method")), None)
        if pack is None or method is None:
            raise Invalid(pointer="/pack" if pack is None else "/method", rule="exists", detail="is not offered any more")
        unit = units_of([pack.credit_type])[pack.credit_type]
        set_top_up(
            holder_id=self._customer.holder_id,
            credit_type=pack.credit_type,
            threshold=_smallest_units(given["threshold"], unit, shown.language),
            pack=pack.code,
            packs=1,
            customer=self._customer.ref,
            method=method.id,
            provider=method.provider,
            actor=ACTOR,
        )
        return ""

    def _end_top_up(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        if name.number is None or not self._top_ups().filter(pk=name.number).exists():
            return None
        end_top_up(top_up=name.number)
        return ""

    def _add_card(self, name: _Name, given: Mapping[str, str], shown: Shown) -> Step | None:
        keeper, texts = card_keeper(), TEXTS[shown.language.code]
        if keeper is None:
            return None
        return Step(
            title=texts["card_add_title"],
            text=texts["card_add_text"],
            next_url=start_saving_method(self._customer.ref, keeper, shown.back_url(f"{CARDS}-all")),
            next_text=texts["card_add_next"],
            goes_on=True,
        )

    def _remove_card(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        """Remove a card that no top-up charges; one that does is shown without the button."""
        method = self._method(name)
        if method is None:
            return None
        if self._top_ups().filter(provider=method.provider, method=method.id).exists():
            raise Invalid(pointer="/method", rule="in-use", detail="pays an automatic top-up")
        forget_method(self._customer.ref, method.id)
        return f"{CARDS}-all"

    def _charge_card(self, name: _Name, given: Mapping[str, str], shown: Shown) -> str | None:
        """Let a card pay the top-ups that this customer pays."""
        method = self._method(name)
        if method is None:
            return None
        mine = self._top_ups().filter(customer_id=self._customer.pk)
        for row in mine.exclude(provider=method.provider, method=method.id):
            charge_other_method(top_up=row.pk, method=method.id, provider=method.provider, actor=ACTOR)
        return f"{CARDS}-all"

    def _method(self, name: _Name) -> Method | None:
        return next((each for each in self._methods() if _method_name(each) == name.subject), None)

    def _invoice(self, name: _Name) -> Invoice | None:
        """Return an invoice of this customer that can be paid; None for any other."""
        if name.number is None:
            return None
        found = Invoice.objects.filter(pk=name.number, customer_id=self._customer.pk).first()
        return found if found is not None and is_payable(found) else None

    def _methods(self) -> list[Method]:
        return methods_of(self._customer.ref)

    # Steps -------------------------------------------------------------------------------------------

    def step(self, name: str, shown: Shown, *, is_back: bool) -> Step | None:
        """See `ledger.portal.parts.Customer`."""
        verb, _, subject = name.partition("-")
        parts = _Name(verb, subject)
        if verb == INTENT or not _opens(parts, shown):
            intent = self._intent(parts) if verb == INTENT else None
            is_of_link = intent is not None and (not shown.only_step or shown.only_step == f"{PAY}-{intent.invoice_id}")
            return self._intent_step(intent, shown, is_back=is_back) if is_of_link else None
        if verb == TOP_UP:
            return self._top_up_step(shown)
        if verb == CARDS:
            return None if card_keeper() is None else self._card_step(shown)
        if verb in (PAY, TRANSFER):
            return self._invoice_step(parts, shown)
        return self._intent_step(self._intent(parts), shown, is_back=is_back)

    def _intent(self, name: _Name) -> PaymentIntent | None:
        """Return the intent that a step is about: by its id, or the last one for the invoice or pack that the name has."""
        if name.number is None:
            return None
        mine = PaymentIntent.objects.filter(customer_id=self._customer.pk).order_by("-pk")
        by_subject = {
            INTENT: mine.filter(pk=name.number),
            CARD: mine.filter(invoice_id=name.number),
            BUY: mine.filter(pack_id=name.number, actor=ACTOR),
            SAVE: mine.filter(pack_id=name.number, actor=ACTOR),
        }
        rows = by_subject.get(name.verb)
        return None if rows is None else rows.first()

    def _invoice_step(self, name: _Name, shown: Shown) -> Step | None:
        """Return the ways to pay an invoice, or that nothing is to be paid; None for another customer's invoice, or a draft."""
        texts = TEXTS[shown.language.code]
        rows = Invoice.objects.filter(customer_id=self._customer.pk).exclude(state=Invoice.State.DRAFT)
        invoice = None if name.number is None else rows.filter(pk=name.number).first()
        if invoice is None:
            return None
        if not is_payable(invoice):
            title = texts["pay_title"].format(number=invoice.number)
            return Step(title=title, text=texts["paid" if invoice.state == Invoice.State.PAID else "nothing_due"])
        return self._pay_step(invoice, shown) if name.verb == PAY else self._invoice_transfer(invoice, shown.language)

    def _pay_step(self, invoice: Invoice, shown: Shown) -> Step:
        texts = TEXTS[shown.language.code]
        amount = money(invoice.amount_remaining_minor, invoice.currency, shown.language)
        transfer = self._invoice_transfer(invoice, shown.language)
        return Step(
            title=texts["pay_title"].format(number=invoice.number),
            text=texts["how"].format(amount=amount),
            buttons=[Cell(texts["by_card"], action=shown.action_url(f"{CARD}-{invoice.pk}"))] if card_provider() else [],
            rows=transfer.rows,
            picture=transfer.picture,
            caption=transfer.caption,
        )

    def _invoice_transfer(self, invoice: Invoice, language: Language) -> Step:
        seller = seller_of(invoice.seller_id)
        title = TEXTS[language.code]["pay_title"].format(number=invoice.number)
        return _transfer_step(
            title,
            seller.details if seller else {},
            invoice.amount_remaining_minor,
            invoice.currency,
            str(invoice.number),
            language,
        )

    def _intent_step(self, intent: PaymentIntent | None, shown: Shown, *, is_back: bool) -> Step | None:
        if intent is None:
            return None
        refresh(intent.pk)
        row = collecting.payment_intent(intent.pk)
        texts, language = TEXTS[shown.language.code], shown.language
        title = self._title(intent, row.pack_row, language)
        if row.transfer is not None:
            order = row.transfer
            return _transfer_step(title, order.seller, order.amount_minor, order.currency, order.reference, language)
        state = row.row.state
        can_pay = state == WAITING and bool(row.row.url)
        if can_pay and not is_back:
            return Step(title=title, text=texts[WAITING], next_url=row.row.url, next_text=texts["next"], goes_on=True)
        if state in (REQUESTED, WAITING):
            text = texts["checking"] if is_back else texts[REQUESTED]
            next_url = row.row.url if can_pay else ""
            seconds = LATER_S if is_back else SOON_S
            return Step(title=title, text=text, next_url=next_url, next_text=texts["next"], reload_seconds=seconds)
        return Step(title=title, text=texts[state], reload_seconds=LATER_S if state == PROCESSING else None)

    def _title(self, intent: PaymentIntent, pack: Pack | None, language: Language) -> str:
        texts = TEXTS[language.code]
        if pack is not None:
            return texts["buy_title"].format(pack=_pack_name(pack, language))
        assert intent.invoice_id is not None
        number = Invoice.objects.values_list("number", flat=True).get(pk=intent.invoice_id)
        return texts["pay_title"].format(number=number)

    def _top_up_step(self, shown: Shown) -> Step:
        texts, packs = TEXTS[shown.language.code], self._packs()
        methods = self._methods()
        if not methods:
            texts_of = {pack.pk: texts["buy_and_save"].format(pack=_pack_name(pack, shown.language)) for pack in packs}
            buttons = [Cell(text, action=shown.action_url(f"{SAVE}-{pack}")) for pack, text in texts_of.items()]
            return Step(title=texts["top_up_title"], text=texts["no_method"], buttons=buttons)
        fields = [
            Field("threshold", texts["threshold"]),
            Field("pack", texts["which_pack"], [(str(pack.pk), _offer(pack, shown.language)) for pack in packs]),
            Field("method", texts["method"], [(method.id, method.text) for method in methods]),
        ]
        return Step(
            title=texts["top_up_title"],
            text=texts["top_up_text"],
            fields=fields,
            action=shown.action_url(f"{TOP_UP}-new"),
            button=texts["turn_on"],
        )

    def _card_step(self, shown: Shown) -> Step:
        """Return the saved cards, what each pays, and what can be done with it."""
        texts, methods = TEXTS[shown.language.code], self._methods()
        top_ups = list(self._top_ups())
        charged = {(row.provider, row.method) for row in top_ups}
        charged_to_customer = {(row.provider, row.method) for row in top_ups if row.customer_id == self._customer.pk}
        buttons = []
        for method in methods:
            name = _method_name(method)
            if charged_to_customer - {(method.provider, method.id)}:
                text = texts["card_charge"].format(card=method.text)
                buttons.append(Cell(text, action=shown.action_url(f"{CARD_CHARGE}-{name}")))
            if (method.provider, method.id) not in charged:
                text = texts["card_remove"].format(card=method.text)
                buttons.append(Cell(text, action=shown.action_url(f"{CARD_REMOVE}-{name}")))
        buttons.append(Cell(texts["card_add"], action=shown.action_url(f"{CARD_ADD}-new")))
        used = {True: texts["card_charged"], False: texts["card_saved"]}
        return Step(
            title=texts["cards_title"],
            text=texts["cards_kept"] if methods else texts["cards_none"],
            rows=[(method.text, used[(method.provider, method.id) in charged]) for method in methods],
            buttons=buttons,
        )


def _method_name(method: Method) -> str:
    """Return the name of a saved method in an address, whatever signs the provider's id has."""
    return hashlib.sha256(f"{method.provider} {method.id}".encode()).hexdigest()[:24]


def _opens(name: _Name, shown: Shown) -> bool:
    """Return whether the link opens an action or step: one to an invoice opens only the payment of this invoice."""
    if not shown.only_step:
        return True
    return name.verb in (PAY, CARD, TRANSFER) and shown.only_step == f"{PAY}-{name.subject}"


def pay_link(customer: Customer, invoice: Invoice) -> str | None:
    """Return the address at which a customer pays one invoice, for a mail or its PDF; None if the customer has no page.

    After the issue only the settings, and who else has the holder, change it. It ends PAY_LINK_DAYS after the invoice is due.
    Who has it sees the number and the amount of this invoice, and may pay it.
    """
    if not (customer.holder_id and invoice.due_date):
        return None
    if Customer.objects.filter(holder_id=customer.holder_id).exclude(pk=customer.pk).exists():
        return None  # the page does not know which of them it is about
    expires_at = datetime.combine(invoice.due_date, time(), UTC) + timedelta(days=PAY_LINK_DAYS)
    language = language_of(invoice.buyer["language"])
    return step_link(customer.holder_id, f"{PAY}-{invoice.pk}", expires_at=expires_at, language=language.code)


def _pack_name(pack: Pack, language: Language) -> str:
    return str(pack.names.get(language.code) or pack.name)


def _offer(pack: Pack, language: Language) -> str:
    return f"{_pack_name(pack, language)}, {money(pack.price_minor, pack.currency, language)}"


def _number(amount: int, unit: CreditUnit, language: Language) -> str:
    return language.number(Decimal(amount).scaleb(-unit.scale), decimals=unit.scale)


def _credits(amount: int, unit: CreditUnit, language: Language) -> str:
    return f"{_number(amount, unit, language)} {unit.unit}"


def _smallest_units(text: str, unit: CreditUnit, language: Language) -> int:
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


def _transfer_step(
    title: str, seller: Mapping[str, str], amount_minor: int, currency: str, reference: str, language: Language
) -> Step:
    """Return the step that names the seller's account, with the code for a banking app where the transfer is in euro."""
    texts, iban = TEXTS[language.code], seller.get("iban", "")
    if not iban:
        return Step(title=title, text=texts["no_account"], rows=[(texts["reference"], reference)])
    amount = money(amount_minor, currency, language)
    rows = [
        (texts["holder"], seller["name"]), ("IBAN", grouped(iban)), ("BIC", seller.get("bic", "")), (texts["amount"], amount),
        (texts["reference"], reference),
    ]  # fmt: skip
    code = None
    if currency == EURO:
        code = epc_code(
            name=seller["name"],
            iban=iban,
            bic=seller.get("bic", ""),
            amount=Decimal(amount_minor).scaleb(-minor_digits(currency)),
            reference=reference,
        )
    return Step(
        title=title,
        text=texts["transfer"].format(amount=amount),
        rows=[(label, text) for label, text in rows if text],
        picture=code or "",
        caption=texts["scan"] if code else "",
    )
