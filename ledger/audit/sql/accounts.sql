-- The last entry of each account: one lookup in the primary key per account, starting from its first entry.
SELECT holder_id, credit_type, sequence, balance, held, encode(digest, 'hex')
FROM ledger_account
