"""The fields of invoices and credit notes, in REST responses and PDFs."""

from datetime import date
from operator import attrgetter, itemgetter

from rest_framework import serializers

from billing.models import CreditNote, CreditNoteTax, InvoiceTax, Line
from billing.rating.periods import TimeSpan
from billing.rating.vat import NOTES
from billing.reads.response_fields import decimal, minor, sum_of_minor, text, time, whole
from ledger.responses import Read, ResponseSchema, computed


def _stretch_of(line: Line) -> TimeSpan | None:
    return None if line.starts_at is None or line.ends_at is None else TimeSpan(line.starts_at, line.ends_at)


def _day(value: Read | None = None) -> serializers.CharField:
    return computed(serializers.CharField(allow_null=True), value, as_text=date.isoformat)


class PeriodSerializer(ResponseSchema):
    """Half-open."""

    start = time()
    end = time()


class LineTaxSerializer(ResponseSchema):
    """A declared tax that a line bears."""

    code = text(itemgetter("code"))
    category = text(itemgetter("category"))
    rate = text(itemgetter("rate"))


TAXES_OF_LINE = "The declared taxes that it bears; missing: it bears the one of its category and rate."


class InvoiceLineSerializer(ResponseSchema):
    """A line."""

    position = whole()
    kind = text()
    subscription = text(null=True, help_text="The subscription that it bills; null on a one-off invoice, and for carried credit.")
    price_key = text(lambda line: line.price_key or None, null=True)
    description = text()
    title = text(help_text="What documents call the line, in the customer's language.")
    period = computed(PeriodSerializer(allow_null=True), _stretch_of)
    quantity = decimal()
    unit_amount = decimal(null=True)
    amount_minor = minor()
    discount_minor = minor()
    tax_category = text()
    tax_rate = decimal(help_text="Of all its taxes together.")
    taxes = computed(LineTaxSerializer(many=True, required=False, help_text=TAXES_OF_LINE), lambda line: line.taxes or None)
    rating = serializers.DictField(
        help_text="How the amount was computed. `covered`: the units that credits pay for, and the ledger's entries for them. "
        "`included_tax`: the rate of the tax that the price includes, and the amounts with it. `group`: of a price that groups "
        "its usage, the values of the group by their properties. `entries`: of a price that is billed by entries, their rate."
    )


class InvoiceDiscountSerializer(ResponseSchema):
    """What a coupon took off."""

    coupon = text()
    name = text(help_text="What documents call the coupon, in the customer's language.")
    amount_minor = minor()


def _reason(tax: InvoiceTax | CreditNoteTax) -> str | None:
    """Return why a category bears no tax; a tax that is not VAT has one with a rate."""
    return None if tax.code and tax.rate else NOTES.get(tax.category)


class InvoiceTaxSerializer(ResponseSchema):
    """One tax at one rate."""

    code = computed(
        serializers.CharField(required=False, help_text="Of a declared tax; missing: the rate of prices."),
        lambda tax: tax.code or None,
    )
    name = computed(
        serializers.CharField(required=False, help_text="What documents call a declared tax, in the customer's language.")
    )
    category = text()
    rate = decimal()
    base_minor = minor()
    amount_minor = minor()
    note = computed(
        serializers.CharField(
            required=False, help_text="Why the invoice has no tax, such as `Reverse charge`; null if there is no reason."
        ),
        _reason,
    )


