"""What billing can answer other than yes. Statuses are given in `ledger_project.problems`."""

from ledger.errors import Invalid, LockBusy, Misuse, Refused


class AlreadyExists(Refused):
    """Something of this name is there, with other content. Facts: resource, ref."""

    code = "already-exists"
    title = "The name is taken"


class NotFound(Refused):
    """There is nothing of this name. Facts: resource, ref."""

    code = "not-found"
    title = "There is no such thing"


class InvalidTransition(Refused):
    """The document is not in a state from which it can go there. Facts: invoice, state, wanted."""

    code = "invalid-transition"
    title = "The invoice cannot go there from its state"


class InvoiceCorrectedLater(InvalidTransition):
    """A line of this invoice is credited or continued by a later one, which has to be voided first. Facts: invoice, by."""

    code = "invalid-transition"
    title = "A later invoice corrects this one"


class CreditExceedsInvoice(Refused):
    """More is to be credited than is left of the invoice. Facts: invoice, creditable_minor (with tax), lines (before tax)."""

    code = "credit-exceeds-invoice"
    title = "More than is left of the invoice"


class CouponNotApplicable(Refused):
    """The coupon cannot be given to this customer: another currency, or given already. Facts: coupon, why."""

    code = "coupon-not-applicable"
    title = "The coupon does not apply"


class NotParked(Refused):
    """The subscription is not parked. Facts: subscription."""

    code = "not-parked"
    title = "The subscription is not parked"


class InvoiceGenerationBusy(LockBusy):
    """Another process makes invoices for this subscription at this moment; come back later. Facts: key, subscription."""

    code = "invoice-generation-busy"
    title = "Invoices for this subscription are being made"


class PeriodAlreadyBilled(Misuse):
    """The database refused a claim that overlaps another: somebody billed this period without holding the lock.

    Nothing of the transaction is written. It is a Misuse because whoever holds `invoice_gen/<ref>` cannot meet it; the
    generator counts it as `conflict` and goes on with the next subscription. Facts: subscription.
    """

    code = "period-already-billed"
    title = "The period is billed already"


class Parked(Refused):
    """The generator will not bill this subscription until somebody has looked at it. Facts: subscription, reason."""

    code = "subscription-parked"
    title = "The subscription is parked"


__all__ = [
    "AlreadyExists",
    "CouponNotApplicable",
    "CreditExceedsInvoice",
    "Invalid",
    "InvalidTransition",
    "InvoiceCorrectedLater",
    "InvoiceGenerationBusy",
    "NotFound",
    "NotParked",
    "Parked",
    "PeriodAlreadyBilled",
]
