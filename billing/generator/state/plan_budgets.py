"""The budgets of a plan on the account of the customer's holder: which it should have at an instant, and what changed.

Orders set them as soon as they have committed, and runs where they are not there yet, under the holder's lock; the ledger then
counts, and reads no plan. A budget that somebody set by hand prevails over the plan's of the same name: it stays as it is until
somebody ends it. See docs/adr/0167.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from math import floor
from typing import Any, Final, NamedTuple

from billing.documents.invoice_locks import invoice_key
from billing.generator.state.subscription_state import (
    BillableItems,
    SubscriptionState,
    VersionRow,
    read_versions,
)
from billing.orders import plans
from billing.rating.proration import MICROSECOND
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.database.statements import fetch_rows
from ledger.errors import Refused
from ledger.services.budgets import AccountBudget, budgets_now, budgets_under
from ledger.values import MAX_AMOUNT

ACTOR: Final = "billing"
TERMS: Final = ("limit", "window", "hours", "time_zone", "by", "label", "subject", "mode", "parent")
"""What a plan says of a budget, by the names of the ledger's request."""
log = logging.getLogger("billing.budgets")

PLANS: Final = """
    SELECT DISTINCT v.plan_id
    FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id AND p.budgets IS NOT NULL
    WHERE v.subscription_id = %s
"""
ORDERED: Final = """
    SELECT s.id, s.time_zone, c.holder_id, (
            SELECT (a.change ->> 'ends_at')::timestamptz FROM billing_amendment AS a
            WHERE a.subscription_id = s.id AND a.change -> 'ends_at' IS NOT NULL ORDER BY a.sequence DESC LIMIT 1
        ) AS ends_at
    FROM billing_subscription AS s JOIN billing_customer AS c ON c.id = s.customer_id
    WHERE s.ref = %s
"""

BudgetKey = tuple[str, str]
"""A credit type and a name."""


class _Ordered(NamedTuple):
    """A row of ORDERED."""

    id: int
    time_zone: str
    holder_id: str
    ends_at: datetime | None

    def budgets_at(self, at: datetime) -> "list[PlanBudget]":
        """Return the budgets that the subscription should have at an instant."""
        return budgets_at(read_versions(self.id), self.time_zone, at, ends_at=self.ends_at)


class PlanBudget(NamedTuple):
    """A budget that a subscription should have at an instant; `limit` is for its units then."""

    credit_type: str
    name: str
    terms: dict[str, Any]

    @property
    def key(self) -> BudgetKey:
        return self.credit_type, self.name


# Which budgets there should be ------------------------------------------------------------------------


def budgets_at(versions: Iterable[VersionRow], time_zone: str, at: datetime, *, ends_at: datetime | None) -> list[PlanBudget]:
    """Return the budgets that a subscription should have at an instant, parents first.

    While it is paused, it keeps those of before; after its end it has no budgets.

    Args:
        ends_at: the end that was ordered last: in a pause no version ends with it.
    """
    rows = list(versions)
    begun = [row for row in rows if row.price_id is None and row.starts_at <= at]
    latest = max(begun, key=lambda row: row.starts_at, default=None)
    if latest is None:
        return []
    is_over = latest.ends_at is not None and latest.ends_at <= at
    if is_over and (latest.is_termination or (ends_at is not None and ends_at <= at)):
        return []
    when = latest.ends_at - MICROSECOND if is_over and latest.ends_at is not None else at
    return [
        PlanBudget(
            budget["credit_type"],
            budget["budget"],
            {name: budget.get(name) for name in TERMS}
            | {"time_zone": time_zone, "limit": _limit(budget, rows, latest.plan_id, when)},
        )
        for budget in plans.terms_of(latest.plan_id).budgets
    ]


def _limit(budget: Mapping[str, Any], rows: Iterable[VersionRow], plan_id: int, at: datetime) -> int:
    key, limit = budget["per_quantity_of"], budget["limit"]
    if key is None:
        return int(limit)
    units = sum(
        (
            row.quantity
            for row in rows
            if row.price_id is not None and row.plan_id == plan_id and _counts_at(row, at) and _key_of(row) == key
        ),
        Decimal(0),
    )
    return min(floor(limit * units), MAX_AMOUNT)


def _counts_at(row: VersionRow, at: datetime) -> bool:
    return row.starts_at <= at and (row.ends_at is None or at < row.ends_at)


def _key_of(row: VersionRow) -> str:
    assert row.price_id is not None
    return plans.price_of(row.price_id)[1].key


def next_budgets(subscription: SubscriptionState, items: BillableItems, as_of: datetime) -> datetime | None:
    """Return when budgets begin, change or end after `as_of`; None if they do not."""
    if not has_budgets(items):
        return None
    instants = [each for row in items.versions for each in (row.starts_at, row.ends_at)]
    return min((each for each in (*instants, subscription.ordered_end) if each is not None and each > as_of), default=None)


def has_budgets(items: BillableItems) -> bool:
    """Return whether a plan that the subscription is on, was on or will be on has budgets."""
    return any(row.price_id is None and plans.terms_of(row.plan_id).budgets for row in items.versions)


# What the account has ---------------------------------------------------------------------------------


class ComparedBudget(NamedTuple):
    """A budget that a subscription has by its plan, or had by an earlier one, beside that of the account.

    `wanted` is None if the plan has no such budget now.
    """

    credit_type: str
    name: str
    wanted: PlanBudget | None
    account: AccountBudget
    is_ours: bool
    """The subscription set it last."""

    @property
    def is_set_by_hand(self) -> bool:
        """The account has one that somebody else set: it prevails."""
        return self.account.present is not None and not self.is_ours


