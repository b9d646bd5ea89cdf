-- Each account's last entry, found from its first one by one look into the primary key.
SELECT holder_id, credit_type, sequence, balance, held, encode(digest, 'hex')
FROM ledger_account
