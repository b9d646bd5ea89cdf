"""The budgets of a plan on the account of the customer's holder: which it should have at an instant, and what changed.

Orders set them as soon as they have committed, and runs where they are not there yet, under the holder's lock, each with the
instants from which and until which it is in force: what is ordered for later needs no run. The ledger then counts, and reads no
plan. A budget that somebody set by hand prevails over the plan's of the same name: it stays as it is until
somebody ends it. See docs/adr/0167.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import groupby, zip_longest
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
from ledger.errors import BudgetNotFound, Invalid, LedgerError, Refused
from ledger.services.budgets import MAX_COMING, AccountBudget, Budget, budgets_now, budgets_under
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
_ORDERED: Final = """
    SELECT s.id, s.ref, s.time_zone, c.holder_id, (
            SELECT (a.change ->> 'ends_at')::timestamptz FROM billing_amendment AS a
            WHERE a.subscription_id = s.id AND a.change -> 'ends_at' IS NOT NULL ORDER BY a.sequence DESC LIMIT 1
        ) AS ends_at
    FROM billing_subscription AS s JOIN billing_customer AS c ON c.id = s.customer_id
"""
ORDERED: Final = f"{_ORDERED} WHERE s.ref = %s"
OTHERS: Final = f"""
    {_ORDERED}
    WHERE c.holder_id = %s AND s.id <> %s
        AND NOT EXISTS (SELECT FROM billing_activation AS a WHERE a.subscription_id = s.id AND a.state <> 'started')
        AND EXISTS (
            SELECT FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id AND p.budgets IS NOT NULL
            WHERE v.subscription_id = s.id)
    ORDER BY s.id
"""

BudgetKey = tuple[str, str]
"""A credit type and a name."""


class _Ordered(NamedTuple):
    """A row of ORDERED."""

    id: int
    ref: str
    time_zone: str
    holder_id: str
    ends_at: datetime | None

    def budgets_at(self, at: datetime) -> "list[PlanBudget]":
        """Return the budgets that the subscription should have at an instant."""
        return budgets_at(read_versions(self.id), self.time_zone, at, ends_at=self.ends_at)

    def spans(self, now: datetime) -> "list[BudgetSpan]":
        """Return the times of its budgets, from now on."""
        return budget_spans(self.ref, read_versions(self.id), self.time_zone, now, ends_at=self.ends_at)


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
        ends_at: the end that was ordered last: in a pause no version ends with it, and one that ended before goes on by it.
    """
    rows = list(versions)
    begun = [row for row in rows if row.price_id is None and row.starts_at <= at]
    latest = max(begun, key=lambda row: row.starts_at, default=None)
    if latest is None:
        return []
    is_over = latest.ends_at is not None and latest.ends_at <= at
    if is_over and (latest.is_termination if ends_at is None else ends_at <= at):
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


class BudgetSpan(NamedTuple):
    """A budget that a subscription should have from an instant on, and until another one; None: without an end.

    `levels` are the terms of its parents in the plan by which their subjects are told apart, the outermost first. `since` is when
    the subscription had such a budget first.
    """

    ref: str
    since: datetime
    starts_at: datetime
    ends_at: datetime | None
    budget: PlanBudget
    levels: tuple[Any, ...]

    def goes_on_as(self, other: "BudgetSpan") -> bool:
        """Return whether nothing changes where the other one begins."""
        return (self.ends_at, self.budget, self.levels) == (other.starts_at, other.budget, other.levels)


