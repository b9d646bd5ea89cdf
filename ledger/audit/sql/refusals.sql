-- Refusals that are not what a refusal is, and keys that were answered twice.
SELECT
    'refusals',
    r.holder_id,
    r.credit_type,
    NULL::bigint,
    r.idempotency_key || ': ' || r.operation || ' ' || r.code || ' ' || left(r.facts::text, 200),
    NULL
FROM ledger_refusal r
WHERE r.holder_id >= %(since)s
    AND r.holder_id <= %(upto)s
    AND NOT COALESCE(
        r.code = ANY(%(codes)s)
        AND r.operation = ANY(%(operations)s)
        AND json_typeof(r.facts) = 'object'
        AND json_typeof(r.request) = 'object'
        AND r.request ->> 'holder_id' = r.holder_id
        AND r.request ->> 'credit_type' = r.credit_type
        AND r.request_digest
            = substring(sha256(convert_to('["' || r.operation || '",' || r.request::text || ']', 'UTF8')) FOR 16)
        AND CASE r.code
            WHEN 'insufficient-credits' THEN
                (r.facts ->> 'shortfall')::numeric = (r.facts ->> 'requested')::numeric - (r.facts ->> 'available')::numeric
                AND (r.facts ->> 'shortfall')::numeric > 0
            WHEN 'refund-exceeds-spend' THEN
                (r.facts ->> 'refundable')::numeric = 0 OR (r.facts ->> 'requested')::numeric > (r.facts ->> 'refundable')::numeric
            WHEN 'revocation-exceeds-grant' THEN
                (r.facts ->> 'revocable')::numeric = 0 OR (r.facts ->> 'requested')::numeric > (r.facts ->> 'revocable')::numeric
            ELSE true
        END,
        false
    )
UNION ALL
SELECT 'keys', e.holder_id, e.credit_type, e.sequence, e.idempotency_key || ': answered by an entry and by a refusal', NULL
FROM ledger_refusal r
JOIN ledger_entry e
    ON e.holder_id = r.holder_id
    AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(r.idempotency_key)
    AND e.idempotency_key = r.idempotency_key
WHERE r.holder_id >= %(since)s AND r.holder_id <= %(upto)s
UNION ALL
-- The constraints forbid these; whoever can break the other laws can drop a constraint.
SELECT 'keys', e.holder_id, min(e.credit_type), min(e.sequence), e.idempotency_key || ': answered by ' || count(*) || ' entries', NULL
FROM ledger_entry e
WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.idempotency_key IS NOT NULL
GROUP BY e.holder_id, e.idempotency_key
HAVING count(*) > 1
