"""Random statements, cut, overlapped, repeated, with other texts and in another format: nothing is booked twice or lost.

BANK_SEEDS chooses how many there are of each kind; 5000 makes 10,000 of them.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal

import pytest

from billing.models import Invoice, InvoicePayment
from billing.statements_in.booking import book
from billing.statements_in.models import BankReceipt
from billing.statements_in.statements import Statement, StatementEntry
from billing.testing import CustomerFactory
from tests.billing.documents.test_one_off_invoices import issued

pytestmark = pytest.mark.django_db

MANY = int(os.environ.get("BANK_SEEDS", "600"))

FIRST = date(2026, 1, 5)
DAYS = 6


@dataclass(frozen=True)
class Bank:
    """A bank with the entries of an account, and how it writes them."""

    entries: tuple[StatementEntry, ...]
    opening: Decimal

    def file(self, chance: random.Random) -> Statement:
        """A file of some days, in which texts may have grown."""
        first = chance.randrange(DAYS)
        last = chance.randrange(first, DAYS)
        days = [FIRST + timedelta(days=day) for day in range(first, last + 1)]
        before = sum((entry.amount for entry in self.entries if entry.booked_on < days[0]), Decimal())
        entries = [entry for entry in self.entries if entry.booked_on in days]
        if chance.random() < 0.3:
            entries = [replace(entry, text=f"{entry.text} Ada Example Ltd") for entry in entries]
        closing = self.opening + before + sum((entry.amount for entry in entries), Decimal())
        return Statement(account="DE1", opening=self.opening + before, closing=closing, entries=tuple(entries))


def bank(chance: random.Random, invoices: list[Invoice], *, has_references: bool) -> Bank:
    """A bank whose entries often have equal amounts and texts."""
    entries = []
    for number in range(chance.randrange(1, 12)):
        day = FIRST + timedelta(days=chance.randrange(DAYS))
        text = chance.choice([chance.choice(invoices).number or "", "thanks", ""])
        amount = Decimal(chance.choice(["1.00", "1.00", "2.50", "-3.00"]))
        value_on = day - timedelta(days=chance.randrange(3))
        reference = f"REF-{number}" if has_references else ""
        entries.append(
            StatementEntry(
                line=number, booked_on=day, value_on=value_on, amount=amount, currency="EUR", text=text, bank_reference=reference
            )
        )
    return Bank(tuple(sorted(entries, key=lambda entry: entry.booked_on)), Decimal(10))


def book_all(seed: int, *, has_references: bool) -> tuple[Counter[int], Counter[int], Counter[int]]:
    """Book some files and then all days; what came in, what was booked and what is left, by amount."""
    chance = random.Random(seed)
    invoices = [issued(CustomerFactory(), "50") for _ in range(2)]
    account = bank(chance, invoices, has_references=has_references)
    files = [account.file(chance) for _ in range(chance.randrange(1, 5))]
    files += chance.choices(files, k=2)
    closing = account.opening + sum((entry.amount for entry in account.entries), Decimal())
    files.append(Statement(account="DE1", opening=account.opening, closing=closing, entries=account.entries))
    for number, file in enumerate(files):
        book([file], bytes([files.index(file), number]), actor="test")
    received = Counter(entry.amount_minor for entry in account.entries if entry.amount > 0)
    booked = Counter(BankReceipt.objects.filter(state="booked").values_list("amount_minor", flat=True))
    left = Counter(BankReceipt.objects.filter(state="left").values_list("amount_minor", flat=True))
    assert booked == Counter(InvoicePayment.objects.values_list("amount_minor", flat=True))
    return received, booked, left


def seeds(few: int, many: int) -> list[object]:
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(few, many))]


@pytest.mark.parametrize("seed", seeds(12, MANY))
def test_with_references_what_came_in_is_booked_or_left_to_the_cent(seed: int) -> None:
    received, booked, left = book_all(seed, has_references=True)
    assert booked + left == received


@pytest.mark.parametrize("seed", seeds(12, MANY))
def test_without_references_nothing_is_booked_twice_and_nothing_is_lost(seed: int) -> None:
    received, booked, left = book_all(seed, has_references=False)
    assert booked <= received
    # What may be another form of a receipt is left as well, so more may be left than came in, never less.
    assert booked + left >= received
