"""Reads without a lock, for display only: a number may be outdated before it is shown, so no decision is made from it.

One prepared statement, which is planned once per connection and decodes only what is shown, reads what clients request often: a
balance, a page of entries, one entry, holds. Each module says in `__all__` what it offers.
"""

from ledger import records
from ledger.reads.account_state import *
from ledger.reads.budget_list import *
from ledger.reads.entry_feed import *
from ledger.reads.entry_search import *
from ledger.reads.explanations import *
from ledger.reads.history import *
from ledger.reads.holder_list import *
from ledger.reads.rate_list import *
from ledger.reads.rate_trials import *
from ledger.reads.recurring_list import *
from ledger.reads.usage_sums import *

__getattr__ = records.async_twins(globals())