class InvoiceSerializer(ResponseSchema):
    """A document."""

    id = whole()
    number = text(null=True)
    subscription = text(
        lambda invoice: invoice.subscription_ref or None, null=True, help_text="Null on a one-off or consolidated invoice."
    )
    customer = text(attrgetter("customer_ref"))
    vat_lookup = whole(
        lambda invoice: invoice.buyer.get("vat_lookup", {}).get("id"),
        null=True,
        help_text="The lookup of the buyer's VAT id on which the document relies, by its id; null: there was none.",
    )
    currency = text()
    note = text(lambda invoice: invoice.note or None, null=True, help_text="A text that the document prints.")
    state = text()
    consolidates_on = computed(
        serializers.CharField(
            allow_null=True, help_text="Of a draft: it goes onto the customer's consolidated invoice of this day; otherwise null."
        ),
        as_text=date.isoformat,
    )
    issue_date = _day()
    due_date = _day()
    subtotal_minor = minor()
    discount_minor = minor()
    tax_minor = minor()
    total_minor = minor()
    credit_notes_minor = minor()
    credits_applied_minor = minor()
    rounding_minor = minor(
        help_text="What prices that include tax cost beyond net and tax, and what the seller's step of cash payments adds."
    )
    amount_due_minor = minor(help_text="What payments have to cover, whether they have come in or not.")
    amount_paid_minor = minor(help_text="What payments paid, less what went back.")
    amount_remaining_minor = minor(help_text="What is still to be paid; 0 on a void invoice.")
    refunded_minor = minor(help_text="What is paid out of this invoice's credits, because the subscription ended with a refund.")
    lines = InvoiceLineSerializer(many=True)
    discounts = InvoiceDiscountSerializer(many=True)
    taxes = InvoiceTaxSerializer(many=True)


class CreditNoteLineSerializer(ResponseSchema):
    """The part of a line that a note credits."""

    position = whole()
    subscription = text(null=True, help_text="The subscription of the line.")
    description = text()
    title = text(help_text="What documents call the line, in the customer's language.")
    amount_minor = minor()
    tax_category = text()
    tax_rate = decimal(help_text="Of all its taxes together.")
    taxes = computed(LineTaxSerializer(many=True, required=False, help_text=TAXES_OF_LINE), lambda line: line.taxes or None)


def _state_of(note: CreditNote) -> str:
    return "void" if note.released_at else "issued"


class CreditNoteSerializer(ResponseSchema):
    """A document that corrects an invoice."""

    id = whole()
    kind = text()
    number = text(null=True)
    state = text(_state_of)
    invoice = whole(attrgetter("invoice_id"))
    invoice_number = text(null=True)
    subscription = text(null=True)
    customer = text()
    currency = text()
    issue_date = _day()
    reason = text()
    actor = text()
    subtotal_minor = whole(null=True, help_text="Before tax.")
    tax_minor = whole(null=True)
    rounding_minor = minor(help_text="What the step of cash payments of its invoice adds to the total.")
    total_minor = minor(attrgetter("amount_minor"))
    lowers_due_minor = minor(help_text="By how much the note lowers the amount due of its invoice.")
    credits_returned = whole(help_text="Prepaid credits returned to the holder.")
    credits_returned_minor = minor(help_text="The part of the payment that these credits made, in minor units.")
    left_minor = minor(help_text="The rest of the note, which pays for the next invoices of the customer.")
    lines = CreditNoteLineSerializer(many=True)
    taxes = InvoiceTaxSerializer(many=True)


class OpenCreditSerializer(ResponseSchema):
    """A credit note or deposit with a rest."""

    credit_note = whole(attrgetter("pk"))
    kind = text(help_text="carried or requested: a credit note; deposit: money that was received beyond what was due.")
    number = text(null=True)
    invoice = whole(attrgetter("invoice_id"), null=True)
    subscription = text(null=True)
    reference = text(help_text="Of a deposit: where the money came from.")
    amount_minor = minor()
    left_minor = minor(help_text="The rest, in minor units.")
    recorded_at = time()


class CurrencyBalanceSerializer(ResponseSchema):
    """The credit of a customer in a currency."""

    currency = text()
    balance_minor = sum_of_minor()
    credit = OpenCreditSerializer(many=True)


class CreditBalanceSerializer(ResponseSchema):
    """The credit of a customer in money, per currency."""

    customer = text()
    balances = CurrencyBalanceSerializer(many=True)


class RefundedCreditSerializer(ResponseSchema):
    """The part of a refund that was taken from a credit note or deposit."""

    credit_note = whole()
    kind = text()
    number = text(null=True)
    amount_minor = minor()


class CreditRefundSerializer(ResponseSchema):
    """Credit of a customer that was paid out in money."""

    id = whole()
    customer = text()
    currency = text()
    amount_minor = minor()
    reason = text()
    reference = text()
    actor = text()
    invoice = whole(
        attrgetter("invoice_id"),
        null=True,
        help_text="The invoice that gave unused time back; null by request.",
    )
    recorded_at = time()
    taken_from = RefundedCreditSerializer(many=True)
