"""Contested calls of 8 processes at a cap in credits and at one in money, with kills: 0 beyond, and invoices that are the sums.

LEDGER_CONTESTED_CALLS says how many calls there are; `make prove PART=races` plays the number below.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection

from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.models import Invoice, Line, Subscription
from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import InsufficientCredits
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, recurring, unique
from tests.conftest import database_url

CALLS = int(os.environ.get("LEDGER_CONTESTED_CALLS", "3000"))
PROCESSES = 8
KILLS = 2
"""How often each process is killed; the next one goes on where it was heard of last, with the same keys."""
START, END = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 2, 1, tzinfo=UTC)
UNIT = {"model": "unit", "unit_amount": "0.02"}
TIERS = [{"up_to": "100", "unit_amount": "0.05"}, {"up_to": None, "unit_amount": "0.013"}]
GRADUATED = {"model": "graduated", "tiers": TIERS}
LIMIT, LIMIT_MINOR = 400, 1_000

AT_ONCE = 48
"""How many calls a process makes at the same time, as the clients of a web process do."""

WORKER = """
import sys
import threading
import django
django.setup()
from concurrent.futures import ThreadPoolExecutor
from ledger.errors import Refused, Retryable
from ledger.rules.requests import CaptureRequest, HoldRequest, RefundRequest, SpendRequest
from ledger.services import GROUP_COMMIT

number, at_once, first, last, *holders = sys.argv[1:]
at_once, first, last = int(at_once), int(first), int(last)


def call(kind, **fields):
    while True:
        answered = threading.Event()
        try:
            pending = GROUP_COMMIT.submit(kind(**fields), lambda group: [one.caller.set() for one in group], answered)
            answered.wait()
            return pending.result().unwrap()
        except Refused:
            return None
        except Retryable:
            continue


def play(n):
    holder = holders[n % len(holders)]
    key = f"{number}/{n}"
    match n // len(holders) % 4:
        case 0:
            call(SpendRequest, holder_id=holder, amount=5, partial=True, idempotency_key=key)
        case 1:
            hold = call(HoldRequest, holder_id=holder, amount=3, idempotency_key=key)
            if hold is not None:
                call(CaptureRequest, holder_id=holder, hold=hold.sequence, amount=n % 4, idempotency_key=f"{key}/c")
        case 2:
            spent = call(SpendRequest, holder_id=holder, amount=2, idempotency_key=key)
            if spent is not None:
                call(RefundRequest, holder_id=holder, spend=spent.sequence, amount=1 + n % 2, idempotency_key=f"{key}/r")
        case _:
            call(SpendRequest, holder_id=holder, amount=4, idempotency_key=key)


with ThreadPoolExecutor(at_once) as clients:
    for begin in range(first, last, at_once):
        end = min(begin + at_once, last)
        list(clients.map(play, range(begin, end)))
        print(end - 1, flush=True)
"""


def subscribed(**terms: Any) -> tuple[str, Subscription]:
    """A holder for whom it is January 2030, with 50 credits a month and overage."""
    holder = unique("holder")
    services.set_clock(holder_id=holder, now=START, idempotency_key="january")
    plan = PlanFactory(prices=[recurring()], allowance={"amount": 50}, overage=terms)
    subscription = SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan.code, started_at=START)
    generate(ref=subscription.ref, options=Options(as_of=START))
    return holder, subscription


def start(number: int, first: int, last: int, holders: list[str]) -> "subprocess.Popen[str]":
    """Start a process that makes its calls from `first` on, and prints the number of the last of each round."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WORKER, *map(str, (number, AT_ONCE, first, last)), *holders],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests", "LEDGER_TEST_CLOCKS": "true",
            "DATABASE_URL": database_url("application"), "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        },
        cwd=django_settings.BASE_DIR, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def drive(number: int, calls: int, holders: list[str]) -> int:
    """Have all calls of a process made, although it is killed in between; return how often it was."""
    made, kills = 0, 0
    while made < calls:
        process = start(number, made, calls, holders)
        assert process.stdout is not None
        assert process.stderr is not None
        is_killed = False
        for line in process.stdout:
            made = int(line) + 1
            if kills < KILLS and made >= (kills + 1) * calls // (KILLS + 1):
                kills, is_killed = kills + 1, True
                process.kill()
                break
        errors = process.stderr.read()
        process.stdout.close()
        assert process.wait(60) == (-9 if is_killed else 0), errors
        process.stderr.close()
    return kills


def used(holder: str) -> int:
    """What the holder used on overage, by its spends, captures and refunds alone."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT COALESCE(sum(CASE kind WHEN 'refund' THEN -postpaid ELSE postpaid END), 0)::bigint
            FROM ledger_entry WHERE holder_id = %s AND kind IN ('spend', 'capture', 'refund')
            """,
            [holder],
        )
        return int(cursor.fetchone()[0])


def cost(used_credits: int, price: dict[str, Any]) -> int:
    """The amount of a line, in cents."""
    first = min(used_credits, 100)
    exact = Decimal(used_credits) * Decimal("0.02")
    if price is GRADUATED:
        exact = first * Decimal("0.05") + (used_credits - first) * Decimal("0.013")
    return int((exact * 100).quantize(Decimal(1), ROUND_HALF_UP))


@pytest.mark.slow
@pytest.mark.one_node("processes of the application's role connect to the coordinator")
def test_killed_processes_use_exactly_the_caps_and_the_invoices_are_the_sums_of_the_entries(
    committed_db: None, settings: Any, raw_connection: Callable[..., Any]
) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    of_credits, by_credits = subscribed(price=UNIT, limit_credits=LIMIT)
    of_money, by_money = subscribed(price=GRADUATED, limit_minor=LIMIT_MINOR)
    limit = reads.balance(of_money).overage.limit  # type: ignore[union-attr]
    assert limit is not None
    assert cost(limit, GRADUATED) <= LIMIT_MINOR < cost(limit + 1, GRADUATED)

    began = time.monotonic()
    with ThreadPoolExecutor(PROCESSES) as threads:
        kills = sum(threads.map(lambda number: drive(number, CALLS // PROCESSES, [of_credits, of_money]), range(PROCESSES)))
    seconds = time.monotonic() - began
    assert kills == PROCESSES * KILLS

    for holder, subscription, cap, price in (
        (of_credits, by_credits, LIMIT, UNIT),
        (of_money, by_money, limit, GRADUATED),
    ):
        assert used(holder) <= cap
        while used(holder) < cap:  # what refunds gave back last
            services.spend(holder_id=holder, amount=9, partial=True, idempotency_key=unique("rest"))
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id=holder, amount=1, idempotency_key=unique("beyond"))
        balance = reads.balance(holder)
        assert balance.overage is not None
        assert (used(holder), balance.overage.used, balance.balance, balance.held) == (cap, cap, 0, 0)
        assert audit([raw_connection("superuser")], holder_id=holder).findings == []
        services.set_clock(holder_id=holder, now=END + timedelta(seconds=1), idempotency_key="february")
        generate(ref=subscription.ref, options=Options(as_of=END))
        invoices = Invoice.objects.filter(subscription=subscription.pk)
        [line] = Line.objects.filter(invoice_id__in=invoices.values("id"), price_key="overage")
        assert (line.quantity, line.amount_minor) == (cap, cost(cap, price))
        assert reads.balance(holder).available == 50, "the next allowance is whole"
    print(f"{CALLS // PROCESSES * PROCESSES} calls of {PROCESSES} processes, {kills} of them killed, in {seconds:.0f} s")
