"""The seller on a statement of credits, in the language of the holder's customer."""

from billing.documents.brand import printed_brand
from billing.documents.printed_pages import DOT, seller_columns, seller_lines, text_in
from billing.documents.printed_texts import texts_of
from billing.documents.sellers import current_seller
from billing.models import DEFAULT_SELLER, Customer
from ledger.typesetting.languages import language_of
from ledger.typesetting.letterheads import Letterhead


def letterhead(holder_id: str, language: str | None) -> Letterhead:
    """Return the seller of the holder's first customer, or else the default one; without a language, in the customer's."""
    customers = Customer.objects.filter(holder_id=holder_id).exclude(holder_id="").order_by("pk")
    known, ref = customers.values_list("language", "seller").first() or ("en", DEFAULT_SELLER)
    code = language_of(language or known).code
    seller = current_seller(ref)
    if seller is None:
        return Letterhead(language=code)
    details = seller.details
    return Letterhead(
        name=details["name"],
        line=DOT.join(seller_lines(details)[1:]),
        brand={**printed_brand(details), "footer": text_in(code, details.get("footer") or {})},
        footer=seller_columns(details, texts_of(code, seller=details, buyer={}), code),
        language=code,
    )
