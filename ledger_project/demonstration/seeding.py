"""Makes the demo data, or the missing part of it: `seed_demo`."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import connection

from billing.metering import partitions
from billing.models import Invoice
from ledger import reads, services
from ledger_project.demonstration import sales
from ledger_project.demonstration.company import COMPANIES, HOLDERS, subscription_of
from ledger_project.demonstration.credits import make_history, make_present

ANCHOR = "nimbus-research"
"""The holder whose first entry says when the demo was made."""

MONTHS_BEFORE, MONTHS_AFTER = 3, 4

PARTS: Final = (sales.make_catalogue, sales.make_customers, sales.make_documents, make_present)
"""What is made after the history, each by the instant at which the demo was made."""


@dataclass(frozen=True)
class DemoSummary:
    """The size of the demo data, whether made now or earlier."""

    holders: int
    entries: int
    refusals: int
    subscriptions: int
    invoices: int


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


def _make_months(made_at: datetime) -> None:
    """Make the usage table's partitions for the months of the demo and the coming ones, before there are events of them."""
    for months in range(-MONTHS_BEFORE, MONTHS_AFTER + 1):
        # Events that came first are counted as all others.
        with suppress(partitions.MonthInDefault):
            partitions.make_month(connection, partitions.month_after(made_at.date().replace(day=1), months))


@_without_refusals_in_the_log()
def seed_demo(progress: Callable[[int, int], None] = lambda done, total: None) -> DemoSummary:
    """Make the demo data, or the missing part of it.

    Args:
        progress: takes how many parts are made, and of how many; called after each.
    """
    anchor = services.grant(
        holder_id=ANCHOR, amount=5_000, idempotency_key="demo:anchor", actor="admin:demo", reason="internal experiments"
    )
    made_at = anchor.recorded_at
    _make_months(made_at)
    make_history(ends_at=made_at - timedelta(minutes=5))
    progress(1, 1 + len(PARTS))
    for number, make in enumerate(PARTS, 2):
        make(made_at)
        progress(number, 1 + len(PARTS))
    holders = [ANCHOR, *HOLDERS]
    accounts = [account for holder_id in holders for account in reads.accounts(holder_id)]
    refusals = sum(len(reads.refusals(holder_id)) for holder_id in holders)
    refs = [subscription_of(number) for number in range(len(COMPANIES))]
    return DemoSummary(
        holders=len(holders),
        entries=sum(account.sequence for account in accounts) - refusals,
        refusals=refusals,
        subscriptions=len(refs),
        invoices=Invoice.objects.filter(subscription__ref__in=refs).count(),
    )
