"""The form that erases the personal data of a customer, in two steps. The reference is typed again: it cannot be undone."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse

from billing.admin.order_forms.customers import address_words
from billing.admin.order_forms.fields import OrderForm, ref_field
from billing.admin.order_forms.once import tried, written_once
from billing.errors import CustomerStillBilled
from billing.models import Customer
from billing.orders.erasure import ErasureResult, erase_customer
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.idempotent_forms import Done, DryRun, operation_view
from ledger.admin.kit.pages import ReadOnlyAdmin, said
from ledger.errors import LedgerError

STILL_BILLED = {
    "it goes on": "has no end yet",
    "it is not billed to its end": "is not billed to its end yet",
    "a draft waits": "has a draft that waits",
}
"""Why a subscription keeps its customer from being erased."""


class EraseForm(OrderForm):
    """Asks for the customer's reference again."""

    ref = ""
    ref_again = ref_field(label="The customer's reference, again", help_text="Erasing cannot be undone.")
    reasons = ("requested by the customer", "retention period is over")
    field_order = ["ref_again", "reason"]

    def clean(self) -> dict[str, Any]:
        """Return what was asked, or say that another reference was typed."""
        asked = super().clean() or {}
        if "ref_again" in asked and asked["ref_again"] != self.ref:
            self.add_error("ref_again", "That is another reference.")
        return asked


def erase_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show the form, then what would be erased and what stays, then erase it."""
    return operation_view(
        model_admin,
        request,
        form_class=type("FormOfThisCustomer", (EraseForm,), {"ref": customer.ref}),
        operation=partial(_erase, customer),
        dry_run=partial(_dry_run, customer),
        explain=_explained,
        title=f"Erase the personal data of {customer.ref}",
        button="Erase for good",
        explanation=(
            "Name, address and VAT id are erased in the customer and in stored responses. Invoices and credit notes keep their "
            "buyer, because tax law demands that."
        ),
        back=row_url(Customer, customer.pk),
    )


def _erase(customer: Customer, *, idempotency_key: str, actor: str, ref_again: str, **asked: Any) -> Done:
    _, replayed = written_once(
        "customers",
        idempotency_key=idempotency_key,
        asked={"erased": customer.ref, **asked},
        act=lambda: _erased(customer).pk,
        field="/ref_again",
    )
    return Done(f"The erasure of {customer.ref}", "documents keep their buyer", row_url(Customer, customer.pk), replayed)


def _erased(customer: Customer) -> Customer:
    erase_customer(ref=customer.ref)
    return customer


def _dry_run(customer: Customer, *, idempotency_key: str, actor: str, ref_again: str, **asked: Any) -> DryRun:
    would_be = tried(lambda: erase_customer(ref=customer.ref), field="/ref_again")
    return DryRun(
        sentences=_sentences(would_be),
        changes=[
            ("Name", customer.name, would_be.name),
            ("Address", address_words(customer.address) or "none", "none"),
            ("VAT id", customer.vat_id or "none", "none"),
        ],
    )


def _sentences(erased: ErasureResult) -> list[str]:
    documents = "1 document keeps its buyer" if erased.documents == 1 else f"{erased.documents:,} documents keep their buyer"
    responses = "1 stored response names" if erased.responses == 1 else f"{erased.responses:,} stored responses name"
    return [
        f"{responses} the customer and would be erased too; {documents}.",
        "The reference, the terms and the holder stay: they connect the customer's documents.",
        "This cannot be undone.",
    ]


def _explained(error: LedgerError, asked: Mapping[str, Any]) -> str:
    if not isinstance(error, CustomerStillBilled):
        return said(error)
    facts = error.facts
    why = STILL_BILLED.get(facts["why"], facts["why"])
    return f"{facts['customer']} cannot be erased: subscription {facts['subscription']} {why}. Nothing was erased."
