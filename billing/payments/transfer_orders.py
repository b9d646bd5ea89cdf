"""The orders of the provider `manual` as files of banks see them; see `billing.additions.TransferOrders`."""

from collections.abc import Sequence
from typing import Final

from billing.additions import TransferOrders
from billing.payments.errors import PaymentIntentClosed, TransferTooSmall
from billing.payments.models import Pack, PaymentIntent
from billing.payments.providers.manual_transfers import intents_in
from billing.payments.transfers import book_transfer
from billing.rating.values import MANUAL


def _find(ids: Sequence[int]) -> list[PaymentIntent]:
    return list(PaymentIntent.objects.filter(pk__in=ids, provider=MANUAL).order_by("pk"))


def _bought_by(intent: PaymentIntent) -> tuple[str, int] | None:
    pack = Pack.objects.filter(pk=intent.pack_id or 0).first()
    return None if pack is None else (pack.credit_type, (pack.credits + pack.bonus) * intent.quantity)


def _explain(intent: PaymentIntent, refusal: Exception) -> str | None:
    if isinstance(refusal, PaymentIntentClosed):
        return f"{intent} is {refusal.facts['state']}"
    return f"it is less than the pack of {intent} costs" if isinstance(refusal, TransferTooSmall) else None


ORDERS: Final = TransferOrders(
    model=PaymentIntent, named_in=intents_in, find=_find, bought_by=_bought_by, book=book_transfer, explain=_explain
)
