"""The paths of billing's calls. A value that does not match its pattern gets 404, without a query."""

from django.urls import URLPattern, path, register_converter
from django.urls.converters import IntConverter, StringConverter

from billing.api.calls import catalogue, customers, previews, ratings, sellers, subscriptions, usage
from billing.api.calls.documents import credit_notes, generation, invoices, mails, pdfs, taxes
from billing.api.calls.payments import packs, payment_intents, payments, providers, purchases, top_ups
from ledger.typesetting.typeset import IS_INSTALLED
from ledger.values import HOLDER_ID


class RefConverter(StringConverter):
    """A ref in a path."""

    regex = HOLDER_ID.pattern


class InvoiceIdConverter(IntConverter):
    """The id of an invoice, credit note, purchase or payment in a path, in its one spelling."""

    regex = "[1-9][0-9]{0,17}"


class EventKeyConverter(StringConverter):
    """The idempotency key of a usage event in a path: 1-255 printable ASCII characters."""

    regex = "[!-~](?:[ -~]{0,253}[!-~])?"


class ProviderConverter(StringConverter):
    """A provider of payments in a path."""

    regex = "[a-z0-9_]{1,32}"


class MethodConverter(StringConverter):
    """A provider's id of a saved method in a path."""

    regex = "[A-Za-z0-9_-]{1,200}"


register_converter(MethodConverter, "payment_method")
register_converter(ProviderConverter, "provider")
register_converter(RefConverter, "ref")
register_converter(EventKeyConverter, "event_key")
register_converter(InvoiceIdConverter, "invoice_id")

