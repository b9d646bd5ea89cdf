"""Why billing refuses a request."""

from ledger.errors import Invalid, LedgerError, LockBusy, Misuse, Problem, Refused


class AlreadyExists(Refused):
    """The name belongs to an existing resource with other content. Facts: resource, ref."""

    code = "already-exists"
    title = "The name is taken"


class NotFound(Refused):
    """No resource of this kind has this name. Facts: resource, ref."""

    code = "not-found"
    title = "The resource does not exist"
    problem = Problem(404, "The {resource} {ref} does not exist.")


class InvalidTransition(Refused):
    """The document's state does not allow this transition. Facts: invoice, state, wanted."""

    code = "invalid-transition"
    title = "The invoice's state does not allow this"


class InvoiceCorrectedLater(InvalidTransition):
    """A later invoice corrects a line of this one, or bills time that this one gave back; void that first.

    Facts: invoice, by, state, wanted.
    """

    stored_as = "invoice-corrected-later"
    title = "A later invoice corrects this one"
    problem = Problem(409, "Invoice {by} corrects this one or bills time that it gave back; void {by} first.")


class CreditExceedsInvoice(Refused):
    """The credit note exceeds the rest of the invoice. Facts: invoice, creditable_minor (with tax), lines (before tax)."""

    code = "credit-exceeds-invoice"
    title = "The credit note exceeds the rest of the invoice"


class CustomerStillBilled(Refused):
    """A customer cannot be erased while something is to be billed. Facts: customer, subscription, why."""

    code = "customer-still-billed"
    title = "The customer is still billed"


class SellerMissing(LedgerError):
    """A document cannot be printed before the seller is recorded: `manage.py seller`. Nothing was written."""

    code = "seller-missing"
    title = "No seller is recorded"
    problem = Problem(409, "A document names who invoices. Record the seller: manage.py seller --file seller.json.")


class CouponNotApplicable(Refused):
    """The customer cannot get the coupon: its currency differs, or the customer has it already. Facts: coupon, why."""

    code = "coupon-not-applicable"
    title = "The customer cannot get this coupon"


class BillingNotSuspended(Refused):
    """Billing of the subscription is not suspended. Facts: subscription."""

    code = "billing-not-suspended"
    title = "Billing of the subscription is not suspended"


class InvoiceGenerationBusy(LockBusy):
    """Another process is generating invoices for this subscription; try again later. Facts: key, subscription."""

    code = "invoice-generation-busy"
    title = "Another process is generating invoices for this subscription"


class PeriodAlreadyBilled(Misuse):
    """The database refused an overlapping claim: another process billed this period without holding the lock.

    Nothing of the transaction is written. It is a Misuse because no holder of `invoice_gen/<ref>` can meet it; the
    generator counts it as `conflict` and goes on with the next subscription. Facts: subscription.
    """

    code = "period-already-billed"
    title = "The period is already billed"
    problem = Problem(409, "Another process has billed this period. Nothing was written.")


class BillingSuspended(Refused):
    """The generator bills this subscription again only after a person has resumed billing. Facts: subscription, reason."""

    code = "billing-suspended"
    title = "Billing of the subscription is suspended"


class BillingWouldBeSuspended(BillingSuspended):
    """A dry run exceeds a limit at which a run suspends the billing. Nothing is suspended. Facts: subscription, reason."""

    code = "billing-would-be-suspended"
    title = "A run would suspend billing of the subscription"


__all__ = [
    "AlreadyExists",
    "BillingNotSuspended",
    "BillingSuspended",
    "BillingWouldBeSuspended",
    "CouponNotApplicable",
    "CreditExceedsInvoice",
    "Invalid",
    "InvalidTransition",
    "InvoiceCorrectedLater",
    "InvoiceGenerationBusy",
    "NotFound",
    "PeriodAlreadyBilled",
    "SellerMissing",
]
