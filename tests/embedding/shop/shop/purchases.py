"""What costs credits, and what brings them. What needs a lock declares it."""

from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction

from ledger import services as credits
from ledger.database.locking import locked, on, share, unique
from ledger.database.locks import Lock
from ledger.errors import LockBusy, Refused
from shop.models import PAYMENT, Bonus, Order, Payment, Team

MOST_OF_AN_ANSWER = 50
PRICE_OF_PRO = 30
BONUS = 5


def place_order(team: Team, item: str, price: int) -> Order:
    """Write an order and spend its credits: both, or neither."""
    with transaction.atomic():
        order = Order.objects.create(team=team, item=item, price=price)
        credits.spend(holder_id=team.holder_id, amount=price, idempotency_key=f"order-{order.pk}", reference=item)
    return order


def receive_payment(team: Team, reference: str, amount: int) -> Payment:
    """Record a payment and commit; then add its credits. A provider that repeats itself changes nothing."""
    payment, _ = Payment.objects.get_or_create(reference=reference, defaults={"team": team, "credits": amount})
    with suppress(LockBusy):  # another process adds them
        settle_if_possible(reference)
    return payment


@locked(on(PAYMENT, "{reference}"), wait=False)
def settle(lock: Lock, reference: str) -> None:
    """Add the credits of a payment, once, however often this is called."""
    payment = Payment.objects.get(reference=reference)
    if not payment.is_settled:
        credits.grant(holder_id=payment.team.holder_id, amount=payment.credits, idempotency_key=f"payment-{reference}")
        payment.is_settled = True
        payment.save()


def settle_if_possible(reference: str) -> None:
    """As `settle`; where the ledger refuses the credits, the payment stays for `settle_payments`."""
    with suppress(Refused):
        settle(reference)


def settle_payments() -> None:
    """Add the credits of all payments that have none yet: a job, of which any number may run at once."""
    share(Payment.objects.filter(is_settled=False).values_list("reference", flat=True), settle_if_possible)


def claim_bonus(team: Team) -> bool:
    """Give a team its credits of the day; False where it has had them."""

    def give() -> Bonus:
        bonus = Bonus.objects.create(team=team)
        credits.grant(holder_id=team.holder_id, amount=BONUS, idempotency_key=f"bonus-{bonus.pk}", source="promotional")
        return bonus

    def given(since: datetime) -> Bonus | None:
        return Bonus.objects.filter(team=team, given_at__gte=since).first()

    _, is_new = unique("bonus", {"team": team.pk}, timedelta(days=1), check=given, insert=give)
    return is_new


def upgrade(team: Team) -> bool:
    """Make a team pro for credits; False where it is. Call it under the lock of the team's holder."""
    if Team.objects.get(pk=team.pk).is_pro:
        return False
    credits.spend(holder_id=team.holder_id, amount=PRICE_OF_PRO, idempotency_key=f"pro-{team.pk}")
    Team.objects.filter(pk=team.pk).update(is_pro=True)
    return True
