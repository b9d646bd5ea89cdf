"""Events of providers: each is on record once, before it is answered, and then says that an intent is worth asking about."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from django.db import Error
from django.db.models import F, Q
from django.utils import timezone

from billing.payments.advancing import LEASE_S, advance
from billing.payments.errors import ProviderRefused
from billing.payments.models import PaymentIntent, ProviderEvent
from billing.payments.providers.configured import able
from billing.payments.providers.interface import SendsEvents
from ledger.database.transactions import own_or_joined
from ledger.errors import LedgerError

RETRY_S: Final = 60


def take_in(provider_name: str, body: bytes, headers: Mapping[str, str]) -> bool:
    """Record an event and return True, or False if it was recorded before; a worker then asks about its intent.

    Raises:
        Invalid: this deployment has no such provider.
        EventRejected: the provider did not sign these bytes, or long ago; nothing was written.
    """
    event = able(provider_name, SendsEvents).read_event(body, headers)
    with own_or_joined():
        _, is_new = ProviderEvent.objects.get_or_create(
            provider=provider_name,
            event=event.id,
            defaults={"type": event.type, "key": event.key, "checkout": event.checkout, "payment": event.payment},
        )
    return is_new


def handle(event_id: int) -> bool:
    """Ask about the intent of an event, if that was not done; return whether that failed. Other events are of no interest."""
    now = timezone.now()
    due = ProviderEvent.objects.filter(pk=event_id, due_at__lte=now)
    if not due.update(due_at=now + timedelta(seconds=LEASE_S), asked_at=now, tries=F("tries") + 1):
        return False
    try:
        event = ProviderEvent.objects.get(pk=event_id)
        intent_id = _intent_of(event)
        if intent_id is not None:
            advance(intent_id, now=True)
    except (LedgerError, Error) as error:
        later = timezone.now() + timedelta(seconds=RETRY_S)
        ProviderEvent.objects.filter(pk=event_id, handled_at=None).update(due_at=later, error=str(error)[:500])
        return True
    # Only now: a process that ends before asks again. An intent that could not be asked about is due by itself.
    ProviderEvent.objects.filter(pk=event_id).update(handled_at=timezone.now(), due_at=None, intent_id=intent_id, error="")
    return False


def _intent_of(event: ProviderEvent) -> int | None:
    """Return the intent that an event is about: by our key, by the provider's ids, or by the key that the provider keeps."""
    intents = PaymentIntent.objects.filter(provider=event.provider)
    wanted = Q(key=event.key) if event.key else Q()
    wanted |= Q(payment=event.payment) if event.payment else Q()
    wanted |= Q(checkout=event.checkout) if event.checkout else Q()
    intent_id = intents.filter(wanted).values_list("pk", flat=True).first() if wanted else None
    if intent_id is None and event.payment and not event.key:
        try:
            key = able(event.provider, SendsEvents).key_of(event.payment)
        except ProviderRefused:
            return None
        intent_id = intents.filter(key=key).values_list("pk", flat=True).first() if key else None
    return intent_id
