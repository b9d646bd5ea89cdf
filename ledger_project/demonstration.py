"""Demo data: a company that sells AI tokens for credits, with an example of everything that can happen to credits.

The services make all of it, under fixed idempotency keys and names, so that making it twice changes nothing. All times are
relative to the instant at which the first entry was recorded; a later run finds that instant in the ledger.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.utils import timezone

from billing.documents.sellers import current_seller, record_seller
from billing.errors import AlreadyExists, NotFound
from billing.generator.options import Options
from billing.generator.run import generate
from billing.metering import usage
from billing.models import Invoice
from billing.orders import customers, plans, subscriptions
from billing.orders.customers import NewCredits
from billing.rating.periods import Interval, IntervalUnit
from ledger import reads, services
from ledger.errors import Invalid, Refused
from ledger.models import CreditType
from ledger.rules import Entry

HOLDERS: Final = ["ada", "grace", "acme", "globex", "initech", *(f"developer-{number:02}" for number in range(1, 21))]
PLAN: Final = "team"
METER: Final = "tokens"
SUBSCRIPTIONS: Final = 12
TAKEN_BY_GUIDES: Final = frozenset({
    # Holders.
    "jane", "kim", "lee", "customer-42", "customer-43", "team-7",
    "lena", "mia", "omar", "team-red", "team-red:ada", "shop-12", "page-demo", "fjord", "acme-9",
    *(f"user-{number}" for number in range(1, 201)),
    # Customers, subscriptions, plans, packs, meters, rates.
    "tea", "SUB-FJORD", "SUB-TEA", "SUB-9", "calls-1000", "by-token", "starter", "calls", "weighted-tokens", "small.prompt",
    "small.answer", "gpt-4o.output", "CUST-7", "CUST-8", "CUST-9", "CUST-10", "SUB-1234", "basic",
})  # fmt: skip
"""What the README, the tutorial and the guides make on a fresh instance. The demo makes nothing of these names, so that each page
gets the results that it shows."""
SOON: Final = timedelta(milliseconds=500)
"""The life of the demo's trial credits: they have expired when the demo is ready."""


@dataclass(frozen=True)
class DemoSummary:
    """The size of the demo data, whether made now or earlier."""

    holders: int
    entries: int
    refusals: int
    subscriptions: int
    invoices: int


@dataclass(frozen=True)
class DemoAccount:
    """A holder whose requests have fixed keys."""

    holder_id: str

    def grant(self, amount: int, key: str, **more: Any) -> Entry:
        """Give credits."""
        return services.grant(amount=amount, **self._common(key), **more)

    def spend(self, amount: int, key: str, **more: Any) -> Entry:
        """Take credits."""
        return services.spend(amount=amount, **self._common(key), **more)

    def refund(self, spend: Entry, amount: int, key: str, **more: Any) -> Entry:
        """Give back a part of a spend."""
        return services.refund(spend=spend.sequence, amount=amount, **self._common(key), **more)

    def revoke(self, grant: Entry, key: str, **more: Any) -> Entry:
        """Take back what is left of a grant."""
        return services.revoke(grant=grant.sequence, **self._common(key), **more)

    def hold(self, amount: int, key: str, **more: Any) -> Entry:
        """Set credits aside."""
        return services.hold(amount=amount, **self._common(key), **more)

    def capture(self, hold: Entry, amount: int, key: str, **more: Any) -> Entry:
        """Spend a part of what is set aside, and let the rest go."""
        return services.capture(hold=hold.sequence, amount=amount, **self._common(key), **more)

    def transfer(self, to: str, amount: int, key: str, **more: Any) -> Entry:
        """Move credits to another holder."""
        return services.transfer(to=to, amount=amount, **self._common(key), **more)

    def _common(self, key: str) -> dict[str, Any]:
        return {"holder_id": self.holder_id, "idempotency_key": f"demo:{key}", "actor": "demo"}


@contextmanager
def _without_refusals_in_the_log() -> Iterator[None]:
    """Log no refusals inside the block: operators need not see the demo's refusals."""
    log = logging.getLogger("ledger.refusals")
    usual = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(usual)


