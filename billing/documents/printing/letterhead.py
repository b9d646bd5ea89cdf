"""The seller on a statement of credits, in the language of the holder's customer."""

from billing.documents.printing.brand import printed_brand
from billing.documents.printing.pages import DOT, address_lines, seller_columns, text_in
from billing.documents.printing.texts import texts_of
from billing.documents.sellers import current_seller
from billing.models import Customer
from ledger.statements.letterheads import Letterhead
from ledger.typesetting.languages import language_of


def letterhead(holder_id: str, language: str | None) -> Letterhead:
    """Return the current seller, in the given language or that of the holder's first customer."""
    customers = Customer.objects.filter(holder_id=holder_id).exclude(holder_id="").order_by("pk")
    code = language_of(language or customers.values_list("language", flat=True).first() or "en").code
    seller = current_seller()
    if seller is None:
        return Letterhead(language=code)
    details = seller.details
    return Letterhead(
        name=details["name"],
        line=DOT.join(address_lines(details)[1:]),
        brand={**printed_brand(details), "footer": text_in(code, details.get("footer") or {})},
        footer=seller_columns(details, texts_of(code, seller=details, buyer={}), code),
        language=code,
    )
