"""The rules of credits: pure functions from an account's state and a request to the next entries, or a refusal.

No Django, no I/O, no clock: the time is part of the state. So property tests run them a hundred thousand times without a
database. The code around them (`ledger.journal`, `ledger.services`) only locks, loads and stores.
"""

from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import Budget
from ledger.rules.decisions.budget_rules import end_budget, set_budget
from ledger.rules.decisions.claim_rules import take_claim, withdraw_claim
from ledger.rules.decisions.credits import grant, reissue, revoke, set_clock, set_frozen, set_overdraft, spend, void
from ledger.rules.decisions.hold_rules import capture, extend, hold, release
from ledger.rules.decisions.overage_rules import end_overage, set_overage
from ledger.rules.decisions.recurring_rules import end_recurring_grant, grant_period, key_of, set_recurring_grant
from ledger.rules.decisions.refunds import debt_of, refund
from ledger.rules.decisions.settlement import settle_due
from ledger.rules.decisions.transfers import reverse, set_incoming_transfers, transfer
from ledger.rules.entries import Entry
from ledger.rules.holds import Hold
from ledger.rules.kinds import KINDS
from ledger.rules.lots import MAX_OPEN_LOTS, Lot
from ledger.rules.overage import Overage
from ledger.rules.recurring_terms import GrantPart, RecurringGrant, RecurringTerms
from ledger.rules.requests import *  # noqa: F403 - every request, by its declaration
from ledger.values import MAX_AMOUNT
