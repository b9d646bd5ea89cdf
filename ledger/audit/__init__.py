"""The audit checks every law over the whole ledger, in one snapshot, while writers continue.

The checks are SQL over sets of rows in the server, one slice of holders after the other, so the client's memory does not grow
with the ledger. They share no code with the rules that made the entries, except the server's definition of the digest.
"""
