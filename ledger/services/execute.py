"""Executes requests: under the locks of their holders, each by the rules, stored together, and committed.

A refusal is stored inside the transaction like any entry, and raised only after COMMIT: raised earlier, it would roll back its
own entry.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.db import OperationalError, transaction

from ledger import conf, journal
from ledger.database.cluster import on_cluster
from ledger.database.locks import LOCK_NOT_AVAILABLE, Lock, holder_key, holder_lock, sqlstate
from ledger.database.statements import wait_at_most
from ledger.database.transactions import after_commit, in_transaction
from ledger.due_grants import others_than, recurring_grants, with_due_grants
from ledger.errors import (
    AccountMovedOn,
    ClocksOff,
    HolderBusy,
    IdempotencyKeyReused,
    InsufficientCredits,
    Invalid,
    LedgerError,
    Refused,
)
from ledger.journal import LockedAccount, LockedAccounts, Result
from ledger.rules.accounts import AccountState
from ledger.rules.decisions import (  # noqa: F401 - some only register what decides their requests
    budget_rules,
    claim_rules,
    credit_rules,
    hold_rules,
    overage_rules,
    recurring_rules,
    refunds,
    transfers,
)
from ledger.rules.entries import Entry
from ledger.rules.requests import (
    CaptureRequest,
    ClockRequest,
    EndRecurringGrantRequest,
    ExtendRequest,
    FreezeRequest,
    HoldRequest,
    RecurringGrantRequest,
    RefundRequest,
    ReleaseRequest,
    Request,
    ReversalRequest,
    SpendRequest,
    TransferRequest,
)
from ledger.services import earlier_entries
from ledger.services.coming_credits import lacks_credits
from ledger.services.group_commit import GroupCommit, ResultOrError
from ledger.services.operation_counts import count_group, count_operations
from ledger.services.rates import priced, priced_capture
from ledger.services.waiting import executed_in_steps

log = logging.getLogger("ledger.refusals")


# Transactions ----------------------------------------------------------------------------------------

GROUP_LOCK_TIMEOUT_MS = 100
"""How long a group waits for an uncommitted row of a writer without the lock. Writers with the lock never make it wait."""


def execute_once(request: Request) -> Entry:
    """Execute the request in a separate transaction and return the committed entry, or raise the committed refusal.

    In a transaction of the caller it joins that transaction, with which entry and refusal are committed or rolled back. See
    docs/adr/0061.

    Raises:
        Refused: the refusal is recorded, unless the limit `passes`; `replayed` is True if it was recorded before.
        Invalid, IdempotencyKeyReused, AccountMovedOn: nothing was written.
        HolderBusy, SequenceTaken: nothing was written; repeat the request with the same key.
        OutcomeUnknown: COMMIT was sent without an answer; repeat the request with the same key. Not for a dry run.
        LocksOutOfOrder, UnsafeDatabase: the caller's transaction cannot be joined, as `in_transaction` says; nothing was written.
    """
    return unwrap(executed_in_steps(request, execute_and_log))


def execute_and_log(request: Request) -> ResultOrError:
    """As `execute_once`, but return the result or the error instead of raising it."""
    return _log_outcome(request, execute_alone(request))


def execute_alone(request: Request) -> ResultOrError:
    """As `execute_and_log`, without a line of the log for a refusal."""

    def once() -> ResultOrError:
        with journal.open([request]) as accounts:
            outcome = execute(accounts, [request])[0]
        if request.dry_run:
            transaction.set_rollback(True)
        return outcome

    locks = (holder_key(holder_id) for holder_id, _ in journal.accounts_of(request))
    outcome = in_transaction(once, locks=locks, holder_id=request.holder_id)
    after_commit(count_operations, [(request, outcome)])
    return outcome


def execute_group(requests: Sequence[Request]) -> Sequence[ResultOrError]:
    """Execute in one transaction the requests whose holders' locks are free; return None for the others. See `group_commit`."""

    def once() -> Sequence[ResultOrError]:
        wait_at_most(GROUP_LOCK_TIMEOUT_MS)
        return _execute_those_free(requests)

    # A group of several requests names no holder: an error carries only facts of its own request.
    outcomes = in_transaction(once, **({"holder_id": requests[0].holder_id} if len(requests) == 1 else {}))
    count_group(requests, outcomes)
    return outcomes


