"""Automatic top-ups: when an account runs low, a saved method is charged for packs."""
