"""The calls of the ledger, a module for each resource of its paths."""
