"""Shadow: what the ledger would decide beside another system of balances, and the way of its holders into the ledger and back."""
