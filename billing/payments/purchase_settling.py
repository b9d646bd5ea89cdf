"""The second step: adds the credits of a purchase, and revokes or grants again what a return of money covers.

It may fail: the holder is busy, or has as many lots as it may have. The money stays on record, and the step is tried again by a
worker and whenever somebody reads the purchase. Rows and entries are written in one transaction, so each step is done once.
"""

import logging
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from django.db import Error, transaction
from django.db.models import F
from django.utils import timezone

from billing.payments.models import DuePurchase, Pack, Purchase, PurchaseGrant, PurchaseReturn, ReturnSettlement
from billing.payments.purchase_shares import NOTHING, CreditShares, claim_of, share_of
from ledger import journal
from ledger import services as ledger
from ledger.database.lock_names import PURCHASE
from ledger.database.locks import Lock, holder_lock
from ledger.database.transactions import locked_transaction
from ledger.errors import LedgerError, Misuse, RevocationExceedsGrant
from ledger.services import earlier_entries
from ledger.services.claims import claim_under

log = logging.getLogger(__name__)

ACTOR: Final = "billing"
PURCHASED, PROMOTIONAL = "purchased", "promotional"
FIRST_WAIT_S: Final = 5
LONGEST_WAIT_S: Final = 3600
Kind = PurchaseReturn.Kind
Entries = list[dict[str, Any]]


def attempt(purchase_id: int, *, wait: bool = True) -> bool:
    """Do what is to be done for a purchase; return whether it is done. If it fails, note why, and when to try again."""
    try:
        settle(purchase_id, wait=wait)
    except Misuse:
        raise
    except (LedgerError, Error) as error:
        log.info("purchase %s: %s: %s", purchase_id, type(error).__name__, error)
        with suppress(Error):
            _put_off(purchase_id, failure_text(error))
        return False
    return True


def _put_off(purchase_id: int, why: str) -> None:
    due = DuePurchase.objects.filter(purchase_id=purchase_id).first()
    if due is not None:
        next_try = timezone.now() + wait_after(due.tries)
        DuePurchase.objects.filter(pk=due.pk).update(tries=F("tries") + 1, due_at=next_try, error=why)


def wait_after(tries: int) -> timedelta:
    """Return how long a step waits after a number of failures: twice as long after each, up to an hour."""
    return timedelta(seconds=min(FIRST_WAIT_S * 2 ** min(tries, 20), LONGEST_WAIT_S))


def failure_text(error: Exception) -> str:
    """Return why a step failed, as the row of what is due keeps it."""
    return f"{getattr(error, 'code', type(error).__name__)}: {str(error).strip()}"[:500]


def settle(purchase_id: int, *, wait: bool = True) -> None:
    """Add the credits of a purchase and settle its returns, as far as that was not done; or raise and write nothing.

    Args:
        wait: False fails at once if another process is at it.

    Raises:
        LockBusy, HolderBusy: nothing was written; try again.
        LedgerError: the ledger refuses; nothing was written, also no refusal, so that a later try may succeed.
    """
    with locked_transaction(PURCHASE(str(purchase_id)), wait=wait):
        purchase = Purchase.objects.get(pk=purchase_id)
        settled = set(ReturnSettlement.objects.filter(purchase_id=purchase_id).values_list("purchase_return_id", flat=True))
        returns = list(PurchaseReturn.objects.filter(purchase_id=purchase_id).order_by("pk"))
        open_returns = [one for one in returns if one.pk not in settled]
        grant = PurchaseGrant.objects.filter(purchase_id=purchase_id).first()
        if grant is None or open_returns:
            with holder_lock(purchase.holder_id) as holder:
                if grant is None:
                    _add(holder, purchase, open_returns)
                else:
                    for one in open_returns:
                        _take(holder, purchase, grant, one) if one.kind != Kind.REINSTATED else _give_again(holder, purchase, one)
        DuePurchase.objects.filter(purchase_id=purchase_id).delete()


def _add(holder: Lock, purchase: Purchase, returns: list[PurchaseReturn]) -> None:
    """Add the credits, without those that returns cover already: of them nothing is taken later."""
    withheld = NOTHING
    for one in returns:
        share = -_share_of_dispute(one) if one.kind == Kind.REINSTATED else _share(purchase, one)
        _write(one, share, share, [], 0)
        withheld += share
    added = CreditShares(purchase.credits, purchase.bonus) - withheld
    paid_minor = purchase.paid_minor - sum(one.signed_minor for one in returns)
    entries = _grant(holder, purchase, added, paid_minor, f"purchase/{purchase.pk}", "Purchase")
    PurchaseGrant.objects.create(purchase_id=purchase.pk, credits=added.credits, bonus=added.bonus, entries=entries)


