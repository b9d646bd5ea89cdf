"""The operations on a holder's credits, each declared by its request, whose fields are the arguments."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from ledger import journal
from ledger.database.locks import Lock, holder_key
from ledger.database.transactions import in_transaction
from ledger.due_grants import with_due_grants
from ledger.errors import LockBusy
from ledger.records import UseCase, check
from ledger.rules.decisions import settlement
from ledger.rules.entries import Entry
from ledger.rules.overage import Overage
from ledger.rules.requests import (
    BudgetRequest,
    CaptureRequest,
    ClockRequest,
    EndBudgetRequest,
    EndClaimRequest,
    EndOverageRequest,
    EndRecurringGrantRequest,
    ExtendRequest,
    FreezeRequest,
    GrantRequest,
    HoldRequest,
    IncomingTransfersRequest,
    OverageRequest,
    OverdraftRequest,
    RecurringGrantRequest,
    RefundRequest,
    ReissueRequest,
    ReleaseRequest,
    Request,
    ReversalRequest,
    RevokeRequest,
    SpendRequest,
    TransferRequest,
    VoidRequest,
)
from ledger.services.execute import execute_once, execute_under
from ledger.values import CreditType, Holder

__all__ = [
    "available_under", "book_expirations", "capture", "end_budget", "end_budget_under", "end_claim_under", "end_overage",
    "end_overage_under", "end_recurring_grant_under", "extend", "freeze", "grant", "grant_under", "hold", "overage_under",
    "refund", "refund_under", "reissue", "release", "reverse", "revoke", "revoke_under", "set_budget", "set_budget_under",
    "set_clock", "set_incoming_transfers", "set_overage", "set_overage_under", "set_overdraft", "set_recurring_grant_under",
    "spend", "spend_under", "transfer", "void",
]  # fmt: skip

P = ParamSpec("P")

# Each returns the committed entry, or raises, as `execute_once` says. The request's docstring names its refusals.
grant = UseCase(GrantRequest, execute_once)
spend = UseCase(SpendRequest, execute_once)
refund = UseCase(RefundRequest, execute_once)
revoke = UseCase(RevokeRequest, execute_once)
void = UseCase(VoidRequest, execute_once)
reissue = UseCase(ReissueRequest, execute_once)
hold = UseCase(HoldRequest, execute_once)
capture = UseCase(CaptureRequest, execute_once)
release = UseCase(ReleaseRequest, execute_once)
extend = UseCase(ExtendRequest, execute_once)
transfer = UseCase(TransferRequest, execute_once)
reverse = UseCase(ReversalRequest, execute_once)
set_budget = UseCase(BudgetRequest, execute_once)
end_budget = UseCase(EndBudgetRequest, execute_once)
set_overdraft = UseCase(OverdraftRequest, execute_once)
set_overage = UseCase(OverageRequest, execute_once)
end_overage = UseCase(EndOverageRequest, execute_once)
set_incoming_transfers = UseCase(IncomingTransfersRequest, execute_once)
freeze = UseCase(FreezeRequest, execute_once)
set_clock = UseCase(ClockRequest, execute_once)


def book_expirations(*, holder_id: str, credit_type: str = "credits", wait: bool = True) -> list[Entry]:
    """Book a holder's expired holds and lots, as any write does: after its grants that are due. The available credits stay.

    Args:
        wait: True waits for the holder's lock up to lock_timeout; False fails at once if another session holds it.

    Returns:
        The entries, also those of grants that were due; an empty list if nothing was.

    Raises:
        HolderBusy, LockBusy, SequenceTaken: nothing was written.
    """
    check(Holder(), holder_id, "/holder_id")
    check(CreditType(), credit_type, "/credit_type")

    def book() -> list[Entry]:
        with journal.open(accounts=[(holder_id, credit_type)], wait=wait) as accounts:
            if not accounts.covers((holder_id, credit_type)):
                raise LockBusy(key=holder_key(holder_id))
            granted: list[Entry] = []
            account = with_due_grants(accounts.account(holder_id, credit_type), granted)
            entries, _ = settlement.settle_due(account.state)
            accounts.collect(entries)
            accounts.append()
            return granted + entries

    return in_transaction(book, locks=[holder_key(holder_id)], holder_id=holder_id)


# Inside a transaction that the caller owns -----------------------------------------------------------


def _under(declared: Callable[P, Request]) -> Callable[Concatenate[Lock, P], Entry]:
    """The use-case inside the caller's transaction and under its lock; a refusal is recorded there before it is raised."""

    def execute(lock: Lock, /, *arguments: P.args, **named: P.kwargs) -> Entry:
        return execute_under(lock, declared(*arguments, **named))

    return execute


grant_under = _under(GrantRequest)
spend_under = _under(SpendRequest)
refund_under = _under(RefundRequest)
revoke_under = _under(RevokeRequest)
set_budget_under = _under(BudgetRequest)
end_budget_under = _under(EndBudgetRequest)
set_overage_under = _under(OverageRequest)
end_overage_under = _under(EndOverageRequest)
end_claim_under = _under(EndClaimRequest)
set_recurring_grant_under = _under(RecurringGrantRequest)
end_recurring_grant_under = _under(EndRecurringGrantRequest)


def overage_under(lock: Lock, *, holder_id: str, credit_type: str = "credits") -> Overage | None:
    """Return the last agreed overage of an account, also after its end; None if it never had one. It stays under the lock."""
    return journal.read(lock, holder_id, credit_type).state.overage


def available_under(lock: Lock, *, holder_id: str, credit_type: str = "credits") -> int:
    """Return how many credits the holder can spend now, 0 if frozen. It stays true until the lock's transaction ends.

    Grants that are due are made, as a spend would.
    """
    account = with_due_grants(journal.read(lock, holder_id, credit_type))
    account.among.append()
    return 0 if account.state.is_frozen else account.state.available
