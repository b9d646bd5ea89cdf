"""The result of a run for one subscription."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from billing.generator.allowances import AllowanceGrant
from billing.generator.draft import Bill


@dataclass(frozen=True, slots=True)
class InvoiceSummary:
    """The numbers of a new invoice; after a dry run the invoice does not exist."""

    invoice_id: int
    number: str | None
    currency: str
    total_minor: int
    credits_applied_minor: int
    amount_due_minor: int
    lines: int
    is_draft: bool = False


@dataclass(slots=True)
class GenerationResult:
    """What a run did for one subscription."""

    subscription: str
    invoices: list[InvoiceSummary] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    periods: int = 0
    late_usage_minor: int = 0
    granted: list[AllowanceGrant] = field(default_factory=list)
    """The allowances of the plan that the run granted to the customer's holder."""
    covered: Counter[str] = field(default_factory=Counter)
    """Credits spent on usage, less credits given back, by credit type."""

    def add(self, made: InvoiceSummary, bill: Bill) -> None:
        """Count a new invoice."""
        self.invoices.append(made)
        billed = [line for line in bill.lines if line.kind in ("recurring", "usage")]
        self.periods += len({(line.starts_at, line.ends_at) for line in billed})
        self.late_usage_minor += sum(line.amount_minor for line in bill.lines if line.kind == "late_usage")
