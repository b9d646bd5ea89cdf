-- Keys with more than one entry. The unique index forbids them, but who can break the other laws can also drop an index.
SELECT 'keys', e.holder_id, min(e.credit_type), min(e.sequence), e.idempotency_key || ': ' || count(*) || ' entries', NULL
FROM ledger_entry e
WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.idempotency_key IS NOT NULL
GROUP BY e.holder_id, e.idempotency_key
HAVING count(*) > 1
