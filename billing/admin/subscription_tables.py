"""The tables on a subscription's page: items, amendments, charges and billed periods."""

from collections.abc import Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing import reads
from billing.admin.cells import MORE_ROWS, by_pk, document_link, money, money_column, plan_link, subscription_link
from billing.admin.prose import change_words, every, price_sentence
from billing.admin.run_sentences import why_not_billed
from billing.generator.state.plan_budgets import ComparedBudget, compare_budgets
from billing.models import Amendment, Charge, Claim, Invoice, Item, ItemVersion, Plan, Price, Subscription
from billing.orders.plans import price_of
from billing.rating.prices.prepaid_units import CreditSpend, covered_of
from billing.rating.prices.wording import number
from billing.reads.subscriptions import SubscriptionRow
from ledger.services.budgets import scope_words, window_words
from ledger.staff.kit import columns
from ledger.staff.kit.cells import contract_day, row_link, timestamp
from ledger.staff.kit.columns import table_of
from ledger.typesetting.languages import ENGLISH
from ledger.units import units_of

KINDS: Final[dict[int, str]] = {
    Claim.Kind.RECURRING: "every period",
    Claim.Kind.USAGE: "usage",
    Claim.Kind.CHARGE: "one-off charge",
    Claim.Kind.BOUND: "minimum or maximum",
    Claim.Kind.ALLOWANCE: "credits granted",
}
COUNTED: Final = {Claim.Kind.RECURRING, Claim.Kind.USAGE}
"""Kinds that bill a quantity."""


def _period(row: Any, zone: ZoneInfo) -> str:
    """Return start and end in the subscription's zone."""
    if row.ends_at is not None:
        return ENGLISH.period(row.starts_at, row.ends_at, zone)
    return f"from {ENGLISH.date_and_time(row.starts_at, zone)} on"


def calendar_table(subscription: Subscription) -> dict[str, Any]:
    """Return what the subscription is charged for from now on, as far as it is ordered."""
    zone = ZoneInfo(subscription.time_zone)
    return table_of(
        reads.calendar(subscription.ref).stretches,
        (f"Time ({subscription.time_zone})", lambda row: _period(row, zone)),
        ("Phase", lambda row: "" if row.phase is None else row.phase),
        ("Plan", lambda row: f"{row.plan.name} v{row.plan.version}{', trial' if row.is_trial else ''}"),
        ("Quantities", lambda row: ", ".join(f"{key} {number(quantity)}" for key, quantity in row.quantities.items())),
        ("Prices", lambda row: "negotiated" if row.is_negotiated else "of the plan"),
        ("A full period", lambda row: money(row.per_period_minor, row.plan.currency)),
    )


def items_table(subscription: Subscription) -> dict[str, Any]:
    """Return the prices with their times, after all amendments."""
    zone = ZoneInfo(subscription.time_zone)
    current = ItemVersion.objects.filter(subscription_id=subscription.pk, superseded_at=None).order_by("starts_at", "pk")
    versions = list(current[:MORE_ROWS])
    items = by_pk(Item, [row.item_id for row in versions])
    plans = by_pk(Plan, [row.plan_id for row in versions])
    prices = by_pk(Price, [row.price_id for row in versions])
    return table_of(
        versions,
        ("Price", lambda row: (items[row.item_id].price_key if row.item_id in items else "") or "the subscription"),
        ("Plan", lambda row: plan_link(plans[row.plan_id]) if row.plan_id in plans else "missing"),
        ("Quantity", lambda row: number(row.quantity)),
        ("Negotiated", lambda row: _negotiated_text(prices.get(row.price_id), plans.get(row.plan_id))),
        (f"Effective ({subscription.time_zone})", lambda row: _period(row, zone)),
        ("By amendment", lambda row: "" if row.amendment is None else row.amendment),
    )


def budgets_table(subscription: Subscription) -> dict[str, Any]:
    """Return the budgets of the plan for its present units, beside those that the holder's account has."""
    compared = compare_budgets(subscription.ref)
    units = units_of(each.credit_type for each in compared)

    def limit(row: ComparedBudget) -> str:
        if row.wanted is None:
            return "none any more"
        terms = row.wanted.terms
        window = window_words(terms["window"], terms["hours"], terms["time_zone"])
        return f"{units[row.credit_type].amount(terms['limit'])} {window}"

    def whose(row: ComparedBudget) -> str:
        if row.wanted is None:
            return ""
        terms = row.wanted.terms
        within = f" within {terms['parent']}" if terms["parent"] else ""
        return f"{scope_words(terms['by'], terms['label'], terms['subject'])}{within}"

    def account(row: ComparedBudget) -> str:
        present, last = row.account.present, row.account.last
        if present is None:
            return "none yet: the next run sets it"
        most = f"{units[row.credit_type].amount(present.limit)} {window_words(present.window, present.hours, present.time_zone)}"
        if not row.is_set_by_hand:
            is_same = row.wanted is not None and present.limit == row.wanted.terms["limit"]
            return most if is_same else f"{most}, until the next run"
        return f"{most}, set by {last.actor if last else 'somebody'}: it prevails until it is ended"

    return table_of(
        compared,
        ("Budget", "name"),
        ("The plan says", limit),
        ("For", whose),
        ("The account has", account),
    )


