"""The packs of the demo's company, who bought which, an order that nobody has paid, and a top-up that ended."""

from datetime import datetime, timedelta
from typing import Final

from billing.models import Customer
from billing.payments.intent_orders import NewPaymentIntent, order_payment
from billing.payments.models import Pack, PaymentIntent, Purchase, TopUp
from billing.payments.packs import create_pack
from billing.payments.purchase_recording import record_purchase
from billing.payments.purchase_settling import settle
from billing.rating.values import MANUAL
from ledger_project.demonstration.company import COMPANIES, CURRENCY, PACKS

ACTOR: Final = "admin:demo"
PURCHASES: Final = (
    ("northwind", "tokens-50k", 41),
    ("lumen", "tokens-10k", 23),
    ("juniper", "tokens-50k", 12),
    ("atlas", "tokens-10k", 2),
)
"""Who bought which pack, and how many days ago."""


def make_packs(valid_from: datetime) -> None:
    """Put the packs on sale that are not yet."""
    for pack in PACKS:
        if not Pack.objects.filter(code=pack["code"]).exists():
            create_pack(currency=CURRENCY, valid_from=valid_from, **pack)


def make_purchases(now: datetime) -> None:
    """Record who bought a pack, with the credits."""
    for holder_id, pack, days in PURCHASES:
        _sell(holder_id, pack, now - timedelta(days=days))


def _sell(holder_id: str, pack: str, paid_at: datetime) -> None:
    payment = f"pi_demo_{holder_id}"
    if Purchase.objects.filter(payment=payment).exists():
        return
    customer = next(company.ref for company in COMPANIES if company.slug == holder_id)
    purchase = record_purchase(
        pack=pack, holder_id=holder_id, customer=customer, payment=payment, paid_at=paid_at, actor=ACTOR, reference="by card"
    )
    settle(purchase.pk)


def leave_order_open() -> None:
    """Leave an order that is to be paid by bank transfer."""
    if not PaymentIntent.objects.exists():
        order = NewPaymentIntent(pack=PACKS[0]["code"], holder_id="orchid", customer="CUST-ORCHID", provider=MANUAL, actor=ACTOR)
        order_payment.execute(order)


def show_ended_top_up(now: datetime) -> None:
    """Record a top-up that has ended: the demo has no saved card."""
    TopUp.objects.get_or_create(
        holder_id="atlas", credit_type="credits", pack_ref=PACKS[0]["code"],
        defaults={
            "threshold": 2_000, "packs": 1, "customer_id": Customer.objects.get(ref="CUST-ATLAS").pk, "provider": "manual",
            "method": "transfer", "cap_period": "month", "cooldown_seconds": 3_600, "declines": 2, "actor": ACTOR,
            "ended_at": now - timedelta(days=9),
        },
    )  # fmt: skip
