"""Invoicing the usage of a replayed trace: a plan with prices per token, a subscription per holder, usage events, one run.

What the invoices must come to is computed a second time here, from the trace alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from io import StringIO
from typing import Final

from django.core.management import call_command
from django.db.models import Sum

from billing.metering import usage
from billing.models import Invoice
from billing.orders import customers, plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit
from tests.benchmarks.replay.play import ReplayFailed, Target
from tests.benchmarks.replay.traces import Use

CURRENCY: Final = "USD"
CENT: Final = Decimal("0.01")
UNIT_AMOUNTS: Final = {"prompt_tokens": Decimal("0.00003"), "generated_tokens": Decimal("0.00012")}
"""Money per token, by meter."""
EVENTS_AT_ONCE: Final = 1000
WORKERS: Final = 2


@dataclass(frozen=True)
class InvoicedUsage:
    """What one run of generate_invoices made, and what the trace says it must come to."""

    events: int
    invoices: int
    total_minor: int
    expected_minor: int


def invoice_usage(target: Target, uses: Sequence[Use]) -> InvoicedUsage:
    """Bill what was used, by the month in which it was.

    Raises:
        ReplayFailed: an event was not taken, a subscription not billed, or the invoices come to something else.
    """
    months = _months(uses)
    _subscribe(target, {use.user for use in uses}, started_at=months[0])
    events = [event for use in uses for event in _events(target, use)]
    for first in range(0, len(events), EVENTS_AT_ONCE):
        for outcome in usage.take_in(events[first : first + EVENTS_AT_ONCE]):
            if outcome.result is not usage.EventStatus.ACCEPTED:
                raise ReplayFailed(f"usage event {outcome.idempotency_key}: {outcome.result} {outcome.detail}")
    _generate(target, as_of=months[-1])
    made = Invoice.objects.filter(subscription__ref__startswith=f"{target.run}:")
    total_minor = made.aggregate(total=Sum("total_minor"))["total"] or 0
    expected_minor = _expected_minor(uses)
    if total_minor != expected_minor:
        raise ReplayFailed(f"the invoices come to {total_minor} cents; by the trace it must be {expected_minor}")
    return InvoicedUsage(len(events), made.count(), total_minor, expected_minor)


def _months(uses: Sequence[Use]) -> list[datetime]:
    """The first of the month in which the trace begins, and of the one after it ended."""
    firsts = [_first_of_month(use.came_at) for use in (uses[0], uses[-1])]
    return [firsts[0], _first_of_month(firsts[1] + timedelta(days=32))]


def _first_of_month(instant: datetime) -> datetime:
    return instant.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _subscribe(target: Target, users: set[int], *, started_at: datetime) -> None:
    prices = [
        {"key": meter, "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": format(amount, "f"),
         "meter": meter, "aggregation": "sum"}
        for meter, amount in UNIT_AMOUNTS.items()
    ]  # fmt: skip
    plans.create_plan(code=target.run, name="Tokens", currency=CURRENCY, interval=Interval(IntervalUnit.MONTH), prices=prices)
    for user in sorted(users):
        holder = target.holder(user)
        customers.create_customer(ref=holder, name=f"User {user}", currency=CURRENCY, holder_id=holder)
        subscriptions.create_subscription(ref=holder, customer=holder, plan=target.run, started_at=started_at, actor="replay")


def _events(target: Target, use: Use) -> list[usage.NewEvent]:
    return [
        usage.NewEvent(
            idempotency_key=f"{target.run}:{use.number}:{meter}",
            subscription=target.holder(use.user),
            meter=meter,
            value=Decimal(getattr(use, meter)),
            occurred_at=use.came_at,
            properties={},
        )
        for meter in UNIT_AMOUNTS
    ]


def _generate(target: Target, *, as_of: datetime) -> None:
    said = StringIO()
    try:
        call_command(
            "generate_invoices",
            "--as-of", as_of.isoformat(), "--plan", target.run, "--only", "usage", "--workers", str(WORKERS),
            "--format", "json", "--no-progress", stdout=said,
        )  # fmt: skip
    except SystemExit as end:
        raise ReplayFailed(f"generate_invoices ended with {end.code}: {said.getvalue()}") from end


def _expected_minor(uses: Sequence[Use]) -> int:
    """Each holder's line per meter is rounded once, half up."""
    used: Counter[tuple[int, str]] = Counter()
    for use in uses:
        for meter in UNIT_AMOUNTS:
            used[use.user, meter] += getattr(use, meter)
    lines = [(tokens * UNIT_AMOUNTS[meter]).quantize(CENT, ROUND_HALF_UP) for (_, meter), tokens in used.items()]
    return int(sum(lines, Decimal(0)) * 100)
