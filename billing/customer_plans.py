"""What a customer does with subscriptions on the customer's page: moves one to another plan, cancels it, or keeps it after all.

Each change is the amendment that an operator would write. Before it is confirmed a step shows what a run of the generator would
bill with it, and what happens to credits. The button that confirms names the amendment after which it was shown: a subscription
that changed since is shown again, and a second press finds the result of the first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

from billing import reads
from billing.documents.printed_arithmetic import rates_of
from billing.generator.run.preview import UpcomingInvoice, next_invoices
from billing.models import Amendment, Customer, Plan, Subscription
from billing.orders.subscriptions import Wish, amend_subscription, present
from billing.reads.money_words import money
from billing.reads.subscriptions import SubscriptionRow
from billing.request_keys import WriteResult, execute_once, request_digest_of
from billing.tax_asking import asks_taxes
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid, Refused
from ledger.portal.parts import Cell, IntermediatePage, PageDisplay
from ledger.portal.units import page_units
from ledger.services import preview
from ledger.typesetting.languages import Language
from ledger.units import CreditUnit, purpose_names

ACTOR: Final = "customer page"
MAX_DIGITS: Final = 15
PLAN, MOVE, CANCEL, KEEP = "plan", "plan_move", "plan_cancel", "plan_keep"

TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "change_or_cancel": "Change or cancel",
        "title": "Your plan {plan}",
        "what": "What do you want to do? You see what it costs before anything changes.",
        "ends": "It ends on {day}. Until then you can take the cancellation back.",
        "move": "Move to {plan}",
        "move_text": "The new plan begins at once. What you have paid for the time that is left is set off.",
        "move_now": "Move to {plan} now",
        "cancel": "Cancel at the end of the period, on {day}",
        "cancel_title": "Cancel {plan}",
        "cancel_text": "It ends on {day}. Until then everything stays as it is, and you can take the cancellation back.",
        "cancel_now": "Cancel on {day}",
        "keep": "Take the cancellation back",
        "total": "Next invoice, on {day}",
        "no_invoice": "Next invoice",
        "nothing": "There is nothing to pay",
        "granted": "Credits that you get",
        "taken": "Credits that go back",
        "only_for": ", only for {names}",
        "by_rate": "{title} (rate {named})",
        "refused_title": "That is not possible now",
        "changed": "The subscription has changed since this was shown, so nothing was changed now. Please look again.",
        "not_running": "The subscription is not running, so it cannot be changed here. Please ask us.",
        "not_on_offer": "This plan is not on offer for this subscription, so nothing was changed. Please ask us.",
        "ends_already": "The subscription ends already on {day}, so nothing was changed.",
        "ends_not": "The subscription is not cancelled, so nothing was changed.",
        "refused": "The subscription has terms with which this cannot be done here, so nothing was changed. Please ask us.",
        "overdue": "The subscription is suspended, so nothing was changed. Please pay the overdue invoice first, or ask us.",
    },
    "de": {
        "change_or_cancel": "Ändern oder kündigen",
        "title": "Ihr Tarif {plan}",
        "what": "Was möchten Sie tun? Sie sehen, was es kostet, bevor sich etwas ändert.",
        "ends": "Er endet am {day}. Bis dahin können Sie die Kündigung zurücknehmen.",
        "move": "Zu {plan} wechseln",
        "move_text": "Der neue Tarif beginnt sofort. Was Sie für die restliche Zeit bezahlt haben, wird verrechnet.",
        "move_now": "Jetzt zu {plan} wechseln",
        "cancel": "Zum Ende des Zeitraums kündigen, am {day}",
        "cancel_title": "{plan} kündigen",
        "cancel_text": "Der Tarif endet am {day}. Bis dahin bleibt alles, wie es ist, und Sie können die Kündigung zurücknehmen.",
        "cancel_now": "Zum {day} kündigen",
        "keep": "Kündigung zurücknehmen",
        "total": "Nächste Rechnung, am {day}",
        "no_invoice": "Nächste Rechnung",
        "nothing": "Es ist nichts zu zahlen",
        "granted": "Guthaben, das Sie erhalten",
        "taken": "Guthaben, das zurückgeht",
        "only_for": ", nur für {names}",
        "by_rate": "{title} (Tarif {named})",
        "refused_title": "Das geht jetzt nicht",
        "changed": "Das Abonnement ist inzwischen anders; es wurde nichts geändert. Bitte sehen Sie noch einmal nach.",
        "not_running": "Das Abonnement läuft nicht und kann hier nicht geändert werden. Bitte fragen Sie uns.",
        "not_on_offer": "Dieser Tarif wird dafür nicht angeboten; es wurde nichts geändert. Bitte fragen Sie uns.",
        "ends_already": "Das Abonnement endet schon am {day}; es wurde nichts geändert.",
        "ends_not": "Das Abonnement ist nicht gekündigt; es wurde nichts geändert.",
        "refused": "Die Bedingungen des Abonnements lassen das hier nicht zu; es wurde nichts geändert. Bitte fragen Sie uns.",
        "overdue": "Das Abonnement ruht; es wurde nichts geändert. Bitte bezahlen Sie, was überfällig ist, oder fragen Sie uns.",
    },
}
"""In every language of `ledger.typesetting.languages`."""


class _NotPossible(Exception):
    """The change is refused, for a reason that is a text of TEXTS; nothing was written."""

    def __init__(self, reason: str, **facts: str) -> None:
        super().__init__(reason)
        self.reason, self.facts = reason, facts


@dataclass(frozen=True)
class _Asked:
    """What the name of an action or step asks for, such as plan_move-12_34_5.

    Args:
        subscription: its id.
        plan: the id of a version of a plan; None if the verb needs no plan.
        after: the sequence of the amendment after which the button was shown; None: it only leads to the step.
    """

    verb: str
    subscription: int
    plan: int | None
    after: int | None

    @classmethod
    def read(cls, name: str) -> "_Asked | None":
        """Return what a name asks for; None if it is not such a name."""
        verb, _, subject = name.partition("-")
        numbers = [int(part) for part in subject.split("_") if part.isascii() and part.isdecimal() and len(part) <= MAX_DIGITS]
        if verb not in (PLAN, MOVE, CANCEL, KEEP) or len(numbers) != subject.count("_") + 1:
            return None
        has_plan = verb == MOVE
        if not 1 + has_plan <= len(numbers) <= 2 + has_plan:
            return None
        subscription, *others = numbers
        return cls(verb, subscription, others.pop(0) if has_plan else None, others[0] if others else None)


@dataclass(frozen=True)
class _Running:
    """A running subscription of the customer, whose terms can be changed now."""

    row: SubscriptionRow
    now: datetime
    period_ends_at: datetime

    def day(self, instant: datetime, language: Language) -> str:
        """Return the day of an instant, in the zone of the subscription."""
        return language.day(instant.astimezone(ZoneInfo(self.row.time_zone)).date())


class CustomerPlans:
    """The changes of plans of one customer on the page."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer

    def knows(self, name: str) -> bool:
        """Return whether an action or step is about plans."""
        return _Asked.read(name) is not None

    def change_cell(self, row: SubscriptionRow, now: datetime, shown: PageDisplay) -> Cell:
        """Return the button beside a subscription; an empty cell if it cannot be changed now."""
        if row.current_period(now) is None or row.suspended_at is not None:
            return Cell("")
        return Cell(TEXTS[shown.language.code]["change_or_cancel"], action=shown.action_url(f"{PLAN}-{row.id}"))

    def act(self, name: str, shown: PageDisplay) -> IntermediatePage | str | None:
        """See `ledger.portal.parts.Customer`. A button without an amendment in its name leads to its step."""
        asked = _Asked.read(name)
        if asked is None:
            return None
        if asked.after is None:
            return name if asked.verb != KEEP else None
        try:
            return self._confirm(asked, shown)
        except _NotPossible as refusal:
            return _refusal(refusal, shown.language)
        except (Invalid, Refused):
            return _refusal(_NotPossible("refused"), shown.language)

    def step(self, name: str, shown: PageDisplay) -> IntermediatePage | None:
        """See `ledger.portal.parts.Customer`."""
        asked = _Asked.read(name)
        if asked is None or asked.after is not None or asked.verb == KEEP or not self._is_own(asked):
            return None
        try:
            running = self._running(asked)
            if asked.verb == PLAN:
                return self._choices(running, shown)
            return self._move_step(running, asked, shown) if asked.verb == MOVE else self._cancel_step(running, asked, shown)
        except _NotPossible as refusal:
            return _refusal(refusal, shown.language)
        except (Invalid, Refused):  # the amendment itself, as an operator's would be
            return _refusal(_NotPossible("refused"), shown.language)

    # What is possible --------------------------------------------------------------------------------

    def _is_own(self, asked: _Asked) -> bool:
        return Subscription.objects.filter(pk=asked.subscription, customer_id=self._customer.pk).exists()

    def _running(self, asked: _Asked) -> _Running:
        """Return the subscription as it runs now. Raises: _NotPossible."""
        [row] = reads.subscriptions(customer=self._customer.ref, among=[asked.subscription], limit=1)
        now = present(Subscription.objects.get(pk=row.id))
        period = row.current_period(now)
        if row.suspended_at is not None:
            raise _NotPossible("overdue")
        if period is None or row.state != "active":
            raise _NotPossible("not_running")
        return _Running(row, now, period.end)

    def _offers(self, running: _Running, shown: PageDisplay) -> list[Plan]:
        """Return the newest versions of the other plans that the link offers, as far as they are on sale and fit."""
        present_plan = Plan.objects.get(pk=running.row.plan_id)
        newest: dict[str, Plan] = {}
        for each in Plan.objects.filter(code__in=shown.plans).order_by("version"):
            newest[each.code] = each
        return [
            newest[code]
            for code in dict.fromkeys(shown.plans)
            if code in newest
            and newest[code].on_sale
            and code != present_plan.code
            and (newest[code].currency, newest[code].tax_behavior) == (present_plan.currency, present_plan.tax_behavior)
        ]

    def _offer(self, running: _Running, asked: _Asked, shown: PageDisplay) -> Plan:
        offer = next((each for each in self._offers(running, shown) if each.pk == asked.plan), None)
        if offer is None:
            raise _NotPossible("not_on_offer")
        return offer

    # Steps -------------------------------------------------------------------------------------------

    def _choices(self, running: _Running, shown: PageDisplay) -> IntermediatePage:
        texts, row, language = TEXTS[shown.language.code], running.row, shown.language
        title = texts["title"].format(plan=_name_of(row.plan_id, language))
        if row.ends_at is not None:
            keep = Cell(texts["keep"], action=shown.action_url(f"{KEEP}-{row.id}_{_last_change(row.id)}"))
            return IntermediatePage(
                title=title, text=texts["ends"].format(day=running.day(row.ends_at, language)), buttons=[keep]
            )
        moves = [
            Cell(texts["move"].format(plan=_name_of(plan.pk, language)), action=shown.action_url(f"{MOVE}-{row.id}_{plan.pk}"))
            for plan in self._offers(running, shown)
        ]
        day = running.day(running.period_ends_at, language)
        cancel = Cell(texts["cancel"].format(day=day), action=shown.action_url(f"{CANCEL}-{row.id}"))
        return IntermediatePage(title=title, text=texts["what"], buttons=[*moves, cancel])

    def _move_step(self, running: _Running, asked: _Asked, shown: PageDisplay) -> IntermediatePage:
        texts, row = TEXTS[shown.language.code], running.row
        plan = self._offer(running, asked, shown)
        name = _name_of(plan.pk, shown.language)
        after = _last_change(row.id)
        return IntermediatePage(
            title=texts["move"].format(plan=name),
            text=texts["move_text"],
            rows=_effect_rows(running, lambda: self._move(running, plan), shown.language),
            buttons=[Cell(texts["move_now"].format(plan=name), action=shown.action_url(f"{MOVE}-{row.id}_{plan.pk}_{after}"))],
        )

    def _cancel_step(self, running: _Running, asked: _Asked, shown: PageDisplay) -> IntermediatePage:
        texts, row, language = TEXTS[shown.language.code], running.row, shown.language
        if row.ends_at is not None:
            raise _NotPossible("ends_already", day=running.day(row.ends_at, language))
        day = running.day(running.period_ends_at, language)
        after = _last_change(row.id)
        return IntermediatePage(
            title=texts["cancel_title"].format(plan=_name_of(row.plan_id, language)),
            text=texts["cancel_text"].format(day=day),
            rows=_effect_rows(running, lambda: self._cancel(running), language),
            buttons=[Cell(texts["cancel_now"].format(day=day), action=shown.action_url(f"{CANCEL}-{row.id}_{after}"))],
        )

    # Changes -----------------------------------------------------------------------------------------

    def _confirm(self, asked: _Asked, shown: PageDisplay) -> str | None:
        """Write the change once, or raise _NotPossible and write nothing; a second press finds it done."""
        if not self._is_own(asked):
            return None
        ref = Subscription.objects.values_list("ref", flat=True).get(pk=asked.subscription)

        def act() -> WriteResult:
            with locked_transaction(SUBSCRIPTION_INTENT(ref)):
                running = self._running(asked)
                if _last_change(asked.subscription) != asked.after:
                    raise _NotPossible("changed")
                return WriteResult(201, {"sequence": self._write(running, asked, shown).sequence})

        execute_once(
            collection="amendments",
            idempotency_key=f"customer page {asked.verb}-{asked.subscription}_{asked.plan}_{asked.after}",
            request_digest=request_digest_of({"verb": asked.verb, "subscription": ref, "plan": asked.plan, "after": asked.after}),
            act=act,
        )
        return ""

    def _write(self, running: _Running, asked: _Asked, shown: PageDisplay) -> Amendment:
        if asked.verb == MOVE:
            return self._move(running, self._offer(running, asked, shown))
        ends_at = running.row.ends_at
        if asked.verb == CANCEL:
            if ends_at is not None:
                raise _NotPossible("ends_already", day=running.day(ends_at, shown.language))
            return self._cancel(running)
        if ends_at is None:
            raise _NotPossible("ends_not")
        return _amend(running, Wish(sets_end=True))

    def _move(self, running: _Running, plan: Plan) -> Amendment:
        return _amend(running, Wish(plan=plan.code))

    def _cancel(self, running: _Running) -> Amendment:
        return _amend(running, Wish(ends_at=running.period_ends_at, sets_end=True))


