"""A subscription from its order to its last invoice: what is billed of it, finalising, voiding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from math import ceil
from typing import Any

from tests.billing.random_subscriptions.calculator.documents import Customer, Document, Line, Note
from tests.billing.random_subscriptions.calculator.exact import DECIMALS
from tests.billing.random_subscriptions.calculator.orders import Order, Stretch
from tests.billing.random_subscriptions.calculator.prices import (
    Price,
    Used,
    cost_of,
    is_due_at_start,
    limits,
    minor_of_usage,
    used,
    within,
)


@dataclass(eq=False)
class Billed:
    """A stretch that is on an invoice.

    Args:
        before: what it came to without `charge`.
        line: the line that charged it; for usage without its own line, that of the part before.
        made_by: the line that made it what it is: the same, or one that gave a part of it back.
        units: the share of the full period that is left.
        credited: what was given back of its line.
        running: of usage of a running period, the whole of that; None once it is billed to the end.
        used, gross, coupons_before: of usage: what was rated, its amount, and what of that was after coupons before `charge`.
        group_lines: of a price that groups its usage, the lines of the groups, and that of their bounds.
        freed_by: the document that it is not billed on any more because of.
    """

    kind: str
    key: str
    stretch: Stretch
    before: int = 0
    line: Line | None = None
    made_by: Line | None = None
    units: int = 0
    credited: int = 0
    used: Used | None = None
    gross: int = 0
    coupons_before: int = 0
    running: Stretch | None = None
    group_lines: list[Line] = field(default_factory=list)
    is_live: bool = True
    freed_by: Document | None = None

    @property
    def start(self) -> datetime:
        return self.stretch.start

    @property
    def end(self) -> datetime:
        return self.stretch.end

    @property
    def currency(self) -> str:
        return self.stretch.plan.currency

    @property
    def quantity(self) -> Fraction:
        """Of what was ordered, or was used."""
        return self.used.quantity if self.used else self.stretch.quantity

    @property
    def price(self) -> Price:
        return price_of(self.stretch, self.key)

    @property
    def charge(self) -> Line | None:
        """The line whose whole amount belongs to it."""
        return self.line if self.line is self.made_by else None

    @property
    def left(self) -> int:
        """What is charged for it, after discounts."""
        if self.group_lines:
            return self.before + sum(line.net + line.minimum for line in self.group_lines)
        return self.before + (self.charge.net + self.charge.minimum if self.charge else 0)

    @property
    def after_coupons(self) -> int:
        """What is charged for it, before the limits of its price."""
        if self.group_lines:
            return self.coupons_before + sum(line.after_coupons for line in self.group_lines)
        return self.coupons_before + (self.charge.after_coupons if self.charge else 0)

    def is_on(self, document: Document) -> bool:
        """True where the document charged it, or gave a part of it back."""
        return any(line is not None and line.document is document for line in (self.line, self.made_by))

    def free(self, document: Document | None) -> None:
        """Bill it no more."""
        self.is_live, self.freed_by = False, document

    def has_time_of(self, other: Billed) -> bool:
        """True for two that bill the same thing for times that overlap."""
        return (self.kind, self.key) == (other.kind, other.key) and self.start < other.end and other.start < self.end


@dataclass(eq=False)
class OneOff:
    """A one-off charge, and the line that it is on."""

    amount: int
    rate: Fraction
    recorded_at: datetime
    line: Line | None = None


class Subscription(Order):
    """An order of a customer, and all that was billed of it."""

    def __init__(self, *, customer: Customer, **order: Any) -> None:
        super().__init__(**order)
        self.customer = customer
        self.events: list[Any] = []
        self.one_offs: list[OneOff] = []
        self.history: list[Billed] = []
        self.is_consolidated = False
        self.activation = "started"
        """Of a start that waits for its payment: waiting, and then started or never."""
        customer.subscriptions.append(self)

    def charge(self, amount: int, rate: Fraction) -> None:
        """A one-off charge for the next invoice. It is due now, by the clock of the machine, whatever time the simulation has."""
        self.one_offs.append(OneOff(amount, rate, datetime.now(UTC)))

    def live(self, kind: str, key: str) -> list[Billed]:
        """What is billed of a key, oldest first."""
        return sorted((b for b in self.history if b.is_live and (b.kind, b.key) == (kind, key)), key=lambda b: b.start)

    def bill(self, as_of: datetime, *, only: str | None = None, finalize: bool = True, running: bool = False) -> list[Document]:
        """What a run has to put on document, a document per currency; it counts as billed from here on."""
        from tests.billing.random_subscriptions.calculator.runs import Run

        if self.activation != "started":
            return []
        documents = Run(self, as_of).documents(only, running)
        self.customer.documents += documents
        if finalize:
            for document in documents:
                self.finalize(document)
        return documents

    def finalize(self, document: Document) -> None:
        """Credit of the customer, the document's own first, then the oldest; then prepaid credits; what is left is due."""
        if document.own_note:
            self.customer.notes.append(Note(document, document.currency, document.own_note))
        for note in sorted(self.customer.notes, key=lambda note: note.document is not document):
            part = min(document.due, note.left) if note.currency == document.currency else 0
            if part > 0:
                note.left -= part
                document.notes += part
                document.note_uses.append((note, part))
        self._pay_out(document)
        if self.customer.unit_value is not None and document.currency == self.customer.currency and document.due > 0:
            self._pay_in_credits(document, self.customer.unit_value * 10 ** DECIMALS[document.currency])
        coin = self.customer.coins.get(document.currency, 1)
        over = document.due % coin
        document.rounding += coin - over if 2 * over >= coin > 1 else -over
        document.state = "paid" if document.due == 0 else "open"

    def _pay_out(self, document: Document) -> None:
        """Unused time after an end that pays it out: out of the document's own note, as far as money paid it."""
        for note in self.customer.notes:
            if note.document is document and (amount := min(note.left, document.refundable)) > 0:
                note.left -= amount
                note.refunded += amount
                document.refunded = amount

    def _pay_in_credits(self, document: Document, unit: Fraction) -> None:
        units = min(int(document.due / unit), self.customer.credits)
        document.credits = int(units * unit)
        # No more of them than that much money takes.
        document.spent = ceil(document.credits / unit)
        self.customer.credits -= document.spent

    # Back --------------------------------------------------------------------------------------------

    def why_not_void(self, document: Document) -> set[str]:
        """Why an invoice cannot be voided; empty: it can."""
        if document.state not in ("open", "uncollectible") and not document.is_nothing:
            return {"state"}
        voided: list[Document] = []
        corrected = set[str]() if self._becomes_void(document, [], voided) else {"corrected"}
        refunded = any(note.refunded and note.document in voided for note in self.customer.notes)
        return corrected | ({"refunded"} if refunded else set())

    def _becomes_void(self, document: Document, going: list[Document], voided: list[Document]) -> bool:
        """Add the document, and what came to nothing and corrects it, to what is void; False if one that stands corrects it."""
        going.append(document)
        is_free = True
        while found := [other for other in self.corrections(document, voided) if other not in going]:
            nothing = [other for other in found if other.is_nothing]
            is_free = bool(nothing) and self._becomes_void(nothing[0], going, voided) and is_free
            if not nothing:
                break
        voided.append(document)
        return is_free

    def corrections(self, document: Document, voided: Sequence[Document] = ()) -> list[Document]:
        """The invoices that stand and freed what this one billed, billed what it freed, or used its note; the newest first.

        Args:
            voided: counted as void, so what they freed is billed again as it was.
        """
        correcting = [other for one in document.of for other in one._correcting(document, voided)]
        using = [other for other in self.customer.documents if any(note.document is document for note, _ in other.note_uses)]
        return [
            other
            for other in reversed(self.customer.documents)
            if other is not document and other.state != "void" and other not in voided and other in [*correcting, *using]
        ]

    def _correcting(self, document: Document, voided: Sequence[Document]) -> list[Document | None]:
        freeing = [billed.freed_by for billed in self.history if billed.is_on(document)]
        freed = [billed for billed in self.history if billed.freed_by is document and not billed.is_on(document)]
        live = [
            billed
            for billed in self.history
            if billed.is_live or (billed.freed_by in voided and not billed.is_on(billed.freed_by))
        ]
        again = [billed for billed in live if any(billed.has_time_of(other) for other in freed)]
        return [*freeing, *(line.document for billed in again if (line := billed.made_by or billed.line) is not None)]

    def void(self, document: Document) -> None:
        """Release its periods, restore what it corrected, give back coupons, notes and credits."""
        while found := [other for other in self.corrections(document) if other.is_nothing]:
            self.void(found[0])
        for one in document.of:
            one._release(document)
        self._take_back(document)
        for note, part in document.note_uses:
            note.left += part
        self.customer.notes = [note for note in self.customer.notes if note.document is not document]
        document.note_uses, document.state = [], "void"

    def _release(self, document: Document) -> None:
        for billed in list(self.history):
            if billed.is_on(document):
                if billed.is_live:
                    billed.free(document)
            elif billed.freed_by is document:
                self.history.append(replace(billed, is_live=True, freed_by=None))
        for one_off in self.one_offs:
            if one_off.line is not None and one_off.line.document is document:
                one_off.line = None

    def _take_back(self, document: Document) -> None:
        """Give coupons and prepaid credits back."""
        for use in document.coupon_uses:
            use.coupon.uses.remove(use)
        document.coupon_uses = []
        self.customer.credits += document.spent

    # A start that waits for its payment ---------------------------------------------------------------

    def order_first(self) -> list[Document]:
        """What is due at the start, and has to be paid; without anything to pay it starts at once."""
        documents = self.bill(self.amendments[0].effective_at)
        if any(one.due for one in documents):
            self.activation = "waiting"
        return documents

    def pay(self, document: Document, amount: int) -> None:
        """Money for the first document; what is too much is credit of the customer, and so is what comes too late."""
        part = min(document.due - document.paid, amount) if document.state in ("open", "uncollectible") else 0
        document.paid += part
        if part and document.paid == document.due:
            document.state, self.activation = "paid", "started"
        if amount > part:
            self.customer.notes.append(Note(None, document.currency, amount - part))

    def never_start(self, document: Document) -> None:
        """The order ends: its document is void. If a part of it was paid, that and the credit that it used are credit again."""
        self.activation = "never"
        if not document.paid:
            self.void(document)
            return
        self._take_back(document)
        self.customer.notes.append(Note(document, document.currency, document.paid + document.notes))
        document.notes += document.due - document.paid
        document.note_uses, document.spent, document.state = [], 0, "paid"

    # Without a memory --------------------------------------------------------------------------------

    def owed_recurring(self, key: str, as_of: datetime) -> tuple[Fraction, int]:
        """What a key should have cost in all by now, from what is believed today alone, and in how many stretches."""
        owed = []
        for stretch in self.stretches(key, as_of):
            price = price_of(stretch, key)
            if price["kind"] == "recurring" and (stretch.start if is_due_at_start(price) else stretch.end) <= as_of:
                exact = cost_of(price, stretch.quantity) * Fraction(*self.share(price, stretch))
                owed.append(exact * 10 ** DECIMALS[stretch.plan.currency])
        return sum(owed, Fraction(0)), len(owed)

    def owed_usage(self, billed: Billed) -> int:
        """What a billed stretch of usage should have cost in all, from the events that are known today alone."""
        price, stretch = billed.price, billed.stretch
        found = used(price, self.events, stretch.time, stretch.full, self.zone)
        gross = minor_of_usage(price, found, billed.currency)
        least, most = limits(price, Fraction(*self.share(price, billed.running or stretch)), billed.currency)
        return within(gross, None if billed.running else least, most)


def price_of(stretch: Stretch, key: str) -> Price:
    """The price of a key in the plan of a stretch of time."""
    price = stretch.plan.price(key)
    assert price is not None
    return price
