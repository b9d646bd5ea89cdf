-- Each account's last entry, from account to account by one look into the primary key each.
SELECT holder_id, credit_type, sequence, balance, held, encode(digest, 'hex')
FROM ledger_account
