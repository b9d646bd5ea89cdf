"""What Ctrl+K finds beside rows: the pages of the sidebar, and what operators do, by the words that they use for it."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.urls import reverse
from django.utils.http import urlencode

from billing.permissions import (
    ADD_COUPON,
    ADD_CUSTOMER,
    ADD_METER,
    ADD_PLAN,
    ADD_SELLER,
    ADD_SUBSCRIPTION,
    ADD_TAX,
    VIEW_CUSTOMER,
    VIEW_INVOICE,
    VIEW_RUN,
    VIEW_SUBSCRIPTION,
)
from ledger.operators.additions import SearchResult
from ledger.operators.permissions import (
    GRANT_CREDITS,
    PUBLISH_RATE,
    VIEW_ACCOUNT,
    VIEW_ENTRYLISTING,
    VIEW_LOCKS,
    VIEW_REFUSALLISTING,
)
from ledger.staff.spelling import begins, resembles, words_of
from ledger_project.operators.appearance import SECTIONS

SHORTEST: Final = 3
SPOKEN: Final = re.compile(r"[A-Za-z' ?]+")
"""A reference has other signs too."""
MOST: Final = 6


class Action(NamedTuple):
    """Something that operators do.

    Args:
        title: what they do.
        also: other words for it.
        hint: where it is done.
        page: the name of the page in the admin, with its query.
        fragment: the part of the page; the page then has its name without the admin's namespace.
        permission: of those who may open the page.
    """

    title: str
    also: str
    hint: str
    page: str
    permission: str
    query: dict[str, str] = {}
    fragment: str = ""


def _of_bank_statements() -> tuple[Action, ...]:
    if not apps.is_installed("billing.statements_in"):
        return ()
    from billing.statements_in.permissions import VIEW_BANKRECEIPT

    page = "billing_statements_in_bankreceipt_changelist"
    return (Action("Book a bank transfer", "receipt statement payment", "bank receipts", page, VIEW_BANKRECEIPT),)


def _of_mails() -> tuple[Action, ...]:
    if not apps.is_installed("billing.dunning"):
        return ()
    from billing.dunning.permissions import VIEW_MAIL

    return (
        Action("Send an invoice mail again", "resend email", "mails", "billing_dunning_mail_changelist", VIEW_MAIL),
        Action("Stop reminders of an invoice", "hold dunning", "on the invoice", "billing_invoice_changelist", VIEW_INVOICE,
               {"overdue": "yes"}),
    )  # fmt: skip


def _of_months() -> tuple[Action, ...]:
    if not apps.is_installed("ledger.totals"):
        return ()
    from ledger.totals.permissions import VIEW_DAILYTOTAL

    return (
        Action("Close the month", "month-end finance report reconcile taxes vat revenue", "month", "ledger_month_end",
               VIEW_DAILYTOTAL),
        Action("Export the journal", "datev beancount accounting bookkeeping", "month", "ledger_month_end", VIEW_DAILYTOTAL),
    )  # fmt: skip


def _of_packs() -> tuple[Action, ...]:
    if not apps.is_installed("billing.payments"):
        return ()
    from billing.payments.permissions import ADD_PACK

    return (Action("Create a pack", "add new sell credits", "form", "billing_payments_pack_add", ADD_PACK),)


def _of_purchases() -> tuple[Action, ...]:
    if not apps.is_installed("billing.payments"):
        return ()
    from billing.payments.permissions import ADD_PURCHASE, VIEW_PAYMENTINTENT

    return (
        Action("Record a purchase", "sell pack sale", "form", "billing_payments_purchase_add", ADD_PURCHASE),
        Action("Refund a payment by card", "send money back return stripe", "open the payment, then Refund",
               "billing_payments_paymentintent_changelist", VIEW_PAYMENTINTENT),
    )  # fmt: skip


def _of_calls() -> tuple[Action, ...]:
    if not apps.is_installed("ledger.keys"):
        return ()
    from ledger.keys.permissions import VIEW_APIKEY

    return (
        Action("Spend credits by a call", "use usage api reference documentation docs integrate curl",
               "API reference, to try out", "api-reference", VIEW_APIKEY, fragment="/Credits/spendCredits"),
    )  # fmt: skip


def _of_keys() -> tuple[Action, ...]:
    if not apps.is_installed("ledger.keys"):
        return ()
    from ledger.keys.permissions import ADD_APIKEY, VIEW_APIKEY

    lists = "ledger_keys_apikey_changelist"
    return (
        Action("Create an API key", "add new token secret", "form", "ledger_keys_apikey_add", ADD_APIKEY),
        Action("Rotate or revoke an API key", "secret token replace", "on the key's page", lists, VIEW_APIKEY),
    )


ACTIONS: Final = (
    Action("How many requests, and how fast?", "rate latency traffic calls errors slow", "requests", "request-rates", VIEW_LOCKS,
           fragment="calls-heading"),
    Action("Grant credits", "give add gift bonus goodwill", "form", "ledger_account_grant_to_anyone", GRANT_CREDITS),
    *_of_calls(),
    Action(
        "Refund a spend", "give back credits money return", "open the spend, then Refund", "ledger_entrylisting_changelist",
        VIEW_ENTRYLISTING, {"kind": "spend"},
    ),
    Action("Why was a request refused?", "refusal declined error denied", "refusals", "ledger_refusallisting_changelist",
           VIEW_REFUSALLISTING),
    Action("Give a customer a link to their page", "customer portal pay sell", "on the customer's page",
           "billing_customer_changelist", VIEW_CUSTOMER),
    Action("Freeze a holder", "block stop fraud unfreeze", "on the holder's page", "ledger_account_changelist", VIEW_ACCOUNT),
    Action("Set a budget or an overdraft", "limit cap", "on the holder's page", "ledger_account_changelist", VIEW_ACCOUNT),
    Action("Revoke a wrong grant", "take back undo credits", "open the grant, then Revoke", "ledger_entrylisting_changelist",
           VIEW_ENTRYLISTING, {"kind": "grant"}),
    *_of_months(),
    Action("Create a customer", "add new", "form", "billing_customer_add", ADD_CUSTOMER),
    Action("Create a plan", "add new price pricing", "form", "billing_plan_add", ADD_PLAN),
    Action("Give a plan a trial", "free days test", "form of a plan, under its options", "billing_plan_add", ADD_PLAN),
    Action("What would another price have brought?", "try simulate pricing compare raise cheaper dearer", "form",
           "billing_price_trial", VIEW_INVOICE),
    Action("Retire a plan", "end stop selling sale withdraw", "on the plan's page", "billing_plan_changelist", ADD_PLAN),
    *_of_packs(),
    Action("Create a coupon", "add new discount voucher", "form", "billing_coupon_add", ADD_COUPON),
    Action("Create a subscription", "add new subscribe order", "form", "billing_subscription_add", ADD_SUBSCRIPTION),
    Action("Create a meter", "add new usage", "form", "billing_meter_add", ADD_METER),
    Action("Upgrade, downgrade, pause or cancel a subscription", "change plan end stop trial resume", "on its page",
           "billing_subscription_changelist", VIEW_SUBSCRIPTION),
    Action("Publish a rate", "price list model tokens", "rates", "ledger_ratelisting_changelist", PUBLISH_RATE),
    Action("See overdue invoices", "unpaid late debt owe remind dunning", "invoices", "billing_invoice_changelist", VIEW_INVOICE,
           {"overdue": "yes"}),
    Action("Who owes most?", "debts debtors receivables unpaid overdue", "debts", "billing_debts", VIEW_INVOICE),
    Action("Record a payment", "book transfer paid money bank", "on the invoice", "billing_invoice_changelist", VIEW_INVOICE,
           {"state": "open"}),
    *_of_bank_statements(),
    Action("Credit or void an invoice", "credit note cancel refund money correct", "on the invoice", "billing_invoice_changelist",
           VIEW_INVOICE),
    Action("Finalise drafts", "finalize issue", "invoices", "billing_invoice_changelist", VIEW_INVOICE, {"state": "draft"}),
    *_of_mails(),
    *_of_purchases(),
    Action("What did the last billing run do?", "generate invoices run failed", "runs", "billing_run_changelist", VIEW_RUN),
    Action("Change the seller's address", "company letterhead logo iban", "sellers", "billing_seller_changelist", ADD_SELLER),
    Action("Declare a tax", "vat gst sales", "taxes", "billing_tax_changelist", ADD_TAX),
    *_of_keys(),
    Action("Change password", "login", "account", "password_change", ""),
)  # fmt: skip


def find(request: Any, word: str) -> list[SearchResult]:
    """Return actions and pages whose titles have words that begin with those typed, as far as the operator may open them."""
    return _find(request, word, begins, rank=0)


def guess(request: Any, word: str) -> list[SearchResult]:
    """Return the same for words with one typo."""
    return _find(request, word, resembles, rank=2)


def _find(request: Any, word: str, fits: Callable[[Iterable[str], Iterable[str]], bool], *, rank: int) -> list[SearchResult]:
    typed = words_of(word)
    if not typed or max(map(len, typed)) < SHORTEST or not SPOKEN.fullmatch(word):
        return []
    actions = [
        SearchResult(title=each.title, description=each.hint, url=_url(each), icon="bolt", rank=rank)
        for each in ACTIONS
        if (not each.permission or request.user.has_perm(each.permission)) and fits(typed, words_of(f"{each.title} {each.also}"))
    ]
    pages = [
        SearchResult(title=tab.title, description=_where(section.title, tab.title), url=tab.address, icon=section.icon, rank=rank)
        for section in SECTIONS
        for tab in section.tabs_for(request)
        if fits(typed, words_of(tab.title))
    ]
    return [*_in_order(typed, pages), *_in_order(typed, actions)][:MOST]


def _in_order(typed: Sequence[str], found: list[SearchResult]) -> list[SearchResult]:
    """Return those whose title itself has the words first."""
    return sorted(found, key=lambda each: not begins(typed, words_of(each.title)))


def _where(section: str, title: str) -> str:
    return "page" if section == title else f"page, {section}"


def _url(action: Action) -> str:
    if action.fragment:
        return f"{reverse(action.page)}#{action.fragment}"
    address = reverse(f"admin:{action.page}")
    return f"{address}?{urlencode(action.query)}" if action.query else address