def compare_budgets(ref: str, at: datetime | None = None) -> list[ComparedBudget]:
    """Return the budgets of a subscription beside those of the account, without a lock: to be shown.

    Args:
        at: at which the plan counts; None: now, by the holder's clock.
    """
    ordered = fetch_rows(_Ordered, ORDERED, [ref])
    if not ordered or not ordered[0].holder_id:
        return []
    holder_id = ordered[0].holder_id
    wanted = {budget.key: budget for budget in ordered[0].budgets_at(at or ledger.time_of(holder_id))}
    compared = []
    for credit_type, keys in groupby(sorted(_known(ordered[0].id)), key=lambda key: key[0]):
        names = [name for _, name in keys]
        account = budgets_now(holder_id=holder_id, credit_type=credit_type, budgets=names)
        compared += [
            ComparedBudget(credit_type, name, wanted.get((credit_type, name)), account[name], _is_ours(ref, account[name]))
            for name in names
        ]
    return [each for each in compared if each.wanted is not None or (each.is_ours and each.account.present is not None)]


def _known(subscription_id: int) -> set[BudgetKey]:
    """Return the budgets of all plans that the subscription was ever to be on."""
    plan_ids = fetch_rows(int, PLANS, [subscription_id])
    return {(each["credit_type"], each["budget"]) for plan_id in plan_ids for each in plans.terms_of(plan_id).budgets}


def set_budgets(lock: Lock, subscription: SubscriptionState, items: BillableItems) -> None:
    """Set the budgets of the plan that the subscription is on now, and end those of an earlier one, unless it is so already.

    Lock order: the caller has the subscription's lock; then the holder's. Budgets that somebody set by hand, and those of another
    subscription, stay.

    Raises:
        HolderBusy: lock_timeout passed.
    """
    lock.ensure_held(invoice_key(subscription.ref))
    # An amendment may have replaced all of the time on a plan with budgets.
    if not subscription.holder_id or not (has_budgets(items) or subscription.amendments > 1):
        return
    known = _known(subscription.id)
    if not known:
        return
    now = ledger.time_of(subscription.holder_id)
    wanted = budgets_at(items.versions, subscription.time_zone, now, ends_at=subscription.ordered_end)
    with holder_lock(subscription.holder_id) as holder:
        for credit_type, keys in groupby(sorted(known), key=lambda key: key[0]):
            names = [name for _, name in keys]
            of_type = [budget for budget in wanted if budget.credit_type == credit_type]
            _set(holder, subscription, credit_type, names, of_type, now)


def _set(
    holder: Lock,
    subscription: SubscriptionState,
    credit_type: str,
    names: list[str],
    wanted: list[PlanBudget],
    now: datetime,
) -> None:
    account = {"holder_id": subscription.holder_id, "credit_type": credit_type}
    known = budgets_under(holder, **account, budgets=names)
    for budget in wanted:
        if not _is_free(subscription, budget, known[budget.name], now):
            continue
        present = known[budget.name].present
        # What it nests in may be another one than before.
        parent = budget.terms["parent"]
        levels = () if parent is None else _levels(budgets_under(holder, **account, budgets=[parent])[parent])
        if present is not None and ([getattr(present, name) for name in TERMS], present.within) == (
            list(budget.terms.values()),
            levels,
        ):
            continue
        facts = json.dumps([subscription.ref, credit_type, budget.name, budget.terms, levels])
        _write(holder, subscription, known[budget.name], budget.name, account, facts, budget.terms)
    left = {budget.name for budget in wanted}
    for name in names:
        if name not in left and known[name].present is not None and _is_ours(subscription.ref, known[name]):
            facts = json.dumps([subscription.ref, credit_type, name])
            _write(holder, subscription, known[name], name, account, facts, None)


def _levels(parent: AccountBudget) -> tuple[Any, ...]:
    return () if parent.present is None else parent.present.levels


def _write(
    holder: Lock,
    subscription: SubscriptionState,
    known: AccountBudget,
    name: str,
    account: Mapping[str, str],
    facts: str,
    terms: Mapping[str, Any] | None,
) -> None:
    """Set the budget, or end it without terms. Each setting follows the one before it, so the same can be set again later."""
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    named: dict[str, Any] = {
        **account,
        "budget": name,
        "reference": subscription.ref,
        "reason": f"Plan of {subscription.ref}",
        "actor": ACTOR,
        "idempotency_key": f"plan-budget/{known.setting}/{digest}",
    }
    try:
        if terms is None:
            ledger.end_budget_under(holder, **named)
        else:
            ledger.set_budget_under(holder, **named, **terms)
    except Refused as refused:
        log.warning("%s: the account goes without the plan's budget %s: %s", subscription.ref, name, refused)


def _is_ours(ref: str, known: AccountBudget) -> bool:
    return known.last is not None and (known.last.actor, known.last.reference) == (ACTOR, ref)


def _is_free(subscription: SubscriptionState, budget: PlanBudget, known: AccountBudget, now: datetime) -> bool:
    """Return whether the plan may set the budget: nobody else has one of its name."""
    if known.present is None or known.last is None or _is_ours(subscription.ref, known):
        return True
    if known.last.actor != ACTOR:
        log.info("%s: the budget %s that %s set prevails over the plan's", subscription.ref, budget.name, known.last.actor)
        return False
    # That of a subscription that has ended since, before a run of it has come.
    other = fetch_rows(_Ordered, ORDERED, [known.last.reference])
    is_taken = any(each.key == budget.key for one in other for each in one.budgets_at(now))
    if is_taken:
        log.warning("%s: %s has the budget %s of %s", subscription.ref, subscription.holder_id, budget.name, known.last.reference)
    return not is_taken
