"""The orders that a receipt can pay beside invoices, if an application has any: an order of a pack, by its reference."""

from collections.abc import Sequence

from billing.additions import TransferOrder, transfer_orders


def ids_named_in(text: str) -> Sequence[int]:
    """Return the ids of the orders whose references stand in a text."""
    orders = transfer_orders()
    return () if orders is None else orders.named_in(text)


def orders_named_in(text: str) -> Sequence[TransferOrder]:
    """Return the orders whose references stand in a text, in their order."""
    orders = transfer_orders()
    return () if orders is None else orders.find(orders.named_in(text))
