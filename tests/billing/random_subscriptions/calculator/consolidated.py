"""Consolidated invoices: when the drafts of a customer's subscriptions become one document, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from tests.billing.random_subscriptions.calculator.documents import Customer, Document, document_of
from tests.billing.random_subscriptions.calculator.exact import instant_of
from tests.billing.random_subscriptions.calculator.prices import is_due_at_start
from tests.billing.random_subscriptions.calculator.subscriptions import Subscription, price_of


@dataclass(eq=False)
class Part:
    """A draft that waits for the invoice of a day; runs of one kind of charges, and of drafts, have separate invoices."""

    of: Subscription
    document: Document
    day: date
    only: str | None
    stays_draft: bool

    @property
    def kind(self) -> tuple[Any, ...]:
        """Drafts of one kind become one document."""
        return self.stays_draft, self.only or "", self.document.currency


def wait(of: Subscription, documents: Iterable[Document], now: datetime, only: str | None, stays_draft: bool) -> None:
    """Let drafts of a run wait for the invoice of the day of the customer."""
    day = now.astimezone(of.customer.zone).date()
    of.customer.waiting += [Part(of, document, day, only, stays_draft) for document in documents]


def consolidate(customer: Customer, now: datetime, held_back: dict[Subscription, timedelta], only: str | None) -> list[Document]:
    """Make the documents of each day on which no other subscription is due later, after all of them had their turn."""
    made: list[Document] = []
    for day in sorted({part.day for part in customer.waiting}):
        while there := {part.of for part in customer.waiting if part.day == day}:
            others = [one for one in customer.subscriptions if one.is_consolidated and one not in there]
            if any(is_due_later(one, now, day, held_back[one], only) for one in others):
                break
            made.append(consolidate_next(customer, day))
    return made


def consolidate_next(customer: Customer, day: date) -> Document:
    """Make a document of the drafts of a day: the first drafts of all subscriptions share one, and so do the second ones."""
    parts = [part for part in customer.waiting if part.day == day]
    documents: dict[tuple[Any, ...], list[Part]] = {}
    for part in parts:
        place = [other for other in parts if other.of is part.of and other.kind == part.kind].index(part)
        # What is on an invoice with a number is corrected where it is.
        is_alone = any(other.state != "draft" for other in part.of.corrections(part.document))
        number = customer.subscriptions.index(part.of) if is_alone else len(customer.subscriptions)
        documents.setdefault((*part.kind, place, number), []).append(part)
    (stays_draft, *_), together = min(documents.items())
    made = merge(customer, together)
    if not stays_draft:
        together[0].of.finalize(made)
    return made


def consolidate_day(customer: Customer, day: date) -> list[Document]:
    """Make all documents of the drafts of a day."""
    made: list[Document] = []
    while any(part.day == day for part in customer.waiting):
        made.append(consolidate_next(customer, day))
    return made


def is_due_later(of: Subscription, now: datetime, day: date, held_back: timedelta, only: str | None) -> bool:
    """True where a charge becomes due after now and before the day of the customer is over."""
    end = instant_of(datetime(day.year, day.month, day.day) + timedelta(days=1), of.customer.zone)
    if of.activation != "started":
        return False
    for key in [*of.keys, ""]:
        for stretch in of.stretches(key, end):
            price = price_of(stretch, key) if key else {"kind": "usage", "timing": "arrears"}
            if not key and stretch.plan.minimum is None and stretch.plan.maximum is None:
                continue
            if (only == "usage") != (price["kind"] == "usage") and only is not None:
                continue
            at = stretch.start if price["kind"] == "recurring" and is_due_at_start(price) else stretch.end
            if now < at + held_back < end:
                return True
    return False


def merge(customer: Customer, parts: list[Part]) -> Document:
    """One document of drafts, by the order of the subscriptions; of a single draft, that draft is the document."""
    customer.waiting = [part for part in customer.waiting if part not in parts]
    if len(parts) == 1:
        return parts[0].document
    parts.sort(key=lambda part: customer.subscriptions.index(part.of))
    drafts = [part.document for part in parts]
    lines = [line for draft in drafts for line in draft.lines if line.kind != "carried"]
    for part in parts:
        for line in part.document.lines:
            line.whose = part.of
    uses = [use for draft in drafts for use in draft.coupon_uses]
    whole = document_of(
        parts[0].document.currency, lines, coupon_uses=uses, of=[part.of for part in parts],
        as_of=max(draft.as_of for draft in drafts if draft.as_of), only=drafts[0].only,
    )  # fmt: skip
    for one in customer.subscriptions:
        for billed in one.history:
            if billed.freed_by in drafts:
                billed.freed_by = whole
    customer.documents = [*(one for one in customer.documents if one not in drafts), whole]
    return whole
