"""The books: what sold credits are worth and earned, by month, and as a journal. Reads the ledger's totals; writes nothing."""
