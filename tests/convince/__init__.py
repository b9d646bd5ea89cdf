"""`make convince`: what the ledger promises, shown to somebody who believes nothing. docs/explanation/convince.md explains it."""
