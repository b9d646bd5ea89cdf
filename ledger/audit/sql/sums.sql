-- The sums of the slice's entries per credit type and kind, for the accounting identity.
SELECT
    e.credit_type,
    count(*) AS entries,
    count(*) FILTER (WHERE e.kind = 'refusal') AS refusals,
    COALESCE(sum(e.amount) FILTER (WHERE e.kind = 'grant'), 0) AS granted,
    COALESCE(sum(-e.amount) FILTER (WHERE e.kind = 'spend'), 0)
        + COALESCE(sum((SELECT sum((part ->> 1)::numeric) FROM json_array_elements(e.drawn) AS part)) FILTER (WHERE e.kind = 'capture'), 0)
        AS spent,
    COALESCE(sum(e.amount) FILTER (WHERE e.kind = 'refund'), 0) AS refunded,
    COALESCE(sum(-e.amount) FILTER (WHERE e.kind = 'expire'), 0) AS expired,
    COALESCE(sum(-e.amount) FILTER (WHERE e.kind = 'revoke'), 0) AS revoked,
    COALESCE(sum(e.amount) FILTER (WHERE e.kind = 'transfer_in'), 0) AS transferred_in,
    COALESCE(sum(-e.amount) FILTER (WHERE e.kind = 'transfer_out'), 0) AS transferred_out
FROM ledger_entry e
WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s AND %(last)s
GROUP BY e.credit_type