def budget_spans(
    ref: str, versions: Iterable[VersionRow], time_zone: str, now: datetime, *, ends_at: datetime | None
) -> list[BudgetSpan]:
    """Return the times of the budgets of a subscription, in the order of their starts, parents first.

    What is in force now begins at `now`. As many instants are named in advance as an account has room for settings for later;
    the run at the first of them names what follows.
    """
    rows = list(versions)
    since = _first_starts(rows)
    later = max(1, MAX_COMING // max(1, len(since)))
    starts = [now, *_instants(rows, ends_at, now)[:later]]
    spans: dict[BudgetKey, list[BudgetSpan]] = {}
    for start, end in zip_longest(starts, starts[1:]):
        levels: dict[str | None, tuple[Any, ...]] = {None: ()}
        for budget in budgets_at(rows, time_zone, start, ends_at=ends_at):
            terms, within = budget.terms, levels[budget.terms["parent"]]
            levels[budget.name] = (*within, (terms["by"], terms["label"], terms["subject"]))
            span = BudgetSpan(ref, since[budget.key], start, end, budget, within)
            known = spans.setdefault(budget.key, [])
            if known and known[-1].goes_on_as(span):
                known[-1] = known[-1]._replace(ends_at=end)
            else:
                known.append(span)
    return [span for known in spans.values() for span in known]


def _first_starts(rows: Iterable[VersionRow]) -> dict[BudgetKey, datetime]:
    """Return when the subscription has each of its budgets first, by its plans."""
    since: dict[BudgetKey, datetime] = {}
    for row in sorted((row for row in rows if row.price_id is None), key=lambda row: row.starts_at):
        for budget in plans.terms_of(row.plan_id).budgets:
            since.setdefault((budget["credit_type"], budget["budget"]), row.starts_at)
    return since


def _instants(rows: Iterable[VersionRow], ends_at: datetime | None, after: datetime) -> list[datetime]:
    """Return the instants at which budgets may begin, change or end."""
    instants = {each for row in rows for each in (row.starts_at, row.ends_at)} | {ends_at}
    return sorted(each for each in instants if each is not None and each > after)


def next_budgets(subscription: SubscriptionState, items: BillableItems, as_of: datetime) -> datetime | None:
    """Return when budgets begin, change or end after `as_of`; None if they do not."""
    if not has_budgets(items):
        return None
    return next(iter(_instants(items.versions, subscription.ordered_end, as_of)), None)


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
        return self.account.present is not None and self.account.is_set_by_others(ACTOR)


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
    with holder_lock(subscription.holder_id) as holder:
        now = ledger.time_of(subscription.holder_id)
        own = budget_spans(subscription.ref, items.versions, subscription.time_zone, now, ends_at=subscription.ordered_end)
        # Those of subscriptions that have ended, or follow: read under the lock, so that who comes last has read all.
        others = fetch_rows(_Ordered, OTHERS, [subscription.holder_id, subscription.id])
        spans = own + [span for other in others for span in other.spans(now)]
        for key in sorted(known, key=lambda key: _depth(own, key)):
            _set(holder, subscription, key, _in_turn([span for span in spans if span.budget.key == key]), now)


def _depth(spans: list[BudgetSpan], key: BudgetKey) -> tuple[int, BudgetKey]:
    """Those that end first, for they make room; then parents before what nests in them."""
    return max((len(span.levels) for span in spans if span.budget.key == key), default=-1), key


def _in_turn(spans: list[BudgetSpan]) -> list[BudgetSpan]:
    """Return the times in their order; where two subscriptions have the same budget, the one that had it first keeps it."""
    turns: list[BudgetSpan] = []
    for span in sorted(spans, key=lambda span: (span.starts_at, span.since, span.ref)):
        free_from = turns[-1].ends_at if turns else span.starts_at
        if free_from is None or (span.ends_at is not None and span.ends_at <= free_from):
            log.warning("%s: %s has the budget %s at that time", span.ref, turns[-1].ref, span.budget.name)
            continue
        turns.append(span._replace(starts_at=max(span.starts_at, free_from)))
    return turns


def _set(holder: Lock, subscription: SubscriptionState, key: BudgetKey, spans: list[BudgetSpan], now: datetime) -> None:
    """Have the account have the budget in these times, and not between them; nothing is written where it is so."""
    setter = _Setter(holder, subscription, key, now)
    if setter.account.is_set_by_others(ACTOR):
        if any(span.ref == subscription.ref for span in spans):
            last = setter.account.last
            log.info("%s: the budget %s that %s set prevails over the plan's", subscription.ref, key[1], last and last.actor)
        return
    at = now
    for span, following in zip_longest(spans, spans[1:]):
        if not (setter.is_free(at, span.starts_at) or setter.end(at)):
            return
        ends_at = None if following is not None and following.starts_at == span.ends_at else span.ends_at
        if not (setter.fits(span) or setter.set(span, ends_at)):
            return
        if span.ends_at is None:
            return
        at = span.ends_at
    if not setter.is_free(at, None):
        setter.end(at)


class _Setter:
    """Sets and ends one budget of the plans of a holder, under the lock of the holder."""

    def __init__(self, holder: Lock, subscription: SubscriptionState, key: BudgetKey, now: datetime) -> None:
        self._holder, self._subscription, self._now = holder, subscription, now
        self._credit_type, self._name = key
        self.account = self._read(self._name)
        self._parents: dict[str, AccountBudget] = {}
        """The budgets in which it nests, as the account has them: under the lock, nobody else changes them."""

    def _read(self, name: str) -> AccountBudget:
        account = {"holder_id": self._subscription.holder_id, "credit_type": self._credit_type}
        return budgets_under(self._holder, **account, budgets=[name])[name]

    def is_free(self, start: datetime, end: datetime | None) -> bool:
        """Return whether the account has no such budget from an instant on and until another one."""
        return start == end or not any(
            (end is None or version.starts_at is None or version.starts_at < end)
            and (version.ends_at is None or version.ends_at > start)
            for version in self.account.versions
        )

    def fits(self, span: BudgetSpan) -> bool:
        """Return whether the account has the budget of a span from its start on, and as long."""
        version = self.account.at(span.starts_at)
        if version is None or version.within != self._parent_levels(span):
            return False
        is_as_long = version.ends_at is None or (span.ends_at is not None and version.ends_at >= span.ends_at)
        return is_as_long and [getattr(version, name) for name in TERMS] == list(span.budget.terms.values())

    def _parent_levels(self, span: BudgetSpan) -> tuple[Any, ...]:
        """Return what it nests in, which may be another one than before."""
        version = self._parent_of(span)
        return () if version is None else version.levels

    def _parent_of(self, span: BudgetSpan) -> Budget | None:
        """Return the budget of the account in which it nests from its start on, or None."""
        parent = span.budget.terms["parent"]
        if parent is None:
            return None
        if parent not in self._parents:
            self._parents[parent] = self._read(parent)
        return self._parents[parent].at(span.starts_at)

    def set(self, span: BudgetSpan, ends_at: datetime | None) -> bool:
        """Set the budget of a span, unless its end has come since; False: the account cannot have it."""
        starts_at = span.starts_at if span.starts_at > self._now else None
        parent = span.budget.terms["parent"]
        if parent is not None and self._parent_of(span) is None:
            # The ledger would record the refusal under the key, and repeat it once the parent is there.
            self._warn(span.ref, BudgetNotFound(budget=parent))
            return False
        return self._write(span.ref, ledger.set_budget_under, starts_at=starts_at, ends_at=ends_at, **span.budget.terms)

    def end(self, at: datetime) -> bool:
        """End the budget at an instant; False: the ledger refused."""
        last = self.account.last
        ref = last.reference if last is not None and last.actor == ACTOR else self._subscription.ref
        return self._write(ref, ledger.end_budget_under, ends_at=at if at > self._now else None)

    def _write(self, ref: str, use_case: Callable[..., object], **terms: Any) -> bool:
        """Write, or log why the account cannot have it.

        Each setting follows the one before it, so the same can be set again later.
        """
        facts = json.dumps([ref, self._credit_type, self._name, terms], default=str)
        digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
        try:
            use_case(
                self._holder,
                holder_id=self._subscription.holder_id,
                credit_type=self._credit_type,
                budget=self._name,
                reference=ref,
                reason=f"Plan of {ref}",
                actor=ACTOR,
                idempotency_key=f"plan-budget/{self.account.setting}/{digest}",
                **terms,
            )
        except Refused as refused:
            self._warn(ref, refused)
            return False
        except Invalid as invalid:
            # The ledger's clock reads later than the one by which the spans were worked out.
            if (invalid.facts["pointer"], invalid.facts["rule"]) == ("/ends_at", "past"):
                return True
            # It does not fit into a parent that somebody set by hand.
            self._warn(ref, invalid)
            return False
        self.account = self._read(self._name)
        return True

    def _warn(self, ref: str, error: LedgerError) -> None:
        log.warning("%s: the account goes without the plan's budget %s: %s", ref, self._name, error)


def _is_ours(ref: str, known: AccountBudget) -> bool:
    return known.last is not None and (known.last.actor, known.last.reference) == (ACTOR, ref)
