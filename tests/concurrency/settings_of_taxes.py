"""The settings of a process that asks the stand-in for Stripe Tax whose address is in the environment."""

import os

from ledger_project.settings import *  # noqa: F403

TAX_PROVIDER = {
    "class": "billing.tax_services.stripe_tax.StripeTax", "api_key": "sk_test_x", "api_base": os.environ["STRIPE_TAX_STAND_IN"],
}  # fmt: skip
