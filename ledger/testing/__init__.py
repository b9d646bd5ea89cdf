"""For the tests of a project: holders with credits, factories, a stopped clock. Needs the extra `[testing]`.

All of it works inside Django's `TestCase` and pytest-django's `db`, whose transaction is rolled back after each test.
"""

from ledger.database.truncation import allow_truncate
from ledger.testing.clocks import FixedClock
from ledger.testing.factories import GrantFactory, HoldFactory, SpendFactory, api_key, holder_with_credits, unique