@_without_refusals_in_the_log()
def seed_demo() -> DemoSummary:
    """Make the demo data, or the missing part of it."""
    start = DemoAccount("ada").grant(5_000, "starter", reason="starter package", reference="payment-1001").recorded_at
    CreditType.objects.get_or_create(code="usd_cents", defaults={"name": "US dollars", "unit": "USD", "scale": 2})
    expires_at = _companies(start)
    _people(start)
    _sell_subscriptions(start)
    _use_and_bill(start)
    _after_the_trials(expires_at)
    accounts = [account for holder_id in HOLDERS for account in reads.holders(prefix=holder_id) if account.holder_id == holder_id]
    refusals = sum(len(reads.refusals(holder_id)) for holder_id in HOLDERS)
    return DemoSummary(
        holders=len(HOLDERS),
        entries=sum(account.sequence for account in accounts) - refusals,
        refusals=refusals,
        subscriptions=SUBSCRIPTIONS,
        invoices=Invoice.objects.filter(subscription__ref__in=map(_subscription, range(SUBSCRIPTIONS))).count(),
    )


# Credits ---------------------------------------------------------------------------------------------


def _people(start: datetime) -> None:
    """Make spends, refunds, a hold, a transfer, and two refusals."""
    ada, grace = DemoAccount("ada"), DemoAccount("grace")
    ada.grant(
        500, "promotion", source="promotional", expires_at=start + timedelta(days=30), priority=50, reason="spring promotion"
    )
    job = ada.spend(
        1_200, "job-17", reason="code completion", reference="job-17", metadata={"model": "large", "prompt_tokens": 900}
    )
    ada.spend(300, "job-18", reason="code completion", reference="job-18", metadata={"model": "small", "prompt": 300})
    ada.refund(job, 200, "job-17-refund", reason="the answer was cut off", reference="ticket-88")
    with suppress(Refused):
        ada.spend(50_000, "job-19", reason="fine-tuning", reference="job-19")
    with suppress(Refused):
        ada.refund(job, 1_100, "job-17-again", reason="second refund of the same job", reference="ticket-91")
    session = ada.hold(400, "session-3", reason="chat session", reference="session-3")
    ada.capture(session, 250, "session-3-end", reason="chat session", reference="session-3")
    ada.transfer("grace", 600, "gift", reason="a gift to a colleague")
    grace.spend(150, "job-20", reason="translation", reference="job-20")
    for number, holder_id in enumerate(HOLDERS[5:], 1):
        developer = DemoAccount(holder_id)
        developer.grant(1_000, f"{holder_id}:package", reason="package of 1,000", reference=f"payment-{2000 + number}")
        developer.spend(37 * number, f"{holder_id}:first", reason="code completion", reference=f"request-{number}")
        developer.spend(11 * number, f"{holder_id}:second", reason="code completion", reference=f"request-{100 + number}")


def _companies(start: datetime) -> datetime:
    """Make several credit types, credits for later, a revocation, and expiring trials; return when these expire."""
    acme, globex, initech = DemoAccount("acme"), DemoAccount("globex"), DemoAccount("initech")
    # Before the trials: a write after their end would book their expiry, at a time that depends on the speed of the machine.
    globex.grant(8_000, "package", reason="package of 8,000", reference="payment-1002")
    initech.grant(50_000, "prepaid", credit_type="usd_cents", reason="prepaid", reference="payment-1003")
    initech.grant(3_000, "package", reason="package of 3,000", reference="payment-1004")
    expires_at = acme.grant(100_000, "contract", reason="annual contract", reference="order-77").recorded_at + SOON
    # It is too late for these if an earlier run ended between the contract and here.
    with suppress(Invalid):
        globex.grant(250, "trial", source="promotional", expires_at=expires_at, reason="trial")
        initech.grant(100, "trial", source="promotional", expires_at=expires_at, reason="trial")
    acme.grant(20_000, "next-month", effective_at=start + timedelta(days=30), reason="second instalment", reference="order-77")
    acme.grant(2_500, "texts", credit_type="sms", reason="text messages", reference="order-78")
    acme.spend(120, "campaign", credit_type="sms", reason="campaign", reference="campaign-5")
    acme.spend(18_250, "batch-1", reason="nightly summaries", reference="batch-1")
    goodwill = acme.grant(1_000, "goodwill", source="promotional", reason="goodwill", reference="ticket-102")
    acme.revoke(goodwill, "goodwill-error", reason="granted to the wrong customer", reference="ticket-103")
    return expires_at


