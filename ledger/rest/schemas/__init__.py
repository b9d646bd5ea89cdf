"""The queries, the shapes of responses and the examples of the ledger's calls."""
