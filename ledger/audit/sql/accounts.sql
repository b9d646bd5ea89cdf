-- The last entry of each account, in the order of bytes, which the slices need: one lookup in the primary key per account, starting from its first entry.
SELECT holder_id, credit_type, sequence, balance, held, encode(digest, 'hex')
FROM ledger_account
ORDER BY holder_id, credit_type
