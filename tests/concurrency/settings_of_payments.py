"""The settings of a process that asks the double of Stripe whose address is in the environment."""

import os

from ledger_project.settings import *  # noqa: F403
from tests.billing.payments.stripe_double import SECRET

PAYMENT_PROVIDERS = {
    "stripe": {
        "class": "billing.payments.providers.stripe_payments.StripeProvider",
        "api_key": "sk_test_x",
        "event_secret": SECRET,
        "api_base": os.environ["STRIPE_DOUBLE"],
    }
}
