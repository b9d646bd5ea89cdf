"""How every request of one holder is answered: lock, read, replay or decide, store, commit; then raise what was refused.

A refusal is decided inside the transaction, stored there like an entry, and raised only after COMMIT: raised inside, it would
roll its own record back.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypedDict

from django.conf import settings

from ledger import journal, rules
from ledger.database.locks import Lock, advisory_lock, holder_key
from ledger.database.statements import wait_at_most
from ledger.database.transactions import in_transaction
from ledger.errors import AccountMovedOn, IdempotencyKeyReused, Invalid, LedgerError
from ledger.rules import Entry, Request
from ledger.services.group_commit import GroupCommit, Outcome
from ledger.services.rates import priced


class Circumstances(TypedDict, total=False):
    """What every use-case takes beside what it is about.

    credit_type: "credits" by default. reason: at most 500 characters. reference: the caller's own id, at most 200. metadata: at
    most 50 keys and 8 KiB. actor: who asks. request_id: kept with a refusal. expected_sequence: answer only while the account's
    last entry has this number. dry_run: say what the answer would be, and write nothing.
    """

    credit_type: str
    reason: str
    reference: str
    metadata: dict[str, Any] | None
    actor: str
    request_id: str
    expected_sequence: int | None
    dry_run: bool


def given(circumstances: Circumstances) -> dict[str, Any]:
    """The circumstances as a request takes them: no metadata is an empty object."""
    values: dict[str, Any] = dict(circumstances)
    if values.get("metadata", False) is None:
        del values["metadata"]
    return values


def answer(request: Request) -> Entry:
    """Answer the request in a transaction of its own: the entry is committed, or the refusal is and is raised.

    Raises:
        Refused: on record now; `replayed` when it was before.
        Invalid, IdempotencyKeyReused, AccountMovedOn: nothing was written.
        HolderBusy, SequenceTaken: nothing was written; repeat it with the same key.
        OutcomeUnknown: the connection was lost during COMMIT; repeat it with the same key.
    """
    return WAYS.alone(request).unwrap()


class _Transactions:
    """How requests are executed, each way in one transaction."""

    def alone(self, request: Request) -> journal.Recorded:
        def once() -> journal.Recorded:
            with journal.enter(request.holder_id, request.credit_type, request.idempotency_key) as account:
                return journal.answer(account, request, partial(decide, request))

        return in_transaction(once, holder_id=request.holder_id)

    def together(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        def once() -> Sequence[Outcome]:
            wait_at_most(COMMITTER_LOCK_TIMEOUT_MS)
            return _execute_those_free(requests)

        return in_transaction(once, holder_id=requests[0].holder_id)

    def after_waiting(self, holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float) -> Sequence[Outcome]:
        deadline = time.monotonic() + seconds

        def once() -> Sequence[Outcome]:
            # Tried again, it has what is left: the requests have waited already.
            wait_at_most(max(1, int((deadline - time.monotonic()) * 1000)))
            with advisory_lock(holder_key(holder_id)):
                wait_at_most(COMMITTER_LOCK_TIMEOUT_MS)
                return _execute_those_free(arrived())

        return in_transaction(once, holder_id=holder_id)


COMMITTER_LOCK_TIMEOUT_MS = 100
"""How long a group waits for what it must not meet: a row that somebody without the lock has inserted and not committed."""


def _execute_those_free(requests: Sequence[Request]) -> list[Outcome]:
    if not requests:
        return []
    with journal.enter_many(requests) as room:
        return [answer_in(room, request) if room.has(request) else None for request in requests]


def answer_in(room: journal.Room, request: Request) -> journal.Recorded | LedgerError:
    """Answer one of many requests; what is wrong with it alone does not stop the others."""
    try:
        return room.answer(request, partial(decide, request))
    except (Invalid, IdempotencyKeyReused, AccountMovedOn) as error:
        return error


WAYS = _Transactions()
GROUP_COMMIT = GroupCommit(WAYS, most=lambda: settings.LEDGER["REQUESTS_PER_TRANSACTION"])
"""Where the API's calls of this process queue. A use-case that is called from Python is executed in the caller's thread."""


def answer_under(lock: Lock, request: Request) -> Entry:
    """Answer the request inside the caller's transaction and under `lock`; a refusal that is raised has been recorded in it."""
    account = journal.read(lock, request.holder_id, request.credit_type, request.idempotency_key)
    return journal.answer(account, request, partial(decide, request)).unwrap()


def decide(request: Request, account: journal.OpenAccount) -> Sequence[Entry]:
    """The entries that follow from the request, by the rules; loads what they need to know beside the account's state.

    Raises:
        Refused, Invalid: as the rules say.
    """
    match request:
        case rules.SpendRequest():
            amount, rating = priced(request)
            return rules.spend(account.state, request, amount=amount, rating=rating)
        case rules.GrantRequest():
            return rules.grant(account.state, request)
        case rules.RefundRequest():
            return _decide_refund(request, account)
        case rules.RevokeRequest():
            return rules.revoke(account.state, request, grant=journal.entry(account, request.grant))
        case rules.HoldRequest():
            amount, rating = priced(request)
            return rules.hold(account.state, request, amount=amount, rating=rating)
        case rules.CaptureRequest():
            return rules.capture(account.state, request, **_of_hold(account, request.hold))
        case rules.ReleaseRequest():
            return rules.release(account.state, request, **_of_hold(account, request.hold))
        case rules.ExtendRequest():
            return rules.extend(account.state, request, **_of_hold(account, request.hold))
        case rules.OverdraftRequest():
            return rules.set_overdraft(account.state, request)
    raise TypeError(f"no rule decides on a {type(request).__name__} of one account")


def _decide_refund(request: rules.RefundRequest, account: journal.OpenAccount) -> Sequence[Entry]:
    spend = journal.entry(account, request.spend)
    was_taken = spend is not None and spend.taken > 0
    later = journal.repayments(account, spend) if spend is not None and was_taken else []
    drawn = [grant for entry in (spend, *later) if entry is not None and entry.kind != "refund" for grant, _ in entry.drawn]
    return rules.refund(
        account.state,
        request,
        spend=spend,
        refunded=journal.refunded(account, request.spend) if was_taken else 0,
        later=later,
        terms=journal.opening_lots(account, drawn) if was_taken else {},
        expired_lot_policy=settings.LEDGER["REFUND_TO_EXPIRED_LOT"],
        new_lot_days=settings.LEDGER["REFUND_LOT_DAYS"],
    )


def _of_hold(account: journal.OpenAccount, sequence: int) -> dict[str, Entry | None]:
    is_open = account.state.hold(sequence) is not None
    return {
        "hold_entry": journal.entry(account, sequence),
        "last_closing": None if is_open else journal.last_closing(account, sequence),
    }
