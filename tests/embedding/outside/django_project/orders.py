"""Orders of a Django project, strictly typed: `mypy --strict` reads the types of the wheel."""

from django.db import transaction

from ledger import reads, services
from ledger.errors import InsufficientCredits


def place_order(holder: str, number: int, price: int) -> int:
    """Spend the price of an order, once. Returns the balance afterwards."""
    with transaction.atomic():
        entry = services.spend(holder_id=holder, amount=price, idempotency_key=f"order-{number}")
    return entry.balance


def available(holder: str) -> int:
    """What a holder can spend."""
    return reads.balance(holder).available


def place_if_possible(holder: str, number: int, price: int) -> bool:
    """Spend the price of an order, or return False where there are too few credits."""
    try:
        place_order(holder, number, price)
    except InsufficientCredits:
        return False
    return True