def _take(holder: Lock, purchase: Purchase, grant: PurchaseGrant, one: PurchaseReturn) -> None:
    """Revoke what is unspent of the share that a return covers, and claim the rest: it is taken back when it comes back."""
    share = _share(purchase, one)
    won = PurchaseReturn.objects.filter(purchase_id=purchase.pk, kind=Kind.REINSTATED)
    settlements = ReturnSettlement.objects.filter(purchase_return_id__in=won.values("pk")).order_by("pk")
    granted: Entries = [*grant.entries, *(each for row in settlements for each in row.entries)]
    key = f"purchase/{purchase.pk}/return/{one.pk}"
    entries: Entries = []
    for source, amount in ((PURCHASED, share.credits), (PROMOTIONAL, share.bonus)):
        entries += _revoke(holder, purchase, [each for each in granted if each["source"] == source], amount, key, one)
    taken = CreditShares(_total(entries, PURCHASED), _total(entries, PROMOTIONAL))
    for source, amount in ((PURCHASED, share.credits - taken.credits), (PROMOTIONAL, share.bonus - taken.bonus)):
        entries += _claim(holder, purchase, [each for each in granted if each["source"] == source], amount, key, one)
    _write(one, share, taken, entries, claim_of(one.amount_minor, share, taken))


def _give_again(holder: Lock, purchase: Purchase, one: PurchaseReturn) -> None:
    """Grant again what the dispute that was won had taken, then and since, and claim no more."""
    before = ReturnSettlement.objects.get(purchase_return_id=_dispute_of(one).pk)
    share, key = CreditShares(before.share_credits, before.share_bonus), f"purchase/{purchase.pk}/return/{one.pk}"
    taken = CreditShares(before.taken_credits, before.taken_bonus)
    for claim in [each for each in before.entries if "claim" in each]:
        taken += _settled_of(holder, purchase, claim, key, one)
    claim_minor = claim_of(one.amount_minor, share, taken)
    entries = _grant(holder, purchase, taken, one.amount_minor - claim_minor, key, "Dispute was won")
    _write(one, -share, -taken, entries, -claim_minor)


def _write(one: PurchaseReturn, share: CreditShares, taken: CreditShares, entries: Entries, claim_minor: int) -> None:
    ReturnSettlement.objects.create(
        purchase_return_id=one.pk,
        purchase_id=one.purchase_id,
        share_credits=share.credits,
        share_bonus=share.bonus,
        taken_credits=taken.credits,
        taken_bonus=taken.bonus,
        claim_minor=claim_minor,
        entries=entries,
    )


def _share(purchase: Purchase, one: PurchaseReturn) -> CreditShares:
    """Return what the money of a return had bought, beyond what settled returns cover."""
    returned = sum(each.signed_minor for each in PurchaseReturn.objects.filter(purchase_id=purchase.pk, pk__lte=one.pk))
    covered = NOTHING
    for settled in ReturnSettlement.objects.filter(purchase_id=purchase.pk):
        covered += CreditShares(settled.share_credits, settled.share_bonus)
    bought = CreditShares(purchase.credits, purchase.bonus)
    return share_of(bought, paid_minor=purchase.paid_minor, returned_minor=returned, covered=covered)


def _dispute_of(one: PurchaseReturn) -> PurchaseReturn:
    return PurchaseReturn.objects.get(purchase_id=one.purchase_id, kind=Kind.DISPUTE, payment=one.payment)


def _share_of_dispute(one: PurchaseReturn) -> CreditShares:
    settled = ReturnSettlement.objects.get(purchase_return_id=_dispute_of(one).pk)
    return CreditShares(settled.share_credits, settled.share_bonus)


# The ledger's entries --------------------------------------------------------------------------------


def _grant(holder: Lock, purchase: Purchase, added: CreditShares, paid_minor: int, key: str, reason: str) -> Entries:
    """Grant these credits; the purchased ones carry what was paid for them."""
    pack = Pack.objects.get(pk=purchase.pack_id)
    expires_at = None
    if pack.expires_days is not None:
        expires_at = ledger.time_of(purchase.holder_id) + timedelta(days=pack.expires_days)
    sale: dict[str, Any] = {
        "paid_minor": paid_minor, "currency": purchase.currency, "sold_at": purchase.paid_at,
        "document": purchase.reference or f"purchase {purchase.pk}",
    }  # fmt: skip
    entries: Entries = []
    for source, amount, own_key, cost in ((PURCHASED, added.credits, key, sale), (PROMOTIONAL, added.bonus, f"{key}/bonus", {})):
        if amount:
            entry = ledger.grant_under(
                holder,
                holder_id=purchase.holder_id,
                credit_type=purchase.credit_type,
                amount=amount,
                source=source,
                expires_at=expires_at,
                applies_to=pack.applies_to,
                idempotency_key=own_key,
                reason=reason,
                **cost,
                **_entry_fields(purchase, pack),
            )
            entries.append({"source": source, "sequence": entry.sequence, "amount": amount})
    return entries


