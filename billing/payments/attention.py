"""Purchases and payments on the first page that need attention: each reads a few rows by an index."""

from typing import Any

from billing.admin.attention import count_bounded
from billing.admin.cells import list_url
from billing.payments.declines import WORDS, decline_of
from billing.payments.models import DuePurchase, PaymentIntent, Purchase
from billing.payments.permissions import VIEW_PAYMENTINTENT, VIEW_PURCHASE
from billing.rating.money import money_text
from ledger.operators.additions import Attention
from ledger.staff.kit.cells import row_url


def list_problems(request: Any) -> list[Attention]:
    """Return the purchases and payments that wait because of a problem, as far as the operator may see them."""
    may = request.user.has_perm
    return [*(_purchases() if may(VIEW_PURCHASE) else ()), *(_payment_intents() if may(VIEW_PAYMENTINTENT) else ())]


def _purchases() -> list[Attention]:
    """Purchases whose next step has failed, so that a worker tries it again."""
    many, first = count_bounded(DuePurchase.objects.exclude(error="").order_by("pk"))
    if first is None:
        return []
    noun = "purchase is" if many == "1" else "purchases are"
    text = f"{many} {noun} paid, and the credits could not be added or revoked yet, such as of purchase {first.purchase_id}."
    url = row_url(Purchase, first.purchase_id) if many == "1" else list_url(Purchase, waiting="yes")
    return [Attention(tone="warning", text=text, url=url, action="Open the purchase" if many == "1" else "Show them")]


def _payment_intents() -> list[Attention]:
    """Open payments that could not be taken further."""
    many, first = count_bounded(PaymentIntent.objects.filter(due_at__isnull=False).exclude(error="").order_by("due_at", "pk"))
    if first is None:
        return []
    noun = "payment waits" if many == "1" else "payments wait"
    reason = WORDS.get(decline_of(first.error), first.error)
    amount = money_text(first.amount_minor, first.currency)
    text = f"{many} {noun} because of a problem, such as payment {first.pk} of {amount}: {reason}"
    url = row_url(PaymentIntent, first.pk) if many == "1" else list_url(PaymentIntent, problem="yes")
    return [Attention(tone="warning", text=text, url=url, action="Open the payment" if many == "1" else "Show them")]
