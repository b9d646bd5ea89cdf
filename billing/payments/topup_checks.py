"""Tops accounts up that have run low: any number of workers at the same time, each account by one.

Note [Payments, then the balance]
    Under the lock `topup/<holder>` the payments of the top-up are read first and the balance after them. A payment whose credits
    are not added yet counts as under way; one whose credits are added is in the balance that is read later. So no account is
    topped up twice for the same need.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from django.db import Error
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from billing.models import Customer
from billing.orders.erasure import is_erased
from billing.payments.intent_orders import order_payment
from billing.payments.models import OPEN_INTENT, DuePurchase, Pack, PaymentIntent, Purchase, PurchaseGrant, TopUp
from billing.payments.packs import MAX_PACKS, pack_on_sale
from billing.payments.providers.interface import CANCELED, FAILED
from billing.payments.topup_rules import TopUpAttempt, TopUpTerms, is_paused, packs_to_buy, period_begins, waits
from ledger import services as ledger
from ledger.database.lock_names import TOP_UP
from ledger.database.locks import holder_lock
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction
from ledger.errors import LedgerError, Misuse

log = logging.getLogger(__name__)

ACTOR: Final = "top-up"
PAGE_ROWS: Final = 500
# Of each account whether it may be low: with a smaller balance, with lots that are not to be spent now, or with holds. By its
# first entry: on a cluster a LATERAL with LIMIT may refer to entries only.
PAGE: Final = f"""
WITH page AS MATERIALIZED (
    SELECT t.id, t.holder_id, t.credit_type, t.threshold
    FROM billing_topup AS t
    WHERE t.id > %(last)s AND t.ended_at IS NULL AND t.paused_at IS NULL
    ORDER BY t.id
    LIMIT {PAGE_ROWS}
), state AS MATERIALIZED (
    SELECT page.id, last.balance, last.holds IS NOT NULL OR EXISTS (
            SELECT FROM json_array_elements(last.lots) AS lot WHERE (lot ->> 2)::numeric <> 0 OR lot ->> 3 IS NOT NULL
        ) AS may_have_less
    FROM page
    JOIN ledger_entry AS first ON first.holder_id = page.holder_id AND first.credit_type = page.credit_type AND first.sequence = 1
    CROSS JOIN LATERAL (
        SELECT e.balance, e.lots, e.holds FROM ledger_entry AS e
        WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
        ORDER BY e.sequence DESC LIMIT 1
    ) AS last
)
SELECT page.id, coalesce(state.balance, 0) < page.threshold OR coalesce(state.may_have_less, false)
FROM page LEFT JOIN state USING (id)
ORDER BY page.id
"""


@dataclass(slots=True)
class ToppedUp:
    """The counts of one run."""

    low: int = 0
    started: int = 0
    failed: int = 0


def top_up_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> ToppedUp:
    """Check each account that may be low, and start the payments that are due.

    Args:
        dry_run: count the accounts, and start nothing.
        stop: called before each; True ends the run.
    """
    counts = ToppedUp()
    for top_up_id in _candidates():
        if stop():
            break
        counts.low += 1
        if dry_run:
            continue
        try:
            counts.started += top_up(top_up_id) is not None
        except Misuse:
            raise
        except (LedgerError, Error) as error:
            counts.failed += 1
            log.warning("top-up %s: %s: %s", top_up_id, type(error).__name__, error)
    return counts


class _CheckedAccount(NamedTuple):
    """An account with a top-up."""

    top_up_id: int
    may_be_low: bool


def _candidates() -> Iterator[int]:
    last = 0
    while page := fetch_rows(_CheckedAccount, PAGE, {"last": last}):
        yield from (account.top_up_id for account in page if account.may_be_low)
        last = page[-1].top_up_id


def top_up(top_up_id: int, *, wait: bool = True) -> PaymentIntent | None:
    """Start a payment if the account is low and nothing speaks against it; return it. See Note [Payments, then the balance].

    After the number of declines in the terms, pause the top-up instead.

    Args:
        wait: False: raise LockBusy if another process checks the account.

    Raises:
        LedgerError: nothing was written; the next run tries again.
    """
    holder_id = TopUp.objects.values_list("holder_id", flat=True).get(pk=top_up_id)
    with locked_transaction(TOP_UP(holder_id), wait=wait):
        row = TopUp.objects.get(pk=top_up_id)
        if row.ended_at is not None or row.paused_at is not None:
            return None
        now = timezone.now()
        terms, attempts = terms_of(row), attempts_of(row)
        if is_paused(terms, attempts) or is_erased(Customer.objects.get(pk=row.customer_id)):
            TopUp.objects.filter(pk=row.pk).update(paused_at=now)
            return None
        if waits(terms, attempts, now) or payments_under_way(row).exists() or _credits_are_coming(row):
            return None
        with holder_lock(holder_id) as holder:
            available = ledger.available_under(holder, holder_id=holder_id, credit_type=row.credit_type)
        if available >= terms.threshold:
            return None
        pack, packs = packs_due(row, available, now)
        if not packs:
            return None
        return order_payment(
            pack=pack.code, version=pack.version, quantity=packs, holder_id=holder_id,
            customer=Customer.objects.get(pk=row.customer_id).ref, provider=row.provider, method=row.method, top_up=row.pk,
            actor=ACTOR,
        )  # fmt: skip


def packs_due(row: TopUp, available: int, now: datetime) -> tuple[Pack, int]:
    """Return the pack on sale and how many are bought now; 0 if the account has enough, or the cap leaves no room for one.

    Raises:
        LedgerError: the pack is not on sale.
    """
    pack = pack_on_sale(row.pack_ref, now)
    packs = packs_to_buy(
        terms_of(row), available=available, credits_of_pack=pack.credits + pack.bonus, price_minor=pack.price_minor,
        spent_minor=spent_minor(row, now), most=MAX_PACKS,
    )  # fmt: skip
    return pack, packs


def terms_of(row: TopUp) -> TopUpTerms:
    """Return the terms of a top-up."""
    return TopUpTerms(
        threshold=row.threshold, packs=row.packs, up_to=row.up_to, cap_minor=row.cap_minor, cap_period=row.cap_period,
        cooldown_seconds=row.cooldown_seconds, declines=row.declines,
    )  # fmt: skip


def attempts_of(row: TopUp) -> list[TopUpAttempt]:
    """Return the last payments of the top-up since it was resumed, the newest first; those that were given up do not count."""
    intents = PaymentIntent.objects.filter(top_up_id=row.pk).exclude(state=CANCELED)
    if row.resumed_at is not None:
        intents = intents.filter(Q(recorded_at__gte=row.resumed_at) | Q(state__in=OPEN_INTENT))
    return [
        TopUpAttempt(each.recorded_at, each.amount_minor, each.state in OPEN_INTENT, each.state == FAILED)
        for each in intents.order_by("-pk")[: row.declines]
    ]


def payments_under_way(row: TopUp) -> QuerySet[PaymentIntent]:
    """Return the open payments of all top-ups of the account: those of a top-up that has ended bring credits too."""
    return PaymentIntent.objects.filter(top_up_id__in=_top_ups_of_account(row).values("pk"), state__in=OPEN_INTENT)


def _top_ups_of_account(row: TopUp) -> QuerySet[TopUp]:
    return TopUp.objects.filter(holder_id=row.holder_id, credit_type=row.credit_type)


def _credits_are_coming(row: TopUp) -> bool:
    return coming_purchases(row).exists()


def coming_purchases(row: TopUp) -> QuerySet[Purchase]:
    """Return the purchases of the account whose money is in, and whose credits are not added yet and can pay for everything."""
    paid = Purchase.objects.filter(holder_id=row.holder_id, credit_type=row.credit_type)
    paid = paid.exclude(pack_id__in=Pack.objects.filter(applies_to__isnull=False).values("pk"))
    coming = DuePurchase.objects.filter(purchase_id__in=paid.values("pk"))
    return paid.filter(pk__in=coming.values("purchase_id")).exclude(pk__in=PurchaseGrant.objects.values("purchase_id"))


def spent_minor(row: TopUp, now: datetime) -> int:
    """Return what top-ups of the account have asked for in the current period of the cap, without what failed or was given up."""
    asked = PaymentIntent.objects.filter(
        top_up_id__in=_top_ups_of_account(row).values("pk"), recorded_at__gte=period_begins(row.cap_period, now)
    ).exclude(state__in=(FAILED, CANCELED))
    return asked.aggregate(sum=Sum("amount_minor"))["sum"] or 0
