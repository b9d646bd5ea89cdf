"""Purchases: recorded when the money is in; what follows in the ledger is a second step, tried until it is done."""