def _negotiated_text(price: Price | None, plan: Plan | None) -> str:
    """Return what a negotiated price costs, in words; empty for the plan's own price."""
    if price is None or plan is None or price.list_price_id is None:
        return ""
    terms, negotiated = price_of(price.pk)
    return price_sentence(negotiated, plan.currency, every(terms.interval_of(negotiated)))


def amendments_table(subscription: Subscription) -> dict[str, Any]:
    """Return the order and its amendments in words, the latest first."""
    rows = list(Amendment.objects.filter(subscription_id=subscription.pk).order_by("-sequence")[:MORE_ROWS])
    plans = by_pk(Plan, [row.change.get("plan") for row in rows])
    zone = ZoneInfo(subscription.time_zone)
    return table_of(
        rows,
        ("Number", "sequence"),
        ("Effective", lambda row: timestamp(row.effective_at, zone)),
        ("Change", lambda row: change_words(row.change, plans=plans, zone=zone, is_order=row.sequence == 1)),
        ("Actor", "actor"),
        columns.instant("Recorded", "recorded_at"),
    )


def subscriptions_table(pks: Sequence[int]) -> dict[str, Any]:
    """Return subscriptions in short with their current states, the newest first."""
    return subscription_rows_table(reads.subscriptions(among=list(pks), limit=MORE_ROWS) if pks else [])


def subscription_rows_table(rows: Sequence[SubscriptionRow]) -> dict[str, Any]:
    """Return the same of rows that were read."""
    names = reads.plan_names((row.plan_id for row in rows), ENGLISH.code)
    monthly = reads.monthly_minor(rows)
    return table_of(
        rows,
        ("Subscription", lambda row: subscription_link(row.id, row.ref)),
        ("Plan", lambda row: plan_cell(row, names.get(row.plan_id, ""))),
        ("State", _state),
        ("Monthly amount", lambda row: money(monthly[row.id], row.currency)),
        ("Started", lambda row: contract_day(row.started_at, row.time_zone)),
        ("Next due", lambda row: contract_day(row.due_at, row.time_zone) or "nothing"),
    )


def plan_cell(row: SubscriptionRow, name: str) -> SafeString:
    """Return a link to the plan by its name, with ref and version below it."""
    linked = row_link(Plan, row.plan_id, name or row.plan)
    return format_html('{}<div class="note">{} v{}</div>', linked, row.plan, row.plan_version)


def _state(row: SubscriptionRow) -> str:
    return (
        row.state if row.suspended_reason is None else f"{row.state}, billing suspended: {why_not_billed(row.suspended_reason)}"
    )


def charges_table(subscription: Subscription) -> dict[str, Any]:
    """Return one-off charges, the latest first."""
    rows = Charge.objects.filter(subscription_id=subscription.pk).order_by("-sequence")[:MORE_ROWS]
    return table_of(
        rows,
        ("Number", "sequence"),
        ("Description", "description"),
        money_column("Amount", "amount_minor"),
        ("Actor", "actor"),
        columns.instant("Recorded", "recorded_at"),
    )


def claims_table(subscription: Subscription) -> dict[str, Any]:
    """Return the billed periods, the latest first."""
    zone = ZoneInfo(subscription.time_zone)
    claims = list(Claim.objects.filter(subscription_id=subscription.pk, released_at=None).order_by("-ends_at")[:MORE_ROWS])
    items = by_pk(Item, [row.item_id for row in claims])
    invoices = by_pk(Invoice, [row.invoice_id for row in claims])
    units = units_of(spent.credit_type for row in claims for spent in _spends(row))
    return table_of(
        claims,
        (f"Period ({subscription.time_zone})", lambda row: _period(row, zone)),
        ("Price", lambda row: items[row.item_id].price_key if row.item_id in items else ""),
        ("Kind", lambda row: KINDS[row.kind]),
        ("Quantity", lambda row: number(row.quantity) if row.kind in COUNTED else ""),
        ("Credits spent", lambda row: ", ".join(units[spent.credit_type].amount(spent.credits) for spent in _spends(row))),
        ("Amount", lambda row: money(row.amount_minor, invoices[row.invoice_id].currency) if row.invoice_id in invoices else ""),
        ("Invoice", lambda row: document_link(invoices.get(row.invoice_id))),
    )


def _spends(claim: Claim) -> tuple[CreditSpend, ...]:
    """Return the credits that paid for units of the claim."""
    return covered_of(claim.snapshot["covered"])[1] if "covered" in claim.snapshot else ()
