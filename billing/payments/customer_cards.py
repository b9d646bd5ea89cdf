"""Saved cards and automatic top-ups on the customer's page. The page waits for no provider but for the list of saved cards."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from django.db.models import QuerySet

from billing.models import Customer
from billing.payments.customer_texts import MAX_DIGITS, TEXTS, number_text, offer_text, pack_name, smallest_units
from billing.payments.models import Pack, TopUp
from billing.payments.providers.configured import declared_providers, is_configured
from billing.payments.providers.interface import KeepsMethods, Method
from billing.payments.saved_methods import forget_method, methods_of, start_saving_method
from billing.payments.topup_declarations import charge_other_method, end_top_up, set_top_up
from ledger.errors import Invalid
from ledger.portal.parts import Cell, FormField, IntermediatePage, PageDisplay, PageList
from ledger.portal.units import page_units

ACTOR: Final = "customer page"
SAVE, TOP_UP, TOP_UP_OFF = "save", "top_up", "top_up_off"
CARDS, CARD_ADD, CARD_REMOVE, CARD_CHARGE = "cards", "card_add", "card_remove", "card_charge"


class Name(NamedTuple):
    """The name of an action or step, such as pay-12: what it does, and to which row."""

    verb: str
    subject: str

    @property
    def number(self) -> int | None:
        """The id of the row; None if the name has no number."""
        is_number = self.subject.isascii() and self.subject.isdecimal() and len(self.subject) <= MAX_DIGITS
        return int(self.subject) if is_number else None


Action = Callable[[Name, Mapping[str, str], PageDisplay], IntermediatePage | str | None]
"""Does what a button says; returns a step, the name of one, an empty text for the page itself, or None for an unknown button."""


def card_keeper() -> str | None:
    """Return the provider that saves cards, the first that is declared; None if there is none."""
    return next((name for name in declared_providers() if is_configured(name, KeepsMethods)), None)


class CustomerCards:
    """The saved cards of one customer, and the top-ups that they pay."""

    def __init__(self, customer: Customer, find_packs: Callable[[], list[Pack]]) -> None:
        self._customer = customer
        self._find_packs = find_packs

    # Lists -------------------------------------------------------------------------------------------

    def top_up_list(self, packs: Sequence[Pack], shown: PageDisplay) -> list[PageList]:
        """Return the list of top-ups; no list where no provider keeps cards, or there is nothing to buy."""
        if not packs or card_keeper() is None:
            return []
        texts, language = TEXTS[shown.language.code], shown.language
        rows = list(self._top_ups())
        units = page_units((row.credit_type for row in rows), language)
        names = {pack.code: pack_name(pack, language) for pack in packs}
        cells = []
        for row in rows:
            unit = units[row.credit_type]
            below = texts["below"].format(
                threshold=number_text(row.threshold, unit, language), unit=unit.unit, pack=names.get(row.pack_ref, row.pack_ref)
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
        headers = [Cell(texts["terms"]), Cell(texts["change"])]
        title = texts["top_ups"]
        return [PageList(name="top_ups", title=title, empty=texts["no_top_ups"], headers=headers, cells=cells, rows=data)]

    def card_list(self, shown: PageDisplay) -> list[PageList]:
        """Return where the saved cards are shown. The page itself does not ask for them: it waits for no provider."""
        if card_keeper() is None:
            return []
        texts = TEXTS[shown.language.code]
        cells = [[Cell(texts["cards_text"]), Cell(texts["cards_show"], action=shown.action_url(f"{CARDS}-all"))]]
        headers = [Cell(texts["cards"]), Cell(texts["change"])]
        return [PageList(name="cards", title=texts["cards"], empty=texts["cards_none"], headers=headers, cells=cells, rows=[])]

    # Actions -----------------------------------------------------------------------------------------

    def actions(self) -> dict[str, Action]:
        """Return what the buttons do, by the verbs of their names."""
        return {
            TOP_UP: self._ask_or_set_top_up,
            TOP_UP_OFF: self._end_top_up,
            CARDS: lambda name, given, shown: f"{CARDS}-all",
            CARD_ADD: self._add_card,
            CARD_REMOVE: self._remove_card,
            CARD_CHARGE: self._charge_card,
        }

    def _ask_or_set_top_up(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
        if "threshold" not in given:
            return f"{TOP_UP}-new"
        pack = next((each for each in self._find_packs() if str(each.pk) == given.get("pack")), None)
        method = next((each for each in self._methods() if each.id == given.get("method")), None)
        if pack is None or method is None:
            raise Invalid(pointer="/pack" if pack is None else "/method", rule="exists", detail="is not offered any more")
        unit = page_units([pack.credit_type], shown.language)[pack.credit_type]
        set_top_up(
            holder_id=self._customer.holder_id,
            credit_type=pack.credit_type,
            threshold=smallest_units(given["threshold"], unit, shown.language),
            pack=pack.code,
            packs=1,
            customer=self._customer.ref,
            method=method.id,
            provider=method.provider,
            actor=ACTOR,
        )
        return ""

    def _end_top_up(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
        if name.number is None or not self._top_ups().filter(pk=name.number).exists():
            return None
        end_top_up(top_up=name.number)
        return ""

    def _add_card(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> IntermediatePage | None:
        keeper, texts = card_keeper(), TEXTS[shown.language.code]
        if keeper is None:
            return None
        return IntermediatePage(
            title=texts["card_add_title"],
            text=texts["card_add_text"],
            next_url=start_saving_method(self._customer.ref, keeper, shown.back_url(f"{CARDS}-all")),
            next_text=texts["card_add_next"],
            goes_on=True,
        )

    def _remove_card(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
        """Remove a card that no top-up charges; one that does is shown without the button."""
        method = self._method(name)
        if method is None:
            return None
        if self._top_ups().filter(provider=method.provider, method=method.id).exists():
            raise Invalid(pointer="/method", rule="in-use", detail="pays an automatic top-up")
        forget_method(self._customer.ref, method.id)
        return f"{CARDS}-all"

    def _charge_card(self, name: Name, given: Mapping[str, str], shown: PageDisplay) -> str | None:
        """Let a card pay the top-ups that this customer pays."""
        method = self._method(name)
        if method is None:
            return None
        mine = self._top_ups().filter(customer_id=self._customer.pk)
        for row in mine.exclude(provider=method.provider, method=method.id):
            charge_other_method(top_up=row.pk, method=method.id, provider=method.provider, actor=ACTOR)
        return f"{CARDS}-all"

    # Steps -------------------------------------------------------------------------------------------

    def step(self, verb: str, shown: PageDisplay) -> IntermediatePage | None:
        """Return the step that a button leads to; None if it is none of these."""
        if verb == TOP_UP:
            return self._top_up_step(shown)
        return self._card_step(shown) if verb == CARDS and card_keeper() is not None else None

    def _top_up_step(self, shown: PageDisplay) -> IntermediatePage:
        texts, packs = TEXTS[shown.language.code], self._find_packs()
        methods = self._methods()
        if not methods:
            texts_of = {pack.pk: texts["buy_and_save"].format(pack=pack_name(pack, shown.language)) for pack in packs}
            buttons = [Cell(text, action=shown.action_url(f"{SAVE}-{pack}")) for pack, text in texts_of.items()]
            return IntermediatePage(title=texts["top_up_title"], text=texts["no_method"], buttons=buttons)
        fields = [
            FormField("threshold", texts["threshold"]),
            FormField("pack", texts["which_pack"], [(str(pack.pk), offer_text(pack, shown.language)) for pack in packs]),
            FormField("method", texts["method"], [(method.id, method.text) for method in methods]),
        ]
        return IntermediatePage(
            title=texts["top_up_title"],
            text=texts["top_up_text"],
            fields=fields,
            action=shown.action_url(f"{TOP_UP}-new"),
            button=texts["turn_on"],
        )

    def _card_step(self, shown: PageDisplay) -> IntermediatePage:
        """Return the saved cards, what each pays, and what can be done with it."""
        texts, methods = TEXTS[shown.language.code], self._methods()
        top_ups = list(self._top_ups())
        charged = {(row.provider, row.method) for row in top_ups}
        charged_to_customer = {(row.provider, row.method) for row in top_ups if row.customer_id == self._customer.pk}
        buttons = []
        for method in methods:
            name = method_name(method)
            if charged_to_customer - {(method.provider, method.id)}:
                text = texts["card_charge"].format(card=method.text)
                buttons.append(Cell(text, action=shown.action_url(f"{CARD_CHARGE}-{name}")))
            if (method.provider, method.id) not in charged:
                text = texts["card_remove"].format(card=method.text)
                buttons.append(Cell(text, action=shown.action_url(f"{CARD_REMOVE}-{name}")))
        buttons.append(Cell(texts["card_add"], action=shown.action_url(f"{CARD_ADD}-new")))
        used = {True: texts["card_charged"], False: texts["card_saved"]}
        return IntermediatePage(
            title=texts["cards_title"],
            text=texts["cards_kept"] if methods else texts["cards_none"],
            rows=[(method.text, used[(method.provider, method.id) in charged]) for method in methods],
            buttons=buttons,
        )

    def _top_ups(self) -> QuerySet[TopUp]:
        return TopUp.objects.filter(holder_id=self._customer.holder_id, ended_at=None).order_by("pk")

    def _method(self, name: Name) -> Method | None:
        return next((each for each in self._methods() if method_name(each) == name.subject), None)

    def _methods(self) -> list[Method]:
        return methods_of(self._customer.ref)


def method_name(method: Method) -> str:
    """Return the name of a saved method in an address, whatever signs the provider's id has."""
    return hashlib.sha256(f"{method.provider} {method.id}".encode()).hexdigest()[:24]
