"""Providers of taxes: which one this deployment has (`configured`), how it is asked (`asking`), and Stripe Tax (`stripe_tax`)."""
