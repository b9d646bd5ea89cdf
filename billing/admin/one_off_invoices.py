"""The form that makes a one-off invoice of a customer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

from django import forms
from django.http import HttpRequest, HttpResponse

from billing.admin.document_tables import short_table
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off, issue_one_off_in
from billing.models import Customer, Invoice
from billing.rating.money import money_text
from billing.reads import invoice_document
from billing.tax_asking import asks_taxes
from ledger.records import shape_of
from ledger.services import preview
from ledger.staff.approvals import NoStake
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.form_fields import Display, as_json, made
from ledger.staff.kit.idempotent_forms import Done, DryRun, FormPage, FormSection, RequestForm, declared_at
from ledger.staff.kit.pages import ReadOnlyAdmin

LINES: Final = 5
SHOWN: Final = {
    "description": Display(label="Description", help="As printed on the invoice."),
    "quantity": Display(label="Quantity", help="How many; 1 if it is empty."),
    "unit_amount": Display(label="Price of one", help="Before tax."),
    "tax_rate": Display(label="Tax rate", help="Percent; 0 if it is empty."),
    "tax_category": Display(label="Tax category", refers_to="tax_category", help="S, taxed, if it is empty."),
    "tax_class": Display(label="Tax class", refers_to="tax_class", help="What is sold; “standard” if it is empty."),
}


def _line_fields() -> dict[str, forms.Field]:
    """Return the fields of all lines, by name and position: `quantity_1`."""
    shape = shape_of(OneOffLine)
    return {
        f"{name}_{position}": made(name, declared_at(shape, f"/{name}").value, shown, required=False, default=None)
        for position in range(1, LINES + 1)
        for name, shown in SHOWN.items()
    }


class OneOffForm(RequestForm[NewOneOffInvoice]):
    """A one-off invoice: up to five lines."""

    stake = NoStake("It pays nobody: the customer owes it, and to take it back takes a credit note, which has a stake.")
    declared = NewOneOffInvoice
    shows: ClassVar[Mapping[str, Display | forms.Field]] = {
        "currency": Display(help="Empty: the customer's."),
        "note": Display(required=False, help="The document prints it: the number of an order, for example."),
        "finalize": Display(label="It is", words={True: "finalised at once", False: "a draft"}),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["currency"].initial = self.fixed.get("currency_of_customer")
        self.fields |= _line_fields()
        self.set_currencies()
        self.set_references()

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the chosen currency, or the customer's."""
        currency, field_name = super().currency_of(name)
        return currency or str(self.fixed.get("currency_of_customer", "")), field_name

    def typed(self) -> list[int]:
        """Return the positions of the lines with a value, in their order."""
        return [
            position
            for position in range(1, LINES + 1)
            if any(self.cleaned_data.get(f"{name}_{position}") not in (None, "") for name in SHOWN)
        ]

    def body(self) -> dict[str, Any]:
        """Return the JSON of the invoice: the lines with a value."""
        lines = [
            {name: as_json(value) for name in SHOWN if (value := self.cleaned_data.get(f"{name}_{position}")) not in (None, "")}
            for position in self.typed()
        ]
        return super().body() | {"lines": lines}

    def field_of(self, pointer: str) -> str | None:
        """Return the field of the line that the pointer names."""
        match pointer.split("/"):
            case ["", "lines", index, name] if int(index) < len(self.typed()):
                return f"{name}_{self.typed()[int(index)]}"
            case ["", "lines", *_]:
                return "description_1"
        return super().field_of(pointer)

    def sections(self) -> list[FormSection]:
        """Return the first line, the others folded, then the rest."""
        lines = [self.bound(*(f"{name}_{position}" for name in SHOWN)) for position in range(1, LINES + 1)]
        more = [field for line in lines[1:] for field in line]
        return [
            FormSection(lines[0], more, title="Lines", summary="More lines"),
            FormSection(self.bound("finalize", "note", "currency", "reason", "shown_in", "idempotency_key")),
        ]


@dataclass(frozen=True, kw_only=True)
class OneOffPage(FormPage[OneOffForm]):
    """The page that makes a one-off invoice: first the invoice, then done."""

    customer: Customer

    is_tried = True

    @asks_taxes
    def dry_run(self, form: OneOffForm) -> DryRun:
        """Show the invoice that the form would make."""
        with preview():
            invoice = issue_one_off_in(customer_ref=self.customer.ref, request=form.request)
            document = invoice_document(invoice.pk)
        due = money_text(document["amount_due_minor"], document["currency"])
        state = "finalised" if form.request.finalize else "a draft"
        return DryRun(
            sentences=[f"The invoice is {state}: {self.customer.ref} has to pay {due}."],
            parts=[("The invoice", short_table(document, ZoneInfo(self.customer.time_zone or "UTC")))],
        )

    def operation(self, form: OneOffForm) -> Done:
        """Make the invoice, once."""
        issued = issue_one_off(customer_ref=self.customer.ref, request=form.request, actor=form.actor, idempotency_key=form.key)
        invoice = Invoice.objects.get(pk=issued.id)
        what = f"Invoice {invoice.number}" if invoice.number else "The draft"
        return Done(what, money_text(invoice.total_minor, invoice.currency), row_url(Invoice, invoice.pk), issued.replayed)


def one_off_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show the form of a one-off invoice of this customer, then the invoice, then make it."""
    return OneOffPage(
        form=OneOffForm,
        customer=customer,
        title=f"New invoice for {customer.ref}",
        button="Make the invoice",
        explanation="An invoice without a subscription: its lines are charged once.",
        back=row_url(Customer, customer.pk),
        initial={"finalize": "yes", "currency": customer.currency},
        fixed={"currency_of_customer": customer.currency},
    ).view(model_admin, request)