def execute_shared(requests: Sequence[Request], *, seconds: float) -> Sequence[ResultOrError]:
    """Wait for the lock of the requests' only holder, at most `seconds`, and execute them; return None for all if not free.

    So it also does if it would have to wait longer for an uncommitted row of a writer without the lock. Then nothing was written.
    """

    def once() -> Sequence[ResultOrError]:
        wait_at_most(max(1, int(seconds * 1000)))
        with journal.open(requests) as accounts:
            return execute(accounts, requests)

    try:
        outcomes = in_transaction(once, **({"holder_id": requests[0].holder_id} if len(requests) == 1 else {}))
    except HolderBusy:
        return [None] * len(requests)
    except OperationalError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        return [None] * len(requests)
    count_group(requests, outcomes)
    return outcomes


def execute_after_waiting(holder_id: str, arrived: Callable[[], Sequence[Request]], *, seconds: float) -> Sequence[ResultOrError]:
    """Wait for the holder's lock, at most `seconds`, then execute in the same transaction all requests that have arrived."""
    deadline = time.monotonic() + seconds
    requests: Sequence[Request] = ()

    def once() -> Sequence[ResultOrError]:
        nonlocal requests
        # A second try has only the rest of the time: the requests have waited already.
        wait_at_most(max(1, int((deadline - time.monotonic()) * 1000)))
        with holder_lock(holder_id):
            wait_at_most(GROUP_LOCK_TIMEOUT_MS)
            requests = arrived()
            return _execute_those_free(requests)

    outcomes = in_transaction(once, holder_id=holder_id)
    count_group(requests, outcomes)
    return outcomes


def _execute_those_free(requests: Sequence[Request]) -> Sequence[ResultOrError]:
    if not requests:
        return []
    with journal.open(requests, wait=False) as accounts:
        return execute(accounts, requests)


def execute_under(lock: Lock, request: Request) -> Entry:
    """Execute the request in the caller's transaction under `lock`; a refusal is recorded there before it is raised."""
    with journal.open([request], held=lock) as accounts:
        (outcome,) = execute(accounts, [request])
    after_commit(count_operations, [(request, outcome)])
    return unwrap(_log_outcome(request, outcome))


@on_cluster("group_commit.GroupCommitByNode")
def _queue(*ways: Any, **options: Any) -> GroupCommit:
    return GroupCommit(*ways, **options)


GROUP_COMMIT = _queue(
    execute_group,
    execute_after_waiting,
    execute_and_log,
    most=lambda: conf.REQUESTS_PER_TRANSACTION.value,
    execute_shared=execute_shared,
)
"""The queue of the front's calls. The caller's thread executes the request of a Django view or of Python code."""


# Under the lock --------------------------------------------------------------------------------------


def execute(accounts: LockedAccounts, requests: Iterable[Request]) -> list[ResultOrError]:
    """Execute the requests in order, each after the effects of those before it, and store all entries."""
    outcomes = [execute_one(accounts, request) for request in requests]
    accounts.append()
    return outcomes


def execute_one(accounts: LockedAccounts, request: Request) -> ResultOrError:
    """Decide the request and collect its entries or its refusal; `accounts.append` stores them later.

    Returns:
        The result; an error if the request writes nothing, as it is invalid or a limit that passes refuses it; None if its
        holder's lock is not held.
    """
    if not accounts.covers_request(request):
        return None
    try:
        if accounts.is_used(request):
            return journal.replay(accounts, request)
        account = accounts.account(request.holder_id, request.credit_type)
        check_expectation(account.state, request)
        if account.state.next_grant_us is not None and account.state.has_due_grants:
            account = with_due_grants(account)
            if accounts.is_used(request):
                # Its key is that of a period that was due.
                return journal.replay(accounts, request)
        entries = decide(request, account)
    except Refused as refused:
        if refused.passes:
            return refused
        refusal = refused
        if isinstance(refused, InsufficientCredits):
            if request.is_tried:
                refused.is_recorded, refused.last_sequence = False, account.state.sequence
                return Result(refusal=refused)
            refusal = InsufficientCredits(**refused.facts, **(request.facts_if_short or {}))
        accounts.refuse(request, refusal)
        return Result(refusal=refusal)
    except (Invalid, IdempotencyKeyReused, AccountMovedOn) as error:
        return error
    if not request.dry_run:
        accounts.collect(entries)
    return Result(_entry_of(request, entries))


