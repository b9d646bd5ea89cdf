"""Pages of packs, which never change: a new version is a new row."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from billing.admin.cells import credits_text, list_url, money_column
from billing.payments import page_forms
from billing.payments.models import Pack, Purchase
from billing.payments.permissions import ADD_PACK
from billing.payments.reads import packs_on_sale
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_link
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.units import purpose_words

VERSIONS_SHOWN = 50


@admin.register(Pack)
class PackAdmin(ReadOnlyAdmin):
    """One row per version of a pack."""

    create_view = page_forms.create_pack_view
    pack = Column("Pack", "code")
    credits_cell = Column("Credits", lambda row: credits_text(row.credits, row.credit_type), "credits")
    bonus_cell = Column("Bonus", lambda row: credits_text(row.bonus, row.credit_type) if row.bonus else "", "bonus")
    price = money_column("Price", "price_minor")
    expires = Column("Expires after days", lambda row: row.expires_days or "never")
    pays_for = Column("Pays for", lambda row: purpose_words(row.applies_to) or "everything")
    begins = columns.instant("On sale from", "valid_from")
    ends = columns.instant("On sale until", "valid_until")
    created = columns.instant("Created", "created_at")

    list_display = ("code", "version", "name", "credits_cell", "bonus_cell", "price", "begins", "ends")
    list_filter = (text("currency"), text("code", title="pack"), choice("on_sale", ["yes"], title="on sale"))
    search_fields = ("code__startswith",)
    search_help_text = "Beginning of a pack's ref"
    csv_columns = (
        "pack", "version", "name", "credit_type", "credits_cell", "bonus_cell", "currency", "price", "expires", "pays_for",
        "begins", "ends", "created",
    )  # fmt: skip
    starts = "A pack is credits on sale for a price."
    actions_detail = ("new_version",)
    fields = (("code", "version", "expires", "pays_for", "begins", "ends"),)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first; the versions of a pack by their index."""
        values = cl.values()
        rows = cl.queryset.filter(code=values["code"]) if "code" in values else cl.queryset
        fits = Q(currency=values["currency"].upper()) if "currency" in values else Q()
        fits &= packs_on_sale(timezone.now()) if "on_sale" in values else Q()
        return FilteredRows(rows=rows, fits=fits).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The pack in a sentence, among its versions."""
        return {
            "title": f"{row.name} ({row})",
            "sentences": [f"{page_forms.pack_words(row)}."],
            "parts": [("Versions", _versions_table(row))],
            "links": [(list_url(Purchase, pack=row.code), "Purchases of this pack")],
        }

    @operation("New version", icon="add", permission=ADD_PACK, url_path="new-version")
    def new_version(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Write the next version of the pack; the form has the values of this one."""
        row = self.row_of(request, object_id)
        names = ("code", "name", "names", "credits", "bonus", "credit_type", "currency", "expires_days", "applies_to")
        return page_forms.create_pack_view(self, request, **{name: getattr(row, name) for name in names}, price=row.price_minor)


def _versions_table(pack: Pack) -> dict[str, Any]:
    versions = Pack.objects.filter(code=pack.code).order_by("-version")[:VERSIONS_SHOWN]
    return table_of(
        versions,
        ("Version", lambda row: row_link(Pack, row.pk, f"v{row.version}")),
        PackAdmin.credits_cell, PackAdmin.bonus_cell, PackAdmin.price, PackAdmin.pays_for, PackAdmin.begins, PackAdmin.ends,
    )  # fmt: skip
