"""Demo data: Nimbus Computing, a company that sells AI tokens for credits, with three months of history and a month to close.

The services and the rules make all of it, under fixed idempotency keys and names, so that making it twice changes nothing. All
times are relative to the instant at which the first entry was recorded; a later run finds that instant in the ledger.
"""
