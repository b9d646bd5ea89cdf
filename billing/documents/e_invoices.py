"""Counts the documents that have no e-invoice, and why: what `generate_invoices --check` and `doctor` say."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final

from django.db.models import QuerySet

from billing.documents.e_invoice import faults_of, profile_of
from billing.documents.e_invoice_rules import Fault
from billing.documents.printed_pages import EURO
from billing.documents.printing import credit_note_source, invoice_source
from billing.models import CreditNote, Invoice

MOST_NAMED: Final = 20
E_INVOICES_OF: Final = timedelta(days=31)
"""The documents of how long are looked at."""
AT_ONCE: Final = 200


@dataclass(slots=True)
class EInvoiceCount:
    """How many documents have an e-invoice, and how many have none.

    Args:
        lacking: documents without one because data of a side lack, such as the country of a buyer.
        broken: documents without one although nothing lacks, or whose customer has a form of its own.
        rules: how many documents would break each rule.
        numbers: of `broken`, the first MOST_NAMED.
    """

    documents: int = 0
    lacking: int = 0
    broken: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    numbers: list[str] = field(default_factory=list)

    def add(self, number: str, faults: Sequence[Fault], *, is_wanted: bool) -> None:
        """Count a document."""
        self.documents += 1
        self.rules.update({fault.rule for fault in faults})
        if not faults:
            return
        if is_wanted or not all(fault.is_lacking for fault in faults):
            self.broken += 1
            self.numbers += [number] if len(self.numbers) < MOST_NAMED else []
        else:
            self.lacking += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the count for programs."""
        return {
            "documents": self.documents, "lacking": self.lacking, "broken": self.broken,
            "rules": dict(sorted(self.rules.items())), "numbers": self.numbers,
        }  # fmt: skip


def count_e_invoices(*, since: date | None = None, most: int | None = None) -> EInvoiceCount:
    """Return which documents in euro have an e-invoice, the newest first; drafts and void documents do not count.

    Args:
        since: only documents issued on this day or later; None: all.
        most: at most this number of invoices, and of credit notes; None: all.
    """
    count = EInvoiceCount()
    invoices = Invoice.objects.filter(currency=EURO, number__isnull=False).exclude(state=Invoice.State.VOID)
    notes = CreditNote.objects.filter(currency=EURO, number__isnull=False, released_at=None)
    for pk in _newest(invoices, since, most):
        _count(count, invoice_source(pk, without_seller={}))
    for pk in _newest(notes, since, most):
        _count(count, credit_note_source(pk, without_seller={}))
    return count


def _count(found: EInvoiceCount, source: Any) -> None:
    profile = profile_of(source)
    found.add(source.document["number"], faults_of(source, profile), is_wanted=profile.lacking is not None)


def _newest(rows: QuerySet[Any], since: date | None, most: int | None) -> Iterator[int]:
    rows = rows.order_by("-pk") if since is None else rows.filter(issue_date__gte=since).order_by("-pk")
    yield from rows.values_list("pk", flat=True)[:most].iterator(chunk_size=AT_ONCE)