def _log_outcome(request: Request, outcome: ResultOrError) -> ResultOrError:
    """Return the outcome, and log a refusal in a line, unless the request was only tried."""
    if lacks_credits(outcome):
        return outcome
    error = outcome if outcome is None or isinstance(outcome, LedgerError) else outcome.refusal
    if error is not None:
        log_refusals([(request, error)])
    return outcome


def unwrap(outcome: ResultOrError) -> Entry:
    """Return the entry, or raise the error. Call it only after the transaction has ended."""
    if isinstance(outcome, LedgerError):
        raise outcome
    assert outcome is not None
    return outcome.unwrap()


def check_expectation(account: AccountState, request: Request) -> None:
    """Return, or raise AccountMovedOn if the account's last entry is not the entry that the request expects."""
    if request.expected_sequence is not None and request.expected_sequence != account.sequence:
        raise AccountMovedOn(expected=request.expected_sequence, sequence=account.sequence)


def _entry_of(request: Request, entries: Sequence[Entry]) -> Entry:
    """Return the entry with the request's key; entries booked by the ledger may come before and after it."""
    for entry in entries:
        if entry.idempotency_key == request.idempotency_key:
            return entry
    raise AssertionError(f"no entry has the key of {request}")


def decide(request: Request, account: LockedAccount) -> Sequence[Entry]:
    """Return the entries that the rules make of the request, after reading the older entries that they need.

    The requests whose decision needs more than the account's state and an earlier entry are named here; all others name their
    decision, and what it needs.

    Raises:
        Refused, Invalid: by the rules.
    """
    match request:
        case SpendRequest(rate=None):
            state = _counting(account, request) if account.state.budgets else account.state
            return credit_rules.spend(state, request)
        case SpendRequest():
            amount, rating = priced(request)
            return credit_rules.spend(_counting(account, request), request, amount=amount, rating=rating)
        case RefundRequest():
            return _decide_refund(request, account)
        case HoldRequest():
            amount, rating = priced(request)
            return hold_rules.hold(_counting(account, request), request, amount=amount, rating=rating)
        case CaptureRequest():
            of_hold = _of_hold(account, request, request.hold)
            capture_amount, rating = priced_capture(request, of_hold["hold_entry"])
            state = _counting(account, of_hold["hold_entry"])
            return hold_rules.capture(state, request, amount=capture_amount, rating=rating, **of_hold)
        case ReleaseRequest():
            of_hold = _of_hold(account, request, request.hold)
            return hold_rules.release(_counting(account, of_hold["hold_entry"]), request, **of_hold)
        case ExtendRequest():
            return hold_rules.extend(account.state, request, **_of_hold(account, request, request.hold))
        case FreezeRequest():
            return credit_rules.set_frozen(account.state, request, changes=earlier_entries.freezes(account))
        case ClockRequest():
            if not conf.TEST_CLOCKS.value:
                raise ClocksOff
            return credit_rules.set_clock(account.state, request, moves=earlier_entries.clock_moves(account))
        case RecurringGrantRequest():
            known = recurring_grants(account)
            others = others_than(request.recurring_grant, known)
            return recurring_rules.set_recurring_grant(
                account.state,
                request,
                known=known.get(request.recurring_grant),
                others=others.number,
                others_next_us=others.next_us,
            )
        case EndRecurringGrantRequest():
            known = recurring_grants(account)
            others = others_than(request.recurring_grant, known)
            return recurring_rules.end_recurring_grant(
                account.state, request, known=known.get(request.recurring_grant), others_next_us=others.next_us
            )
        case TransferRequest():
            target = with_due_grants(account.among.account(request.to, request.credit_type))
            is_accepted = earlier_entries.accepts_transfers(target)
            departed, arrived = transfers.transfer(_counting(account, request), target.state, request, is_accepted=is_accepted)
            return [*departed, *arrived]
        case ReversalRequest():
            return _decide_reversal(request, account)
        case _:
            earlier = {name: _earlier(account, request, getattr(request, of)) for name, of in request.earlier_entries.items()}
            entries: Sequence[Entry] = request.decision(account.state, request, **earlier)
            return entries


