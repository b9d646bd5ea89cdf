"""Pages of purchases: the money, what became of the credits, and returns."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from billing.admin.cells import credits_text, customer_link, ids_of_customer, money, money_column
from billing.payments import page_forms, reads
from billing.payments.models import DuePurchase, Pack, Purchase
from billing.payments.permissions import RETURN_PURCHASE
from billing.payments.purchase_settling import attempt
from billing.payments.reads import STATES, PurchaseRow, ReturnRow
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.links import entry_link, holder_link

STATE_COLOURS = {STATES[0]: "warning", STATES[1]: "success", STATES[2]: "info"}


def _customer(row: Any) -> SafeString | str:
    return customer_link(row.customer_id, row.purchase.customer) if row.purchase.customer else ""


@admin.register(Purchase)
class PurchaseAdmin(ReadOnlyAdmin):
    """The purchases, newest first."""

    create_view = page_forms.record_purchase_view
    number = Column("Purchase", "pk")
    state = columns.badge("State", lambda row: row.purchase.state, STATE_COLOURS)
    waits = Column("Waiting", lambda row: "yes" if row.purchase.due else "")
    pack_cell = Column(
        "Pack", lambda row: row_link(Pack, row.pack_id, str(row.purchase.pack)), lambda row: str(row.purchase.pack)
    )
    holder = Column("Holder", lambda row: holder_link(row.holder_id), "holder_id")
    customer_cell = Column("Customer", _customer, lambda row: row.purchase.customer or "")
    credits_cell = Column("Credits", lambda row: credits_text(row.credits, row.credit_type), "credits")
    bonus_cell = Column("Bonus", lambda row: credits_text(row.bonus, row.credit_type) if row.bonus else "", "bonus")
    paid = money_column("Paid", "paid_minor")
    returned = money_column("Returned", lambda row: row.purchase.returned_minor)
    claim = money_column("Claim", lambda row: row.purchase.claim_minor)
    loss = money_column("Loss", lambda row: row.purchase.loss_minor)
    paid_on = columns.instant("Paid on", "paid_at")
    recorded = columns.instant("Recorded", "recorded_at")

    list_display = ("number", "state", "waits", "pack_cell", "holder", "customer_cell", "paid", "returned", "claim", "paid_on")
    list_display_links = ("number",)
    list_filter = (
        text("holder"), text("customer"), text("pack"), text("provider"), choice("waiting", ["yes"], title="waiting"),
    )  # fmt: skip
    search_fields = ("payment",)
    search_help_text = "The provider's id of the payment"
    csv_columns = (
        "number", "state", "waits", "pack_cell", "holder", "customer_cell", "credit_type", "credits_cell", "bonus_cell",
        "currency", "paid", "returned", "loss", "claim", "provider", "payment", "reference", "paid_on", "recorded", "actor",
    )  # fmt: skip
    starts = "A purchase is money for a pack. Providers and programs record it; record here what was paid by other means."
    actions_detail = ("record_return",)
    fields = (("state", "holder", "customer_cell"), ("provider", "payment", "reference"), ("paid_on", "recorded", "actor"))

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; those of a holder or customer by their indexes."""
        values = cl.values()
        rows = cl.queryset
        if "holder" in values:
            rows = rows.filter(holder_id=values["holder"])
        if "customer" in values:
            rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
        fits = Q(pack_id__in=Pack.objects.filter(code=values["pack"]).values("pk")) if "pack" in values else Q()
        fits &= Q(provider=values["provider"]) if "provider" in values else Q()
        fits &= Q(pk__in=DuePurchase.objects.values("purchase_id")) if "waiting" in values else Q()
        return FilteredRows(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def searched(self, word: str) -> Q:
        """By the provider's id of the payment."""
        return Q(payment=word)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each row what became of it."""
        purchases = {each.pk: each for each in reads.purchase_rows(list(rows))}
        for row in rows:
            row.purchase = purchases[row.pk]

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The purchase in sentences, with its entries and returns. What is still to be done is tried first."""
        if row.purchase.due is not None and attempt(row.pk, wait=False):
            self.prepare([row])
        return {
            "title": f"Purchase {row.pk}",
            "sentences": page_forms.purchase_sentences(row.purchase),
            "parts": [("Credits added", _grants_table(row.purchase)), ("Returns", _returns_table(row.purchase))],
        }

    @operation("Record a return", icon="undo", permission=RETURN_PURCHASE, url_path="return")
    def record_return(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Record money that went back."""
        return page_forms.record_return_view(self, request, self.row_of(request, object_id))


def _entry(row: PurchaseRow, part: dict[str, Any]) -> SafeString:
    return entry_link(row.row.holder_id, row.row.credit_type, part["sequence"])


def _grants_table(row: PurchaseRow) -> dict[str, Any]:
    return table_of(
        row.grant.entries if row.grant else [],
        ("Entry", lambda part: _entry(row, part)),
        ("Source", lambda part: part["source"]),
        ("Amount", lambda part: credits_text(part["amount"], row.row.credit_type)),
    )


def _returns_table(row: PurchaseRow) -> dict[str, Any]:
    def of_settled(value: Any) -> Any:
        return lambda one: "" if one.settled is None else value(one.settled)

    def credits_of(amount: int) -> str:
        return credits_text(amount, row.row.credit_type)

    def entries(one: ReturnRow) -> Any:
        return "" if one.settled is None or not one.settled.entries else _entry(row, one.settled.entries[0])

    return table_of(
        row.returns,
        ("What", lambda one: page_forms.RETURN_WORDS[one.row.kind]),
        ("Id", lambda one: one.row.payment),
        ("Amount", lambda one: money(one.row.amount_minor, row.row.currency)),
        ("Loss beyond it", lambda one: money(one.row.loss_minor, row.row.currency)),
        ("Credits taken back", of_settled(lambda settled: credits_of(settled.taken_credits))),
        ("Bonus taken back", of_settled(lambda settled: credits_of(settled.taken_bonus))),
        ("Gone already", of_settled(lambda settled: credits_of(settled.share_credits - settled.taken_credits))),
        ("Claim", of_settled(lambda settled: money(settled.claim_minor, row.row.currency))),
        ("Entry", entries),
        ("Reason", lambda one: one.row.reason),
        ("Actor", lambda one: one.row.actor),
        columns.instant("When", lambda one: one.row.returned_at),
    )