def _after_the_trials(expires_at: datetime) -> None:
    """Wait until the trials have expired, which they usually have, then book the expiry of one."""
    time.sleep(max(0.0, (expires_at - timezone.now()).total_seconds() + 0.001))
    DemoAccount("globex").spend(640, "batch-2", reason="nightly summaries", reference="batch-2")


# Subscriptions and invoices --------------------------------------------------------------------------

CUSTOMERS: Final = {
    "CUST-ACME": ("Acme Corporation", "acme", None),
    "CUST-GLOBEX": ("Globex GmbH", "globex", None),
    # Prepaid cents pay its invoices: one credit is worth one cent.
    "CUST-INITECH": ("Initech Inc.", "initech", NewCredits(credit_type="usd_cents", unit_value=Decimal("0.01"))),
}
SELLER: Final = {
    "name": "Example Tokens GmbH", "line1": "Musterstraße 1", "postal_code": "10115", "city": "Berlin", "country": "DE",
    "vat_id": "DE123456788", "email": "billing@example.com",
}  # fmt: skip
PRICES: Final[list[dict[str, Any]]] = [
    {"key": "base", "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": "49.00", "tax_rate": "20"},
    {"key": "seats", "kind": "recurring", "timing": "advance", "model": "unit", "unit_amount": "12.00", "tax_rate": "20"},
    {
        "key": "tokens", "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.00002", "free_units": "1000000",
        "meter": METER, "aggregation": "sum", "tax_rate": "20",
    },
]  # fmt: skip


def _sell_subscriptions(start: datetime) -> None:
    """Make the seller, a plan, three customers, and subscriptions whose first periods are over and not yet billed."""
    if current_seller() is None:
        record_seller(SELLER, actor="demo")
    try:
        plans.plan_of(PLAN)
    except NotFound:
        plans.create_plan(code=PLAN, name="Team", currency="USD", interval=Interval(IntervalUnit.MONTH), prices=PRICES)
    for ref, (name, holder_id, terms) in CUSTOMERS.items():
        with suppress(AlreadyExists):
            customers.create_customer(ref=ref, name=name, currency="USD", holder_id=holder_id, credits=terms)
    for number in range(SUBSCRIPTIONS):
        with suppress(AlreadyExists):
            subscriptions.create_subscription(
                ref=_subscription(number),
                customer=list(CUSTOMERS)[number % len(CUSTOMERS)],
                plan=PLAN,
                started_at=_month_before(_first_of_month(start)),
                quantities={"seats": Decimal(1 + number)},
                actor="demo",
            )


def _use_and_bill(start: datetime) -> None:
    """Record last month's usage of all subscriptions, and invoice one of them; the others are due."""
    period_start = _month_before(_first_of_month(start))
    usage.take_in(
        [
            usage.NewEvent(
                idempotency_key=f"demo:{_subscription(number)}:{day}",
                subscription=_subscription(number),
                meter=METER,
                value=Decimal(150_000 + 10_000 * number + 1_000 * day),
                occurred_at=period_start + timedelta(days=day, hours=9),
                properties={"model": "large" if day % 3 else "small"},
            )
            for number in range(SUBSCRIPTIONS)
            for day in range(20)
        ]
    )
    generate.generate(ref=_subscription(0), options=Options(as_of=period_start))


def _subscription(number: int) -> str:
    return f"SUB-{1001 + number}"


def _first_of_month(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _month_before(first_of_month: datetime) -> datetime:
    return _first_of_month(first_of_month - timedelta(days=1))
