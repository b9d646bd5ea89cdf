"""What a customer does on the customer's page: pays an invoice, buys a pack; top-ups and cards are those of `customer_cards`.

A button records an intent or a top-up, by the same use-cases as the API, and a step shows what follows: the checkout of a
provider, or the account to which to transfer. The page waits for no provider but for the list of saved methods.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Final

from django.utils import timezone

from billing.documents.pay_links import is_payable
from billing.documents.printed_pages import epc_code, grouped
from billing.documents.sellers import seller_of
from billing.models import Customer, Invoice
from billing.payments import intent_reads as collecting
from billing.payments.advancing import FRESH_S, refresh
from billing.payments.customer_cards import ACTOR, CARDS, SAVE, TOP_UP, Action, CustomerCards, Name
from billing.payments.customer_texts import TEXTS, credits_text, pack_name, purpose_text
from billing.payments.declines import decline_of
from billing.payments.intent_orders import order_payment
from billing.payments.models import OPEN_INTENT, Pack, PaymentIntent
from billing.payments.providers.configured import declared_providers, provider
from billing.payments.providers.interface import CANCELED, FAILED, PROCESSING, REQUESTED, WAITING
from billing.payments.reads import packs_on_sale
from billing.rating.money import minor_digits
from billing.rating.values import MANUAL
from billing.reads.money_words import money
from ledger.portal.links import step_link
from ledger.portal.parts import Cell, IntermediatePage, PageDisplay, PageList
from ledger.portal.units import page_units
from ledger.typesetting.languages import Language, language_of

PACKS_SHOWN: Final = 20
SOON_S: Final = 1
"""After how many seconds a step looks again for the address of the checkout."""
LATER_S: Final = 4
EURO: Final = "EUR"
PAY_LINK_DAYS: Final = 90
"""How long after its due day an invoice can be paid by the link of its mail."""

PAY, CARD, TRANSFER, BUY, INTENT = "pay", "card", "transfer", "buy", "payment"


def card_provider() -> str | None:
    """Return the provider with a checkout, the first that is declared; None if there is none."""
    return next((name for name in declared_providers() if provider(name).has_page), None)


class CustomerPayments:
    """The payments of one customer on the page."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._cards = CustomerCards(customer, self._packs_for_everything)

    # Buttons and lists -------------------------------------------------------------------------------

    def pay_cell(self, invoice: Invoice, shown: PageDisplay) -> Cell:
        """Return the button that pays an invoice; an empty cell where nothing is to be paid."""
        if not is_payable(invoice):
            return Cell("")
        return Cell(TEXTS[shown.language.code]["pay"], action=shown.action_url(f"{PAY}-{invoice.pk}"))

    def sections(self, shown: PageDisplay) -> Sequence[PageList]:
        """Return the packs on sale, and the automatic top-ups, with their buttons."""
        top_ups = self._cards.top_up_list(self._packs_for_everything(), shown)
        return [self._pack_list(self._packs(), shown), *top_ups, *self._cards.card_list(shown)]

    def _packs(self) -> list[Pack]:
        rows = Pack.objects.filter(packs_on_sale(timezone.now()), currency=self._customer.currency)
        return list(rows.order_by("credit_type", "price_minor", "pk")[:PACKS_SHOWN])

    def _packs_for_everything(self) -> list[Pack]:
        """Return those that a top-up can buy."""
        return [pack for pack in self._packs() if pack.applies_to is None]

    def _pack_list(self, packs: Sequence[Pack], shown: PageDisplay) -> PageList:
        texts, language = TEXTS[shown.language.code], shown.language
        units = page_units((pack.credit_type for pack in packs), language)
        is_limited = any(pack.applies_to for pack in packs)
        rows = [
            {
                "ref": pack.code,
                "name": pack_name(pack, language),
                "credit_type": pack.credit_type,
                "credits": pack.credits + pack.bonus,
                "currency": pack.currency,
                "price_minor": pack.price_minor,
                "applies_to": pack.applies_to,
            }
            for pack in packs
        ]
        cells = [
            [
                Cell(pack_name(pack, language)),
                Cell(credits_text(pack.credits + pack.bonus, units[pack.credit_type], language), is_number=True),
                *([Cell(purpose_text(pack, language))] if is_limited else []),
                Cell(money(pack.price_minor, pack.currency, language), is_number=True),
                Cell(texts["buy"], action=shown.action_url(f"{BUY}-{pack.pk}")),
            ]
            for pack in packs
        ]
        columns = ("pack", "credits", *(["pays_for"] if is_limited else []), "price", "order")
        headers = [Cell(texts[name], is_number=name in ("credits", "price")) for name in columns]
        return PageList(name="packs", title=texts["packs"], empty=texts["no_packs"], headers=headers, cells=cells, rows=rows)

    # Actions -----------------------------------------------------------------------------------------

    def act(self, name: str, given: Mapping[str, str], shown: PageDisplay) -> IntermediatePage | str | None:
        """See `ledger.portal.parts.PortalCustomer`."""
        verb, _, subject = name.partition("-")
        act, parts = self._actions().get(verb), Name(verb, subject)
        return None if act is None or not _opens(parts, shown) else act(parts, given, shown)

    def _actions(self) -> dict[str, Action]:
        return {
            PAY: self._choose_how,
            CARD: self._pay_by_card,
            BUY: self._buy,
            SAVE: self._buy,
            **self._cards.actions(),
        }

    def _choose_how(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
        """Without a provider there is one way to pay, and with a payment under way it is that one."""
        invoice = self._invoice(name)
        if invoice is None:
            return None
        under_way = PaymentIntent.objects.filter(invoice_id=invoice.pk, state__in=OPEN_INTENT, is_canceled=False).first()
        if under_way is not None:
            return f"{INTENT}-{under_way.pk}"
        return f"{TRANSFER}-{invoice.pk}" if card_provider() is None else f"{PAY}-{invoice.pk}"

    def _pay_by_card(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
        invoice, provider_name = self._invoice(name), card_provider()
        if invoice is None or provider_name is None:
            return None
        step = f"{CARD}-{invoice.pk}"
        intent = order_payment(invoice=invoice.pk, provider=provider_name, return_url=shown.back_url(step), actor=ACTOR)
        return f"{INTENT}-{intent.pk}"

    def _buy(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
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

    def _invoice(self, name: Name) -> Invoice | None:
        """Return an invoice of this customer that can be paid; None for any other."""
        if name.number is None:
            return None
        invoice = Invoice.objects.filter(pk=name.number, customer_id=self._customer.pk).first()
        return invoice if invoice is not None and is_payable(invoice) else None

    # Steps -------------------------------------------------------------------------------------------

    def step(self, name: str, shown: PageDisplay, *, is_back: bool) -> IntermediatePage | None:
        """See `ledger.portal.parts.PortalCustomer`."""
        verb, _, subject = name.partition("-")
        parts = Name(verb, subject)
        if verb == INTENT or not _opens(parts, shown):
            intent = self._intent(parts) if verb == INTENT else None
            is_of_link = intent is not None and (not shown.only_step or shown.only_step == f"{PAY}-{intent.invoice_id}")
            return self._intent_step(intent, shown, is_back=is_back) if is_of_link else None
        if verb in (TOP_UP, CARDS):
            return self._cards.step(verb, shown)
        if verb in (PAY, TRANSFER):
            return self._invoice_step(parts, shown)
        return self._intent_step(self._intent(parts), shown, is_back=is_back)

    def _intent(self, name: Name) -> PaymentIntent | None:
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

    def _invoice_step(self, name: Name, shown: PageDisplay) -> IntermediatePage | None:
        """Return the ways to pay an invoice, or that nothing is to be paid; None for another customer's invoice, or a draft."""
        texts = TEXTS[shown.language.code]
        rows = Invoice.objects.filter(customer_id=self._customer.pk).exclude(state=Invoice.State.DRAFT)
        invoice = None if name.number is None else rows.filter(pk=name.number).first()
        if invoice is None:
            return None
        if not is_payable(invoice):
            title = texts["pay_title"].format(number=invoice.number)
            return IntermediatePage(title=title, text=texts["paid" if invoice.state == Invoice.State.PAID else "nothing_due"])
        return self._pay_step(invoice, shown) if name.verb == PAY else self._invoice_transfer(invoice, shown.language)

    def _pay_step(self, invoice: Invoice, shown: PageDisplay) -> IntermediatePage:
        texts = TEXTS[shown.language.code]
        amount = money(invoice.amount_remaining_minor, invoice.currency, shown.language)
        transfer = self._invoice_transfer(invoice, shown.language)
        return IntermediatePage(
            title=texts["pay_title"].format(number=invoice.number),
            text=texts["how"].format(amount=amount),
            buttons=[Cell(texts["by_card"], action=shown.action_url(f"{CARD}-{invoice.pk}"))] if card_provider() else [],
            rows=transfer.rows,
            picture=transfer.picture,
            caption=transfer.caption,
        )

    def _invoice_transfer(self, invoice: Invoice, language: Language) -> IntermediatePage:
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

    def _intent_step(self, intent: PaymentIntent | None, shown: PageDisplay, *, is_back: bool) -> IntermediatePage | None:
        if intent is None:
            return None
        refresh(intent.pk)
        row = collecting.payment_intent(intent.pk)
        texts, language = TEXTS[shown.language.code], shown.language
        title = self._title(intent, row.pack_row, language)
        if row.transfer is not None:
            order = row.transfer
            return _transfer_step(title, order.seller, order.amount_minor, order.currency, order.reference, language)
        state, decline = row.row.state, decline_of(row.row.error)
        can_pay = state == WAITING and bool(row.row.url)
        if can_pay and not is_back:
            return IntermediatePage(title=title, text=texts[WAITING], next_url=row.row.url, next_text=texts["next"], goes_on=True)
        if state in (REQUESTED, WAITING):
            text = texts[decline or ("not_yet" if can_pay and _is_answered(row.row) else "checking")]
            next_text = texts["again" if decline else "next"]
            if not is_back:
                return IntermediatePage(title=title, text=texts[REQUESTED], reload_seconds=SOON_S)
            next_url = row.row.url if can_pay else ""
            return IntermediatePage(title=title, text=text, next_url=next_url, next_text=next_text, reload_seconds=LATER_S)
        if state in (FAILED, CANCELED):
            text = texts[decline if decline and state == FAILED else state]
            return IntermediatePage(title=title, text=text, buttons=self._again(intent, pack=row.pack_row, shown=shown))
        return IntermediatePage(title=title, text=texts[state], reload_seconds=LATER_S if state == PROCESSING else None)

    def _again(self, intent: PaymentIntent, *, pack: Pack | None, shown: PageDisplay) -> list[Cell]:
        """Return the button that begins the same payment again; none if it is paid by now, or is no longer on sale."""
        text = TEXTS[shown.language.code]["again"]
        if pack is not None:
            is_on_sale = any(each.pk == pack.pk for each in self._packs())
            verb = SAVE if intent.saves_method else BUY
            return [Cell(text, action=shown.action_url(f"{verb}-{pack.pk}"))] if is_on_sale else []
        is_open = self._invoice(Name(PAY, str(intent.invoice_id))) is not None and card_provider() is not None
        return [Cell(text, action=shown.action_url(f"{CARD}-{intent.invoice_id}"))] if is_open else []

    def _title(self, intent: PaymentIntent, pack: Pack | None, language: Language) -> str:
        texts = TEXTS[language.code]
        if pack is not None:
            return texts["buy_title"].format(pack=pack_name(pack, language))
        assert intent.invoice_id is not None
        number = Invoice.objects.values_list("number", flat=True).get(pk=intent.invoice_id)
        return texts["pay_title"].format(number=number)


def _is_answered(intent: PaymentIntent) -> bool:
    """Return whether the provider was asked just now, so that its answer is as the customer sees it."""
    return intent.asked_at is not None and timezone.now() - intent.asked_at < timedelta(seconds=FRESH_S)


def _opens(name: Name, shown: PageDisplay) -> bool:
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


def _transfer_step(
    title: str, seller: Mapping[str, str], amount_minor: int, currency: str, reference: str, language: Language
) -> IntermediatePage:
    """Return the step that names the seller's account, with the code for a banking app where the transfer is in euro."""
    texts, iban = TEXTS[language.code], seller.get("iban", "")
    if not iban:
        return IntermediatePage(title=title, text=texts["no_account"], rows=[(texts["reference"], reference)])
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
    return IntermediatePage(
        title=title,
        text=texts["transfer"].format(amount=amount),
        rows=[(label, text) for label, text in rows if text],
        picture=code or "",
        caption=texts["scan"] if code else "",
    )
