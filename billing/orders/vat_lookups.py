"""Looks VAT ids of customers up before they are stored, and keeps what VIES said as evidence.

What was said stands on documents, so it is kept here; the application that asks (`billing.tax_services`) registers.

Note [Look first, then write]
    VIES is asked before the transaction of the write begins, so no lock and no transaction waits for another machine. The write
    takes the customer's lock and reads the VAT id again: what was looked up is kept only if it is the id that is stored. If the
    id changes in a way that nobody looked up (a call from Python, or two writes at once), a command looks it up afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from billing.models import DEFAULT_SELLER, Customer, Seller, VatCheck, VatLookup
from billing.rating.vat import LookupOutcome, vat_country
from ledger import conf
from ledger.errors import Invalid

CHECKED_EVERY: Final = timedelta(days=30)
"""How often an id is looked up that was answered: one that becomes invalid is found within a month."""
TRIED_AGAIN_AFTER: Final = tuple(timedelta(minutes=each) for each in (1, 5, 30, 2 * 60, 6 * 60, 24 * 60))
"""The wait after the first try without an answer, after the second one, and so on; the last one for all further tries."""

# Of customer `c`: the newest lookup of the present id that was answered; the newest one if none was.
NEWEST_SQL: Final = """
    (SELECT json_build_object('id', l.id, 'outcome', l.outcome)::text FROM billing_vatlookup AS l
     WHERE l.customer_id = c.id AND l.vat_id = c.vat_id AND c.vat_id <> ''
     ORDER BY l.outcome = 'unavailable', l.id DESC LIMIT 1)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VatAnswer:
    """What VIES said about a VAT id.

    Args:
        requester: the VAT id of the seller that was sent; only with one VIES gives a consultation number.
        name, address: those that VIES has on record; empty: it does not say.
        error: why there is no answer.
    """

    vat_id: str
    outcome: LookupOutcome
    asked_at: datetime
    requester: str = ""
    consultation: str = ""
    name: str = ""
    address: str = ""
    error: str = ""


LookUp = Callable[[str, str], VatAnswer]
"""Takes a VAT id and the requester's, or an empty text; asks once and never raises."""

_services: Final[list[LookUp]] = []


def register_service(look_up: LookUp) -> None:
    """Have VAT ids looked up by this function; the one that was registered last is asked."""
    if look_up not in _services:
        _services.append(look_up)


def is_looked_up(vat_id: str) -> bool:
    """Return whether this deployment looks the id up: VIES has the ids of the EU only."""
    return bool(_services and conf.VIES_URL.value and vat_country(vat_id))


def newest_of(customer: Customer) -> VatLookup | None:
    """Return the newest lookup of the customer's present VAT id that was answered; the newest one if none was."""
    if not customer.vat_id:
        return None
    rows = VatLookup.objects.filter(customer_id=customer.pk, vat_id=customer.vat_id).order_by("-pk")
    return rows.exclude(outcome=LookupOutcome.UNAVAILABLE).first() or rows.first()


def look_up_before(*, ref: str, vat_id: str | None, seller: str | None) -> VatAnswer | None:
    """Look up the VAT id that a write is about to store; None if it stores no other id than before. Never raises.

    Args:
        ref: the customer that is written, whether it exists or not.
        vat_id, seller: those of the write; None: they stay as they are.
    """
    if vat_id is None or not is_looked_up(vat_id):
        return None
    known = Customer.objects.filter(ref=ref).values("vat_id", "seller").first()
    if known is not None and known["vat_id"] == vat_id:
        return None
    return _services[-1](vat_id, requester_of(seller or (known["seller"] if known else DEFAULT_SELLER)))


def requester_of(seller: str) -> str:
    """Return the VAT id with which a seller asks VIES; empty if the seller has none of the EU."""
    newest = Seller.objects.filter(ref=seller).order_by("-pk").values_list("details__vat_id", flat=True).first()
    return newest if newest and vat_country(newest) else ""


def ensure_not_invalid(lookup: VatAnswer | None, vat_id: str) -> None:
    """Return if VIES did not say that this id is invalid.

    Raises:
        Invalid: it did.
    """
    if lookup is not None and lookup.vat_id == vat_id and lookup.outcome == LookupOutcome.INVALID:
        detail = f"VIES, the EU's service, says that the VAT id {vat_id} is not valid."
        raise Invalid(pointer="/vat_id", rule="not-valid-in-vies", detail=detail)


def ask_again(customer: Customer) -> None:
    """Have the customer's VAT id looked up by the next run, because another seller asks from now on."""
    if is_looked_up(customer.vat_id):
        VatCheck.objects.update_or_create(customer_id=customer.pk, defaults={"due_at": timezone.now()})


def keep_new(customer: Customer, lookup: VatAnswer | None) -> None:
    """Keep what was said about a VAT id that the customer has from now on, and when it is looked up again.

    Args:
        customer: the stored row, under the customer's lock.
        lookup: None, or of another id: nobody asked, so a command asks now.
    """
    VatCheck.objects.filter(customer_id=customer.pk).delete()
    if not is_looked_up(customer.vat_id):
        return
    if lookup is None or lookup.vat_id != customer.vat_id:
        VatCheck.objects.create(customer_id=customer.pk)
    else:
        keep(customer, lookup, tries=0)


def keep(customer: Customer, lookup: VatAnswer, *, tries: int) -> VatLookup:
    """Write what was said about the customer's VAT id, and when it is looked up again. See `keep_new`.

    Args:
        tries: how many in a row had no answer before this one.
    """
    is_answered = lookup.outcome != LookupOutcome.UNAVAILABLE
    wait = CHECKED_EVERY if is_answered else TRIED_AGAIN_AFTER[min(tries, len(TRIED_AGAIN_AFTER) - 1)]
    plan: dict[str, Any] = {
        "due_at": timezone.now() + wait,
        "tries": 0 if is_answered else tries + 1,
        "error": lookup.error,
    }
    VatCheck.objects.update_or_create(
        customer_id=customer.pk, defaults=plan | ({"outcome": lookup.outcome} if is_answered else {})
    )
    return VatLookup.objects.create(
        customer_id=customer.pk,
        vat_id=lookup.vat_id,
        buyer={"name": customer.name, "address": customer.address},
        outcome=lookup.outcome,
        requester=lookup.requester,
        consultation=lookup.consultation,
        name=lookup.name,
        address=lookup.address,
        error=lookup.error,
        asked_at=lookup.asked_at,
    )
