"""What a refused spend is told of the top-up of its account, and the payment that it starts.

A request that lacks credits records the payment, which is due at once. It asks no provider: a worker that looks for what is due
does, within a second (`collect_payments --stay`).
"""

from contextlib import suppress
from datetime import timedelta
from typing import Final

from django.db import connection
from django.utils import timezone

from billing.payments.models import Pack, PaymentIntent, TopUp
from billing.payments.topup_checks import attempts_of, coming_purchases, packs_due, payments_under_way, top_up
from ledger.database.statements import wait_at_most
from ledger.database.transactions import own_or_joined
from ledger.errors import HolderBusy, Invalid, LockBusy
from ledger.services import Lack, UnderWay

SOON_S: Final = 5
"""When to ask again: a payment from a saved method takes some seconds."""
LOCK_WAIT_MS: Final = 100
STATEMENT_MS: Final = 1000
"""How long one statement may take: what a refusal is told is not worth more."""


def top_up_under_way(lack: Lack) -> UnderWay | None:
    """Return what is under way for an account that has too few credits; None without a top-up, or if it brings nothing.

    Raises:
        LedgerError, Error: nothing was written, and it is not known.
    """
    with own_or_joined():
        wait_at_most(LOCK_WAIT_MS)
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS}")
        row = TopUp.objects.filter(holder_id=lack.holder_id, credit_type=lack.credit_type, ended_at=None).first()
        with suppress(Invalid):  # the pack is not on sale
            return None if row is None else _of_row(row, lack)
    return None


def _of_row(row: TopUp, lack: Lack) -> UnderWay | None:
    """See Note [Payments, then the balance]: what is read here is read again under the lock before money is asked for."""
    if row.paused_at is not None:
        return _describe(row, "paused", 0, None)
    intent = payments_under_way(row).first()
    if intent is not None:
        return _of_intent(row, intent)
    if coming := list(coming_purchases(row)):
        return _describe(row, "granting", sum(one.credits + one.bonus for one in coming), SOON_S)
    if lack.starts:
        try:
            intent = top_up(row.pk, wait=False)
        except (LockBusy, HolderBusy):
            return _of_due(row, lack.available)
        if intent is not None:
            return _of_intent(row, intent)
        if TopUp.objects.filter(pk=row.pk, paused_at__isnull=False).exists():
            return _describe(row, "paused", 0, None)
    return _of_due(row, lack.available)


def _of_intent(row: TopUp, intent: PaymentIntent) -> UnderWay:
    assert intent.pack_id is not None
    pack = Pack.objects.get(pk=intent.pack_id)
    soon = None if intent.state == "waiting" else SOON_S
    return _describe(row, intent.state, intent.quantity * (pack.credits + pack.bonus), soon)


def _of_due(row: TopUp, available: int) -> UnderWay | None:
    """What comes next: it waits for its cooldown, or another process is about to start it. Nobody is locked: it is only shown."""
    now = timezone.now()
    pack, packs = packs_due(row, available, now)
    if not packs:
        return None
    last = next(iter(attempts_of(row)), None)
    left = timedelta(0) if last is None else last.at + timedelta(seconds=row.cooldown_seconds) - now
    return _describe(row, "due", packs * (pack.credits + pack.bonus), max(0, -(-left // timedelta(seconds=1))) + SOON_S)


def _describe(row: TopUp, state: str, credits: int, retry_after_seconds: int | None) -> UnderWay:  # noqa: A002 - the field's name
    return UnderWay({"id": row.pk, "state": state, "credits": credits}, retry_after_seconds)
