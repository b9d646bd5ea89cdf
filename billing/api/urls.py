"""Paths of billing's calls. What does not fit a path's pattern is not there: 404, without a look at anything."""

from django.urls import URLPattern, path, register_converter

from billing.api import views
from billing.api.bodies import REF_PATTERN


class RefConverter:
    """A ref in a path."""

    regex = REF_PATTERN

    def to_python(self, value: str) -> str:
        """Return the ref."""
        return value

    def to_url(self, value: str) -> str:
        """Return the ref as it stands in a path."""
        return value


class InvoiceIdConverter:
    """The id of an invoice or credit note in a path, in its one spelling."""

    regex = "[1-9][0-9]{0,17}"

    def to_python(self, value: str) -> int:
        """Return the id."""
        return int(value)

    def to_url(self, value: int) -> str:
        """Return the id as it stands in a path."""
        return str(value)


class EventKeyConverter:
    """The idempotency key of a usage event in a path: 1-255 printable ASCII characters."""

    regex = "[!-~](?:[ -~]{0,253}[!-~])?"

    def to_python(self, value: str) -> str:
        """Return the key."""
        return value

    def to_url(self, value: str) -> str:
        """Return the key as it stands in a path."""
        return value


register_converter(RefConverter, "ref")
register_converter(EventKeyConverter, "event_key")
register_converter(InvoiceIdConverter, "invoice_id")

urlpatterns: list[URLPattern] = [
    path("customers", views.Customers.as_view()),
    path("customers/<ref:ref>", views.OneCustomer.as_view()),
    path("customers/<ref:ref>/coupons/<ref:code>", views.OneCustomerCoupon.as_view()),
    path("customers/<ref:ref>/coupons", views.CustomerCoupons.as_view()),
    path("plans", views.Plans.as_view()),
    path("plans/<ref:ref>", views.OnePlan.as_view()),
    path("ratings", views.Ratings.as_view()),
    path("coupons", views.Coupons.as_view()),
    path("coupons/<ref:ref>", views.OneCoupon.as_view()),
    path("subscriptions", views.Subscriptions.as_view()),
    path("subscriptions/<ref:ref>", views.OneSubscription.as_view()),
    path("subscriptions/<ref:ref>/amendments", views.Amendments.as_view()),
    path("subscriptions/<ref:ref>/charges", views.Charges.as_view()),
    path("subscriptions/<ref:ref>/invoices", views.SubscriptionInvoices.as_view()),
    path("subscriptions/<ref:ref>/unpark", views.Unpark.as_view()),
    path("usage-events", views.UsageEvents.as_view()),
    path("usage-events/<event_key:key>", views.OneUsageEvent.as_view()),
    path("invoices", views.Invoices.as_view()),
    path("invoices/<invoice_id:invoice_id>", views.OneInvoice.as_view()),
    path("invoices/<invoice_id:invoice_id>/moves", views.InvoiceMoves.as_view()),
    path("invoices/<invoice_id:invoice_id>/credit-notes", views.InvoiceCreditNotes.as_view()),
    path("credit-notes", views.CreditNotes.as_view()),
    path("credit-notes/<invoice_id:credit_note_id>", views.OneCreditNote.as_view()),
    path("invoices/<invoice_id:invoice_id>/finalize", views.Finalize.as_view()),
    path("invoices/<invoice_id:invoice_id>/pay", views.Pay.as_view()),
    path("invoices/<invoice_id:invoice_id>/void", views.Void.as_view()),
    path("invoices/<invoice_id:invoice_id>/mark-uncollectible", views.MarkUncollectible.as_view()),
]