def _counting(account: LockedAccount, asking: Request | Entry | None) -> AccountState:
    """Return the account with what its budgets need to count a request, or what is done with a hold."""
    state = account.state
    if not state.budgets or asking is None:
        return state
    return account.among.count_for((state.holder_id, state.credit_type), asking)


def _decide_refund(request: RefundRequest, account: LockedAccount) -> Sequence[Entry]:
    spend = _earlier(account, request, request.spend)
    was_taken = spend is not None and spend.taken > 0
    later = earlier_entries.repayments(account, spend) if spend is not None and was_taken else []
    drawn = [grant for entry in (spend, *later) if entry is not None and entry.kind != "refund" for grant, _ in entry.drawn]
    return refunds.refund(
        account.state,
        request,
        spend=spend,
        refunded=earlier_entries.refunded(account, request.spend) if was_taken else 0,
        later=later,
        terms=earlier_entries.opening_lots(account, drawn) if was_taken else {},
        expired_lot_policy=conf.REFUND_TO_EXPIRED_LOT.value,
        new_lot_days=conf.REFUND_LOT_DAYS.value,
    )


def _decide_reversal(request: ReversalRequest, account: LockedAccount) -> Sequence[Entry]:
    transfer = _earlier(account, request, request.transfer)
    other = with_due_grants(account.among.account(request.to, request.credit_type))
    is_transfer = transfer is not None and transfer.kind == "transfer_out"
    arrivals = earlier_entries.arrivals(other, transfer) if transfer is not None and is_transfer else []
    given, taken = transfers.reverse(
        account.state,
        other.state,
        request,
        transfer=transfer,
        arrivals=arrivals,
        reversed_before=earlier_entries.reversed_of(other, [arrival.sequence for arrival in arrivals]),
        terms=earlier_entries.opening_lots(account, [grant for grant, _ in transfer.drawn]) if transfer and is_transfer else {},
    )
    return [*given, *taken]


def _earlier(account: LockedAccount, request: Request, sequence: int) -> Entry | None:
    """Return the entry that a request names; None if it does not exist, or lacks a label to which the request's key is bound."""
    entry = earlier_entries.entry(account, sequence)
    if entry is None or request.within_labels is None:
        return entry
    return entry if request.within_labels.items() <= entry.metadata.items() else None


def _of_hold(account: LockedAccount, request: Request, sequence: int) -> dict[str, Entry | None]:
    is_open = account.state.hold(sequence) is not None
    return {
        "hold_entry": _earlier(account, request, sequence),
        "last_closing": None if is_open else earlier_entries.last_closing(account, sequence),
    }


# The log of refusals ---------------------------------------------------------------------------------
# A line for each refusal outside the line of an API call: in a batch, in the admin, by a command.


def log_refusals(refused: Iterable[tuple[Request, LedgerError]], *, batch: str = "") -> None:
    """Write a line for each after the current transaction is committed; write nothing if it is rolled back.

    Args:
        refused: the requests, and why each was refused. A dry run is no refusal.
        batch: the key of the batch that it was part of.
    """
    if log.isEnabledFor(logging.INFO):
        lines = [(request, error) for request, error in refused if not request.dry_run]
        after_commit(_write_all, lines, batch)


def _write_all(refused: Iterable[tuple[Request, LedgerError]], batch: str) -> None:
    for request, error in refused:
        _write(request, error, batch)


def _write(request: Request, error: LedgerError, batch: str) -> None:
    facts = {
        "problem": error.code,
        "holder": request.holder_id,
        "credit_type": request.credit_type,
        "idempotency_key": request.idempotency_key,
        "batch": batch,
        "actor": request.actor,
        "request_id": request.request_id,
        "replayed": getattr(error, "replayed", False),
    }
    log.info("%s refused", request.operation, extra={"facts": {name: value for name, value in facts.items() if value}})
