"""Packs, purchases and payment intents in the search over everything."""

from typing import Any

from billing.admin.references import spellings
from billing.admin.search import MOST, Fits, named_so, show_row, title_of
from billing.payments.models import Pack, PaymentIntent, Purchase
from billing.payments.permissions import VIEW_PACK, VIEW_PAYMENTINTENT, VIEW_PURCHASE
from ledger.operators.additions import SearchResult
from ledger.staff.spelling import begins, resembles


def find(request: Any, word: str) -> list[SearchResult]:
    """Return purchases and payment intents by the provider's id of the payment, and packs: what the operator may see."""
    return _find(request, word, begins)


def guess(request: Any, word: str) -> list[SearchResult]:
    """Return the same for a name with one typo in its words."""
    return _find(request, word, resembles)


def _find(request: Any, word: str, fits: Fits) -> list[SearchResult]:
    may = request.user.has_perm
    results: list[SearchResult] = []
    if may(VIEW_PURCHASE):
        purchases = Purchase.objects.filter(payment__in=spellings(word))[:MOST]
        results += [show_row(row, f"Purchase {row.payment}", f"of {row.holder_id}", "shopping_cart") for row in purchases]
    if may(VIEW_PAYMENTINTENT):
        intents = PaymentIntent.objects.filter(key=word)[:MOST]
        results += [show_row(row, f"Payment intent {row.key}", row.state.replace("_", " "), "credit_card") for row in intents]
    if may(VIEW_PACK):
        results += [show_row(row, title_of(row), "pack", "redeem") for row in named_so(Pack, word, fits)]
    return results
