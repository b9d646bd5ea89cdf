"""What the ledger would decide, by its own rules, on the state that an account would have; pure, and without a real account.

Note [The shadow follows]
    After each observation the shadow has what the other system has. So a difference is named once, where it came to be, and the
    next decision is compared from the same balance again. Credits that the other system has beyond those of the shadow become a
    lot without an expiry; credits that it does not have are taken in burn order.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from ledger import conf
from ledger.errors import Invalid, LedgerError, Refused
from ledger.rules import lots as lot_rules
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import credit_rules, hold_rules, refunds, settlement
from ledger.rules.entries import Entry
from ledger.rules.holds import Hold, encode_holds, parts_of
from ledger.rules.lots import DEFAULT_PRIORITY, PURCHASED, SINCE_ITS_GRANT, Lot, Lots
from ledger.rules.requests import (
    CaptureRequest,
    GrantRequest,
    HoldRequest,
    RefundRequest,
    ReleaseRequest,
    RevokeRequest,
    SpendRequest,
)
from ledger.shadow.requests import BALANCE, REFERRING, ObservationRequest

DECISION, OF_BALANCE = "decision", "balance"
DIFFERENCES: Final = (DECISION, OF_BALANCE)
"""How both sides differ: one allowed what the other refused, or both did the same and have other balances after it."""
EFFECTS: Final = {"grant": 1, "refund": 1, "release": 1, "spend": -1, "hold": -1, "revoke": -1}
"""What an allowed operation does to the credits that can be spent. A capture may do either; which credits expire, is not known of
those that were there before the first observation."""


class Subject(NamedTuple):
    """An earlier observation that another one is about.

    Args:
        sequence: the number that its entry has in the shadow; None if the ledger would not have done it.
        parts: the credits that it took, with the terms of their lots.
        refunded: how many of them have been refunded.
    """

    operation: str
    sequence: int | None
    parts: Lots = ()
    refunded: int = 0


class Decision(NamedTuple):
    """What the ledger would have done, and the shadow after it, which has the balance of the other system.

    Args:
        is_allowed: None: it was not decided, because it is about something that was not observed.
        balance: what could be spent after it; None if not decided.
        sequence, parts: what a later observation needs that is about this one.
    """

    state: AccountState
    is_allowed: bool | None
    balance: int | None
    refusal: dict[str, Any] | None = None
    difference: str | None = None
    sequence: int | None = None
    parts: Lots = ()


def spendable(state: AccountState) -> int:
    """Return what can be spent at the time of the state; below 0 for a debt."""
    lots, _, owed, _ = state.settled
    return lot_rules.available(lots, state.now_us) - owed


def opened(request: ObservationRequest, now_us: int) -> AccountState:
    """Return the shadow of an account before its first observation: with what the other system had before it."""
    state = AccountState(request.holder_id, request.credit_type, now_us)
    effect = EFFECTS.get(request.operation, 0) * (request.amount or 0) if request.is_allowed else 0
    return follow(state, request.balance - effect)


def follow(state: AccountState, balance: int) -> AccountState:
    """Return the state with exactly this much to spend. See Note [The shadow follows]."""
    _, state = settlement.settle_due(state)
    wanted, owed = max(balance, 0), max(-balance, 0)
    missing = wanted - lot_rules.available(state.lots, state.now_us)
    lots, sequence = state.lots, state.sequence
    if missing < 0:
        lots, _ = lot_rules.take(lots, -missing, state.now_us)
    elif missing:
        sequence += 1
        added = Lot(sequence, missing, SINCE_ITS_GRANT, None, DEFAULT_PRIORITY, PURCHASED)
        known = next((lot for lot in lots if lot[2:] == added[2:]), added)
        lots = lot_rules.put_back(lots, [added._replace(grant=known.grant)])
    return state._replace(
        sequence=sequence, lots=lots, balance=lot_rules.total(lots) - owed, overdraft=owed or None, moved_by=sequence
    )


def decide(state: AccountState, request: ObservationRequest, subject: Subject | None = None) -> Decision:
    """Decide what the other system decided, compare, and follow it.

    Args:
        state: the shadow before it, at the time of the observation.
        subject: the observation that it is about, if that is known.
    """
    if request.operation in REFERRING and (subject is None or subject.sequence is None):
        return Decision(follow(state, request.balance), None, None)
    entries, refusal = _decide_entries(state, request, subject)
    allowed = refusal is None
    after = state.after_all(entries) if allowed and request.is_allowed else state
    ours = spendable(after)
    difference = None
    if allowed != request.is_allowed:
        difference = DECISION
        ours = spendable(state.after_all(entries))
    elif ours != request.balance:
        difference = OF_BALANCE
    key = request.idempotency_key
    entry = next((each for each in entries if each.idempotency_key == key), None) if after is not state else None
    parts = _parts(state, after, entry)
    agrees = difference is None and after.overdraft is None
    followed = after if agrees else follow(after, request.balance)
    return Decision(followed, allowed, ours, refusal, difference, None if entry is None else entry.sequence, parts)


def _parts(state: AccountState, after: AccountState, entry: Entry | None) -> Lots:
    if entry is None or entry.kind not in ("spend", "capture"):
        return ()
    known = {lot.grant: lot for lot in (*after.lots_and_held_parts, *state.lots_and_held_parts)}
    return parts_of(tuple(known.values()), tuple((grant, amount) for grant, amount in entry.drawn if grant in known))


def _decide_entries(
    state: AccountState, request: ObservationRequest, subject: Subject | None
) -> tuple[Sequence[Entry], dict[str, Any] | None]:
    """Return the entries that the rules make of it, or why they refuse it."""
    try:
        return _entries(state, request, subject), None
    except Refused as refused:
        return (), {"code": refused.code, "facts": refused.facts}
    except Invalid as invalid:
        return (), {"code": "validation", "facts": invalid.facts}
    except LedgerError as error:
        return (), {"code": error.code, "facts": error.facts}


def _entries(state: AccountState, request: ObservationRequest, subject: Subject | None) -> Sequence[Entry]:
    common: dict[str, Any] = {
        "holder_id": request.holder_id, "credit_type": request.credit_type, "idempotency_key": request.idempotency_key,
    }  # fmt: skip
    amount = request.amount
    named = 0 if subject is None else subject.sequence or 0
    match request.operation:
        case "grant":
            terms = {name: getattr(request, name) for name in ("source", "effective_at", "expires_at", "priority")}
            return credit_rules.grant(state, GrantRequest(amount=amount or 0, **terms, **common))
        case "spend":
            return credit_rules.spend(state, SpendRequest(amount=amount, **common))
        case "hold":
            return hold_rules.hold(state, HoldRequest(amount=amount, expires_at=request.expires_at, **common))
        case "refund":
            assert subject is not None
            return _refund_entries(state, RefundRequest(spend=named, amount=amount, **common), subject)
        case "revoke":
            grant = _entry_like(state, "grant", named, 1)
            return credit_rules.revoke(state, RevokeRequest(grant=named, amount=amount, **common), grant=grant)
        case "capture":
            hold = _entry_like(state, "hold", named, 0)
            capture = CaptureRequest(hold=named, amount=amount, **common)
            return hold_rules.capture(
                state, capture, amount=amount, rating=None, hold_entry=hold, last_closing=_closing(state, named)
            )
        case "release":
            hold = _entry_like(state, "hold", named, 0)
            release = ReleaseRequest(hold=named, **common)
            return hold_rules.release(state, release, hold_entry=hold, last_closing=_closing(state, named))
        case "expire":
            return settlement.settle_due(state)[0]
        case _:
            assert request.operation == BALANCE
            return ()


def _refund_entries(state: AccountState, request: RefundRequest, subject: Subject) -> Sequence[Entry]:
    drawn = lot_rules.as_drawn(subject.parts)
    taken = lot_rules.total(subject.parts)
    return refunds.refund(
        state,
        request,
        spend=_entry_like(state, "spend", request.spend, -taken)._replace(drawn=drawn),
        refunded=subject.refunded,
        terms={part.grant: part for part in subject.parts},
        expired_lot_policy=conf.REFUND_TO_EXPIRED_LOT.value,
        new_lot_days=conf.REFUND_LOT_DAYS.value,
    )


def _entry_like(state: AccountState, kind: str, sequence: int, amount: int) -> Entry:
    """Return an earlier entry of the shadow, with what the rules look at."""
    before = AccountState(state.holder_id, state.credit_type, state.now_us, sequence=sequence - 1)
    return before.next_entry(kind, amount, lots=())


def _closing(state: AccountState, hold: int) -> Entry | None:
    """Return an entry that closed the hold, if it is not open."""
    is_open = state.hold(hold) is not None
    return None if is_open else _entry_like(state, "release", hold + 1, 0)._replace(refers_to=hold)


# How a shadow is stored ------------------------------------------------------------------------------


def encode_state(state: AccountState) -> str:
    """Return the state as JSON, in the stored forms of lots and holds."""
    return (
        f'{{"at":{state.now_us},"sequence":{state.sequence},"balance":{state.balance},"held":{state.held},'
        f'"overdraft":{"null" if state.overdraft is None else state.overdraft},'
        f'"lots":{lot_rules.encode(state.lots)},"holds":{encode_holds(state.holds)}}}'
    )


def decode_state(holder_id: str, credit_type: str, text: str, now_us: int) -> AccountState:
    """Return the state of a stored form, at a time that is not before the time of its last decision."""
    known = orjson.loads(text)
    return AccountState(
        holder_id,
        credit_type,
        max(now_us, known["at"]),
        sequence=known["sequence"],
        balance=known["balance"],
        held=known["held"],
        lots=lot_rules.from_json(known["lots"]),
        holds=tuple([Hold(sequence, at_us, lot_rules.from_json(parts)) for sequence, at_us, parts in known["holds"]]),
        overdraft=known["overdraft"],
        moved_by=known["sequence"],
    )
