"""A client of the credit ledger: grants, spends and holds that take effect once, however often a connection breaks.

with Client("http://127.0.0.1:8000", api_key) as client:
    client.grant("jane", amount=100, reason="welcome", idempotency_key="order-1")
    with client.hold("jane", amount=40) as hold:
        hold.capture(30)
"""

from credit_ledger.async_client import AsyncClient, AsyncFeed, AsyncHold, AsyncPages
from credit_ledger.attempts import Retries
from credit_ledger.call import ABSENT
from credit_ledger.client import Client, Feed, Hold, Pages
from credit_ledger.generated.bodies import AccountBalance, Entry, Explanation
from credit_ledger.lease_state import Decision, JournalInUse, LeaseClosed, LeaseExhausted, Uncharged
from credit_ledger.leases import AsyncLease, Lease
from credit_ledger.problem import Busy, CreditLedgerError, OutcomeUnknown, Problem, Unreachable
from credit_ledger.problems import InsufficientCredits
from credit_ledger.signals import Signal, SignalRejected, verify_signal

__all__ = [
    "ABSENT",
    "AccountBalance",
    "AsyncClient",
    "AsyncFeed",
    "AsyncHold",
    "AsyncLease",
    "AsyncPages",
    "Busy",
    "Client",
    "CreditLedgerError",
    "Decision",
    "Entry",
    "Explanation",
    "Feed",
    "Hold",
    "InsufficientCredits",
    "JournalInUse",
    "Lease",
    "LeaseClosed",
    "LeaseExhausted",
    "OutcomeUnknown",
    "Pages",
    "Problem",
    "Retries",
    "Signal",
    "SignalRejected",
    "Uncharged",
    "Unreachable",
    "verify_signal",
]
