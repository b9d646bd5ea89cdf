"""Reads without a lock, for display only: a number may be outdated before it is shown, so no decision is made from it.

One prepared statement, which is planned once per connection and decodes only what is shown, reads what clients request often: a
balance, a page of entries, one entry, holds.
"""

from ledger import records
from ledger.reads.account_state import (
    BALANCES,
    Balance,
    NextExpiry,
    ShownHold,
    ShownLot,
    balance,
    balance_by_effective_time,
    balances,
    lots_in_full,
    page_of_holds,
    page_of_lots,
)
from ledger.reads.budget_list import BudgetUse, ShownBudget, budget_usage, budgets, page_by_name
from ledger.reads.entry_feed import START, FeedPage, FeedPosition, feed, feed_end, feed_marker
from ledger.reads.entry_search import SCANNED_ROWS, EntryFilter, FeedEntry, search_entries
from ledger.reads.explanations import explanation
from ledger.reads.history import EntryPosition, Refusal, ShownEntry, entries, entry, refusals, shown_entry
from ledger.reads.holder_list import accounts, clock, freeze, holders, incoming_transfers, is_known, seen
from ledger.reads.rate_list import rate_versions, rates
from ledger.reads.rate_trials import MOST_ENTRIES, RateTrial, try_rate
from ledger.reads.recurring_list import (
    MOST_UPCOMING,
    ShownRecurringGrant,
    UpcomingGrant,
    recurring_grant,
    recurring_grants,
)
from ledger.reads.usage_sums import (
    LABEL,
    RATE,
    AccountUsage,
    Days,
    Used,
    ValueUsed,
    days_until,
    start_of,
    sum_of,
    usage,
    usage_labels,
)

__all__ = [
    "BALANCES",
    "LABEL",
    "MOST_ENTRIES",
    "MOST_UPCOMING",
    "RATE",
    "SCANNED_ROWS",
    "START",
    "AccountUsage",
    "Balance",
    "BudgetUse",
    "Days",
    "EntryFilter",
    "EntryPosition",
    "FeedEntry",
    "FeedPage",
    "FeedPosition",
    "NextExpiry",
    "RateTrial",
    "Refusal",
    "ShownBudget",
    "ShownEntry",
    "ShownHold",
    "ShownLot",
    "ShownRecurringGrant",
    "UpcomingGrant",
    "Used",
    "ValueUsed",
    "accounts",
    "balance",
    "balance_by_effective_time",
    "balances",
    "budget_usage",
    "budgets",
    "clock",
    "days_until",
    "entries",
    "entry",
    "explanation",
    "feed",
    "feed_end",
    "feed_marker",
    "freeze",
    "holders",
    "incoming_transfers",
    "is_known",
    "lots_in_full",
    "page_by_name",
    "page_of_holds",
    "page_of_lots",
    "rate_versions",
    "rates",
    "recurring_grant",
    "recurring_grants",
    "refusals",
    "search_entries",
    "seen",
    "shown_entry",
    "start_of",
    "sum_of",
    "try_rate",
    "usage",
    "usage_labels",
]

__getattr__ = records.async_twins(globals())