def _amend(running: _Running, wish: Wish) -> Amendment:
    return amend_subscription(ref=running.row.ref, effective_at=running.now, wish=wish, actor=ACTOR)


def _refusal(refusal: _NotPossible, language: Language) -> IntermediatePage:
    texts = TEXTS[language.code]
    return IntermediatePage(title=texts["refused_title"], text=texts[refusal.reason].format(**refusal.facts), is_refusal=True)


def _last_change(subscription_id: int) -> int:
    """Return the sequence of the last amendment of a subscription."""
    return Amendment.objects.filter(subscription_id=subscription_id).order_by("-sequence").values_list("sequence", flat=True)[0]


def _name_of(plan_id: int, language: Language) -> str:
    return reads.plan_names([plan_id], language.code)[plan_id]


# What a change brings --------------------------------------------------------------------------------


@asks_taxes
def _effect_rows(running: _Running, change: Callable[[], object], language: Language) -> list[tuple[str, str]]:
    """Return the next invoice with a change, line by line, and what happens to credits; nothing is written."""
    upcoming_invoices: list[UpcomingInvoice] = []
    with preview():
        change()
        upcoming_invoices += next_invoices([running.row.ref], as_of=running.now, most=1)
    texts = TEXTS[language.code]
    if not upcoming_invoices:
        return [(texts["no_invoice"], texts["nothing"])]
    [invoice] = upcoming_invoices
    document = invoice.document
    currency = document["currency"]

    def amount(minor: int) -> str:
        return money(minor, currency, language)

    lines = [(line_title(line, language), amount(line["amount_minor"] - line["discount_minor"])) for line in document["lines"]]
    day = running.day(invoice.as_of, language)
    return [*lines, (texts["total"].format(day=day), amount(document["total_minor"])), *_credit_rows(invoice, language)]


