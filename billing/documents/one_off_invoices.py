"""Makes a one-off invoice: lines of a customer without a subscription, as a draft or finalised at once.

It is a document like those of a run: the same states, numbers, credit of the customer, prepaid credits, PDF and checks. Nothing
is claimed, so to void it frees no period.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final

from billing.documents.finalisation import finalizing, number_under, settle_under, show_settlement
from billing.documents.invoice_locks import document_key
from billing.documents.invoices import MAX_NOTE_CHARACTERS
from billing.models import Customer, Invoice, InvoiceTax, Line
from billing.orders.customers import customer_of
from billing.orders.tax_policies import buyer_of, policy_of
from billing.rating.money import minor_digits, money_text, round_half_up
from billing.rating.prices.price import TAX_CATEGORY, TAX_CATEGORY_RULE, TAX_CLASS, TAX_CLASS_RULE, UNTAXED_CATEGORIES
from billing.rating.tax_amounts import Taxable, TaxLine, applied_taxes, taxes
from billing.rating.tax_rules import STANDARD_CLASS, TaxNotDeclared, TaxPolicy
from billing.rating.tax_sales import SaleLine
from billing.rating.values import Currency, Money, OneLine, Units
from billing.rating.vat import STANDARD
from billing.request_keys import WriteResult, execute_once, request_digest_of
from billing.tax_asking import asks_taxes
from ledger import previews
from ledger import services as ledger
from ledger.database.locks import Lock, advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid
from ledger.records import Nested, Record
from ledger.values import MAX_AMOUNT, Boolean, ListOf, Number, Text

COLLECTION: Final = "one-off-invoice-forms"
KIND: Final = "one_off"


@dataclass(frozen=True, kw_only=True)
class OneOffLine(Record):
    """A line of a one-off invoice."""

    description: Annotated[str, Text("As printed on the invoice.", most=500, least=1)]
    quantity: Annotated[Decimal, Units("How many.")] = Decimal(1)
    unit_amount: Annotated[Decimal, Money("The price of one, before tax, in major units.")]
    tax_category: Annotated[str, Text("As of a price.", most=32, least=1, pattern=TAX_CATEGORY, rule=TAX_CATEGORY_RULE)] = "S"
    tax_rate: Annotated[Decimal, Number("Percent.", least=0, most=100)] = Decimal(0)
    tax_class: Annotated[str, Text("As of a price.", most=32, least=1, pattern=TAX_CLASS, rule=TAX_CLASS_RULE)] = STANDARD_CLASS


@dataclass(frozen=True, kw_only=True)
class NewOneOffInvoice(Record):
    """An invoice of a customer without a subscription."""

    currency: Annotated[str | None, Currency("By default, that of the customer.", null=True)] = None
    lines: Annotated[list[OneOffLine], ListOf(Nested(OneOffLine), "The lines, in the printed order.", least=1, most=90)]
    finalize: Annotated[bool, Boolean("Finalise the invoice, which gives it a number; otherwise leave a draft.")] = True
    note: Annotated[str, OneLine("The document prints it; empty for none.", most=MAX_NOTE_CHARACTERS)] = ""


@dataclass(frozen=True, slots=True)
class IssuedInvoice:
    """A one-off invoice that was made; `replayed` if an earlier request with the key made it."""

    id: int
    replayed: bool


def issue_one_off(*, customer_ref: str, request: NewOneOffInvoice, actor: str, idempotency_key: str) -> IssuedInvoice:
    """Make a one-off invoice as `issue_one_off_in` does, or raise, and only the refusal stays, under the key."""
    lines = [{name: str(value) for name, value in vars(line).items()} for line in request.lines]
    facts = {**vars(request), "lines": lines, "customer": customer_ref, "actor": actor}

    def act() -> WriteResult:
        return WriteResult(201, {"id": issue_one_off_in(customer_ref=customer_ref, request=request).pk})

    result = execute_once(
        collection=COLLECTION, idempotency_key=idempotency_key, request_digest=request_digest_of(facts), act=act
    )
    return IssuedInvoice(result.body["id"], result.replayed)


@asks_taxes
def issue_one_off_in(*, customer_ref: str, request: NewOneOffInvoice) -> Invoice:
    """Make a one-off invoice in the caller's transaction, or raise and write nothing; in a preview it gets no number.

    Lock order: the lock of the customer's one-off invoices; then, to finalise, as for every invoice.

    Raises:
        NotFound: the customer does not exist.
        Invalid: an amount is too large, a quantity is 0, a category without tax has a rate, or the rules find no tax.
        HolderBusy: another request holds one of the locks for longer than lock_timeout; nothing was written.
        TaxesUnavailable, TaxesRefused: the seller's provider of taxes has no answer; nothing was written.
    """
    with own_or_joined(), advisory_lock(document_key("", customer_ref)) as lock:
        customer = customer_of(customer_ref)
        currency = request.currency or customer.currency
        as_of = ledger.time_of(customer.holder_id)
        buyer = buyer_of(customer)
        lines = _lines(policy_of(customer, buyer), currency, request.lines, as_of)
        due = taxes([Taxable(line.tax_category, line.tax_rate, line.amount_minor, applied_taxes(line.taxes)) for line in lines])
        invoice = _write_draft(customer, buyer, currency, lines, due, request.note, as_of)
        if request.finalize:
            _finalize(lock, invoice)
        invoice.refresh_from_db()
    return invoice


def _lines(policy: TaxPolicy, currency: str, requested: Sequence[OneOffLine], as_of: datetime) -> list[Line]:
    amounts = _amounts(currency, requested)
    day = policy.day_of(None, as_of)
    sold = [
        (day, SaleLine(amount, False, one.tax_category, one.tax_rate, one.tax_class))
        for one, amount in zip(requested, amounts, strict=True)
    ]
    try:
        answers = policy.answers(currency, sold)
    except TaxNotDeclared as missing:
        classes = [line.tax_class if line.category == STANDARD else "" for _, line in sold]
        index = classes.index(missing.facts["tax_class"])
        raise Invalid(pointer=f"/lines/{index}/tax_class", rule="tax-not-declared", detail=str(missing)) from missing
    return [
        Line(
            position=position,
            kind=KIND,
            description=one.description,
            quantity=one.quantity,
            unit_amount=one.unit_amount,
            amount_minor=amount,
            tax_category=answer.taxed.treatment.category,
            tax_rate=answer.taxed.treatment.rate,
            taxes=[tax.as_dict() for tax in answer.taxed.treatment.taxes],
            rating={"tax_answer": answer.as_dict(day)} if answer.provider else {},
        )
        for position, (one, amount, answer) in enumerate(zip(requested, amounts, answers, strict=True), 1)
    ]


def _amounts(currency: str, requested: Sequence[OneOffLine]) -> list[int]:
    amounts: list[int] = []
    for index, one in enumerate(requested):
        if not one.quantity:
            raise Invalid(pointer=f"/lines/{index}/quantity", rule="range", detail="must be above 0")
        if one.tax_category in UNTAXED_CATEGORIES and one.tax_rate:
            detail = f"category {one.tax_category} needs a rate of 0"
            raise Invalid(pointer=f"/lines/{index}/tax_rate", rule="rate-not-for-category", detail=detail)
        amounts.append(round_half_up(Fraction(one.quantity) * Fraction(one.unit_amount) * 10 ** minor_digits(currency)))
        if sum(amounts) * 2 > MAX_AMOUNT:
            detail = f"the invoice must be at most {money_text(MAX_AMOUNT // 2, currency)}"
            raise Invalid(pointer=f"/lines/{index}/unit_amount", rule="amount-too-large", detail=detail)
    return amounts


def _write_draft(
    customer: Customer,
    buyer: dict[str, Any],
    currency: str,
    lines: Sequence[Line],
    due: Sequence[TaxLine],
    note: str,
    as_of: datetime,
) -> Invoice:
    subtotal = sum(line.amount_minor for line in lines)
    tax = sum(one.tax_minor for one in due)
    invoice = Invoice.objects.create(
        subscription_id=None,
        subscription_ref="",
        customer_id=customer.pk,
        customer_ref=customer.ref,
        buyer=buyer,
        currency=currency,
        as_of=as_of,
        subtotal_minor=subtotal,
        tax_minor=tax,
        total_minor=subtotal + tax,
        amount_due_minor=subtotal + tax,
        note=note,
    )
    for line in lines:
        line.invoice = invoice
    Line.objects.bulk_create(lines)
    InvoiceTax.objects.bulk_create(
        InvoiceTax(
            invoice=invoice,
            category=one.category,
            rate=one.rate,
            code=one.code,
            tax_id=one.tax_id,
            base_minor=one.base_minor,
            amount_minor=one.tax_minor,
        )
        for one in due
    )
    return invoice


def _finalize(lock: Lock, invoice: Invoice) -> None:
    settled = settle_under(lock, finalizing(invoice))
    if previews.current() is not None:
        show_settlement(lock, settled)
    else:
        number_under(lock, settled)
