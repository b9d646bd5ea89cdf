"""The form that erases the personal data of a customer, in two steps. The operator types the reference again."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from billing.admin.order_forms.customers import address_words
from billing.admin.order_forms.fields import OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.errors import CustomerStillBilled
from billing.models import Customer
from billing.models.personal import erased_values, personal_columns
from billing.orders.erasure import ErasureResult, erase_customer, personal_words
from billing.rating.values import Ref
from ledger.errors import LedgerError
from ledger.staff.approvals import NoStake
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.form_fields import Display, made
from ledger.staff.kit.idempotent_forms import DryRun
from ledger.staff.kit.pages import ReadOnlyAdmin, describe


class EraseForm(OrderForm):
    """Asks for the customer's reference again."""

    stake = NoStake("It moves no money: what is owed stays.")
    ref_again = made(
        "ref_again", Ref(), Display(label="The customer's reference, again", required=True, help="You cannot undo the erasure.")
    )
    field_order = ["ref_again", "reason"]
    reasons = ("requested by the customer", "retention period is over")

    def clean(self) -> dict[str, Any]:
        """Refuse another reference."""
        cleaned = super().clean() or {}
        if cleaned.get("ref_again") not in (None, self.fixed["ref"]):
            self.add_error("ref_again", "That is another reference.")
        return cleaned


class ErasurePage(OrderPage[EraseForm, ErasureResult]):
    """The page that erases a customer."""

    def explain(self, error: LedgerError, form: EraseForm) -> str:
        """Name the subscription that still needs the customer's data."""
        if not isinstance(error, CustomerStillBilled):
            return describe(error)
        facts = error.facts
        return f"{facts['customer']} cannot be erased: subscription {facts['subscription']} {facts['why']}. Nothing was erased."


def erase_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show the form, then what would be erased and what stays, then erase it."""
    return ErasurePage(
        form=EraseForm,
        collection="customers",
        about=customer,
        pointer="/ref_again",
        write=lambda form: erase_customer(ref=customer.ref),
        describe=lambda erased, form: DryRun(
            sentences=_sentences(erased),
            changes=_changes(customer, erased),
        ),
        done=lambda _, form: (f"The erasure of {customer.ref}", "documents keep their buyer"),
        fixed={"ref": customer.ref},
        title=f"Erase the personal data of {customer.ref}",
        button="Erase permanently",
        explanation=(
            f"Name, {personal_words()} are erased in the customer and in stored responses. Invoices and credit notes keep their "
            "buyer, because tax law requires that."
        ),
        back=row_url(Customer, customer.pk),
    ).view(model_admin, request)


def _changes(customer: Customer, erased: ErasureResult) -> list[tuple[str, str, str]]:
    after = erased_values(Customer, name=erased.name)
    return [
        (
            declaration.words[0].upper() + declaration.words[1:],
            _show_value(getattr(customer, column.name)),
            _show_value(after[column.name]),
        )
        for column, declaration in personal_columns(Customer)
    ]


def _show_value(value: Any) -> str:
    return (address_words(value) if isinstance(value, dict) else str(value or "")) or "none"


def _sentences(erased: ErasureResult) -> list[str]:
    documents = "1 document keeps its buyer" if erased.documents == 1 else f"{erased.documents:,} documents keep their buyer"
    responses = "1 stored response names" if erased.responses == 1 else f"{erased.responses:,} stored responses name"
    return [
        f"{responses} the customer and would be erased too; {documents}.",
        "The reference, the terms and the holder stay: they connect the customer's documents.",
        "You cannot undo this.",
    ]