def line_title(line: Mapping[str, Any], language: Language) -> str:
    """Return the title of a line, with the rate and its component if it is billed by entries, or the rates of an overage."""
    component = (line["rating"].get("entries") or {}).get("component")
    named = ", ".join([*rates_of(line), *([component] if component else [])])
    if not named:
        return str(line["title"])
    return TEXTS[language.code]["by_rate"].format(title=line["title"], named=named)


def _credit_rows(invoice: UpcomingInvoice, language: Language) -> list[tuple[str, str]]:
    """Return the credits that a change grants and takes back, by credit type and what they can pay for."""
    texts, units = TEXTS[language.code], page_units((move.credit_type for move in invoice.allowances), language)
    rows = []
    for name, sign in (("taken", -1), ("granted", 1)):
        sums: dict[tuple[str, str], int] = {}
        for move in invoice.allowances:
            if move.amount * sign > 0:
                of = (move.credit_type, purpose_names(move.applies_to or {}))
                sums[of] = sums.get(of, 0) + move.amount * sign
        rows += [
            (texts[name], f"{_credits(units[code], amount, language)}{names and texts['only_for'].format(names=names)}")
            for (code, names), amount in sums.items()
        ]
    return rows


def _credits(unit: CreditUnit, amount: int, language: Language) -> str:
    return f"{language.number(Decimal(amount).scaleb(-unit.scale), decimals=unit.scale)} {unit.unit}"
