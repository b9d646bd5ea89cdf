"""The rules of overage: credits beyond the lots are granted at the moment of need, and the terms are set and ended.

A spend or hold that finds too few credits is preceded by a `grant` of the missing ones, from source `postpaid`, within the limit
of the period. Postpaid credits that come back go back to the overage at once, so that an open lot is never postpaid. See
docs/adr/0148.
"""

from typing import Any

from ledger.errors import Invalid, OverageNotFound, OverageTaken
from ledger.rules import lots as lot_rules
from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import UNCOUNTED_ACTORS
from ledger.rules.decisions.settlement import Entries, settle_due
from ledger.rules.instants import to_us
from ledger.rules.lots import POSTPAID, POSTPAID_PRIORITY, SINCE_ITS_GRANT, Lot
from ledger.rules.overage import ENDED, SET, Overage
from ledger.rules.purposes import Use
from ledger.rules.requests import EndOverageRequest, OverageRequest, decides

REASON = "overage"


def left_for(account: AccountState, request: Any) -> int:
    """Return how many credits the request may use beyond `available`: 0 or more.

    What pays invoices uses none: overage is invoiced itself.
    """
    if account.overage is None or request.actor in UNCOUNTED_ACTORS:
        return 0
    return account.overage_left


def grant_missing(account: AccountState, amount: int, left: int, use: Use | None) -> tuple[Entries, AccountState, int]:
    """Return the grant of what the lots lack of `amount`, at most `left`, the account after it, and how much it is.

    Args:
        account: with everything booked that is due. left: as `left_for` says.
    """
    part = min(left, amount - lot_rules.available(account.lots, account.now_us, use)) if left else 0
    if part <= 0:
        return [], account, 0
    overage = account.present_overage
    assert overage is not None
    lot = Lot(account.sequence + 1, part, SINCE_ITS_GRANT, None, POSTPAID_PRIORITY, POSTPAID)
    entry = account.next_entry(
        "grant",
        part,
        lots=(*account.lots, lot),  # the last one in the burn order
        overage=overage._replace(used=overage.used + part),
        postpaid=part,
        reason=REASON,
    )
    return [entry], account.after(entry), part


@decides(OverageRequest)
def set_overage(account: AccountState, request: OverageRequest) -> Entries:
    """Set the overage, or give it other terms, by an `adjust` entry of 0; no credits move.

    Raises:
        OverageTaken: terms of another reference are in force.
        Invalid: it would end in the past.
    """
    ends_us = None if request.ends_at is None else to_us(request.ends_at)
    if ends_us is not None and ends_us <= account.now_us:
        raise Invalid(pointer="/ends_at", rule="past", detail="must be in the future")
    _ensure_free(account, request.reference)
    booked, account = settle_due(account)
    known, sequence = account.overage, account.sequence + 1
    if request.anchor_at is not None:
        anchor_us = to_us(request.anchor_at)
    else:
        anchor_us = account.now_us if known is None or known.reference != request.reference else known.anchor_us
    new = Overage(
        request.limit,
        0,
        sequence,
        0,
        sequence,
        request.interval,
        request.interval_count,
        anchor_us,
        request.time_zone,
        ends_us,
        request.reference,
    ).in_period_of(account.now_us, since=sequence)
    if known is not None and known.reference == new.reference:
        before = known.in_period_of(account.now_us, since=sequence)
        if before.until_us == new.until_us:
            new = new._replace(used=before.used, since=before.since)
    return [*booked, _setting(account, request, new, SET)]


@decides(EndOverageRequest)
def end_overage(account: AccountState, request: EndOverageRequest) -> Entries:
    """End the overage, by an `adjust` entry of 0; no credits move, and what was used stays used.

    Raises:
        OverageNotFound: the account has no overage now.
        OverageTaken: it belongs to another reference.
    """
    if account.present_overage is None:
        raise OverageNotFound(credit_type=account.credit_type)
    _ensure_free(account, request.reference)
    booked, account = settle_due(account)
    assert account.overage is not None
    return [*booked, _setting(account, request, account.overage._replace(ends_us=account.now_us), ENDED)]


def _ensure_free(account: AccountState, reference: str) -> None:
    present = account.present_overage
    if present is not None and present.reference not in ("", reference):
        raise OverageTaken(reference=present.reference)


def _setting(account: AccountState, request: OverageRequest | EndOverageRequest, overage: Overage, word: str) -> Any:
    setting: dict[str, Any] = {"overage": word}
    if word == SET:
        setting |= {"limit": overage.limit, "interval": overage.interval, "interval_count": overage.interval_count}
    return account.next_entry("adjust", 0, lots=account.lots, overage=overage, counterpart=setting, request=request)