def _revoke(holder: Lock, purchase: Purchase, granted: Entries, amount: int, key: str, one: PurchaseReturn) -> Entries:
    """Revoke up to this amount of these grants."""
    entries: Entries = []
    pack = Pack.objects.get(pk=purchase.pack_id)
    for grant in granted:
        wanted = min(amount - sum(each["amount"] for each in entries), grant["amount"])
        lot = _lot_now(holder, purchase, grant["sequence"])
        fields: dict[str, Any] = {
            "holder_id": purchase.holder_id, "credit_type": purchase.credit_type, "grant": lot,
            "idempotency_key": f"{key}/{lot}", "reason": one.reason or Kind(one.kind).label, **_entry_fields(purchase, pack),
        }  # fmt: skip
        if wanted and (revoked := _revoke_most(holder, wanted, fields)) is not None:
            entries.append({"source": grant["source"], "sequence": revoked.sequence, "amount": -revoked.amount})
    return entries


def _claim(holder: Lock, purchase: Purchase, granted: Entries, amount: int, key: str, one: PurchaseReturn) -> Entries:
    """Claim this amount of what comes back to the lots of these grants, unless the account has as many claims as it may have."""
    lots = [lot for grant in granted for lot in _lots_of(holder, purchase, grant["sequence"])]
    if not (amount and lots):
        return []
    entry = claim_under(
        holder,
        lots=lots,
        amount=amount,
        idempotency_key=f"{key}/claim/{granted[0]['source']}",
        reason=one.reason or Kind(one.kind).label,
        **_account_of(purchase),
        **_entry_fields(purchase, Pack.objects.get(pk=purchase.pack_id)),
    )
    source = granted[0]["source"]
    return [] if entry is None else [{"source": source, "sequence": entry.sequence, "amount": 0, "claim": amount}]


def _settled_of(holder: Lock, purchase: Purchase, claim: dict[str, Any], key: str, one: PurchaseReturn) -> CreditShares:
    """Withdraw what is left of a claim; return what was taken back of it."""
    entry = ledger.end_claim_under(
        holder,
        claim=claim["sequence"],
        idempotency_key=f"{key}/claim/{claim['source']}",
        reason=one.reason or Kind(one.kind).label,
        **_account_of(purchase),
        **_entry_fields(purchase, Pack.objects.get(pk=purchase.pack_id)),
    )
    assert entry.counterpart is not None
    settled = claim["claim"] - entry.counterpart["amount"]
    return CreditShares(settled, 0) if claim["source"] == PURCHASED else CreditShares(0, settled)


def _account_of(purchase: Purchase) -> dict[str, Any]:
    return {"holder_id": purchase.holder_id, "credit_type": purchase.credit_type}


def _revoke_most(holder: Lock, wanted: int, fields: dict[str, Any]) -> Any:
    """Revoke this amount, or what is unspent if that is less; return None if nothing is."""
    try:
        # In a savepoint: the refusal, which is on record only inside of it, does not use up the key.
        with transaction.atomic():
            return ledger.revoke_under(holder, amount=wanted, **fields)
    except RevocationExceedsGrant as refused:
        revocable = refused.facts["revocable"]
    return ledger.revoke_under(holder, amount=revocable, **fields) if revocable else None


def _lot_now(holder: Lock, purchase: Purchase, grant: int) -> int:
    """Return the lot that has a grant's credits: another one if an operator gave them other terms."""
    return _lots_of(holder, purchase, grant)[-1]


def _lots_of(holder: Lock, purchase: Purchase, grant: int) -> list[int]:
    """Return the lots that had a grant's credits one after the other."""
    return earlier_entries.lots_after(journal.read(holder, purchase.holder_id, purchase.credit_type), grant)


def _entry_fields(purchase: Purchase, pack: Pack) -> dict[str, Any]:
    """Actor, reference and metadata of the entries."""
    return {
        "actor": ACTOR,
        "reference": f"purchase {purchase.pk}",
        "metadata": {"pack": pack.code, "version": pack.version, "payment": purchase.payment, "provider": purchase.provider},
    }


def _total(entries: Entries, source: str) -> int:
    return sum(each["amount"] for each in entries if each["source"] == source)