urlpatterns: list[URLPattern] = [
    path("customers", customers.Customers.as_view()),
    path("customers/<ref:ref>", customers.OneCustomer.as_view()),
    path("customers/<ref:ref>/coupons/<ref:code>", customers.OneCustomerCoupon.as_view()),
    path("customers/<ref:ref>/coupons", customers.CustomerCoupons.as_view()),
    path("customers/<ref:ref>/invoices", invoices.CustomerInvoices.as_view()),
    path("customers/<ref:ref>/credit-balance", credit_notes.CreditBalance.as_view()),
    path("customers/<ref:ref>/credit-refunds", credit_notes.CreditRefunds.as_view()),
    path("customers/<ref:ref>/preview", previews.Previews.as_view()),
    path("customers/<ref:ref>/payment-methods", providers.PaymentMethods.as_view()),
    path("customers/<ref:ref>/payment-methods/<payment_method:method>", providers.OnePaymentMethod.as_view()),
    path("plans", catalogue.Plans.as_view()),
    path("plans/<ref:ref>", catalogue.OnePlan.as_view()),
    path("plans/<ref:ref>/moves", catalogue.PlanMoves.as_view()),
    path("plans/<ref:ref>/moves/preview", catalogue.PlanMovePreviews.as_view()),
    path("plan-moves/<invoice_id:move_id>", catalogue.OnePlanMove.as_view()),
    path("plan-moves/<invoice_id:move_id>/subscriptions", catalogue.MovedSubscriptions.as_view()),
    path("ratings", ratings.Ratings.as_view()),
    path("sellers", sellers.Sellers.as_view()),
    path("taxes", taxes.Taxes.as_view()),
    path("taxes/<ref:ref>", taxes.OneTax.as_view()),
    path("vat-lookups", taxes.VatLookups.as_view()),
    path("vat-lookups/<invoice_id:lookup_id>", taxes.OneVatLookup.as_view()),
    path("sellers/<ref:ref>", sellers.OneSeller.as_view()),
    path("coupons", catalogue.Coupons.as_view()),
    path("coupons/<ref:ref>", catalogue.OneCoupon.as_view()),
    path("packs", packs.Packs.as_view()),
    path("packs/<ref:ref>", packs.OnePack.as_view()),
    path("purchases", purchases.Purchases.as_view()),
    path("purchases/<invoice_id:purchase_id>", purchases.OnePurchase.as_view()),
    path("purchases/<invoice_id:purchase_id>/returns", purchases.PurchaseReturns.as_view()),
    path("payment-intents", payment_intents.PaymentIntents.as_view()),
    path("payment-intents/<invoice_id:intent_id>", payment_intents.OnePaymentIntent.as_view()),
    path("payment-intents/<invoice_id:intent_id>/cancel", payment_intents.CancelPaymentIntent.as_view()),
    path("payment-intents/<invoice_id:intent_id>/transfers", payment_intents.PaymentIntentTransfers.as_view()),
    path("payment-intents/<invoice_id:intent_id>/refunds", payment_intents.PaymentIntentRefunds.as_view()),
    path("top-ups", top_ups.TopUps.as_view()),
    path("top-ups/<invoice_id:top_up_id>", top_ups.OneTopUp.as_view()),
    path("top-ups/<invoice_id:top_up_id>/resume", top_ups.ResumeTopUp.as_view()),
    path("top-ups/<invoice_id:top_up_id>/end", top_ups.EndTopUp.as_view()),
    path("providers/<provider:provider>/events", providers.ProviderEvents.as_view()),
    path("payments", payments.Payments.as_view()),
    path("payments/<invoice_id:payment_id>", payments.OnePayment.as_view()),
    path("payments/<invoice_id:payment_id>/returns", payments.PaymentReturns.as_view()),
    path("subscriptions", subscriptions.Subscriptions.as_view()),
    path("subscriptions/<ref:ref>", subscriptions.OneSubscription.as_view()),
    path("subscriptions/<ref:ref>/cancel", subscriptions.CancelOrder.as_view()),
    path("subscriptions/<ref:ref>/calendar", subscriptions.Calendars.as_view()),
    path("subscriptions/<ref:ref>/amendments", subscriptions.Amendments.as_view()),
    path("subscriptions/<ref:ref>/charges", subscriptions.Charges.as_view()),
    path("subscriptions/<ref:ref>/coupons", subscriptions.SubscriptionCoupons.as_view()),
    path("subscriptions/<ref:ref>/coupons/<ref:code>", subscriptions.OneSubscriptionCoupon.as_view()),
    path("subscriptions/<ref:ref>/invoices", generation.SubscriptionInvoices.as_view()),
    path("subscriptions/<ref:ref>/resume", subscriptions.ResumeBilling.as_view()),
    path("meters", usage.Meters.as_view()),
    path("meters/<ref:ref>", usage.OneMeter.as_view()),
    path("usage-events", usage.UsageEvents.as_view()),
    path("usage-events/<event_key:key>", usage.OneUsageEvent.as_view()),
    path("reminders", mails.Reminders.as_view()),
    path("reminder-holds", mails.ReminderHolds.as_view()),
    path("reminder-holds/<invoice_id:hold_id>", mails.OneReminderHold.as_view()),
    path("reminder-holds/<invoice_id:hold_id>/release", mails.ReminderHoldRelease.as_view()),
    path("mails", mails.Mails.as_view()),
    path("mails/<invoice_id:mail_id>", mails.OneMail.as_view()),
    path("mails/<invoice_id:mail_id>/send-again", mails.MailAgain.as_view()),
    path("mail-bounces", mails.MailBounces.as_view()),
    path("invoices", invoices.Invoices.as_view()),
    path("invoices/<invoice_id:invoice_id>", invoices.OneInvoice.as_view()),
    path("invoices/<invoice_id:invoice_id>.pdf", pdfs.InvoicePdf.as_view()),
    path("invoices/<invoice_id:invoice_id>/transitions", invoices.InvoiceTransitions.as_view()),
    path("invoices/<invoice_id:invoice_id>/credit-payments", payments.CreditPayments.as_view()),
    path("invoices/<invoice_id:invoice_id>/credit-notes", credit_notes.InvoiceCreditNotes.as_view()),
    path("credit-notes", credit_notes.CreditNotes.as_view()),
    path("credit-notes/<invoice_id:credit_note_id>", credit_notes.OneCreditNote.as_view()),
    path("credit-notes/<invoice_id:credit_note_id>.pdf", pdfs.CreditNotePdf.as_view()),
    path("invoices/<invoice_id:invoice_id>/finalize", invoices.Finalize.as_view()),
    path("invoices/<invoice_id:invoice_id>/pay", invoices.Pay.as_view()),
    path("invoices/<invoice_id:invoice_id>/void", invoices.Void.as_view()),
    path("invoices/<invoice_id:invoice_id>/mark-uncollectible", invoices.MarkUncollectible.as_view()),
]
if not IS_INSTALLED:
    urlpatterns = [each for each in urlpatterns if not str(each.pattern).endswith(".pdf")]
