-- Refusals whose code, operation, facts, request or digest breaks the law `refusals`, and other entries that carry a refusal.
SELECT
    'refusals',
    r.holder_id,
    r.credit_type,
    r.sequence,
    r.kind || ' ' || COALESCE(left(r.refusal::text, 400), 'without a refusal'),
    NULL
FROM (
    SELECT
        e.*,
        e.refusal ->> 'code' AS code,
        e.refusal ->> 'operation' AS operation,
        e.refusal -> 'facts' AS facts,
        e.refusal -> 'request' AS request
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (e.kind = 'refusal' OR e.refusal IS NOT NULL)
) AS r
LEFT JOIN ledger_entry p ON p.holder_id = r.holder_id AND p.credit_type = r.credit_type AND p.sequence = r.sequence - 1
WHERE NOT COALESCE(
        r.kind = 'refusal'
        AND r.code = ANY(%(codes)s)
        AND r.operation = ANY(%(operations)s)
        AND json_typeof(r.facts) = 'object'
        AND json_typeof(r.request) = 'object'
        AND r.request ->> 'holder_id' = r.holder_id
        AND r.request ->> 'credit_type' = r.credit_type
        AND r.request_digest
            = substring(sha256(convert_to('["' || r.operation || '",' || r.request::text || ']', 'UTF8')) FOR 8)
        -- `after` is the sequence of the last entry that is not a refusal.
        AND r.refusal ->> 'after' = CASE p.kind WHEN 'refusal' THEN p.refusal ->> 'after' ELSE COALESCE(p.sequence, 0)::text END
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
