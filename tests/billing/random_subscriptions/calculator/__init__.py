"""A second opinion on invoices, slow and plain: days counted one by one, exact fractions, everything computed every time.

Written from the billing conventions alone. It shares no line with the product: no claims table, no cursor, no SQL, no look-up of
where a period lies. It is told what a subscription was ordered, amended and used, and computes what each run has to put on a
document. Tests import it as `slow`.
"""

from tests.billing.random_subscriptions.calculator.accounts import METER, Account, Hold, Spend, cost_in_minor, on_overage
from tests.billing.random_subscriptions.calculator.consolidated import Part, consolidate, consolidate_day, wait
from tests.billing.random_subscriptions.calculator.documents import Coupon, Customer, Document, Line, Note, Tax
from tests.billing.random_subscriptions.calculator.exact import half_up, instant_of
from tests.billing.random_subscriptions.calculator.orders import Amendment, Phase
from tests.billing.random_subscriptions.calculator.prices import PERCENTAGES, Event, Plan
from tests.billing.random_subscriptions.calculator.subscriptions import Subscription

__all__ = [
    "METER",
    "PERCENTAGES",
    "Account",
    "Amendment",
    "Coupon",
    "Customer",
    "Document",
    "Event",
    "Hold",
    "Line",
    "Note",
    "Part",
    "Phase",
    "Plan",
    "Spend",
    "Subscription",
    "Tax",
    "consolidate",
    "consolidate_day",
    "cost_in_minor",
    "half_up",
    "instant_of",
    "on_overage",
    "wait",
]
